"""The kernel census: which kernels one call of a solution ran, whose they are, and what labels that makes.

Pure; used on both sides of the trust boundary (the rows travel over the wire). What a contestant says of its kernels is
a claim like all it says: it makes labels, which convict nobody, and never a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.core.labels import FALLS_BACK, LIBRARY_ONLY, NO_CUSTOM_KERNEL, TORCH_ONLY, UNCOUNTED
from harness.devices.occupancy import MultiprocessorLimits, occupancy
from harness.protocol.kernel_names import KernelOwner, may_bring_kernels, of_header_library, own_kernel_names, owner_of
from harness.protocol.kernel_rows import KernelRow

_SPILLS = ("spill_stores_bytes", "spill_loads_bytes")
"""What a row of a build says of a kernel that its launches don't."""

LITTLE_SHARE = 0.01
"""Share of the device time below which own kernels did none of the work to speak of. An epilogue of one's own behind a
large product of a library takes more: reading and writing a result of 4096 x 4096 takes 1 % of its float32 product."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSources:
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
    def of(cls, source: str, build: Mapping[str, Any] | None) -> KernelSources:
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
class CensusConclusion:
    """What a census comes to: the record's `evidence.census`, and labels."""

    evidence: Mapping[str, Any]
    labels: tuple[str, ...] = ()


def conclude(claimed: Mapping[str, Any], sources: KernelSources) -> CensusConclusion:
    """From what a session noted (`rows`, `complete`, `lack`, `limits`, `timed`) and what is known of the sources.

    Labels that need no run are given even where no census could be taken. Raises nothing for what a contestant sent,
    since rows were parsed strictly on arrival.
    """
    rows = [KernelRow.from_json(row) for row in claimed.get("rows", ())]
    limits = MultiprocessorLimits.from_json(claimed["limits"]) if claimed.get("limits") else None
    lack = str(claimed.get("lack") or "")
    owned = [(row, *_owner(row, sources)) for row in rows]
    labels = _labels(owned, sources, known=not lack, timed=bool(claimed.get("timed", True)))
    total_s = math.fsum(row.total_s for row in rows)
    evidence: dict[str, Any] = {
        "kernels": [_described(row, owner, library, sources, total_s, limits) for row, owner, library in owned],
        "device_s": total_s or None,
        "launches": sum(row.calls for row in rows if row.kind == "kernel"),
        "own_share": _share(owned, KernelOwner.OWN, total_s),
        "library_share": _share(owned, KernelOwner.LIBRARY, total_s),
        "own_kernels": sources.own_kernels,
        "complete": bool(claimed.get("complete", False)),
    }
    if lack:
        evidence["not_taken"] = lack
    return CensusConclusion(evidence=evidence, labels=labels)


Owned = tuple[KernelRow, KernelOwner | None, str | None]


def _owner(row: KernelRow, sources: KernelSources) -> tuple[KernelOwner | None, str | None]:
    if row.kind != "kernel":
        return None, None
    return owner_of(row.symbol, row.name, built=sources.built, spelled=sources.spelled)


def _labels(owned: Sequence[Owned], sources: KernelSources, *, known: bool, timed: bool) -> tuple[str, ...]:
    if not sources.may_bring:
        # That needs no look at the device: there is nothing that a kernel of its own could come from.
        only = any(owner is KernelOwner.LIBRARY for _, owner, _ in owned)
        return (TORCH_ONLY, NO_CUSTOM_KERNEL, *((LIBRARY_ONLY,) if only else ()))
    if not known:
        return (UNCOUNTED,)
    kernels = [(row, owner) for row, owner, _ in owned if row.kind == "kernel"]
    own, library, unknown = ([row for row, owner in kernels if owner is whose] for whose in KernelOwner)
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


def _share(owned: Sequence[Owned], whose: KernelOwner, total_s: float) -> float | None:
    """Part of the device time, copies and fills included in the whole; None where no time was measured."""
    if total_s <= 0.0:
        return None
    return math.fsum(row.total_s for row, owner, _ in owned if owner is whose) / total_s


def _described(
    row: KernelRow,
    owner: KernelOwner | None,
    library: str | None,
    sources: KernelSources,
    total_s: float,
    limits: MultiprocessorLimits | None,
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
