"""Check the memory accesses of interpreted Triton kernels: bounds and data races.

Runs in a submission's process. Triton's interpreter runs one program after another and makes each access through four
functions of its C++ part. These are wrapped: an access must lie inside a tensor that the launch was given, and two
programs may touch one element, of which one writes, only if atomics order them. Accesses of one program are not
compared with each other, except elements that one store writes twice with different values.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["TritonChecks"]

MAX_FINDINGS = 64
"""Most findings to keep of one process, each counted as often as it occurs."""

_MANY = -1
_KINDS = ("read", "write", "atomic")
_CONFLICTS = {"read": ("write", "atomic"), "write": ("write", "atomic", "read"), "atomic": ("write", "read")}
_VERBS = {"read": "reads", "write": "writes", "atomic": "changes by an atomic"}
Words = npt.NDArray[Any]


class _Region:
    """One tensor's storage, and who read and wrote its elements in this launch."""

    def __init__(self, name: str, tensor: Any) -> None:
        storage = tensor.untyped_storage()
        self.name = name
        self.begin, self.nbytes = int(storage.data_ptr()), int(storage.nbytes())
        self.first, self.itemsize = int(tensor.data_ptr()), int(tensor.element_size())
        self.grain = self.itemsize
        count = -(-self.nbytes // self.grain)
        self.touched = {what: np.zeros(count, dtype=np.int32) for what in _KINDS}
        """For each kind of access the segment that made it last; 0: none; `_MANY`: several programs."""
        self.lines = {what: np.zeros(count, dtype=np.int32) for what in _KINDS}

    def cells(self, addresses: Words, nbytes: int) -> Words:
        """Return the numbers of the cells that accesses of so many bytes touch."""
        if nbytes < self.grain:
            self._refine(nbytes)
        offsets = (addresses - np.uint64(self.begin)).astype(np.int64)
        first, last = offsets // self.grain, (offsets + nbytes - 1) // self.grain
        if np.array_equal(first, last):
            return first
        return np.unique(np.concatenate([first + step for step in range(int((last - first).max()) + 1)]))

    def element(self, address: int) -> int:
        """Return the element's number, counted from the tensor's first one."""
        return (address - self.first) // self.itemsize

    def _refine(self, nbytes: int) -> None:
        times = -(-self.grain // nbytes)
        for table in (self.touched, self.lines):
            for what in _KINDS:
                table[what] = np.repeat(table[what], times)
        self.grain = -(-self.grain // times)


class TritonChecks:
    """Findings about the Triton kernels of this process.

    Attributes:
        enabled: Whether launches are checked.
        findings: Reports as of `shim.collect_reports`.
    """

    def __init__(self) -> None:
        self.enabled = True
        self.findings: dict[tuple[object, ...], dict[str, Any]] = {}
        self._kernel: str | None = None
        self._regions: list[_Region] = []
        self._begins = self._ends = np.zeros(0, dtype=np.uint64)
        # A segment is what a program does between two releases. Programs run one after another, so the segments of the
        # running one are those from `_first` on. Sets of segments are bits of a number.
        self._program: object = None
        self._first = self._segment = 0
        self._before = 0
        self._released: dict[int, int] = {}
        self._builder: Any = None

    def watch(self, interpreter: ModuleType) -> None:
        """Route the interpreter's accesses through these checks."""
        held: Any = interpreter
        self._builder = held.interpreter_builder
        held._interpreter = _Watched(held._interpreter, self)

    def begin(self, kernel: str, tensors: Iterable[tuple[str, Any]]) -> None:
        """Begin a launch with these tensors, by parameter, as the interpreter holds them."""
        if not self.enabled:
            return
        found = {region.begin: region for name, tensor in tensors if (region := _Region(name, tensor)).nbytes}
        self._kernel = kernel
        self._regions = [found[begin] for begin in sorted(found)]
        self._begins = np.array([region.begin for region in self._regions], dtype=np.uint64)
        self._ends = np.array([region.begin + region.nbytes for region in self._regions], dtype=np.uint64)
        self._program, self._segment, self._released = None, 0, {}

    def end(self) -> None:
        """End the launch."""
        self._kernel, self._regions = None, []

    def access(self, what: str, pointers: Any, mask: Any, nbytes: int) -> Any:
        """Check an access; return the mask without the elements that are out of bounds.

        Args:
            what: `read`, `write` or `atomic`.
            pointers: Addresses.
            mask: Which of them are accessed.
            nbytes: Bytes of each.
        """
        if self._kernel is None:
            return mask
        mask = np.broadcast_to(np.asarray(mask, dtype=bool), np.shape(pointers))
        addresses = np.asarray(pointers).astype(np.uint64)
        if not mask.any():
            return mask
        index = np.searchsorted(self._begins, addresses, side="right") - 1
        inside = index >= 0
        if self._regions:
            inside &= addresses + np.uint64(nbytes) <= self._ends[np.maximum(index, 0)]
        if (stray := mask & ~inside).any():
            self._report_stray(what, int(addresses[stray].flat[0]), nbytes)
            mask = mask & inside
        for number in np.unique(index[mask]):
            region = self._regions[number]
            self._order(region, what, addresses[mask & (index == number)], nbytes)
        return mask

    def overlap(self, pointers: Any, values: Any, mask: Any) -> None:
        """Report elements that one store writes twice with different values."""
        if self._kernel is None:
            return
        mask = np.broadcast_to(np.asarray(mask, dtype=bool), np.shape(pointers))
        addresses = np.asarray(pointers).astype(np.uint64)[mask]
        bits = np.broadcast_to(np.asarray(values), np.shape(pointers))[mask]
        order = np.argsort(addresses, kind="stable")
        addresses, bits = addresses[order], bits[order]
        twice = (addresses[1:] == addresses[:-1]) & (bits[1:] != bits[:-1])
        twice &= ~((bits[1:] != bits[1:]) & (bits[:-1] != bits[:-1]))  # two NaN
        if twice.any():
            address, line = int(addresses[1:][twice][0]), _place()
            message = "two elements of one store have the same place and different values"
            self._add("data_race", message, line, self._region_of(address), address)

    def synchronise(self, pointers: Any, mask: Any, *, relaxed: bool) -> None:
        """Order this program after those that released the same words before."""
        if self._kernel is None or relaxed:
            return
        self._enter()
        mask = np.broadcast_to(np.asarray(mask, dtype=bool), np.shape(pointers))
        words = np.unique(np.asarray(pointers)[mask]).tolist()
        for address in words:
            self._before |= self._released.get(address, 0)
        own = (1 << self._segment + 1) - (1 << self._first)
        for address in words:
            self._released[address] = self._released.get(address, 0) | self._before | own
        self._segment += 1

    def _enter(self) -> None:
        """Begin a segment if another program is running now."""
        if self._program != self._builder.grid_idx:
            self._program = self._builder.grid_idx
            self._segment += 1
            self._first, self._before = self._segment, 0

    def _order(self, region: _Region, what: str, addresses: Words, nbytes: int) -> None:
        """Report what nothing orders before this access, and note it."""
        self._enter()
        cells, place = region.cells(addresses, nbytes), _place()
        for other in _CONFLICTS[what]:
            held = region.touched[other][cells]
            bad = (held != 0) & (held < self._first)
            if bad.any() and self._before:
                for segment in np.unique(held[bad]).tolist():
                    if segment == _MANY or self._before >> segment & 1:
                        bad &= held != segment
            if bad.any():
                self._report_race(region, what, other, place, int(cells[bad][0]))
        held = region.touched[what][cells]
        alone = (held == 0) | (held >= self._first) | (what == "write")
        region.touched[what][cells] = np.where(alone, self._segment, _MANY)
        region.lines[what][cells] = place[1]

    def _region_of(self, address: int) -> _Region | None:
        return next((r for r in self._regions if r.begin <= address < r.begin + r.nbytes), None)

    def _report_stray(self, what: str, address: int, nbytes: int) -> None:
        near = min(
            self._regions, key=lambda r: min(abs(address - r.begin), abs(address - r.begin - r.nbytes)), default=None
        )
        message = f"{what} of {nbytes} bytes out of bounds"
        if near is not None:
            message += f": `{near.name}` has {near.nbytes // near.itemsize} elements"
        self._add("memory_error", message, _place(), near, address, access=f"{what} of {nbytes} bytes")

    def _report_race(self, region: _Region, what: str, other: str, place: tuple[str, int], cell: int) -> None:
        self._add(
            "data_race",
            f"{what} of what another program {_VERBS[other]}, with nothing that orders them",
            place,
            region,
            region.begin + cell * region.grain,
            access=what,
            other_access=other,
            other_line=int(region.lines[other][cell]),
            other_file=place[0],
        )

    def _add(
        self, kind: str, message: str, place: tuple[str, int], region: _Region | None, address: int, **more: object
    ) -> None:
        file, line = place
        key = (kind, self._kernel, line, more.get("other_line"))
        if key in self.findings:
            self.findings[key]["count"] += 1
        elif len(self.findings) < MAX_FINDINGS:
            found = {"kind": kind, "message": message, "count": 1, "kernel": self._kernel, "file": file, "line": line}
            if region is not None:
                element = region.element(address)
                found |= {"space": "global", "array": region.name, "index": element, "subscript": f"[{element}]"}
            self.findings[key] = found | {"block": list(self._builder.grid_idx or (0, 0, 0)), **more}


class _Watched:
    """The interpreter's C++ part, with each access checked first."""

    def __init__(self, native: Any, checks: TritonChecks) -> None:
        self._native = native
        self._checks = checks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        mask = self._checks.access("read", pointers, mask, np.dtype(dtype).itemsize)
        return self._native.load(pointers, mask, other, dtype)

    def store(self, pointers: Any, values: Any, mask: Any) -> Any:
        mask = self._checks.access("write", pointers, mask, values.dtype.itemsize)
        self._checks.overlap(pointers, values, mask)
        return self._native.store(pointers, values, mask)

    def atomic_rmw(self, operation: Any, pointers: Any, values: Any, mask: Any, order: Any) -> Any:
        mask = self._checks.access("atomic", pointers, mask, values.dtype.itemsize)
        self._checks.synchronise(pointers, mask, relaxed=_is_relaxed(order))
        return self._native.atomic_rmw(operation, pointers, values, mask, order)

    def atomic_cas(self, pointers: Any, expected: Any, values: Any, order: Any) -> Any:
        every = np.ones(np.shape(pointers), dtype=bool)
        if not np.all(self._checks.access("atomic", pointers, every, values.dtype.itemsize)):
            return expected  # out of bounds: nothing is exchanged
        self._checks.synchronise(pointers, every, relaxed=_is_relaxed(order))
        return self._native.atomic_cas(pointers, expected, values, order)


def _is_relaxed(order: Any) -> bool:
    return "RELAXED" in str(order).upper()


def _place() -> tuple[str, int]:
    """Return file name and line of the kernel's statement that is running."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if path != __file__ and "/triton/" not in path and "/numpy/" not in path:
            return Path(path).name, frame.f_lineno
        frame = frame.f_back
    return "", 0
