"""Small workloads kept ready for the checks on the side, each lent to one solution at a time.

Trusted side; used by the referee. Imports `bench`. Audits run ahead of the judgement, and what they answered may be
looked at only after one or two more solutions were judged. A solution that is audited can write to all of the arena
that it was given: so no two have one bench at a time, also where both solve the same problem.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.bench import Bench
from harness.core.choices import PrecisionClass
from harness.core.problem import Problem, Workload

KEPT = 6
"""Benches kept ready that nobody has. Beside the problem at hand there are those whose audits run ahead."""


@dataclass(slots=True, kw_only=True)
class _Held:
    key: tuple[str, PrecisionClass, Workload]
    bench: Bench
    lent: bool = False


class SideBenches:
    """Benches that `make` makes when they are needed. Not safe for threads."""

    def __init__(self, make: Callable[[Problem, Workload], Bench]) -> None:
        self._make = make
        self._held: list[_Held] = []

    def lend(self, problem: Problem, workload: Workload) -> Bench:
        """A bench with nothing on it, for its borrower alone until `give_back`. Raises what making one raises."""
        key = (problem.digest, problem.precision, workload)
        found = next((held for held in self._held if held.key == key and not held.lent), None)
        if found is None:
            self._give_up(KEPT - 1)
            found = _Held(key=key, bench=self._make(problem, workload))
            self._held.append(found)
        found.lent = True
        found.bench.publish()
        return found.bench

    def get_ready(self, problem: Problem, workload: Workload) -> None:
        """Have one made that nobody has yet, unless there is one of this problem. Raises what making one raises."""
        if not any(held.key == (problem.digest, problem.precision, workload) for held in self._held):
            self.give_back(self.lend(problem, workload))

    def give_back(self, bench: Bench) -> None:
        """Whoever had it is done with it: no process of a solution's has its arena any more. Idempotent."""
        for held in self._held:
            if held.bench is bench and held.lent:
                held.lent = False
                # The last used is the last to be given up.
                self._held.remove(held)
                self._held.append(held)
                return

    def close(self) -> None:
        """Close all of them, lent ones too."""
        for held in self._held:
            held.bench.close()
        self._held.clear()

    def _give_up(self, keep: int) -> None:
        """Close those unused for longest, until at most `keep` are left that nobody has."""
        idle = [held for held in self._held if not held.lent]
        for held in idle[: max(0, len(idle) - keep)]:
            held.bench.close()
            self._held.remove(held)
