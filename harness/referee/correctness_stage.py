"""Check outputs: every input variant, one changed element, a second schedule.

Trusted side. `session.py` continues with timing; `correctness/` has the comparison itself.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

from harness.core.choices import DeviceKind
from harness.core.status import Failure
from harness.core.task import Task
from harness.protocol.messages import BurstDone, CallMode
from harness.referee.contestants.client import ContestantClient
from harness.referee.contestants.findings import failure_of_reports, is_of_unset_shared, labels_of_reports
from harness.referee.contestants.process import ContestantProcess
from harness.referee.context import RefereeContext
from harness.referee.correctness.perturbed_input import PerturbedInput
from harness.referee.correctness.second_schedule import REPEATED_CALLS, SecondSchedule, uses_atomics
from harness.referee.correctness.verifier import CallVerdict, Verifier, overall, summarise
from harness.referee.problem.burst_plan import PlannedCall, calls_of
from harness.referee.problem.workspace import Workspace

T = TypeVar("T")

DEFENCES = frozenset({"audit", "refresh", "back_to_back", "census"})
"""Stages that exist only to make the verdict trustworthy; the ledger counts their time as overhead."""


class CorrectnessStage(ContestantClient):
    """The stages from loading to the decision about correctness.

    `stages` gets the seconds of each stage.
    """

    def __init__(
        self,
        context: RefereeContext,
        workspace: Workspace,
        contestant: ContestantProcess,
        task: Task,
        evidence: dict[str, Any],
        stages: dict[str, float],
        begin: float,
        *,
        first_set: int = 0,
    ) -> None:
        """Use the input sets of `workspace` from number `first_set` on."""
        super().__init__(context.config, workspace, contestant, task, evidence, begin)
        self._deadline += context.exclusive.waited_s  # waiting for exclusive use is not the solution's time
        self._context = context
        self._secret = context.secret
        self._variants = context.variants
        self._stages = stages
        self._labels: list[str] = []
        self._answered: list[int] = []
        self._call_s = 0.0
        self._first_set = first_set

    def _right(self) -> Failure | None:
        """Return the reason why the solution is wrong, or None if it is correct."""
        findings, done = self._verification()
        self._evidence |= summarise(findings)
        repeats = self._config.device is DeviceKind.HOST and self._config.checked and not self._task.timed
        unset = [held for held in done.reports if is_of_unset_shared(held)] if repeats else []
        certain = [held for held in done.reports if held not in unset]
        failure = failure_of_reports(certain) or overall(findings, unmatched=self._unmatched)
        if failure is not None and unset:
            failure = failure_of_reports(done.reports)  # the unset shared memory may be the cause
        if failure is None and repeats:
            failure, done = self._timed("reorder", functools.partial(self._reordered, unset))
        if done.reports:
            self._evidence["reports"] = [dict(report) for report in done.reports]
        self._labels += labels_of_reports(done.reports)
        if failure is None and self._task.timed:
            self._context.exclusive.announce()  # audits stop while the last check runs
        return failure or self._timed("refresh", self._refreshed)

    def _refreshed(self) -> Failure | None:
        """Repeat the last checked call with one input element changed."""
        refresh = PerturbedInput(
            workspace=self._workspace,
            verifier=self._verifier(),
            ask=lambda planned_calls: self._burst(planned_calls)[0],
            secret=self._secret,
            required=self._task.problem.precision,
        )
        failure = refresh.check(self._answered)
        self._expect_still()
        self._evidence["refresh"] = refresh.evidence
        return failure

    def _reordered(self, unset: Sequence[Mapping[str, Any]]) -> tuple[Failure | None, BurstDone]:
        """Repeat the last calls with blocks and threads in another order (host only).

        If reports tell of shared memory read before it was written, also repeat them with other values there.
        """
        second = SecondSchedule(
            self._workspace,
            self._verifier(),
            lambda planned_calls, schedule: self._ask(calls_of(self._workspace, planned_calls), schedule)[0],
            uses_atomics(self._task.source),
        )
        failure, done = second.check(self._answered[:REPEATED_CALLS])
        if failure is None and unset:
            failure = second.unset(self._answered, unset)
        if second.evidence:
            self._evidence["second_schedule"] = second.evidence
        self._labels += second.labels
        return failure, done

    def _timed(self, name: str, step: Callable[[], T]) -> T:
        begin = time.perf_counter()
        try:
            with self._workspace.ledger.spend(name) if name in DEFENCES else nullcontext():
                return step()
        finally:
            self._stages[name] = time.perf_counter() - begin

    def _verification(self) -> tuple[list[CallVerdict], BurstDone]:
        """Call the solution on every variant; check outputs like those of timed calls.

        A burst has as many calls as there are input sets. The first one has a single call: a solution that hangs or
        crashes then costs one call's timeout.
        """
        workspace = self._workspace
        verifier = self._verifier()
        pending = list(self._variants)
        self._secret.shuffle(pending)
        findings: list[CallVerdict] = []
        size = 1
        while pending:
            now, pending = pending[:size], pending[size:]
            for index, (variant, part) in enumerate(now, self._first_set):
                workspace.draw(index, variant, part=part)
            drawn = range(self._first_set, self._first_set + len(now))
            workspace.hold_back(drawn)
            workspace.mask(drawn)
            workspace.device.synchronize()
            planned_calls = [
                PlannedCall(index=self._first_set + number, mode=CallMode.COLD) for number in range(len(now))
            ]
            done, wall_s = self._burst(planned_calls)
            self._call_s = wall_s / len(planned_calls)  # of the last burst: the first call loads and allocates
            self._answered = [planned_call.index for planned_call in planned_calls]
            findings += verifier.check(planned_calls, done, with_reference=True)
            self._expect_still()
            # An output's form is the same for every input, so one call decides. Wrong values need a second call.
            if any(finding.failure is not None and finding.judgement is None for finding in findings):
                break
            if any(finding.failure for finding in findings) and len(findings) > 1:
                break
            size = len(workspace.sets) - self._first_set
        self._labels += verifier.labels
        return findings, done

    def _verifier(self) -> Verifier:
        return Verifier(
            self._workspace,
            required=self._task.problem.precision,
            coerce=self._config.device_policy == "coerce",
        )
