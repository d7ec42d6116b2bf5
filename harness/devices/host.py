"""The host device: solutions run on the CPU and share memory as a memfd.

Both sides. All clocks are the host's. The cache flush writes a buffer larger than the last-level cache.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch

from harness.core.choices import DeviceKind
from harness.devices.device import CallTime, DeviceError, check_extent, seed_generators, tensor_bytes
from harness.devices.stream_gate import OwnGate, StreamGate

_FALLBACK_CACHE_BYTES = 32 * 2**20
"""Assumed last-level cache if the kernel does not report its size; typical for one core's share of a server's L3."""

_LARGEST_CACHE_BYTES = 64 * 2**20
"""Upper limit of the flushed cache. A virtual machine reports the L3 of a whole socket; the share of a core is far
smaller.
"""


class HostArena:
    """A memfd mapped into this process."""

    def __init__(self, fd: int, nbytes: int) -> None:
        self._fd = fd
        self._nbytes = nbytes
        self._map = mmap.mmap(fd, nbytes)

    @property
    def nbytes(self) -> int:
        return self._nbytes

    @property
    def fd(self) -> int:
        return self._fd

    def tensor(
        self, offset: int, shape: tuple[int, ...], dtype: torch.dtype, strides: tuple[int, ...] | None = None
    ) -> torch.Tensor:
        size = tensor_bytes(shape, dtype, strides)
        check_extent(offset, size, self._nbytes)
        if size == 0:
            return torch.empty(shape, dtype=dtype, device="cpu")
        flat = torch.frombuffer(self._map, dtype=torch.uint8, count=size, offset=offset)
        return flat.view(dtype).view(shape) if strides is None else flat.view(dtype).as_strided(shape, strides)

    def close(self) -> None:
        os.close(self._fd)
        try:
            self._map.close()
        except BufferError:
            # Tensors over the map are still alive; the mapping ends with the last of them.
            return


class HostDevice:
    """The CPU of this machine."""

    kind = DeviceKind.HOST

    def __init__(self) -> None:
        self._flush: torch.Tensor | None = None

    @property
    def torch_device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def name(self) -> str | None:
        return None

    @property
    def uuid(self) -> str | None:
        return None

    def allocate(self, nbytes: int) -> HostArena:
        fd = os.memfd_create("harness-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.posix_fallocate(fd, 0, nbytes)
            # Without seals, a process with the descriptor could shrink the memory, and the owner's next access would
            # raise SIGBUS.
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        except OSError as error:
            os.close(fd)
            raise DeviceError(f"cannot allocate {nbytes} bytes of shared host memory: {error}") from error
        return HostArena(fd, nbytes)

    def attach(self, fd: int, nbytes: int) -> HostArena:
        return HostArena(fd, nbytes)

    def free_bytes(self, enough: int | None = None) -> int:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        raise DeviceError("/proc/meminfo has no line MemAvailable, so the available memory is unknown")

    def synchronize(self) -> None:
        return

    def reseed(self, seed: int) -> None:
        seed_generators(seed)

    @property
    def lanes(self) -> tuple[int, ...]:
        return (0,)

    def lane(self, number: int) -> AbstractContextManager[object]:
        assert number == 0
        return nullcontext()

    def prepare_flush(self) -> torch.Tensor:
        if self._flush is None:
            self._flush = torch.zeros(2 * last_level_cache_bytes(), dtype=torch.uint8, device="cpu")
        return self._flush

    def time_cold(
        self,
        call: Callable[[], object],
        after: Callable[[object], None],
        before: Callable[[], None] | None = None,
    ) -> CallTime:
        self.prepare_flush().add_(1)
        return self.time_latency(call, after, before)

    def mark(self) -> None:
        return

    def time_latency(
        self,
        call: Callable[[], object],
        after: Callable[[object], None],
        before: Callable[[], None] | None = None,
    ) -> CallTime:
        if before is not None:
            before()
        start = time.perf_counter()
        result = call()
        elapsed = time.perf_counter() - start
        after(result)
        return CallTime(device_s=elapsed, window_s=elapsed)

    def time_back_to_back(self, calls: Sequence[Callable[[], None]]) -> CallTime:
        start = time.perf_counter()
        for call in calls:
            call()
        elapsed = time.perf_counter() - start
        return CallTime(device_s=elapsed, window_s=elapsed)

    def capture(self, work: Callable[[], object]) -> Callable[[], None]:
        raise DeviceError("the host device has no CUDA graphs")

    def attach_gate(self, fd: int) -> StreamGate:
        os.close(fd)
        raise DeviceError("the host device has no queue, so calls cannot wait behind a stream gate")

    def own_gate(self) -> OwnGate:
        raise DeviceError("the host device has no queue, so calls cannot wait behind a stream gate")

    def queue(self, calls: Sequence[Callable[[], None]], gate: StreamGate, number: int) -> Callable[[], CallTime]:
        raise DeviceError("the host device has no queue, so calls cannot wait behind a stream gate")

    @property
    def cache_bytes(self) -> int:
        return last_level_cache_bytes()

    def limit_memory(self, nbytes: int) -> None:
        raise DeviceError("the host device has no memory of its own to limit: use --device cuda, or --memory-limit")

    def start_peak(self) -> int:
        return 0

    def peak_bytes(self) -> int | None:
        return None

    def taken_bytes(self) -> int | None:
        return None

    def memory_bytes(self) -> int | None:
        return None


def last_level_cache_bytes() -> int:
    """Return the size of the first core's largest cache in bytes, at most 64 MiB."""
    largest = 0
    for entry in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = entry.read_text().strip()
        scale = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:], 1)
        largest = max(largest, int(text.rstrip("KMG")) * scale)
    return min(largest, _LARGEST_CACHE_BYTES) or _FALLBACK_CACHE_BYTES
