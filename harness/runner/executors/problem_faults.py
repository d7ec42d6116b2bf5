"""Detect faulty problems: problems whose own code kills or hangs referees.

Trusted side. One lost referee proves nothing. The next one is new and runs only the problem's code. If it is lost too,
the problem is at fault: its solutions get `harness_error` and the code is not run again. See
guides/design/scheduling.md.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from harness.core.problem import Problem
from harness.core.status import Status, one_line
from harness.core.task import Outcome, RefereeConfig
from harness.referee.problem.watchdog import CodeLocation, Phase

LEAST_STEP_S = 30.0
"""Smallest limit of each step of a problem, in seconds: the first step loads libraries."""

TIMES_TRUTH = 10.0
"""Limit of the reference in float64, which may run on the CPU, as a multiple of a solution's call limit."""

READY_LIMIT_S = 600.0
"""Limit of the work between calls of a problem's code, mostly the harness's own, in seconds."""

EVIDENCE = "problem_fault"
"""Key in a record's evidence: the problem is the reason that this solution and all others have no verdict."""

_LOADING = frozenset({Phase.IMPORT, Phase.INIT_INPUTS, Phase.CONSTRUCTOR, Phase.INPUTS})


def limit_s(step: Phase, config: RefereeConfig) -> float:
    """Return the limit of a problem's step in seconds.

    It is derived from the limits of solutions.
    """
    if step is Phase.READY:
        return READY_LIMIT_S
    if step in _LOADING:
        return max(LEAST_STEP_S, config.load_timeout_s)
    # The first call of a reference may compile extensions that another problem compiles on import.
    calls = TIMES_TRUTH if step is Phase.TRUTH else 1.0
    return max(LEAST_STEP_S, config.load_timeout_s + config.call_timeout_s * calls)


def option(step: Phase) -> str | None:
    """Return the command line option that extends a step's limit, if there is one."""
    if step is Phase.READY:
        return None
    return "--load-timeout" if step in _LOADING else "--call-timeout"


@dataclass(frozen=True, slots=True, kw_only=True)
class LostSlot:
    """A referee that was lost in a problem's code.

    Attributes:
        place: The step of the problem's code.
        how: How the referee ended, in words.
        hung_s: The limit that it exceeded in seconds; None if it did not hang.
        detail: The end of its log, or its traceback.
    """

    place: CodeLocation
    how: str
    hung_s: float | None = None
    detail: str = ""

    def outcome(self) -> Outcome:
        """Return the outcome of each solution to this problem."""
        place = self.place
        more = option(place.step)
        remedy = f"fix the problem or raise {more}, then use --resume" if self.hung_s is not None and more else ""
        reason = (
            f"problem {place.problem} is at fault: its referee {self.how} in {place.step} (workload {place.workload}), "
            f"and a new one that ran nothing else was lost there too; {remedy or 'fix the problem, then use --resume'}"
        )
        fault = {"step": place.step.name.lower(), "workload": place.workload, "how": self.how, "limit_s": self.hung_s}
        return Outcome(
            status=Status.harness_error, reason=one_line(reason), evidence={EVIDENCE: fault}, detail=self.detail
        )


class ProblemFaults:
    """Suspected and faulty problems of one executor, by digest. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._suspects: set[str] = set()
        self._outcomes: dict[str, Outcome] = {}

    def of(self, problem: Problem) -> Outcome | None:
        """Return the outcome of the problem's solutions; None if it is not at fault."""
        with self._lock:
            return self._outcomes.get(problem.digest)

    def convicted(self, digest: str) -> bool:
        """Return whether the problem with this digest is at fault."""
        with self._lock:
            return digest in self._outcomes

    def doubts(self, problem: Problem) -> bool:
        """Return whether a referee was lost in its code and no later one survived it."""
        with self._lock:
            return problem.digest in self._suspects or problem.digest in self._outcomes

    def suspect(self, loss: LostSlot) -> None:
        """Note that a referee was lost in a problem's code, whatever else ran."""
        with self._lock:
            self._suspects.add(loss.place.digest)

    def convict(self, loss: LostSlot) -> None:
        """Note that a new referee was lost in its code while nothing else ran."""
        with self._lock:
            self._outcomes.setdefault(loss.place.digest, loss.outcome())

    def acquit(self, problem: Problem) -> None:
        """Note that a new referee survived all of the problem's code."""
        with self._lock:
            self._suspects.discard(problem.digest)

    def learn(self, problem: Problem, outcome: Outcome) -> None:
        """Adopt a fault of the problem that another executor's outcome reports."""
        if EVIDENCE in outcome.evidence:
            with self._lock:
                self._outcomes.setdefault(problem.digest, outcome)
