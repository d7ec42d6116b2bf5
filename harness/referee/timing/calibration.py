"""Compute the wall-clock cost of a call beyond its device time.

Trusted side; pure functions of numbers. `calibrate.py` makes the bursts, `claims.py` compares contestants' bursts with
them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.core.json_value import JsonObject

AGREE_SPREAD = 0.25
AGREE_LEAST = 1.5
"""Largest differences between the costs of trusted bursts that count as agreement: their spread as a share of the
median, and the median as a multiple of the least cost. In 60 calibrations on an H200 they were at most 0.17 and 1.2.
While other processes used the GPU in turns, the least cost alone was several times too high.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration(JsonObject):
    """Cost of a call on the wall clock beyond its device time, in seconds.

    `per_call_s` is the median over bursts, `spread_s` their scatter (1.4826 times the MAD), `least_s` the least cost in
    any burst. `calm` says that nothing is known to have disturbed the bursts.
    """

    per_call_s: float
    spread_s: float
    bursts: int
    least_s: float = 0.0
    calm: bool = True

    @property
    def agrees(self) -> bool:
        """Whether the bursts cost about the same.

        Bursts that other processes disturb in turns do not agree.
        """
        return self.spread_s <= AGREE_SPREAD * self.per_call_s and self.per_call_s <= AGREE_LEAST * self.least_s


def lower_of(before: Calibration | None, now: Calibration) -> Calibration:
    """Combine two calibrations of the same kind of burst.

    A calm calibration counts before a disturbed one; of two alike, the lower cost counts. The least cost is that of
    both.
    """
    if before is None:
        return now
    better = min((before, now), key=lambda held: (not held.calm, held.per_call_s))
    return replace(better, least_s=min(before.least_s, now.least_s))


def beside(cost: Calibration, bursts: Calibration) -> Calibration:
    """Calibrate one burst by the trusted burst next to it and by all trusted bursts.

    Load on the machine only adds to a cost, so the lower of `cost` and the median of `bursts` counts. Load also
    scatters bursts, so the spread counts only up to the value that agreeing bursts may have.

    Args:
        cost: Calibration from the trusted burst made next to the judged one.
        bursts: Calibration from all such bursts.

    Returns:
        The calibration for the judged burst.
    """
    per_call_s = min(cost.per_call_s, bursts.per_call_s)
    return replace(bursts, per_call_s=per_call_s, spread_s=min(bursts.spread_s, AGREE_SPREAD * per_call_s))


def calibrate(bursts: Sequence[tuple[float, Sequence[float]]]) -> Calibration:
    """Compute a calibration from bursts of trusted code.

    The bursts must be made exactly like the contestant's: same calls, flushes, copies and clock. With one burst the
    spread is unknown and is taken as a tenth of the cost.

    Args:
        bursts: For each burst its wall seconds and the device seconds of all its calls.

    Returns:
        Median, spread and least of (wall - sum of device times) / calls.

    Raises:
        ValueError: If there is no burst, or a burst is empty or not finite.
    """
    costs = []
    for wall_s, device_s in bursts:
        if not device_s or not all(math.isfinite(v) for v in (wall_s, *device_s)):
            raise ValueError("a burst of the calibration has no calls, or its times are not finite")
        costs.append(max(0.0, (wall_s - math.fsum(device_s)) / len(device_s)))
    if not costs:
        raise ValueError("a calibration needs at least one burst")
    middle = statistics.median(costs)
    spread = 1.4826 * statistics.median([abs(c - middle) for c in costs]) if len(costs) > 1 else middle / 10
    return Calibration(per_call_s=middle, spread_s=spread, bursts=len(costs), least_s=min(costs))
