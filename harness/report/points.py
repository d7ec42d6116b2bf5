"""Convert records to points of the roofline figure.

Pure functions. The numbers come from `timing.speed_of_light`; records without them give no point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from harness.core.record import Record
from harness.report.figures import Point
from harness.results.latest import recency
from harness.results.scoring import EAGER, entries_of

BOUNDS = ("memory", "compute", "launch")


def points_of(
    records: Sequence[Record], *, baseline: str = EAGER, links: Mapping[int, str] | None = None
) -> list[Point]:
    """Return a point for each timed solution with a speed of light.

    Args:
        records: The records; of several for one solution the latest counts.
        baseline: Baseline of the speedups.
        links: `id()` of a record -> link of its point.
    """
    points = []
    latest: dict[tuple[str, ...], Record] = {}
    for record in records:
        key = (*record.identity, record.author, str(record.environment.get("gpu")))
        if key not in latest or recency(latest[key]) <= recency(record):
            latest[key] = record
    for record in latest.values():
        held = (record.timing or {}).get("speed_of_light")
        light: Mapping[str, Any] = held if isinstance(held, Mapping) else {}
        fraction, memory_s = _positive(light.get("fraction")), _positive(light.get("memory_s"))
        bound = light.get("bound")
        if record.speedup is None or fraction is None or memory_s is None or bound not in BOUNDS:
            continue
        compute_s = _positive(light.get("compute_s")) or 0.0
        points.append(
            Point(
                entry=entries_of([record], baseline=baseline)[0],
                bound=str(bound),
                intensity=compute_s / memory_s,
                fraction=fraction,
                link=(links or {}).get(id(record), ""),
            )
        )
    return points


def _positive(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value > 0.0 else None
