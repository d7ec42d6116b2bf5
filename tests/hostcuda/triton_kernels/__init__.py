"""Triton kernels for the host device: sound ones, and changes that break them."""
