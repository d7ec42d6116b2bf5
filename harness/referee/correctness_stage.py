"""Check outputs: every input variant, one changed element, a second schedule.

Trusted side. `timing_stage.py` continues with timing; `correctness/` has the comparison itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.core.choices import DeviceKind
from harness.core.status import Failure, Status
from harness.protocol.messages import BurstDone, CallMode
from harness.referee.contestants.client import ContestantClient
from harness.referee.contestants.findings import failure_of_reports, is_of_unset_shared, labels_of_reports
from harness.referee.contestants.process import ContestantFailed
from harness.referee.context import EvidenceLog, RefereeContext
from harness.referee.correctness.perturbed_input import PerturbedInput
from harness.referee.correctness.second_schedule import REPEATED_CALLS, SecondSchedule, uses_atomics
from harness.referee.correctness.verifier import CallVerdict, Verifier, kernelbench_rules, overall, summarise
from harness.referee.problem.burst_plan import PlannedCall
from harness.referee.problem.stress_variants import OWN, checked_variants

UNTIMED_SETS = 3
"""Input sets of an untimed solution, which is not called after this stage. So few that new values come to addresses
whose answers it may remember.
"""

SPARE_SETS = 16
"""Memory that stays free for a solution's own tensors, in sets of inputs and outputs. If less is free, the referee
returns all that it does not use, which takes 0.3 s with the next allocations.
"""


class CorrectnessStage:
    """Decide whether one loaded solution is correct.

    Args:
        context: What the referee's evaluations share.
        client: The solution's contestant.
        log: Gets evidence, labels and seconds.
        first_set: The first input set of the workspace that may be used.
        repeats: Whether each variant has several calls, and some are repeated with one changed element and in another
            order. One shape of several does without.
    """

    def __init__(
        self,
        context: RefereeContext,
        client: ContestantClient,
        log: EvidenceLog,
        *,
        first_set: int = 0,
        repeats: bool = True,
    ) -> None:
        self._context = context
        self._client = client
        self._log = log
        self._first_set = first_set
        self._repeats = repeats
        self._answered: list[int] = []
        self.call_s = 0.0
        """Seconds of a call in the last burst: the first call loads and allocates."""

    def run(self) -> Failure | None:
        """Return the reason why the solution is wrong, or None if it is correct."""
        try:
            with self._log.stage("verify"):
                return self._decide()
        except ContestantFailed as refused:
            return refused.failure

    def _decide(self) -> Failure | None:
        client, log = self._client, self._log
        findings, done = self._call_on_every_variant()
        as_constructed = summarise(findings)
        if client.differing and _state_may_explain(findings, done):
            findings, done = self._call_with_the_references_state(findings, done)
        log.evidence |= summarise(findings)
        log.evidence["kernelbench_would_pass"] = as_constructed["kernelbench_would_pass"]  # it copies no state
        repeats = client.config.device is DeviceKind.HOST and client.config.checked and not client.task.timed
        unset = [report for report in done.reports if is_of_unset_shared(report)] if repeats else []
        certain = [report for report in done.reports if report not in unset]
        failure = failure_of_reports(certain) or _by_rules(
            overall(findings, unmatched=client.unmatched), findings, strict=client.task.problem.compare_state
        )
        if failure is not None and unset:
            failure = failure_of_reports(done.reports)  # the unset shared memory may be the cause
        if failure is None and repeats and (unset or self._repeats):
            with log.stage("reorder"):
                failure, done = self._repeat_in_other_order(unset)
        if done.reports:
            log.evidence["reports"] = [dict(report) for report in done.reports]
        log.labels += labels_of_reports(done.reports)
        if failure is None and client.task.timed:
            self._context.exclusive.announce()  # audits stop while the last check runs
        if failure is not None or not self._repeats:
            return failure
        with log.stage("refresh", client.workspace.ledger):
            return self._repeat_with_changed_input()

    def _repeat_with_changed_input(self) -> Failure | None:
        """Repeat the last checked call with one input element changed."""
        client = self._client
        refresh = PerturbedInput(
            workspace=client.workspace,
            verifier=Verifier.of(client),
            ask=lambda planned_calls: client.burst(planned_calls)[0],
            secret=client.workspace.secret,
            required=client.task.problem.precision,
        )
        failure = refresh.check(self._answered)
        client.expect_still()
        self._log.evidence["refresh"] = refresh.evidence
        return failure

    def _repeat_in_other_order(self, unset: Sequence[Mapping[str, Any]]) -> tuple[Failure | None, BurstDone]:
        """Repeat the last calls with blocks and threads in another order (host only).

        If reports tell of shared memory read before it was written, also repeat them with other values there.
        """
        client = self._client
        second = SecondSchedule(
            client.workspace,
            Verifier.of(client),
            lambda planned_calls, schedule: client.ask(planned_calls, schedule)[0],
            uses_atomics(client.task.source),
        )
        failure, done = second.check(self._answered[:REPEATED_CALLS])
        if failure is None and unset:
            failure = second.unset(self._answered, unset)
        if second.evidence:
            self._log.evidence["second_schedule"] = second.evidence
        self._log.labels += second.labels
        return failure, done

    def _call_with_the_references_state(
        self, findings: list[CallVerdict], done: BurstDone
    ) -> tuple[list[CallVerdict], BurstDone]:
        """Call the solution again with the reference's state.

        A solution that draws its weights in another order than the reference needs them. One that folds a constant into
        its own weights is judged as constructed, because they would overwrite it.

        Args:
            findings: Verdicts on the solution as constructed, at least one of them wrong.
            done: The claims of its last burst.

        Returns:
            Verdicts and claims with the reference's state; those given, if their error is smaller.
        """
        self._client.take_state()
        again, done_again = self._call_on_every_variant()
        if overall(again) is not None and _largest_error(findings) < _largest_error(again):
            return findings, done
        return again, done_again

    def _call_on_every_variant(self) -> tuple[list[CallVerdict], BurstDone]:
        """Call the solution on every variant; check outputs like those of timed calls.

        A burst has as many calls as there are input sets. The first one has a single call: a solution that hangs or
        crashes then costs one call's timeout. Without repeats one burst has all calls.
        """
        client, workspace = self._client, self._client.workspace
        verifier = Verifier.of(client)
        pending = checked_variants(client.task.problem, client.config.seeds)
        workspace.secret.shuffle(pending)
        if not self._repeats:
            pending = [*dict(pending).items()]  # one call of each variant, with a random part
        findings: list[CallVerdict] = []
        most = len(workspace.sets) - self._first_set
        size = 1 if self._repeats else most
        while pending:
            now, pending = pending[:size], pending[size:]
            at_once = size if client.task.timed or not self._repeats else UNTIMED_SETS
            for first in range(0, len(now), at_once):
                done = self._call_on(now[first : first + at_once], verifier, findings)
            # An output's form is the same for every input, so one call decides. Wrong values need a second call.
            if any(finding.failure is not None and finding.judgement is None for finding in findings):
                break
            if any(finding.failure for finding in findings) and len(findings) > 1:
                if not kernelbench_rules(findings) and any(finding.variant == OWN for finding in findings):
                    break
                # Are the problem's own inputs answered right?
                pending = [(variant, part) for variant, part in pending if variant == OWN]
            size = most
        self._log.labels += [label for label in verifier.labels if label not in self._log.labels]
        return findings, done

    def _call_on(
        self, variants: Sequence[tuple[str, int]], verifier: Verifier, findings: list[CallVerdict]
    ) -> BurstDone:
        """Call the solution on some variants in one burst; add to `findings`."""
        client, workspace = self._client, self._client.workspace
        drawn = range(self._first_set, self._first_set + len(variants))
        for index, (variant, part) in zip(drawn, variants, strict=True):
            workspace.draw(index, variant, part=part)
        workspace.hold_back(drawn)
        workspace.mask(drawn)
        # Earlier truths leave much unused memory in this process; a solution may need some of its own.
        workspace.device.free_bytes(enough=SPARE_SETS * workspace.set_bytes)
        workspace.device.synchronize()
        # Without a timing no cache has to be flushed. At the shown shape calls look like timed ones in any case.
        mode = CallMode.COLD if self._repeats or client.task.timed else CallMode.LATENCY
        planned_calls = [PlannedCall(index=index, mode=mode) for index in drawn]
        done, wall_s = client.burst(planned_calls)
        self.call_s = wall_s / len(planned_calls)
        self._answered = list(drawn)
        findings += verifier.check(planned_calls, done, with_reference=True)
        client.expect_still()
        return done


_OF_VALUES = (Status.wrong_value, Status.wrong_state, Status.non_finite, Status.low_precision)


def _by_rules(failure: Failure | None, findings: Sequence[CallVerdict], *, strict: bool) -> Failure | None:
    """Add to a strict failure whether KernelBench's rules would accept the answers."""
    if failure is None or not strict or failure.status not in _OF_VALUES:
        return failure
    would_pass = kernelbench_rules(findings)
    reason = failure.reason + ("; correct under --rules kernelbench" if would_pass else "")
    return replace(failure, reason=reason, evidence={**failure.evidence, "kernelbench_rules_would_pass": would_pass})


def _state_may_explain(findings: Sequence[CallVerdict], done: BurstDone) -> bool:
    """Return whether wrong values are all that is wrong."""
    failure = overall(findings)
    return failure is not None and failure.status in _OF_VALUES and failure_of_reports(done.reports) is None


def _largest_error(findings: Sequence[CallVerdict]) -> float:
    """Return the largest RMS error on own inputs; infinite if it is unknown."""
    error = summarise(findings)["variants"].get(OWN, {}).get("rms_error")
    return math.inf if error is None else float(error)
