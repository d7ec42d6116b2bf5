"""The kernel census: which kernels one call of a solution ran, whose they are, and what labels that makes.

Pure; used on both sides of the trust boundary (the rows travel over the wire). What a contestant says of its kernels is
a claim like all it says: it makes labels, which convict nobody, and never a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.kernel_names import (
    Owner,
    kept_symbol,
    may_bring_kernels,
    of_header_library,
    own_kernel_names,
    owner_of,
)
from harness.occupancy import Limits, occupancy

MAX_ROWS = 64
"""Most kernels that a census tells apart; the ones with the least time are left out."""

MAX_NAME = 500
MAX_COUNT = 2**40
MAX_SECONDS = 1e6

KINDS = ("kernel", "copy", "fill")

_SPILLS = ("spill_stores_bytes", "spill_loads_bytes")
"""What a row of a build says of a kernel that its launches don't."""

TORCH_ONLY = "torch_only"
NO_CUSTOM_KERNEL = "no_custom_kernel"
LIBRARY_ONLY = "library_only"
FALLS_BACK = "falls_back"
UNCOUNTED = "uncounted_kernels"
LABELS: Mapping[str, str] = {
    TORCH_ONLY: "the file brings nothing that a kernel of its own could come from: no extension, no Triton",
    NO_CUSTOM_KERNEL: "no kernel of its own ran in the call that was looked at",
    LIBRARY_ONLY: "all kernels that ran are a library's (torch, cuBLAS, cuDNN, CUB, torch.compile, ...)",
    FALLS_BACK: "it has kernels of its own, but they ran for less than 1 % of the kernels' time, or not at all",
    UNCOUNTED: "which kernels ran could not be found out",
}
"""The labels that a census makes, and what each says."""

LITTLE_SHARE = 0.01
"""Share of the device time below which own kernels did none of the work to speak of. An epilogue of one's own behind a
large product of a library takes more: reading and writing a result of 4096 x 4096 takes 1 % of its float32 product."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """Alike launches of one call: as the contestant claims. `total_s` is their device time together, in seconds.

    `kind` is kernel, copy or fill. Sizes in bytes: shared memory a block, `local_bytes` (stack and spills) a thread.
    The host device counts launches and gives no times: `total_s` is 0 there.
    """

    kind: str
    symbol: str
    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int
    static_shared_bytes: int
    dynamic_shared_bytes: int
    local_bytes: int
    calls: int
    total_s: float

    @classmethod
    def of(cls, *values: Any, calls: int, total_s: float) -> KernelRow:
        """From the fields in their order, cut and bounded to what `from_json` accepts."""
        kind, symbol, name, grid, block, *sizes = values
        numbers = [min(max(int(size), 0), MAX_COUNT) for size in sizes]
        return cls(
            kind=kind,
            symbol=kept_symbol(symbol),
            name=name[:MAX_NAME],
            grid=_bounded_triple(grid),
            block=_bounded_triple(block),
            registers=numbers[0],
            static_shared_bytes=numbers[1],
            dynamic_shared_bytes=numbers[2],
            local_bytes=numbers[3],
            calls=min(max(calls, 0), MAX_COUNT),
            total_s=min(max(total_s, 0.0), MAX_SECONDS),
        )

    def to_json(self) -> list[Any]:
        sizes = (self.registers, self.static_shared_bytes, self.dynamic_shared_bytes, self.local_bytes)
        return [self.kind, self.symbol, self.name, [*self.grid], [*self.block], *sizes, self.calls, self.total_s]

    @classmethod
    def from_json(cls, value: Any) -> KernelRow:
        """Raises `ValueError` for anything that `to_json` never makes."""
        if not isinstance(value, list) or len(value) != 11:
            raise ValueError("a kernel is a list of 11")
        kind, symbol, name, grid, block, registers, static, dynamic, local, calls, total_s = value
        if kind not in KINDS:
            raise ValueError("a kernel's kind is kernel, copy or fill")
        return cls(
            kind=kind,
            symbol=_text(symbol),
            name=_text(name),
            grid=_triple(grid),
            block=_triple(block),
            registers=_count(registers),
            static_shared_bytes=_count(static),
            dynamic_shared_bytes=_count(dynamic),
            local_bytes=_count(local),
            calls=_count(calls),
            total_s=_seconds(total_s),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CensusTaken:
    """A contestant's reply: what one call ran. `complete` is False where some is left out; `lack` says why there is
    nothing (no profiler here), and is empty where there is something to say."""

    rows: tuple[KernelRow, ...]
    complete: bool
    lack: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "census_taken",
            "rows": [row.to_json() for row in self.rows],
            "complete": self.complete,
            "lack": self.lack,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CensusTaken:
        """Raises `ValueError`."""
        rows = value.get("rows")
        if not isinstance(rows, list) or len(rows) > MAX_ROWS:
            raise ValueError(f"rows must be a list of at most {MAX_ROWS}")
        complete = value.get("complete")
        if not isinstance(complete, bool):
            raise ValueError("complete must be true or false")
        return cls(
            rows=tuple(KernelRow.from_json(row) for row in rows), complete=complete, lack=_text(value.get("lack"))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What is known of a solution's own kernels before it runs.

    `built` maps linker symbols (`kept_symbol`) of its extensions' kernels to what ptxas said of them
    (`spill_stores_bytes`, `spill_loads_bytes`, where all architectures have the same), `spelled` are the plain names of
    kernels in its file.
    `extensions` says whether any extension was built, `may_bring` whether the file uses anything that kernels can be
    made with.
    """

    built: Mapping[str, Mapping[str, Any]]
    spelled: frozenset[str]
    extensions: bool
    may_bring: bool

    @classmethod
    def of(cls, source: str, build: Mapping[str, Any] | None) -> Sources:
        """From the solution's file and the record's `build` field (None where nothing was built)."""
        held = build or {}
        kernels = [row for row in held.get("kernels", ()) if isinstance(row, Mapping)]
        extensions = bool(held.get("modules"))
        return cls(
            built=_built(kernels),
            spelled=own_kernel_names(source),
            extensions=extensions,
            may_bring=extensions or may_bring_kernels(source),
        )

    @property
    def has_kernels(self) -> bool:
        """Whether kernels of its own are there to be run."""
        return self.own_kernels > 0

    @property
    def own_kernels(self) -> int:
        """How many there are. What its build made of a header library's kernels is not among them."""
        return sum(not of_header_library(symbol) for symbol in self.built) or len(self.spelled)


def _built(kernels: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """What ptxas said of each symbol's spills. Which architecture's code ran is not known: what differs is left out."""
    held: dict[str, Mapping[str, Any]] = {}
    for row in kernels:
        symbol = str(row.get("symbol"))
        before = held.get(symbol, row)
        held[symbol] = {key: row[key] for key in _SPILLS if key in row and before.get(key) == row[key]}
    return held


@dataclass(frozen=True, slots=True, kw_only=True)
class Concluded:
    """What a census comes to: the record's `evidence.census`, and labels."""

    evidence: Mapping[str, Any]
    labels: tuple[str, ...] = ()


def conclude(claimed: Mapping[str, Any], sources: Sources) -> Concluded:
    """From what a session noted (`rows`, `complete`, `lack`, `limits`, `timed`) and what is known of the sources.

    Labels that need no run are given even where no census could be taken. Raises nothing for what a contestant sent,
    since rows were parsed strictly on arrival.
    """
    rows = [KernelRow.from_json(row) for row in claimed.get("rows", ())]
    limits = Limits.from_json(claimed["limits"]) if claimed.get("limits") else None
    lack = str(claimed.get("lack") or "")
    owned = [(row, *_owner(row, sources)) for row in rows]
    labels = _labels(owned, sources, known=not lack, timed=bool(claimed.get("timed", True)))
    total_s = math.fsum(row.total_s for row in rows)
    evidence: dict[str, Any] = {
        "kernels": [_described(row, owner, library, sources, total_s, limits) for row, owner, library in owned],
        "device_s": total_s or None,
        "launches": sum(row.calls for row in rows if row.kind == "kernel"),
        "own_share": _share(owned, Owner.OWN, total_s),
        "library_share": _share(owned, Owner.LIBRARY, total_s),
        "own_kernels": sources.own_kernels,
        "complete": bool(claimed.get("complete", False)),
    }
    if lack:
        evidence["not_taken"] = lack
    return Concluded(evidence=evidence, labels=labels)


Owned = tuple[KernelRow, Owner | None, str | None]


def _owner(row: KernelRow, sources: Sources) -> tuple[Owner | None, str | None]:
    if row.kind != "kernel":
        return None, None
    return owner_of(row.symbol, row.name, built=sources.built, spelled=sources.spelled)


def _labels(owned: Sequence[Owned], sources: Sources, *, known: bool, timed: bool) -> tuple[str, ...]:
    if not sources.may_bring:
        # That needs no look at the device: there is nothing that a kernel of its own could come from.
        only = any(owner is Owner.LIBRARY for _, owner, _ in owned)
        return (TORCH_ONLY, NO_CUSTOM_KERNEL, *((LIBRARY_ONLY,) if only else ()))
    if not known:
        return (UNCOUNTED,)
    kernels = [(row, owner) for row, owner, _ in owned if row.kind == "kernel"]
    own, library, unknown = ([row for row, owner in kernels if owner is whose] for whose in Owner)
    if unknown:
        return ()
    if not timed:
        # Of libraries the host device counts cuBLAS's routines only, and a plain C++ extension needs no kernel. Who
        # has none, and imports what kernels can be made with, made none.
        if own or (sources.extensions and not (library or sources.has_kernels)):
            return ()
        return (
            NO_CUSTOM_KERNEL,
            *((LIBRARY_ONLY,) if library else ()),
            *((FALLS_BACK,) if sources.has_kernels else ()),
        )
    labels = []
    if not own:
        labels += [NO_CUSTOM_KERNEL, *((LIBRARY_ONLY,) if library else ())]
    own_s, library_s = (math.fsum(row.total_s for row in rows) for rows in (own, library))
    if sources.has_kernels and library and own_s < LITTLE_SHARE * (own_s + library_s):
        labels.append(FALLS_BACK)
    return tuple(labels)


def _share(owned: Sequence[Owned], whose: Owner, total_s: float) -> float | None:
    """Part of the device time, copies and fills included in the whole; None where no time was measured."""
    if total_s <= 0.0:
        return None
    return math.fsum(row.total_s for row, owner, _ in owned if owner is whose) / total_s


def _described(
    row: KernelRow, owner: Owner | None, library: str | None, sources: Sources, total_s: float, limits: Limits | None
) -> dict[str, Any]:
    """One row of the record: what is not known or makes no sense for it is left out."""
    held: dict[str, Any] = {"name": row.name, "kind": row.kind, "calls": row.calls}
    if total_s > 0.0:
        held |= {"total_s": row.total_s, "share": row.total_s / total_s}
    if row.kind != "kernel":
        return held
    held["owner"] = None if owner is None else owner.value
    if library is not None:
        held["library"] = library
    if math.prod(row.grid) == 0:
        return held  # a routine of a library's on the host device, which has no kernel there
    held |= {"grid": list(row.grid), "block": list(row.block)}
    if total_s <= 0.0:
        return held  # the host device knows no registers
    held |= {
        "registers": row.registers,
        "static_shared_bytes": row.static_shared_bytes,
        "dynamic_shared_bytes": row.dynamic_shared_bytes,
        "local_bytes": row.local_bytes,
    }
    if (built := sources.built.get(row.symbol)) is not None:
        held |= {key: built[key] for key in _SPILLS if key in built}
    if limits is not None:
        threads = math.prod(row.block)
        shared = row.static_shared_bytes + row.dynamic_shared_bytes
        reached = occupancy(limits, threads=threads, registers=row.registers, shared_bytes=shared)
        if reached is not None:
            held["occupancy"] = reached.to_json() | {"waves": reached.waves(math.prod(row.grid), limits)}
    return held


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_NAME:
        raise ValueError(f"a text of at most {MAX_NAME} characters was expected")
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_COUNT:
        raise ValueError(f"a count between 0 and {MAX_COUNT} was expected")
    return value


def _seconds(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0.0 <= value <= MAX_SECONDS:
        raise ValueError("a duration in seconds was expected")
    return float(value)


def _triple(value: Any) -> tuple[int, int, int]:
    if not isinstance(value, list) or len(value) != 3:
        raise ValueError("three counts were expected")
    x, y, z = (_count(item) for item in value)
    return x, y, z


def _bounded_triple(value: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (min(max(int(item), 0), MAX_COUNT) for item in value)
    return x, y, z
