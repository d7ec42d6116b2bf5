"""Nearly empty calls, to compare the launch overhead of two processes.

Both sides. Processes and streams on a GPU differ in launch overhead, which biases the times of short calls. The
contestant makes empty calls before it imports the submission. The referee makes the same calls on its own lanes. The
comparison selects the lane for the reference's bursts and gives a correction of the solution's times. See
guides/design/stream_gate.md.
"""

from __future__ import annotations

import statistics
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from harness.core.stats import burst_time
from harness.devices.device import Device
from harness.protocol.messages import EmptyTimed

FEW = (1, 2)
"""Launches in the calls for the correction of short calls. Only the solution knows how many launches its own calls
make.
"""

MANY = 4
"""Launches in the calls that identify the kind of a lane: kinds differ by 0.45 us, series of one process by 0.05 us
(H200).
"""

WARM = 12
"""Warm-up calls. In 18 fresh processes on an H200 the first six empty calls took 5.6 us on average, the next six 3.3,
and all later ones 3.0. The rest of that effect in a series is noise of the correction.
"""

CALLS = 20
"""Calls of each length in a series. The number is even, so each kind of place in the GPU's queue is equally frequent
(`CudaDevice.time_cold`).
"""

FIRST_SERIES, MORE_SERIES, LATEST_SERIES = 2, 1, 12
"""Series of the referee for each lane: at first, for each further problem, and the number of latest ones that count.
Their error applies to all solutions of a problem.
"""

HALF_STEP_S = 0.22e-6
"""Half of the difference between calls of `MANY` launches on lanes of two kinds, in seconds."""

MOST_APART_S = 5 * HALF_STEP_S
"""Largest plausible distance from all lanes, for calls of `MANY` launches, in seconds.

Three kinds are never farther apart, so such calls were disturbed and identify no kind. The contestant then counts as
one of the fastest kind, because audits of its own submission may have slowed it.
"""

LATEST_CONTESTANTS = 24
"""Number of latest contestants that count, among those with as many hardware queues as the compared one."""

MOST_S = 0.3e-6
"""Largest correction of a solution's times, in seconds; equals the least noise floor (`PROCESS_BIAS_S`).

Of 104 contestants on an H200 the farthest was 0.29 us away from its referee. Audits, also of the same submission, may
run during a contestant's empty calls. The gain from slowing them must stay below the noise floor.
"""


def empty_calls(device: Device, lane: int = 0) -> EmptyTimed:
    """Time a series of cold calls that set one word, by way of `lane`.

    Args:
        device: The device to measure.
        lane: One of `Device.lanes`.

    Returns:
        Times of calls with few launches (mean over `FEW`) and of calls with `MANY` launches, in seconds.
    """
    with _warmed_up(device, lane) as series:
        return EmptyTimed(
            few_s=statistics.fmean(burst_time(series(launches, CALLS)) for launches in FEW),
            many_s=burst_time(series(MANY, CALLS)),
        )


def many_launches_s(device: Device, lane: int) -> float:
    """Time the calls of `MANY` launches only; seconds."""
    with _warmed_up(device, lane) as series:
        return burst_time(series(MANY, CALLS))


@contextmanager
def _warmed_up(device: Device, lane: int) -> Iterator[Callable[[int, int], list[float]]]:
    """Yield a function that times calls, after warm-up calls.

    It takes the launches of a call and the number of calls, and returns device times in seconds.
    """
    word = torch.zeros(1, dtype=torch.int32, device=device.torch_device)

    def series(launches: int, number: int) -> list[float]:
        def call() -> None:
            for _ in range(launches):
                word.zero_()

        return [device.time_cold(call, lambda _: None).device_s for _ in range(number)]

    device.synchronize()
    with device.lane(lane):
        series(MANY, WARM)
        yield series


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Comparison of a contestant's empty calls with the referee's.

    Attributes:
        lane: Lane for the reference's bursts.
        taken_off_s: Correction to subtract from the solution's times, in seconds.
        evidence: Entry for the record.
    """

    lane: int
    taken_off_s: float
    evidence: Mapping[str, Any]


class EmptyCalls:
    """Empty calls of a long-lived process by lane, and of the contestants that it met."""

    def __init__(self, device: Device) -> None:
        self._device = weakref.ref(device)  # weak, so that cached times do not keep the device alive
        self._lanes: tuple[int, ...] = ()
        self._own: dict[int, deque[EmptyTimed]] = {}
        self._beyond: defaultdict[bool, deque[float]] = defaultdict(lambda: deque(maxlen=LATEST_CONTESTANTS))

    def own(self) -> dict[int, EmptyTimed]:
        """Return the mean of the latest series by lane, after measuring new ones.

        The result has the default lane, and the lane farthest from it if the two are of different kinds.
        """
        device = self._device()
        assert device is not None, "the caller holds the device"
        if not self._lanes:
            self._lanes = _two_kinds({lane: many_launches_s(device, lane) for lane in device.lanes})
        number = MORE_SERIES if self._own else FIRST_SERIES
        for lane in self._lanes:
            held = self._own.setdefault(lane, deque(maxlen=LATEST_SERIES))
            held.extend(empty_calls(device, lane) for _ in range(number))
        return {lane: _mean(held) for lane, held in self._own.items()}

    def forget(self) -> None:
        """Discard all measurements, but keep the two kinds of lanes."""
        self._own.clear()
        self._beyond.clear()

    def knows(self, *, one_queue: bool) -> bool:
        """Return whether a contestant with one (or several) queues was compared before."""
        return bool(self._beyond[one_queue])

    def compare(self, contestant: EmptyTimed, lanes: Mapping[int, EmptyTimed], *, one_queue: bool) -> Compared:
        """Compare a contestant's empty calls with the referee's.

        The result also counts for later contestants.

        Args:
            contestant: The contestant's times.
            lanes: The referee's times by lane (`own`).
            one_queue: Whether the contestant's context has one hardware queue.

        Returns:
            The lane for the reference and the correction.
        """
        apart_s = {number: abs(timed.many_s - contestant.many_s) for number, timed in lanes.items()}
        lane, others = min(apart_s, key=apart_s.__getitem__), self._beyond[one_queue]
        taken_off_s = max(-MOST_S, min(MOST_S, contestant.few_s - lanes[lane].few_s))
        if apart_s[lane] > MOST_APART_S:
            lane, taken_off_s = min(lanes, key=lambda each: lanes[each].many_s), 0.0
        elif apart_s[lane] <= HALF_STEP_S:
            others.append(taken_off_s)  # limited, so that one slowed contestant changes the mean little
            taken_off_s = statistics.fmean(others)
        evidence = {
            "solution": _shown(contestant),
            "lanes": {str(number): _shown(timed) for number, timed in lanes.items()},
            "lane": lane,
            "taken_off": taken_off_s,
            "contestants": len(others),
        }
        return Compared(lane=lane, taken_off_s=taken_off_s, evidence=evidence)


_held: weakref.WeakKeyDictionary[Device, EmptyCalls] = weakref.WeakKeyDictionary()


def of(device: Device) -> EmptyCalls:
    """Return the empty calls of this process on `device`, always the same object."""
    return _held.setdefault(device, EmptyCalls(device))


def _two_kinds(many_s: Mapping[int, float]) -> tuple[int, ...]:
    other = max(many_s, key=lambda lane: abs(many_s[lane] - many_s[0]))
    return (0, other) if abs(many_s[other] - many_s[0]) > HALF_STEP_S else (0,)


def _mean(series: deque[EmptyTimed]) -> EmptyTimed:
    return EmptyTimed(
        few_s=statistics.fmean(each.few_s for each in series), many_s=statistics.fmean(each.many_s for each in series)
    )


def _shown(timed: EmptyTimed) -> dict[str, float]:
    return {"few": timed.few_s, "many": timed.many_s}
