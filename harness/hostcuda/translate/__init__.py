"""Translate CUDA sources to C++ for the CPU, and build them."""
