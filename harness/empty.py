"""Calls that do next to nothing: by how much one process's device times lie beyond another's.

Both sides of the trust boundary use it. Imports `devices` and `stats`.

A GPU takes launches a little faster from some of its hardware queues than from others. On an H200 (driver 580.159.04)
22 processes and two groups of streams in each fell into three kinds, 0.11 us apart for each launch of a call, whatever
it did, and each kept to its kind for as long as it was watched (`tests/benchmarks/bench_processes.py`,
`results/time-h200/processes.md`). So an identical twin was off by 2 to 5 % where a call takes 6 to 12 us. Hence the
same empty calls are made in the contestant's process, there before anything of the submission is in it, and in the
referee's, on streams of both kinds that it has (`Device.lanes`): the reference's bursts go by way of the lane that is
most like the contestant's, and what is left between the two is taken off the solution's times.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from weakref import WeakKeyDictionary

import torch

from harness.devices import Device
from harness.stats import burst_time

LAUNCHES = (1, 2)
"""Launches of empty calls, as many short calls have. How many a solution's call has, only the solution could say. What
they take has a part for each call, too, which is 0.09 us less in a context with one hardware queue (`queues`), and for
each launch 0.04 us more: so calls of more launches tell kinds better, and what short calls differ by worse."""

WARM = 12
"""Calls made before. Of 18 fresh processes on an H200 the first six empty calls took 5.6 us in the mean, the next six
3.3, and all later ones 3.0: what is left of that in a series is noise in what is taken off."""

CALLS = 32
"""Calls of each length in a series, an even number of them: each kind of place in the GPU's queue comes as often
(`CudaDevice.time_cold`)."""

FIRST_SERIES, MORE_SERIES, LATEST_SERIES = 2, 1, 12
"""Series of the referee's by lane: at first, with each problem more, and how many of the latest ones count. What they
are off, all solutions of a problem are off."""

APART_S = 0.08e-6
"""How far empty calls of two lanes must lie apart for both to be kept. Kinds are 0.17 us apart."""

MOST_S = 0.3e-6
"""No more than this is taken off, which is the least noise floor (`quiet.PROCESS_BIAS_S`): of 104 contestants on an
H200 the farthest from its referee lay 0.29 us off. Audits may run beside a contestant's empty calls, of the very
submission too: what those can gain it by slowing them has to drown in the noise floor."""


def empty_call_s(device: Device, lane: int = 0) -> float:
    """Device seconds of a call with a cold cache that sets one word, by way of this lane: the mean over `LAUNCHES`."""
    word = torch.zeros(1, dtype=torch.int32, device=device.torch_device)

    def series(launches: int, number: int) -> list[float]:
        def call() -> None:
            for _ in range(launches):
                word.zero_()

        return [device.time_cold(call, lambda _: None).device_s for _ in range(number)]

    device.synchronize()
    with device.lane(lane):
        series(max(LAUNCHES), WARM)
        return statistics.fmean(burst_time(series(launches, CALLS)) for launches in LAUNCHES)


_lanes: WeakKeyDictionary[Device, tuple[int, ...]] = WeakKeyDictionary()
_own: WeakKeyDictionary[Device, dict[int, deque[float]]] = WeakKeyDictionary()


def own_empty_calls_s(device: Device) -> dict[int, float]:
    """The same of the process that lives on, by lane: the mean of the latest series, some of which are made now. Of the
    default lane, and of that farthest from it where the two differ."""
    if device not in _lanes:
        _lanes[device] = _two_kinds({lane: empty_call_s(device, lane) for lane in device.lanes})
    number = MORE_SERIES if device in _own else FIRST_SERIES
    held = _own.setdefault(device, {lane: deque(maxlen=LATEST_SERIES) for lane in _lanes[device]})
    for _ in range(number):
        for lane, series in held.items():
            series.append(empty_call_s(device, lane))
    return {lane: statistics.fmean(series) for lane, series in held.items()}


def _two_kinds(by_lane: Mapping[int, float]) -> tuple[int, ...]:
    other = max(by_lane, key=lambda lane: abs(by_lane[lane] - by_lane[0]))
    return (0, other) if abs(by_lane[other] - by_lane[0]) > APART_S else (0,)


def forget_own(device: Device) -> None:
    """Let no series of the process that lives on count that was made so far."""
    _own.pop(device, None)


def nearest_lane(contestant_s: float | None, referee_s: Mapping[int, float]) -> int:
    """The referee's lane whose empty calls are most like a contestant's; the default one where that is not known."""
    if contestant_s is None or not math.isfinite(contestant_s):
        return 0
    return min(referee_s, key=lambda lane: abs(referee_s[lane] - contestant_s), default=0)


def beyond_s(contestant_s: float | None, referee_s: float | None) -> float:
    """How much longer a contestant's process takes for a call than the referee's by one of its lanes, in seconds, both
    of whose empty calls are given; 0 where one is not known, and `MOST_S` at most."""
    if contestant_s is None or referee_s is None:
        return 0.0
    return max(-MOST_S, min(MOST_S, contestant_s - referee_s))
