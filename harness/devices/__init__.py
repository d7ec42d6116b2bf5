"""The GPU and the CPU as devices: shared memory, streams, clocks, NVML, NVRTC, measured peaks.

Floor 2. Both sides of the trust boundary use it. Importing this package does not import torch.
"""
