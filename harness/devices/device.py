"""Devices that run solutions: one protocol, for CUDA GPUs and for the CPU.

Both sides. The referee allocates shared memory and the contestant attaches it. `open_device` imports only the requested
implementation, so a machine without CUDA never loads it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from harness.core.choices import DeviceKind
from harness.devices.layout import extent
from harness.devices.stream_gate import OwnGate, StreamGate

ALIGNMENT_BYTES = 512
"""Alignment of every tensor in an arena: the same as in torch's caching allocator, so kernels see no difference."""


class DeviceError(Exception):
    """The device is missing or refuses a request of the harness.

    The cause is the machine, never a solution.
    """


class Arena(Protocol):
    """One block of shared memory, allocated by the referee and mapped by a contestant.

    Byte offsets address its contents.
    """

    @property
    def nbytes(self) -> int:
        """Size in bytes; at least the requested size."""
        ...

    @property
    def fd(self) -> int:
        """File descriptor to send to the contestant; the arena owns it."""
        ...

    def tensor(
        self, offset: int, shape: tuple[int, ...], dtype: torch.dtype, strides: tuple[int, ...] | None = None
    ) -> torch.Tensor:
        """Return a tensor over the bytes from `offset`.

        Args:
            offset: First byte; a multiple of `ALIGNMENT_BYTES`.
            shape: Shape of the tensor.
            dtype: Data type of the tensor.
            strides: Its strides in elements; None if it is contiguous.

        Returns:
            A tensor on the arena's device. Its storage is exactly as large as the tensor, gaps included.

        Raises:
            ValueError: The tensor leaves the arena, or `offset` is not aligned.
        """
        ...

    def close(self) -> None:
        """Unmap and free the memory; tensors over the arena become invalid."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTime:
    """Duration of one timed call or one timed series of calls, in seconds.

    On the host device both values come from the host's clock.

    Attributes:
        device_s: Time by the device's clock (CUDA events).
        window_s: Time by the host's clock, from submission to completion.
        forward_s: The part of `device_s` before the call's `Device.mark`; None without one.
    """

    device_s: float
    window_s: float
    forward_s: float | None = None


class Device(Protocol):
    """Operations that referee and contestant need from the hardware under solutions.

    Attributes:
        kind: `cuda` or `host`.
    """

    kind: DeviceKind

    @property
    def torch_device(self) -> torch.device:
        """The device as torch names it."""
        ...

    @property
    def name(self) -> str | None:
        """Name of the GPU as its driver reports it; None on the host device."""
        ...

    @property
    def uuid(self) -> str | None:
        """UUID of the GPU, by which NVML finds it; None on the host device."""
        ...

    def allocate(self, nbytes: int) -> Arena:
        """Allocate zeroed memory that another process can map (referee's side).

        Args:
            nbytes: Least size in bytes.

        Returns:
            The arena; it may be larger than `nbytes`.

        Raises:
            DeviceError: The device has too little free memory.
        """
        ...

    def attach(self, fd: int, nbytes: int) -> Arena:
        """Map an arena that the referee allocated (contestant's side).

        Args:
            fd: File descriptor of the arena; the new arena owns it from now on.
            nbytes: Size of the arena in bytes (`Arena.nbytes`).

        Returns:
            The arena in this process.

        Raises:
            DeviceError: The driver refuses to import or map the memory.
        """
        ...

    def free_bytes(self, enough: int | None = None) -> int:
        """Measure the memory that can be allocated now.

        Args:
            enough: Size in bytes that the caller needs. If more is free, torch may keep freed memory in its cache for
                later use. The result does not count such memory.

        Returns:
            Free memory in bytes.

        Raises:
            DeviceError: The operating system does not report free memory.
        """
        ...

    def synchronize(self) -> None:
        """Wait until all work submitted on any stream has finished."""
        ...

    def reseed(self, seed: int) -> None:
        """Seed every random generator that a constructor or a `forward` may use.

        Args:
            seed: Seed for all of them.
        """
        ...

    @property
    def lanes(self) -> tuple[int, ...]:
        """Numbers of the ways (streams) by which work can reach the device.

        A device may start work from some lanes faster than from others. Lane 0, the default stream, comes first.
        """
        ...

    def lane(self, number: int) -> AbstractContextManager[object]:
        """Send the work submitted inside the block by way of one lane.

        Args:
            number: One of `lanes`. No work may be pending on another lane meanwhile.

        Returns:
            The context manager.
        """
        ...

    def prepare_flush(self) -> torch.Tensor:
        """Allocate the buffer of the cache flush before the first cold call needs it.

        Returns:
            The buffer (uint8), always the same.
        """
        ...

    def time_cold(
        self,
        call: Callable[[], object],
        after: Callable[[object], None],
        before: Callable[[], None] | None = None,
    ) -> CallTime:
        """Time one call with cold caches.

        The cache flush runs first and hides the launch overhead of the call.

        Args:
            call: The call to time.
            after: Receives the result of `call` in the same stream, before the device is synchronised. It copies the
                outputs.
            before: Submitted after the flush and before the clock starts.

        Returns:
            Device time of the call and host time of the window. On CUDA the window includes `after`.
        """
        ...

    def mark(self) -> None:
        """Mark where the backward of the running timed call begins, in its stream."""
        ...

    def time_latency(
        self,
        call: Callable[[], object],
        after: Callable[[object], None],
        before: Callable[[], None] | None = None,
    ) -> CallTime:
        """Time one call as a caller sees it: idle device to completed work.

        Args:
            call: The call to time.
            after: Receives the result of `call` after the clock has stopped.
            before: Runs and completes before the clock starts.

        Returns:
            Device time and host time of the call.
        """
        ...

    def time_back_to_back(self, calls: Sequence[Callable[[], None]]) -> CallTime:
        """Time a series of calls, submitted without a flush or a pause in between.

        Args:
            calls: The calls, in order.

        Returns:
            Device time and host time of all calls together.
        """
        ...

    def capture(self, work: Callable[[], object]) -> Callable[[], None]:
        """Record the work that `work` submits as a graph, without executing it.

        Args:
            work: Submits the work to record.

        Returns:
            A function that executes the graph once.

        Raises:
            DeviceError: The device has no graphs.
            RuntimeError: The work cannot be captured. `work` may raise any other exception.
        """
        ...

    @property
    def cache_bytes(self) -> int:
        """Size in bytes of the cache that the whole device shares."""
        ...

    def attach_gate(self, fd: int) -> StreamGate:
        """Open the device's end of a stream gate, for the current stream.

        Args:
            fd: Descriptor of the gate's page; the returned gate owns it from now on.

        Returns:
            The device's end of the gate.

        Raises:
            DeviceError: The device has no stream gates.
        """
        ...

    def own_gate(self) -> OwnGate:
        """Return a gate with both ends in this process, always the same one.

        Returns:
            Both ends of the gate.

        Raises:
            DeviceError: The device has no stream gates.
        """
        ...

    def queue(self, calls: Sequence[Callable[[], None]], gate: StreamGate, number: int) -> Callable[[], CallTime]:
        """Submit calls behind a closed stream gate; they run back to back once it opens.

        Args:
            calls: The calls, in order.
            gate: The device's end of the gate.
            number: Number of this use of the gate.

        Returns:
            A function that waits for the calls. It returns their total time; both values come from the device's clock.

        Raises:
            DeviceError: The device has no stream gates.
        """
        ...

    def limit_memory(self, nbytes: int) -> None:
        """Make this a device of less memory.

        All processes together can allocate only so much.

        Args:
            nbytes: Size in bytes. The rest is occupied until this process ends.

        Raises:
            DeviceError: The device has less memory, other processes hold some of the rest, or it has no memory of its
                own.
        """
        ...

    def start_peak(self) -> int:
        """Start to record the peak memory of this process's tensors on the device.

        Returns:
            Memory of the tensors now, in bytes.
        """
        ...

    def peak_bytes(self) -> int | None:
        """Return the peak memory of this process's tensors since `start_peak`.

        Returns:
            Bytes by torch's allocator, without the harness's flush buffer; None if unknown.
        """
        ...

    def taken_bytes(self) -> int | None:
        """Return the device memory that no process can allocate now.

        Returns:
            Bytes by the driver's count, without those that `limit_memory` occupies; None if unknown.
        """
        ...

    def memory_bytes(self) -> int | None:
        """Return the total memory of the device.

        Returns:
            Bytes by the driver's count, or of `limit_memory`; None if the device has no memory of its own.
        """
        ...


def open_device(kind: DeviceKind, index: int = 0) -> Device:
    """Open a device.

    Args:
        kind: `cuda` or `host`.
        index: Index of the GPU among the visible ones; ignored for `host`.

    Returns:
        The device.

    Raises:
        DeviceError: This machine has no such device. The message says how to fix it.
    """
    if kind is DeviceKind.CUDA:
        from harness.devices.cuda import CudaDevice

        return CudaDevice(index)
    from harness.devices.host import HostDevice

    return HostDevice()


def seed_generators(seed: int) -> None:
    """Seed the global generators of Python, numpy and torch (CPU and used GPUs).

    The states equal those that `torch.manual_seed` sets. That function also records a traceback for each kind of device
    that is not in use. This takes 0.3 ms and memory that is never freed.

    Args:
        seed: Seed for all generators.
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)


def aligned(nbytes: int) -> int:
    """Round `nbytes` up to the next multiple of `ALIGNMENT_BYTES`.

    Args:
        nbytes: A size in bytes.

    Returns:
        The rounded size in bytes.
    """
    return -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def tensor_bytes(shape: tuple[int, ...], dtype: torch.dtype, strides: tuple[int, ...] | None = None) -> int:
    """Compute the memory of a tensor from its first to its last element.

    Args:
        shape: Shape of the tensor.
        dtype: Data type of the tensor.
        strides: Its strides in elements; None if it is contiguous.

    Returns:
        Size in bytes.
    """
    return (math.prod(shape) if strides is None else extent(shape, strides)) * dtype.itemsize


def check_extent(offset: int, size_bytes: int, limit_bytes: int) -> None:
    """Check that a range lies inside an arena and is aligned.

    Args:
        offset: First byte of the range.
        size_bytes: Size of the range.
        limit_bytes: Size of the arena.

    Raises:
        ValueError: The range leaves the arena, or `offset` is not a multiple of `ALIGNMENT_BYTES`.
    """
    if offset < 0 or offset % ALIGNMENT_BYTES or offset + size_bytes > limit_bytes:
        raise ValueError(
            f"{size_bytes} bytes at offset {offset} are misaligned or outside of the arena of {limit_bytes} bytes"
        )
