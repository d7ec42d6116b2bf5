"""Translation of CUDA sources to C++ for the CPU, and their builds."""
