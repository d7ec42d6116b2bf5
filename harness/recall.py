"""What was learnt of problems that were at hand before, for those who come back to them.

Trusted side. Imports `bench` and `quiet`. Whoever submits batches of solutions to several problems comes back to each
with every batch; to learn one again takes two to four tenths of a second, for which the GPU must be silent.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from harness.bench import Bench
from harness.quiet import Known

RECALLED_S = 600.0
"""For how long what was learnt counts where other problems came between, from when one first did: a GPU and its
machine may change. A problem that stays at hand is not learnt again either."""

MOST_RECALLED = 256
"""Problems at most; those that were left first are forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Left:
    """`copying_s` is the bench's own, learnt from trusted code; `sets` is how many it had. `left_s` is when the problem
    was left with this knowledge for the first time, by the clock."""

    known: Known
    copying_s: float
    sets: int
    left_s: float


class Recall:
    """One referee's. Not safe for threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._clock = clock
        self._left: OrderedDict[Hashable, _Left] = OrderedDict()
        self._come_back: tuple[Hashable, _Left] | None = None

    def leave(self, bench: Bench, known: Known | None) -> None:
        """Remember what is known of the bench's problem, which is about to be closed; not where it is in doubt."""
        key = _key(bench)
        self._left.pop(key, None)
        last, self._come_back = self._come_back, None
        if known is None or not known.calm:
            return
        # Who comes back again and again would else go by what was learnt hours ago.
        same = last is not None and last[0] == key and last[1].known is known
        left_s = last[1].left_s if last is not None and same else self._clock()
        self._left[key] = _Left(known=known, copying_s=bench.copying_s, sets=len(bench.sets), left_s=left_s)
        while len(self._left) > MOST_RECALLED:
            self._left.popitem(last=False)

    def come_back(self, bench: Bench) -> Known | None:
        """What is remembered of the problem of this bench, which gets its own part of it; None where that is nothing,
        or too old, or was learnt over another number of sets."""
        key = _key(bench)
        left = self._left.pop(key, None)
        self._come_back = None
        if left is None or left.sets != len(bench.sets) or self._clock() - left.left_s > RECALLED_S:
            return None
        bench.copying_s = left.copying_s
        self._come_back = key, left
        return left.known


def _key(bench: Bench) -> Hashable:
    problem, workload = bench.problem, bench.workload
    return problem.digest, problem.precision, workload.name, str(sorted(workload.sizes.items()))
