"""The kernel census: kernels that one call ran, their owners, labels.

Trusted side. A contestant's kernel list is a claim: it sets labels, but never a verdict. See
guides/design/contestants.md.
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
"""Fields of a build's kernel that its launches do not have."""

LITTLE_SHARE = 0.01
"""Share of the device time below which own kernels did no substantial work.

An own epilogue behind a large library product takes more: reading and writing a result of 4096 x 4096 takes 1 % of its
float32 product.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSources:
    """What is known about a solution's own kernels before it runs.

    Attributes:
        built: Linker symbols (`kept_symbol`) of its extensions' kernels, with `spill_stores_bytes` and
            `spill_loads_bytes` from ptxas, if all architectures have the same.
        spelled: Plain names of kernels in its file.
        extensions: Whether any extension was built.
        may_bring: Whether the file uses anything that can create kernels.
    """

    built: Mapping[str, Mapping[str, Any]]
    spelled: frozenset[str]
    extensions: bool
    may_bring: bool

    @classmethod
    def of(cls, source: str, build: Mapping[str, Any] | None) -> KernelSources:
        """Collect it from the solution's file and its build.

        Args:
            source: The solution's text.
            build: The record's `build` field; None if nothing was built.

        Returns:
            What is known about its kernels.
        """
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
        """Whether it has kernels of its own."""
        return self.own_kernels > 0

    @property
    def own_kernels(self) -> int:
        """Number of its own kernels.

        Kernels that its build instantiated from a header library do not count.
        """
        return sum(not of_header_library(symbol) for symbol in self.built) or len(self.spelled)


def _built(kernels: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Collect each symbol's spills; drop values that differ between architectures."""
    held: dict[str, Mapping[str, Any]] = {}
    for row in kernels:
        symbol = str(row.get("symbol"))
        before = held.get(symbol, row)
        held[symbol] = {key: row[key] for key in _SPILLS if key in row and before.get(key) == row[key]}
    return held


@dataclass(frozen=True, slots=True, kw_only=True)
class CensusConclusion:
    """The result of a census: the record's `evidence.census`, and labels."""

    evidence: Mapping[str, Any]
    labels: tuple[str, ...] = ()


def conclude(claimed: Mapping[str, Any], sources: KernelSources) -> CensusConclusion:
    """Assign owners to kernels and derive labels.

    Labels that need no run are set even without a census.

    Args:
        claimed: `rows`, `complete`, `lack`, `limits` and `timed` from `census_request.take_census`; rows were validated
            on arrival.
        sources: What is known about the solution's own kernels.
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
        # The source alone decides: nothing in it can create a kernel.
        only = any(owner is KernelOwner.LIBRARY for _, owner, _ in owned)
        return (TORCH_ONLY, NO_CUSTOM_KERNEL, *((LIBRARY_ONLY,) if only else ()))
    if not known:
        return (UNCOUNTED,)
    kernels = [(row, owner) for row, owner, _ in owned if row.kind == "kernel"]
    own, library, unknown = ([row for row, owner in kernels if owner is whose] for whose in KernelOwner)
    if unknown:
        return ()
    if not timed:
        # The host device counts no library kernels but cuBLAS's, and a plain C++ extension needs no kernel. A solution
        # without kernels that only imports a kernel framework made none.
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
    """Return the share of the device time; None without times.

    The device time includes copies and fills.
    """
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
    """Build one row of the record; leave out values that are unknown or do not apply."""
    held: dict[str, Any] = {"name": row.name, "kind": row.kind, "calls": row.calls}
    if total_s > 0.0:
        held |= {"total_s": row.total_s, "share": row.total_s / total_s}
    if row.kind != "kernel":
        return held
    held["owner"] = None if owner is None else owner.value
    if library is not None:
        held["library"] = library
    if math.prod(row.grid) == 0:
        return held  # a library routine on the host device, which is no kernel there
    held |= {"grid": list(row.grid), "block": list(row.block)}
    if total_s <= 0.0:
        return held  # the host device has no registers
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
