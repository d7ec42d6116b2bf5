"""What is said where a device's memory ran out: whether others hold it, and what to do.

Edge, trusted side. Imports the vocabulary, the devices' interface and torch; reads only.
"""

from __future__ import annotations

import torch

from harness.core.choices import DeviceKind
from harness.devices.device import Device, DeviceError, open_device

OWN_BYTES = 2 * 2**30
"""Memory that a process takes on a GPU beside its tensors, at most: context, loaded kernels, libraries' workspaces."""

_MARKS = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "cudaErrorMemoryAllocation")
"""How a driver and its libraries say it where torch raises a plain RuntimeError."""


def is_shortage(error: BaseException | None) -> bool:
    """Whether `error`, or what it was raised from, says that memory ran out."""
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError | MemoryError):
            return True
        if isinstance(error, RuntimeError) and any(mark in str(error) for mark in _MARKS):
            return True
        error = error.__cause__
    return False


def opened(kind: DeviceKind, index: int = 0) -> Device:
    """`open_device`; a GPU without memory for a context is a `DeviceError` with what to do, too."""
    try:
        return open_device(kind, index)
    except RuntimeError as error:
        if not is_shortage(error):
            raise
        raise DeviceError(
            "the GPU has no memory left even to start on: wait for the processes that hold it or end them (nvidia-smi "
            "lists them), or name another GPU by CUDA_VISIBLE_DEVICES"
        ) from error


def held_elsewhere_bytes(device: Device) -> int:
    """Bytes of the device's memory that nothing in this process explains; 0 where that is not known.

    Arenas of this process are not told from others' memory: ask where it has none. Frees what torch holds unused.
    """
    if device.torch_device.type != "cuda":
        return 0
    torch.cuda.empty_cache()
    taken = device.taken_bytes()
    reserved = int(torch.cuda.memory_reserved(device.torch_device))
    return 0 if taken is None else max(0, taken - reserved - OWN_BYTES)


def advice(device: Device, elsewhere_bytes: int) -> str:
    """One line: what there is, who has it, what to do."""
    if device.torch_device.type != "cuda":
        return "this machine's memory ran out: take a smaller --workload, or end what else takes memory"
    total = torch.cuda.get_device_properties(device.torch_device).total_memory
    size = f"{device.name or 'the GPU'} has {total / 2**30:.0f} GiB"
    if elsewhere_bytes:
        return (
            f"{size}, of which other processes hold {elsewhere_bytes / 2**30:.1f}: wait for them or end them "
            f"(nvidia-smi lists them), or name another GPU by CUDA_VISIBLE_DEVICES"
        )
    return f"{size}, and nobody else uses it: take a smaller --workload, or a GPU with more memory"
