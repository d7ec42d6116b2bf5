"""CUDA for torch on the CPU, inside the contestant's process."""
