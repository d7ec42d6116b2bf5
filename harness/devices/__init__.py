"""The GPU and the CPU as devices: memory, streams, clocks, NVML, NVRTC.

Floor 2. Both sides of the trust boundary use it. Importing this package does not import torch.
"""
