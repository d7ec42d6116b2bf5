"""Format a GPU's measured peak rates, with their share of the datasheet's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.report import format as show

if TYPE_CHECKING:
    from harness.devices.gpu_specs import Peaks


def peaks_facts(peaks: Peaks, sheet: Peaks | None) -> dict[str, str]:
    """Return name -> value of each peak; `sheet` holds the datasheet's, or is None."""
    facts = {"copy": _bandwidth(peaks.copy_bytes_per_s, sheet)}
    if peaks.read_bytes_per_s is not None:
        facts["read"] = _bandwidth(peaks.read_bytes_per_s, sheet)
    for name, rate in peaks.flops_per_s.items():
        of = None if sheet is None else sheet.flops_per_s.get(name)
        facts[f"matrix products {name}"] = show.count(rate, "flop/s") + _share(rate, of)
    if peaks.launch_floor_s is not None:
        facts["empty kernel"] = show.duration(peaks.launch_floor_s)
    if peaks.launch_latency_s is not None:
        facts["empty kernel, from an idle device"] = show.duration(peaks.launch_latency_s)
    facts["measured by"] = peaks.reference
    return facts


def _bandwidth(rate: float, sheet: Peaks | None) -> str:
    return show.count(rate, "B/s") + _share(rate, None if sheet is None else sheet.copy_bytes_per_s)


def _share(rate: float, of: float | None) -> str:
    return "" if of is None else f" ({show.share(rate / of)} of the datasheet's)"
