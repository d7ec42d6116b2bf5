"""Convert records to points of the roofline figure.

Pure functions. The numbers come from `timing.speed_of_light`; records without them give no point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.core.record import Record
from harness.report.figures import Point
from harness.results.evidence import mapping, positive
from harness.results.latest import recency
from harness.results.scoring import EAGER, scored

BOUNDS = ("memory", "compute", "launch")


def points_of(
    records: Sequence[Record], *, baseline: str = EAGER, links: Mapping[int, str] | None = None
) -> list[Point]:
    """Return a point for each timed solution with a speed of light.

    Of several records of one solution the latest counts. `links` maps `id()` of a record to the link of its point.
    """
    points = []
    latest: dict[tuple[str, ...], Record] = {}
    for record in records:
        key = (*record.identity, record.author, str(record.environment.get("gpu")))
        if key not in latest or recency(latest[key]) <= recency(record):
            latest[key] = record
    for record in latest.values():
        light = mapping(record.timing, "speed_of_light")
        fraction, memory_s = positive(light.get("fraction")), positive(light.get("memory_s"))
        bound = light.get("bound")
        if record.speedup is None or fraction is None or memory_s is None or bound not in BOUNDS:
            continue
        compute_s = positive(light.get("compute_s")) or 0.0
        points.append(
            Point(
                entry=scored(record, baseline),
                bound=str(bound),
                intensity=compute_s / memory_s,
                fraction=fraction,
                link=(links or {}).get(id(record), ""),
            )
        )
    return points
