"""Evaluate one solution: load, correctness, sanitizer checks, timing, verdict.

Trusted side. `Session.run` executes the stages in this order:

1. load: import the solution, construct `ModelNew`, time empty kernels in its process (`contestants/client.py`).
2. check: compare outputs on every input variant, then once more with one changed element (`correctness_stage.py`).
3. audit: collect the findings of compute-sanitizer on the small workload (`background_checks.py`).
4. shapes: if the run asks for them, stages 1, 2 and 4 at secret sizes in the same process (`secret_shapes.py`).
5. time: timed rounds against the reference, calls back to back, kernel census, end of process (`timing_stage.py`).
6. verdict: the first stage that fails gives its status. Else the status is `passed`, and only the run's policy may
   still change it (`Outcome.policy_may_refuse`, `core/policy.py`).

The record's `evidence.stages_s` has the seconds of each stage.
"""

from __future__ import annotations

import time

from harness.core.status import Failure
from harness.core.task import Outcome
from harness.devices.empty_kernel import Compared
from harness.referee.audit.small_workload import EXPLAINED
from harness.referee.background_checks import SmallWorkloadCheck
from harness.referee.contestants.client import ContestantClient
from harness.referee.context import EvidenceLog, RefereeContext
from harness.referee.correctness_stage import CorrectnessStage
from harness.referee.secret_shapes import SecretShapes
from harness.referee.timing.output_copies import reserve
from harness.referee.timing.reference_timing import ProblemCalibration
from harness.referee.timing_stage import TimingStage


class Session:
    """The evaluation of one solution, from attaching its process to the verdict.

    Args:
        context: What the referee's evaluations share.
        client: The solution's contestant.
        log: Gets evidence, labels and seconds.
        side: The solution's check on a small workload, if there is one.
        shapes: Its secret shapes, if the run asks for them.
        known: Calibration of the problem; None if there is none.
    """

    def __init__(
        self,
        context: RefereeContext,
        client: ContestantClient,
        log: EvidenceLog,
        *,
        side: SmallWorkloadCheck | None = None,
        shapes: SecretShapes | None = None,
        known: ProblemCalibration | None = None,
    ) -> None:
        self._context = context
        self._client = client
        self._log = log
        self._side = side
        self._shapes = shapes
        self._known = known
        self.owes = False
        """Whether the verdict still waits for `side`; `background_checks.settle` then completes the outcome."""

    def run(self) -> Outcome:
        """Run all stages in order and return the verdict.

        If only the audit is missing, set `owes` and return the outcome without it.
        """
        compared = self._load()
        correctness = CorrectnessStage(self._context, self._client, self._log)
        failure = self._audited(correctness.run())
        if failure is None and self._shapes is not None:
            failure = self._at_secret_shapes(self._shapes, compared)
        if failure is not None:
            return self._completed(self._log.failed(failure))
        timing = TimingStage(self._context, self._client, self._log, known=self._known, compared=compared)
        return self._completed(timing.run(correctness.call_s))

    def _at_secret_shapes(self, shapes: SecretShapes, compared: Compared | None) -> Failure | None:
        begin = time.perf_counter()
        with self._log.stage("shapes"):
            failure = shapes.judge(self._client, compared)
        self._client.deadline_s += time.perf_counter() - begin  # each shape has a time limit of its own
        return failure

    def _completed(self, outcome: Outcome) -> Outcome:
        return outcome if self._shapes is None else self._shapes.complete(outcome, self._context.config.shapes)

    def _load(self) -> Compared | None:
        known = self._known
        if known is not None:
            reserve(self._client.workspace, range(known.quiet.back_to_back_sets))
        with self._log.stage("load"):
            return self._client.load(known.quiet.empty_calls if known is not None and self._client.task.timed else None)

    def _audited(self, failure: Failure | None) -> Failure | None:
        """Return the failure that follows from `failure` and the audit, if that is over."""
        if self._side is None or not (failure is None or failure.status in EXPLAINED):
            return failure
        if not self._side.ready:
            self.owes = True
            return failure
        with self._log.stage("audit", self._client.workspace.ledger):
            failure = self._side.conclude(failure)
        self._client.deadline_s += self._log.stages_s["audit"]  # an audit at full size waits for other audits
        self._log.evidence |= self._side.evidence
        self._log.labels += self._side.labels
        return failure

    def close(self) -> None:
        """Release exclusive use; cancel the audit unless the verdict waits for it."""
        self._context.exclusive.withdraw()
        if self._side is not None and not self.owes:
            self._side.cancel()
