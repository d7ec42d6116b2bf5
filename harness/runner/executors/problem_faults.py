"""When a problem, and not a solution or the machine, is why referees are lost; and what its solutions get then.

Trusted side; no process, no clock. A problem's code runs in the referee. Where it hangs there, or ends its process,
each of its solutions would cost a referee and the wait anew.

Decision: one lost referee proves nothing, since the machine may have stood still, or others' work have taken its
memory. So the next referee is a new one, and runs the problem's code (`Referee.prove`) before anything of a submission
is started in it, or of another problem. Where that is lost in the same problem's code too, the problem is at fault for
as long as this executor lives: its solutions get that said, and nothing of it is run again. Where it comes through, the
problem is as good as any. Pinned by `tests/integration/test_problem_faults.py`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from harness.core.problem import Problem
from harness.core.status import Status, one_line
from harness.core.task import Outcome, RefereeConfig
from harness.referee.problem.watchdog import CodeLocation, Phase

LEAST_STEP_S = 30.0
"""What each step of a problem may take, however little solutions may: its first one loads libraries."""

TIMES_TRUTH = 10.0
"""How much longer than a call of a solution the reference may take in float64, which may be computed on the CPU."""

READY_LIMIT_S = 600.0
"""For what goes on between calls of a problem's code, which is mostly the harness's."""

EVIDENCE = "problem_fault"
"""Key in a record's evidence: the problem is why there is no verdict, for this solution and any other."""

_LOADING = frozenset({Phase.IMPORT, Phase.INIT_INPUTS, Phase.CONSTRUCTOR, Phase.INPUTS})


def limit_s(step: Phase, config: RefereeConfig) -> float:
    """How long a step of a problem may take, by what solutions may take for the same."""
    if step is Phase.READY:
        return READY_LIMIT_S
    if step in _LOADING:
        return max(LEAST_STEP_S, config.load_timeout_s)
    # The first call of a reference, and in float64, may compile what its import would, had it been written so.
    calls = TIMES_TRUTH if step is Phase.TRUTH else 1.0
    return max(LEAST_STEP_S, config.load_timeout_s + config.call_timeout_s * calls)


def option(step: Phase) -> str | None:
    """The option of the command line that gives a step more time."""
    if step is Phase.READY:
        return None
    return "--load-timeout" if step in _LOADING else "--call-timeout"


@dataclass(frozen=True, slots=True, kw_only=True)
class LostSlot:
    """A referee that was lost in a problem's code: `how` in words, `hung_s` where it was for taking so long, and the
    end of its log.
    """

    place: CodeLocation
    how: str
    hung_s: float | None = None
    detail: str = ""

    def outcome(self) -> Outcome:
        """What each solution to this problem gets."""
        place = self.place
        more = option(place.step)
        remedy = f"mend it, or allow more by {more}, then --resume" if self.hung_s is not None and more else ""
        reason = (
            f"problem {place.problem} is at fault: its referee {self.how} in {place.step} (workload {place.workload}), "
            f"and a new one that ran nothing else was lost in it too; {remedy or 'mend it, then --resume'}"
        )
        fault = {"step": place.step.name.lower(), "workload": place.workload, "how": self.how, "limit_s": self.hung_s}
        return Outcome(
            status=Status.harness_error, reason=one_line(reason), evidence={EVIDENCE: fault}, detail=self.detail
        )


class ProblemFaults:
    """What an executor knows of the problems that referees were lost in, by their digests. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._suspects: set[str] = set()
        self._outcomes: dict[str, Outcome] = {}

    def of(self, problem: Problem) -> Outcome | None:
        """What its solutions get without being tried; None where it is not at fault."""
        with self._lock:
            return self._outcomes.get(problem.digest)

    def convicted(self, digest: str) -> bool:
        """Whether the problem of this digest is at fault."""
        with self._lock:
            return digest in self._outcomes

    def doubts(self, problem: Problem) -> bool:
        """Whether a referee was lost in its code, and none came through since."""
        with self._lock:
            return problem.digest in self._suspects or problem.digest in self._outcomes

    def suspect(self, loss: LostSlot) -> None:
        """A referee was lost in a problem's code, whatever else went on."""
        with self._lock:
            self._suspects.add(loss.place.digest)

    def convict(self, loss: LostSlot) -> None:
        """A new referee was lost in it too, and nothing else went on."""
        with self._lock:
            self._outcomes.setdefault(loss.place.digest, loss.outcome())

    def acquit(self, problem: Problem) -> None:
        """A new referee came through all of its code."""
        with self._lock:
            self._suspects.discard(problem.digest)

    def learn(self, problem: Problem, outcome: Outcome) -> None:
        """Take over from another executor's outcome that the problem is at fault, where it says so."""
        if EVIDENCE in outcome.evidence:
            with self._lock:
                self._outcomes.setdefault(problem.digest, outcome)
