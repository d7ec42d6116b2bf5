"""Messages for a device whose memory is exhausted: who holds it, and what to do.

Trusted side; reads only.
"""

from __future__ import annotations

import torch

from harness.core.choices import DeviceKind
from harness.devices.device import Device, DeviceError, open_device

OWN_BYTES = 2 * 2**30
"""Most memory that a process takes on a GPU besides its tensors: context, kernels, workspaces of libraries."""

_MARKS = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "cudaErrorMemoryAllocation")
"""Texts of the driver and its libraries in a plain `RuntimeError` of torch."""


def is_shortage(error: BaseException | None) -> bool:
    """Return whether `error`, or one of its causes, reports exhausted memory."""
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError | MemoryError):
            return True
        if isinstance(error, RuntimeError) and any(mark in str(error) for mark in _MARKS):
            return True
        error = error.__cause__
    return False


def opened(kind: DeviceKind, index: int = 0) -> Device:
    """Call `open_device`; exhausted GPU memory raises `DeviceError` with advice."""
    try:
        return open_device(kind, index)
    except RuntimeError as error:
        if not is_shortage(error):
            raise
        raise DeviceError(
            "the GPU has too little free memory to create a context: wait for or stop the processes that hold it "
            "(nvidia-smi lists them), or select another GPU with CUDA_VISIBLE_DEVICES"
        ) from error


def held_elsewhere_bytes(device: Device) -> int:
    """Return device memory (bytes) that this process does not explain; 0 if unknown.

    Frees torch's unused memory. Arenas of this process count as foreign, so call this only without any.
    """
    if device.torch_device.type != "cuda":
        return 0
    torch.cuda.empty_cache()
    taken = device.taken_bytes()
    reserved = int(torch.cuda.memory_reserved(device.torch_device))
    return 0 if taken is None else max(0, taken - reserved - OWN_BYTES)


def advice(device: Device, elsewhere_bytes: int) -> str:
    """Return one line: total memory, who holds it, what to do."""
    if device.torch_device.type != "cuda":
        return "this machine has too little free memory: use a smaller --workload, or stop other programs"
    total = torch.cuda.get_device_properties(device.torch_device).total_memory
    size = f"{device.name or 'the GPU'} has {total / 2**30:.0f} GiB"
    if elsewhere_bytes:
        return (
            f"{size}, of which other processes hold {elsewhere_bytes / 2**30:.1f} GiB: wait for or stop them "
            f"(nvidia-smi lists them), or select another GPU with CUDA_VISIBLE_DEVICES"
        )
    return f"{size}, and no other process uses it: use a smaller --workload, or a GPU with more memory"
