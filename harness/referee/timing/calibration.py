"""What bursts of code that the referee trusts cost on the wall beside the device times of their calls.

Pure: floats in, nothing is measured here. `learning` makes the bursts, `claims` holds contestants' against them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

AGREE_SPREAD = 0.25
AGREE_LEAST = 1.5
"""How far the costs of bursts of trusted code may lie apart: their spread as a share of the median, and the median as a
multiple of the least. In 60 calibrations on an H200 they were 0.17 and 1.2 at most; while other processes used the GPU
in turns, the least cost alone was several times as high as it should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What a call costs on the wall beyond its device time, and how much that differs between bursts. Seconds.

    `least_s` is the least cost in any burst; `calm` says that nothing is known to have disturbed them.
    """

    per_call_s: float
    spread_s: float
    bursts: int
    least_s: float = 0.0
    calm: bool = True

    @property
    def agrees(self) -> bool:
        """Whether the bursts cost about the same: those that others disturb in turns do not."""
        return self.spread_s <= AGREE_SPREAD * self.per_call_s and self.per_call_s <= AGREE_LEAST * self.least_s

    def to_json(self) -> dict[str, Any]:
        return {
            "per_call_s": self.per_call_s,
            "spread_s": self.spread_s,
            "bursts": self.bursts,
            "least_s": self.least_s,
            "calm": self.calm,
        }


def lower_of(before: Calibration | None, now: Calibration) -> Calibration:
    """What two calibrations of the same bursts say together: of two alike the lower cost, but a calm one's first; the
    least cost is that of both.
    """
    if before is None:
        return now
    better = min((before, now), key=lambda held: (not held.calm, held.per_call_s))
    return replace(better, least_s=min(before.least_s, now.least_s))


def beside(cost: Calibration, bursts: Calibration) -> Calibration:
    """What a burst is held against, where the burst of trusted code that was made next to it cost `cost`, and all of
    those together `bursts`.

    Load on the machine only adds to a cost, so the lower of that one and the median of all counts; and it makes bursts
    differ, so the spread counts up to what it is in bursts that agree.
    """
    per_call_s = min(cost.per_call_s, bursts.per_call_s)
    return replace(bursts, per_call_s=per_call_s, spread_s=min(bursts.spread_s, AGREE_SPREAD * per_call_s))


def calibrate(bursts: Sequence[tuple[float, Sequence[float]]]) -> Calibration:
    """From bursts of trusted code: each its wall seconds and the device seconds of all its calls.

    The bursts must be made as the contestant's are: the same calls, flush, copies and clock. With one burst the spread
    is unknown and taken as a tenth of the cost. Raises `ValueError` where there is none, or one is impossible.
    """
    costs = []
    for wall_s, device_s in bursts:
        if not device_s or not all(math.isfinite(v) for v in (wall_s, *device_s)):
            raise ValueError("a burst has calls, and its times are finite")
        costs.append(max(0.0, (wall_s - math.fsum(device_s)) / len(device_s)))
    if not costs:
        raise ValueError("there is no burst to calibrate on")
    middle = statistics.median(costs)
    spread = 1.4826 * statistics.median([abs(c - middle) for c in costs]) if len(costs) > 1 else middle / 10
    return Calibration(per_call_s=middle, spread_s=spread, bursts=len(costs), least_s=min(costs))
