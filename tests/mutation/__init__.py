"""Mutants of kernels: small mistakes planted in sound CUDA, to count which of them the harness notices."""
