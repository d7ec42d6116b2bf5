"""The CUDA device: one GPU, with memory shared through a POSIX file descriptor.

Both sides. Memory from `cuMemCreate` with a shareable handle works across user, pid, ipc and network namespaces and
across user ids; torch's CUDA IPC does not. It also shares exactly the requested memory instead of whole blocks of the
caching allocator.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from harness.core.choices import DeviceKind
from harness.devices.device import CallTime, DeviceError, check_extent, seed_generators, tensor_bytes
from harness.devices.stream_gate import DONE_WORD, OPEN_WORD, PAGE_BYTES, Gate, OwnGate, StreamGate

FLUSH_FACTOR = 4
"""Size of the cache flush as a multiple of the L2 size, so that no line of an earlier call survives."""

MIN_FLUSH_BYTES = 640 * 2**20
"""Least size of the cache flush; writing it takes about 0.15 ms on an H200."""

FLUSHES = 2
"""How often the flush buffer is written before a call.

The flush must take longer than a `forward` takes to submit its launches. Then the events enclose device work only, not
the Python code that launches it. One write is enough on an idle machine. On a busy host, eager calls of 1.04 and 2.69
ms on an H200 took up to 0.2 ms longer for seconds, because their launches came too late
(`results/time-h200/busy-hosts.md`).
"""

LANES = (0, 5, 11, 16)
"""Number of each stream in the order of creation; 0 is the default stream.

The driver assigns about five consecutive streams to one group of hardware queues (12 processes on an H200). These four
were of two kinds (`empty_kernel`), in varying order.
"""

KEPT_CACHE_SHARE = 0.04
"""Share of the GPU's memory up to which torch may keep freed memory if another process asks for free memory. Returning
and reallocating memory takes about 10 ms for each problem.
"""

ROOMY_CACHE_SHARE = 0.25
"""The same share if enough memory is free anyway. Returning the memory of earlier problems took 140 ms before each next
problem on an H100.
"""


def _driver() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise DeviceError("the package cuda-bindings is not installed: pip install cuda-bindings") from error
    return driver


def _check(outcome: tuple[Any, ...], what: str) -> Any:
    """Return the values of a driver call; raise `DeviceError` if its code is an error."""
    code, *values = outcome
    if int(code) != 0:
        raise DeviceError(f"{what} failed: {code.name}")
    return values[0] if len(values) == 1 else tuple(values)


class DeviceSpan:
    """Device bytes as a CUDA array interface: torch makes a tensor without a copy."""

    def __init__(self, address: int, nbytes: int, keep: object) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (nbytes,),
            "strides": None,
            "typestr": "|u1",
            "version": 3,
        }
        self._keep = keep


class CudaArena:
    """A physical allocation of GPU memory, mapped read-write into this process."""

    def __init__(self, device: CudaDevice, handle: Any, nbytes: int, fd: int) -> None:
        driver = _driver()
        self._device = device
        self._handle = handle
        self._nbytes = nbytes
        self._fd = fd
        self._address = int(_check(driver.cuMemAddressReserve(nbytes, 0, 0, 0), "reserving address space"))
        _check(driver.cuMemMap(self._address, nbytes, 0, handle, 0), "mapping shared GPU memory")
        access = driver.CUmemAccessDesc()
        access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = device.index
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        _check(driver.cuMemSetAccess(self._address, nbytes, [access], 1), "setting the access to shared GPU memory")

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
            return torch.empty(shape, dtype=dtype, device=self._device.torch_device)
        flat = torch.as_tensor(
            DeviceSpan(self._address + offset, size, self), device=self._device.torch_device, dtype=torch.uint8
        )
        return flat.view(dtype).view(shape) if strides is None else flat.view(dtype).as_strided(shape, strides)

    def close(self) -> None:
        driver = _driver()
        torch.cuda.synchronize(self._device.index)
        os.close(self._fd)
        _check(driver.cuMemUnmap(self._address, self._nbytes), "unmapping shared GPU memory")
        _check(driver.cuMemAddressFree(self._address, self._nbytes), "freeing address space")
        _check(driver.cuMemRelease(self._handle), "releasing shared GPU memory")


def _unregister(held: mmap.mmap, page: int) -> None:
    """Unregister a page from the driver, unless the context is broken, and unmap it."""
    _driver().cuMemHostUnregister(page)
    held.close()


class CudaGate:
    """The device's end of a `stream_gate.Gate`: stream operations on its page."""

    def __init__(self, index: int, fd: int) -> None:
        driver = _driver()
        self._index = index
        self._map = mmap.mmap(fd, PAGE_BYTES)
        os.close(fd)
        page = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        flags = driver.CU_MEMHOSTREGISTER_DEVICEMAP | driver.CU_MEMHOSTREGISTER_PORTABLE
        _check(driver.cuMemHostRegister(page, PAGE_BYTES, flags), "registering a page of host memory")
        # Without this, the driver keeps the page registered for ever, also when another page is mapped at its address.
        weakref.finalize(self, _unregister, self._map, page).atexit = False
        self._address = int(_check(driver.cuMemHostGetDevicePointer(page, 0), "mapping a page of host memory"))

    def hold(self, number: int) -> None:
        driver = _driver()
        flag = int(driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ)
        address = self._address + 4 * OPEN_WORD
        _check(driver.cuStreamWaitValue32(self._stream(), address, number, flag), "queueing a wait for the stream gate")

    def tell(self, number: int) -> None:
        driver = _driver()
        flag = int(driver.CUstreamWriteValue_flags.CU_STREAM_WRITE_VALUE_DEFAULT)
        address = self._address + 4 * DONE_WORD
        _check(driver.cuStreamWriteValue32(self._stream(), address, number, flag), "queueing the final write")

    def _stream(self) -> int:
        return int(torch.cuda.current_stream(self._index).cuda_stream)


class CudaDevice:
    """One GPU, by its index among the visible ones."""

    kind = DeviceKind.CUDA

    def __init__(self, index: int = 0) -> None:
        if not torch.cuda.is_available():
            raise DeviceError("torch finds no CUDA GPU: run `harness doctor`, or use the CPU with --device host")
        if index >= torch.cuda.device_count():
            raise DeviceError(f"GPU {index} does not exist: torch finds {torch.cuda.device_count()}")
        self.index = index
        torch.cuda.set_device(index)
        torch.empty(1, device=f"cuda:{index}")  # makes the primary context current for the driver calls
        self._own_gate: OwnGate | None = None
        self._flush: torch.Tensor | None = None
        self._occupied: CudaArena | None = None
        """Memory that `limit_memory` takes from everyone."""
        self._shifted = False
        self._streams: list[torch.cuda.Stream] = []
        self._flush_bytes = max(FLUSH_FACTOR * torch.cuda.get_device_properties(index).L2_cache_size, MIN_FLUSH_BYTES)
        self._start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._middle = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._marked = False

    @property
    def torch_device(self) -> torch.device:
        return torch.device("cuda", self.index)

    @property
    def name(self) -> str | None:
        return torch.cuda.get_device_name(self.index)

    @property
    def uuid(self) -> str | None:
        return str(torch.cuda.get_device_properties(self.index).uuid)

    def _properties(self) -> Any:
        driver = _driver()
        prop = driver.CUmemAllocationProp()
        prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        prop.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        prop.location.id = self.index
        prop.requestedHandleTypes = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        return prop

    def allocate(self, nbytes: int) -> CudaArena:
        driver = _driver()
        prop = self._properties()
        flag = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
        granularity = int(_check(driver.cuMemGetAllocationGranularity(prop, flag), "querying the granularity"))
        size = max(1, -(-nbytes // granularity)) * granularity
        handle = _check(driver.cuMemCreate(size, prop, 0), f"allocating {size} bytes of shareable GPU memory")
        kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        fd = int(_check(driver.cuMemExportToShareableHandle(handle, kind, 0), "exporting shared GPU memory"))
        arena = CudaArena(self, handle, size, fd)
        arena.tensor(0, (size,), torch.uint8).zero_()
        return arena

    def attach(self, fd: int, nbytes: int) -> CudaArena:
        driver = _driver()
        kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        handle = _check(driver.cuMemImportFromShareableHandle(fd, kind), "importing shared GPU memory")
        return CudaArena(self, handle, nbytes, fd)

    def free_bytes(self, enough: int | None = None) -> int:
        cached = torch.cuda.memory_reserved(self.index) - torch.cuda.memory_allocated(self.index)
        free, total = torch.cuda.mem_get_info(self.index)
        total -= self._occupied_bytes
        roomy = enough is not None and free > enough
        if cached > (ROOMY_CACHE_SHARE if roomy else KEPT_CACHE_SHARE) * total:
            torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(self.index)[0])

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.index)

    def reseed(self, seed: int) -> None:
        seed_generators(seed)

    @property
    def lanes(self) -> tuple[int, ...]:
        return LANES

    def lane(self, number: int) -> AbstractContextManager[object]:
        if number == 0:
            return nullcontext()
        while len(self._streams) < number:
            self._streams.append(torch.cuda.Stream(self.index))  # type: ignore[no-untyped-call]
        return torch.cuda.stream(self._streams[number - 1])

    def prepare_flush(self) -> torch.Tensor:
        if self._flush is None:
            self._flush = torch.empty(self._flush_bytes, dtype=torch.uint8, device=self.torch_device)
        return self._flush

    def time_cold(
        self,
        call: Callable[[], object],
        after: Callable[[object], None],
        before: Callable[[], None] | None = None,
    ) -> CallTime:
        flush = self.prepare_flush()
        torch.cuda.synchronize(self.index)
        _driver().cuCtxResetPersistingL2Cache()  # fails harmlessly on GPUs without persisting L2 lines
        # Every second place in the GPU's queue delays a launch by about 0.85 us (H200, at any data address). One extra
        # launch before every second call gives each series both kinds of places equally often, for odd and even numbers
        # of launches in a call.
        self._shifted = not self._shifted
        if self._shifted:
            flush[:1].zero_()
        for _ in range(FLUSHES):
            flush.zero_()
        if before is not None:
            before()
        begin = time.perf_counter()
        self._start.record()
        result = call()
        self._end.record()
        after(result)
        torch.cuda.synchronize(self.index)
        return self._took(time.perf_counter() - begin)

    def mark(self) -> None:
        self._middle.record()
        self._marked = True

    def _took(self, window_s: float) -> CallTime:
        """Return the times of a call that is complete."""
        marked, self._marked = self._marked, False
        return CallTime(
            device_s=self._start.elapsed_time(self._end) * 1e-3,
            window_s=window_s,
            forward_s=self._start.elapsed_time(self._middle) * 1e-3 if marked else None,
        )

    def time_latency(
        self,
        call: Callable[[], object],
        after: Callable[[object], None],
        before: Callable[[], None] | None = None,
    ) -> CallTime:
        if before is not None:
            before()
        torch.cuda.synchronize(self.index)
        begin = time.perf_counter()
        self._start.record()
        result = call()
        self._end.record()
        torch.cuda.synchronize(self.index)
        window_s = time.perf_counter() - begin
        after(result)
        torch.cuda.synchronize(self.index)
        return self._took(window_s)

    def time_back_to_back(self, calls: Sequence[Callable[[], None]]) -> CallTime:
        torch.cuda.synchronize(self.index)
        begin = time.perf_counter()
        self._start.record()
        for call in calls:
            call()
        self._end.record()
        torch.cuda.synchronize(self.index)
        window_s = time.perf_counter() - begin
        return CallTime(device_s=self._start.elapsed_time(self._end) * 1e-3, window_s=window_s)

    def capture(self, work: Callable[[], object]) -> Callable[[], None]:
        torch.cuda.synchronize(self.index)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph.replay

    def attach_gate(self, fd: int) -> CudaGate:
        return CudaGate(self.index, fd)

    def own_gate(self) -> OwnGate:
        if self._own_gate is None:
            owner = Gate()
            self._own_gate = OwnGate(owner, self.attach_gate(os.dup(owner.fd)))
        return self._own_gate

    def queue(self, calls: Sequence[Callable[[], None]], gate: StreamGate, number: int) -> Callable[[], CallTime]:
        gate.hold(number)
        self._start.record()
        for call in calls:
            call()
        self._end.record()
        gate.tell(number)

        def finish() -> CallTime:
            torch.cuda.synchronize(self.index)
            took_s = self._start.elapsed_time(self._end) * 1e-3
            return CallTime(device_s=took_s, window_s=took_s)

        return finish

    @property
    def cache_bytes(self) -> int:
        return int(torch.cuda.get_device_properties(self.index).L2_cache_size)

    def _without_flush(self, nbytes: int) -> int:
        return nbytes - (0 if self._flush is None else self._flush_bytes)

    def limit_memory(self, nbytes: int) -> None:
        total = torch.cuda.mem_get_info(self.index)[1]
        if nbytes > total:
            raise DeviceError(
                f"{self.name} has {total / 2**30:.4g} GiB of memory, less than the {nbytes / 2**30:.4g} GiB of "
                "--gpu-memory: pass a smaller number"
            )
        if nbytes == total:
            return
        try:
            self._occupied = self.allocate(total - nbytes)
        except DeviceError as error:
            raise DeviceError(
                f"the memory beyond the {nbytes / 2**30:.4g} GiB of --gpu-memory can't be occupied, because other "
                f"processes hold some of it: wait for or stop them (nvidia-smi lists them): {error}"
            ) from error

    @property
    def _occupied_bytes(self) -> int:
        return 0 if self._occupied is None else self._occupied.nbytes

    def start_peak(self) -> int:
        torch.cuda.reset_peak_memory_stats(self.index)
        return self._without_flush(int(torch.cuda.memory_allocated(self.index)))

    def peak_bytes(self) -> int | None:
        return max(0, self._without_flush(int(torch.cuda.max_memory_allocated(self.index))))

    def taken_bytes(self) -> int | None:
        free, total = torch.cuda.mem_get_info(self.index)
        return int(total - free) - self._occupied_bytes

    def memory_bytes(self) -> int | None:
        return int(torch.cuda.mem_get_info(self.index)[1]) - self._occupied_bytes
