"""Record the kernels, copies and fills of one call with CUPTI's activity API.

Untrusted side: runs in a contestant, so its report is a claim. CUPTI is called directly and not through torch.profiler,
because a contestant profiles one call only: the first use takes 20 ms instead of 3.7 s (H200, torch 2.11). Only the
part of CUPTI's records is read whose layout has not changed since CUDA 9.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from harness.protocol.kernel_rows import MAX_ROWS, KernelRow

_KIND_COPY, _KIND_FILL, _KIND_KERNEL, _KIND_CONCURRENT_KERNEL = 1, 2, 3, 10
_KINDS = (_KIND_CONCURRENT_KERNEL, _KIND_COPY, _KIND_FILL)
_FLUSH_FORCED = 1
_NO_MORE_RECORDS = 12

BUFFER_BYTES = 2 * 2**20
MAX_BUFFERS = 16
"""Enough for 150,000 kernels; for a longer call the census is incomplete and says so."""

MAX_NAME = 400
"""Longest name passed on: template names of matrix libraries have thousands of characters."""

_NAMES = ("libcupti.so.13", "libcupti.so.12", "libcupti.so.11", "libcupti.so")
_COPIES = {1: "memcpy host to device", 2: "memcpy device to host", 8: "memcpy device to device"}


class TraceUnavailable(Exception):
    """CUPTI is missing or returned an error; the message says which."""


class _Kernel(ctypes.Structure):
    """First fields of `CUpti_ActivityKernel4` to `10`, equal in all of them."""

    _pack_ = 1
    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("cache", ctypes.c_uint8),
        ("shared_config", ctypes.c_uint8),
        ("registers", ctypes.c_uint16),
        ("partitioned", ctypes.c_uint32 * 2),
        ("start_ns", ctypes.c_uint64),
        ("end_ns", ctypes.c_uint64),
        ("completed_ns", ctypes.c_uint64),
        ("device", ctypes.c_uint32),
        ("context", ctypes.c_uint32),
        ("stream", ctypes.c_uint32),
        ("grid", ctypes.c_int32 * 3),
        ("block", ctypes.c_int32 * 3),
        ("static_shared", ctypes.c_int32),
        ("dynamic_shared", ctypes.c_int32),
        ("local_a_thread", ctypes.c_uint32),
        ("local_total", ctypes.c_uint32),
        ("correlation", ctypes.c_uint32),
        ("grid_id", ctypes.c_int64),
        ("name", ctypes.c_char_p),
    )


class _Moved(ctypes.Structure):
    """First fields of `CUpti_ActivityMemcpy*` and `CUpti_ActivityMemset*`.

    For a copy, `detail` is its kind (one byte).
    """

    _pack_ = 1
    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("detail", ctypes.c_uint8),
        ("rest", ctypes.c_uint8 * 3),
        ("nbytes", ctypes.c_uint64),
        ("start_ns", ctypes.c_uint64),
        ("end_ns", ctypes.c_uint64),
    )


_Request = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_Complete = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


class Trace:
    """Records the GPU's work inside `around`.

    May be used once per process, because CUPTI keeps the first callbacks.
    """

    def __init__(self) -> None:
        """Load CUPTI. Raises `TraceUnavailable`."""
        self._cupti = load_cupti()
        self._free = [ctypes.create_string_buffer(BUFFER_BYTES) for _ in range(2)]
        self._handed: list[Any] = []
        self._filled: list[tuple[int, int]] = []
        self._request, self._complete = _Request(self._hand_out), _Complete(self._take_back)
        self.complete = True
        """False if records were dropped."""

    def around(self, call: Callable[[], object]) -> object:
        """Run `call()`, wait for its GPU work and record it; return its result."""
        import torch

        self._cupti.ask("cuptiActivityRegisterCallbacks", self._request, self._complete)
        torch.cuda.synchronize()
        try:
            for kind in _KINDS:
                self._cupti.ask("cuptiActivityEnable", ctypes.c_uint32(kind))
            result = call()
            torch.cuda.synchronize()
            self._cupti.ask("cuptiActivityFlushAll", ctypes.c_uint32(_FLUSH_FORCED))
        finally:
            for kind in _KINDS:
                self._cupti.code("cuptiActivityDisable", ctypes.c_uint32(kind))
        return result

    def rows(self) -> tuple[KernelRow, ...]:
        """Return the records, longest total time first, at most `MAX_ROWS`.

        Equal launches are summed up.
        """
        found: dict[tuple[object, ...], list[float]] = {}
        for key, seconds in self._records():
            held = found.setdefault(key, [0, 0.0])
            held[0] += 1
            held[1] += seconds
        ranked = sorted(found.items(), key=lambda item: -item[1][1])
        self.complete = self.complete and len(ranked) <= MAX_ROWS
        return tuple(
            KernelRow.of(*key, calls=int(calls), total_s=total_s) for key, (calls, total_s) in ranked[:MAX_ROWS]
        )

    def _hand_out(self, buffer: Any, size: Any, most_records: Any) -> None:
        most_records[0] = 0
        if not self._free and len(self._handed) < MAX_BUFFERS:
            self._free.append(ctypes.create_string_buffer(BUFFER_BYTES))
        if not self._free:
            self.complete = False
            buffer[0], size[0] = None, 0
            return
        held = self._free.pop()
        self._handed.append(held)
        buffer[0], size[0] = ctypes.addressof(held), BUFFER_BYTES

    def _take_back(self, _context: Any, _stream: int, buffer: int, _size: int, valid: int) -> None:
        if buffer and valid:
            self._filled.append((buffer, valid))

    def _records(self) -> Iterator[tuple[tuple[object, ...], float]]:
        """Yield identity and seconds of each record."""
        demangle = _demangler()
        for address, valid in self._filled:
            record = ctypes.c_void_p(None)
            while True:
                buffer = (ctypes.c_void_p(address), ctypes.c_size_t(valid))
                code = self._cupti.code("cuptiActivityGetNextRecord", *buffer, ctypes.byref(record))
                if code != 0 or record.value is None:
                    self.complete = self.complete and code in (0, _NO_MORE_RECORDS)
                    break
                kind = ctypes.cast(record, ctypes.POINTER(ctypes.c_uint32))[0]
                if kind in (_KIND_KERNEL, _KIND_CONCURRENT_KERNEL):
                    k = ctypes.cast(record, ctypes.POINTER(_Kernel))[0]
                    symbol = (k.name or b"").decode("utf-8", "replace")
                    shared = (k.static_shared, k.dynamic_shared)
                    key = ("kernel", symbol, demangle(symbol), tuple(k.grid), tuple(k.block), k.registers, *shared)
                    yield (*key, k.local_a_thread), (k.end_ns - k.start_ns) * 1e-9
                elif kind in (_KIND_COPY, _KIND_FILL):
                    moved = ctypes.cast(record, ctypes.POINTER(_Moved))[0]
                    name = _COPIES.get(moved.detail, "memcpy") if kind == _KIND_COPY else "memset"
                    what = "copy" if kind == _KIND_COPY else "fill"
                    yield (what, name, name, (0, 0, 0), (0, 0, 0), 0, 0, 0, 0), (moved.end_ns - moved.start_ns) * 1e-9


class Marks:
    """Marks a call for a tool that observes this process (ncu); records nothing."""

    complete = False

    def around(self, call: Callable[[], object]) -> object:
        """Run `call()` between two marks, wait for its GPU work, and return its result."""
        import torch

        torch.cuda.synchronize()
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
        try:
            result = call()
            torch.cuda.synchronize()
        finally:
            torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]
        return result

    def rows(self) -> tuple[KernelRow, ...]:
        return ()


def counted(launches: Sequence[tuple[str, int, tuple[int, int, int], tuple[int, int, int]]]) -> tuple[KernelRow, ...]:
    """Make rows for the host device's kernels: name, launches, grid, block; no times."""
    ranked = sorted(launches, key=lambda launch: -launch[1])[:MAX_ROWS]
    return tuple(
        KernelRow.of("kernel", name, name, grid, block, 0, 0, 0, 0, calls=calls, total_s=0.0)
        for name, calls, grid, block in ranked
    )


class CuptiLibrary:
    """Functions of CUPTI, by name."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def code(self, function: str, *arguments: Any) -> int:
        """Call a function and return its error code."""
        return int(getattr(self._library, function)(*arguments))

    def ask(self, function: str, *arguments: Any) -> None:
        """Call a function; raise `TraceUnavailable` if it returns an error."""
        code = self.code(function, *arguments)
        if code != 0:
            text = ctypes.c_char_p()
            with suppress(AttributeError):
                self._library.cuptiGetResultString(ctypes.c_uint32(code), ctypes.byref(text))
            raise TraceUnavailable(f"{function} failed: {(text.value or str(code).encode()).decode()}")


def load_cupti() -> CuptiLibrary:
    """Load CUPTI: the library that torch has loaded, else the system's.

    Raises:
        TraceUnavailable: There is none.
    """
    names = list(_NAMES)
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        names[:0] = dict.fromkeys(
            path for line in maps if "libcupti.so" in line and (path := line.split(maxsplit=5)[5].rstrip("\n"))
        )
    for name in names:
        with suppress(OSError):
            return CuptiLibrary(ctypes.CDLL(name))
    raise TraceUnavailable("libcupti not found: install torch's CUDA build or the CUDA toolkit")


def _demangler() -> Callable[[str], str]:
    """Return a function that demangles C++ symbols.

    It uses the C++ runtime that torch has loaded; without it, it returns the symbol.
    """
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        demangle, free = library.__cxa_demangle, ctypes.CDLL(None).free
    except (OSError, AttributeError):
        return lambda symbol: symbol[:MAX_NAME]
    demangle.restype = ctypes.c_void_p
    free.argtypes = [ctypes.c_void_p]
    known: dict[str, str] = {}

    def named(symbol: str) -> str:
        if symbol not in known:
            status = ctypes.c_int(-1)
            text = demangle(symbol.encode(), None, None, ctypes.byref(status)) if symbol.startswith("_Z") else None
            known[symbol] = symbol[:MAX_NAME]
            if text:
                known[symbol] = ctypes.string_at(text).decode("utf-8", "replace")[:MAX_NAME]
                free(text)
        return known[symbol]

    return named
