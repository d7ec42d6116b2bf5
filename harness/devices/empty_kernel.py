"""Calls that do next to nothing: by how much one process's device times lie beyond another's.

Both sides of the trust boundary use it. Imports `devices`, `messages` and `stats`.

A GPU takes launches a little faster from some of its hardware queues than from others. On an H200 (driver 580.159.04)
the processes that were looked at, and groups of streams in each, fell into three kinds, 0.11 us apart for each launch
of a call, whatever it did, and each kept to its kind for as long as it was watched
(`tests/benchmarks/bench_processes.py`, `results/time-h200/processes.md`). So an identical twin was off by 2 to 5 %
where a call takes 6 to 12 us. Hence the same empty calls are made in the contestant's process, there before anything of
the submission is in it, and in the referee's, on streams of both kinds that it has (`Device.lanes`). Calls of many
launches tell kinds apart: the reference's bursts go by way of the lane that is most like the contestant's. Calls have a
part of their own, too, which is 0.09 us less in a context with one hardware queue (`queues`), while each launch takes
0.04 us more: that is seen in calls of few launches, by the mean of several contestants, since in one it is not told
from noise, and is taken off the solution's times.
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
"""Launches of the calls by which short calls are compared; how many a solution's have, only the solution could say."""

MANY = 4
"""Launches of the calls by which kinds are told: those are 0.45 us apart, and series in one process 0.05 us."""

WARM = 12
"""Calls made before. Of 18 fresh processes on an H200 the first six empty calls took 5.6 us in the mean, the next six
3.3, and all later ones 3.0: what is left of that in a series is noise in what is taken off."""

CALLS = 20
"""Calls of each length in a series, an even number of them: each kind of place in the GPU's queue comes as often
(`CudaDevice.time_cold`)."""

FIRST_SERIES, MORE_SERIES, LATEST_SERIES = 2, 1, 12
"""Series of the referee's by lane: at first, with each problem more, and how many of the latest ones count. What they
are off, all solutions of a problem are off."""

HALF_STEP_S = 0.22e-6
"""Half of what calls of `MANY` launches of two kinds are apart."""

MOST_APART_S = 5 * HALF_STEP_S
"""Calls of `MANY` launches that are farther from all lanes than three kinds are from one another were disturbed, and
tell of no kind. The contestant is taken for one of the fastest then: audits of the submission may have disturbed it."""

LATEST_CONTESTANTS = 24
"""How many contestants count, those with as many hardware queues as the one compared."""

MOST_S = 0.3e-6
"""No more than this is taken off, which is the least noise floor (`quiet.PROCESS_BIAS_S`): of 104 contestants on an
H200 the farthest from its referee lay 0.29 us off. Audits may run beside a contestant's empty calls, of the very
submission too: what those can gain it by slowing them has to drown in the noise floor."""


def empty_calls(device: Device, lane: int = 0) -> EmptyTimed:
    """A series of calls with a cold cache that set one word, by way of this lane."""
    with _warmed_up(device, lane) as series:
        return EmptyTimed(
            few_s=statistics.fmean(burst_time(series(launches, CALLS)) for launches in FEW),
            many_s=burst_time(series(MANY, CALLS)),
        )


def many_launches_s(device: Device, lane: int) -> float:
    """The time of those with many launches alone."""
    with _warmed_up(device, lane) as series:
        return burst_time(series(MANY, CALLS))


@contextmanager
def _warmed_up(device: Device, lane: int) -> Iterator[Callable[[int, int], list[float]]]:
    """What makes a number of calls (its second argument) of so many launches (its first) and gives their seconds, for
    as long as the block lasts; after some that do not count.
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
    """What a contestant's empty calls say beside the referee's: the `lane` for the reference's bursts, and what is
    `taken_off_s` the solution's times. `evidence` is what the record says of it.
    """

    lane: int
    taken_off_s: float
    evidence: Mapping[str, Any]


class EmptyCalls:
    """Those of a process that lives on, by lane, and of the contestants that it met."""

    def __init__(self, device: Device) -> None:
        self._device = weakref.ref(device)  # which lives no longer for what is kept of it
        self._lanes: tuple[int, ...] = ()
        self._own: dict[int, deque[EmptyTimed]] = {}
        self._beyond: defaultdict[bool, deque[float]] = defaultdict(lambda: deque(maxlen=LATEST_CONTESTANTS))

    def own(self) -> dict[int, EmptyTimed]:
        """The mean of the latest series, some of which are made now: of the default lane, and of that farthest from it
        where they are of two kinds.
        """
        device = self._device()
        assert device is not None, "whoever asks has it"
        if not self._lanes:
            self._lanes = _two_kinds({lane: many_launches_s(device, lane) for lane in device.lanes})
        number = MORE_SERIES if self._own else FIRST_SERIES
        for lane in self._lanes:
            held = self._own.setdefault(lane, deque(maxlen=LATEST_SERIES))
            held.extend(empty_calls(device, lane) for _ in range(number))
        return {lane: _mean(held) for lane, held in self._own.items()}

    def forget(self) -> None:
        """Let nothing count that was measured so far, except for which lanes are of two kinds."""
        self._own.clear()
        self._beyond.clear()

    def knows(self, *, one_queue: bool) -> bool:
        """Whether a contestant with one hardware queue, or with several, was compared before."""
        return bool(self._beyond[one_queue])

    def compare(self, contestant: EmptyTimed, lanes: Mapping[int, EmptyTimed], *, one_queue: bool) -> Compared:
        """A contestant's empty calls beside the referee's own, `lanes`; they count for the contestants after it."""
        apart_s = {number: abs(timed.many_s - contestant.many_s) for number, timed in lanes.items()}
        lane, others = min(apart_s, key=apart_s.__getitem__), self._beyond[one_queue]
        taken_off_s = max(-MOST_S, min(MOST_S, contestant.few_s - lanes[lane].few_s))
        if apart_s[lane] > MOST_APART_S:
            lane, taken_off_s = min(lanes, key=lambda each: lanes[each].many_s), 0.0
        elif apart_s[lane] <= HALF_STEP_S:
            others.append(taken_off_s)  # no more than is taken off: one that was slowed weighs little in the mean
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
    """Those of this process on this device, always the same."""
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
