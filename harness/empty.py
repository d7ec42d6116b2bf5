"""Calls that do next to nothing: by how much one process's device times lie beyond another's.

Both sides of the trust boundary use it. Imports `devices` and `stats`.

A GPU takes a process's launches from queues of its own, and takes them a little faster in some processes than in
others. On an H200 (driver 580.159.04) 24 processes that were forked alike fell into two kinds, 0.14 us apart for each
launch of a call, whatever it did, and each kept to its kind for as long as it was watched
(`tests/benchmarks/bench_processes.py`, `results/time-h200/processes.md`). So an identical twin was off by 2 to 5 %
where a call takes 6 to 12 us. Hence the same empty calls are made in the referee's process and in the contestant's,
there before anything of the submission is in it, and what they differ by is taken off the solution's times. They are of
one launch and of two, as many short calls are; how many launches a solution's call makes, only the solution could say.
"""

from __future__ import annotations

import statistics
from collections import deque
from weakref import WeakKeyDictionary

import torch

from harness.devices import Device
from harness.stats import burst_time

WARM = 12
"""Calls made before. Of 18 fresh processes on an H200 the first six empty calls took 5.6 us in the mean, the next six
3.3, and all later ones 3.0: what is left of that in a series is noise in what is taken off."""

CALLS = 24
"""Calls of each length in a series, an even number of them: each kind of place in the GPU's queue comes as often
(`CudaDevice.time_cold`)."""

FIRST_SERIES, MORE_SERIES, LATEST_SERIES = 4, 2, 12
"""Series of the referee's: at first, with each problem more, and how many of the latest ones count. What they are off,
all solutions of a problem are off. Single ones of 16 calls lay between 4.10 and 4.24 us in one process, and twins of
that problem with them."""

MOST_S = 0.3e-6
"""Nothing is taken off beyond this, which is the least noise floor (`quiet.PROCESS_BIAS_S`): of 104 contestants on an
H200 the farthest from its referee lay 0.29 us off. Audits may run beside a contestant's empty calls, of the very
submission too: what those can gain it by slowing them has to drown in the noise floor."""


def empty_call_s(device: Device) -> float:
    """Device seconds of a call with a cold cache that sets one word: the mean of one launch's and of two launches'."""
    word = torch.zeros(1, dtype=torch.int32, device=device.torch_device)

    def once() -> None:
        word.zero_()

    def twice() -> None:
        word.zero_()
        word.zero_()

    for _ in range(WARM):
        device.time_cold(twice, lambda _: None)
    return statistics.fmean(
        burst_time([device.time_cold(call, lambda _: None).device_s for _ in range(CALLS)]) for call in (once, twice)
    )


_own: WeakKeyDictionary[Device, deque[float]] = WeakKeyDictionary()


def own_empty_call_s(device: Device) -> float:
    """The same of the process that lives on: the mean of the latest series, some of which are made now."""
    held = _own.setdefault(device, deque(maxlen=LATEST_SERIES))
    held.extend(empty_call_s(device) for _ in range(MORE_SERIES if held else FIRST_SERIES))
    return statistics.fmean(held)


def forget_own(device: Device) -> None:
    """Let no series of the process that lives on count that was made so far."""
    _own.pop(device, None)


def beyond_s(contestant_s: float | None, referee_s: float | None) -> float:
    """How much longer a contestant's process takes for a call than the referee's, in seconds; 0 where that is not known
    or can't be."""
    if contestant_s is None or referee_s is None or abs(contestant_s - referee_s) > MOST_S:
        return 0.0
    return contestant_s - referee_s
