"""Devices: where solutions execute, behind one Protocol with two implementations.

Used on both sides of the trust boundary: the referee allocates shared memory, the contestant attaches it. Imports
`model` only. `open_device` imports the implementation asked for, so that a machine without CUDA never loads it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from harness.core.choices import DeviceKind
from harness.devices.stream_gate import OwnGate, StreamGate

ALIGNMENT_BYTES = 512
"""Alignment of every tensor in an arena: what the caching allocator of torch gives, so kernels see no difference."""


class DeviceError(Exception):
    """The device is missing, or refused what the harness needs of it: the machine's fault, never a solution's."""


class Arena(Protocol):
    """Memory that the referee made and a contestant may map: one block, addressed by byte offsets."""

    @property
    def nbytes(self) -> int: ...

    @property
    def fd(self) -> int:
        """Descriptor to pass to the contestant; owned by the arena."""
        ...

    def tensor(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A contiguous tensor over the bytes from `offset`, with a storage of exactly its own size.

        Raises `ValueError` where it would leave the arena or `offset` is not a multiple of `ALIGNMENT_BYTES`.
        """
        ...

    def close(self) -> None:
        """Unmap and free. Tensors over the arena must not be touched any more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTime:
    """What one call took. `device_s` is by the device's clock, `window_s` by the host's, submission to completion.

    On the host device both are the host's clock. Seconds.
    """

    device_s: float
    window_s: float


class Device(Protocol):
    """What the referee and the contestant need of the place where solutions run."""

    kind: DeviceKind

    @property
    def torch_device(self) -> torch.device: ...

    @property
    def name(self) -> str | None:
        """The GPU's name as its driver gives it; None on the host device."""
        ...

    @property
    def uuid(self) -> str | None:
        """The GPU's UUID, by which NVML finds it; None on the host device."""
        ...

    def allocate(self, nbytes: int) -> Arena:
        """Shareable zeroed memory (referee side). Raises `DeviceError` where there is not enough."""
        ...

    def attach(self, fd: int, nbytes: int) -> Arena:
        """Map an arena received from the referee (contestant side); takes ownership of `fd`."""
        ...

    def free_bytes(self, enough: int | None = None) -> int:
        """Memory that could be allocated now. Where more than `enough` is free anyhow, what is kept for later use may
        stay kept, which the answer leaves out then.
        """
        ...

    def synchronize(self) -> None:
        """Wait until everything submitted to the device, on any stream, has finished."""
        ...

    def reseed(self, seed: int) -> None:
        """Seed every random generator that a constructor or a forward may draw from."""
        ...

    @property
    def lanes(self) -> tuple[int, ...]:
        """Ways by which work may reach the device, some of which it may take work from faster than from others; 0, the
        default, comes first.
        """
        ...

    def lane(self, number: int) -> AbstractContextManager[object]:
        """What is submitted inside the block goes this way; nothing may be under way on another meanwhile."""
        ...

    def prepare_flush(self) -> torch.Tensor:
        """The memory that cold calls write to flush the caches; taken now, or the first of them would take it."""
        ...

    def time_cold(
        self,
        call: Callable[[], object],
        after: Callable[[object], None],
        before: Callable[[], None] | None = None,
    ) -> CallTime:
        """Time one call with cold caches and the launch latency hidden behind the cache flush.

        `before()` is submitted behind the flush and ahead of the clock's start. `after(result)` runs as the window
        closes, in the same stream, before the device is synchronised: it is where the outputs are copied out.
        """
        ...

    def time_latency(
        self,
        call: Callable[[], object],
        after: Callable[[object], None],
        before: Callable[[], None] | None = None,
    ) -> CallTime:
        """Time one call as a caller sees it: from an idle device to the end of everything it started."""
        ...

    def time_back_to_back(self, calls: Sequence[Callable[[], None]]) -> CallTime:
        """Time calls submitted one after another, without a flush or a pause: from the first to the end of all.

        Both times are of all of them together.
        """
        ...

    def capture(self, work: Callable[[], object]) -> Callable[[], None]:
        """Record what `work` submits, without executing it, as a graph; what is returned executes it.

        Raises `DeviceError` where the device has no graphs, and whatever `work` or the driver raises where it can't
        be captured.
        """
        ...

    @property
    def cache_bytes(self) -> int:
        """Size of the cache that all of the device shares."""
        ...

    def attach_gate(self, fd: int) -> StreamGate:
        """The device's end of a gate whose page is `fd` (owned by the gate from now on), on the current stream.

        Raises `DeviceError` where the device has none.
        """
        ...

    def own_gate(self) -> OwnGate:
        """A gate of this process's own, always the same. Raises `DeviceError` where the device has none."""
        ...

    def queue(self, calls: Sequence[Callable[[], None]], gate: StreamGate, number: int) -> Callable[[], CallTime]:
        """Submit calls behind a shut gate (its use `number`), to be made back to back once it is open.

        What is returned waits for their end and gives the times of all of them together, both by the device's clock.
        """
        ...

    def start_peak(self) -> int:
        """Begin to watch for the most memory that this process's tensors take on the device; what they take now."""
        ...

    def peak_bytes(self) -> int | None:
        """The most since `start_peak`, by torch's allocator, without the device's own cache flush; None: not known."""
        ...

    def taken_bytes(self) -> int | None:
        """Device memory that no process could have now, by the driver's count; None: not known."""
        ...

    def memory_bytes(self) -> int | None:
        """All memory that the device has, by the driver's count; None where it is no device's own."""
        ...


def open_device(kind: DeviceKind, index: int = 0) -> Device:
    """The device of this kind. Raises `DeviceError` with what to do where the machine lacks it."""
    if kind is DeviceKind.CUDA:
        from harness.devices.cuda import CudaDevice

        return CudaDevice(index)
    from harness.devices.host import HostDevice

    return HostDevice()


def seed_generators(seed: int) -> None:
    """Seed Python's, numpy's and torch's global generators (torch: on the CPU and every CUDA device in use).

    `torch.manual_seed` gives these the same state. But for each kind of device that is not in use, it notes the call
    and a traceback to be told in case it ever is: a third of a millisecond, and memory that is never given back.
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)


def aligned(nbytes: int) -> int:
    """`nbytes` rounded up to the next multiple of `ALIGNMENT_BYTES`."""
    return -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def tensor_bytes(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    """Bytes of a contiguous tensor."""
    count = 1
    for extent in shape:
        count *= extent
    return count * dtype.itemsize


def check_extent(offset: int, size_bytes: int, limit_bytes: int) -> None:
    """Raise `ValueError` unless `size_bytes` from `offset` lie inside an arena of `limit_bytes`, aligned."""
    if offset < 0 or offset % ALIGNMENT_BYTES or offset + size_bytes > limit_bytes:
        raise ValueError(
            f"{size_bytes} bytes at offset {offset} do not lie aligned inside an arena of {limit_bytes} bytes"
        )
