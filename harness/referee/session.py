"""Evaluate one solution: load, correctness, sanitizer checks, timing, verdict.

Trusted side. `Session.run` executes the stages in this order:

1. load: import the solution, construct `ModelNew`, time empty kernels in its process (`contestants/client.py`).
2. verify: compare outputs on every input variant, then once more with one changed element (`correctness_stage.py`).
3. audit: collect the findings of compute-sanitizer on the small workload (`audit/small_workload.py`).
4. measure: timed rounds against the reference, then calls back to back (`timing/`).
5. census: list the kernels of one call (`contestants/census_request.py`).
6. end: stop the process and read the device memory that it gives back.

A stage that fails ends the evaluation with its status; the record's `evidence.stages_s` has the seconds of each.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, TypeVar

from harness.core.choices import DeviceKind
from harness.core.status import Failure, Status
from harness.core.task import Outcome, Task
from harness.devices import empty_kernel
from harness.devices.empty_kernel import Compared
from harness.devices.gpu_specs import datasheet
from harness.devices.interference import DISTURBED
from harness.devices.nvml import GpuWatch
from harness.protocol.messages import BurstDone, CallMode, EmptyTimed
from harness.referee.audit.small_workload import EXPLAINED, SmallWorkloadCheck
from harness.referee.baselines import with_baselines
from harness.referee.contestants.census_request import take_census
from harness.referee.contestants.findings import labels_of_reports
from harness.referee.contestants.process import ContestantFailed, ContestantProcess
from harness.referee.context import RefereeContext
from harness.referee.correctness.verifier import CallVerdict, Verifier, overall
from harness.referee.correctness_stage import CorrectnessStage
from harness.referee.problem.burst_plan import PlannedCall
from harness.referee.problem.roofline import SpeedOfLight, TrustFloor, speed_of_light, trust_floor
from harness.referee.problem.stress_variants import OWN
from harness.referee.problem.workspace import Workspace
from harness.referee.timing.back_to_back import BackToBackCheck, BackToBackTimes
from harness.referee.timing.back_to_back_burst import BackToBackRunner
from harness.referee.timing.output_copies import reserve
from harness.referee.timing.recalibrate import judge_fairly
from harness.referee.timing.reference_timing import ProblemCalibration
from harness.referee.timing.rounds import LONG_S, MAX_ROUNDS, ReferenceRunner, RoundLimits, Rounds, run_rounds
from harness.referee.timing.speedup import (
    NOT_QUEUED,
    UNEXPLAINED,
    SettledTimes,
    doubt,
    judge_times,
    peak_memory,
    with_graph,
)

T = TypeVar("T")

WORTH_A_GAP_S = 0.05
"""If checking the outputs of a burst takes longer than this, audits may run on the GPU meanwhile."""

EXTRA_SETS = 2
"""Input sets of a burst beyond the timed ones: one for the warm-up call, one for the latency call."""


class Session(CorrectnessStage):
    """The evaluation of one solution, from attaching its process to the verdict."""

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
        side: SmallWorkloadCheck | None = None,
        known: ProblemCalibration | None = None,
    ) -> None:
        super().__init__(context, workspace, contestant, task, evidence, stages, begin, first_set=first_set)
        self._compared: Compared | None = None
        self._side = side
        self.owes = False
        """Whether the verdict still waits for `side`; `small_workload.settle` then completes the outcome."""
        self._known = known
        self._back_to_back_check: BackToBackCheck | None = None

    def run(self) -> Outcome:
        """Run all stages in order and return the verdict.

        If only the audit is missing, set `owes` and return the outcome without it.
        """
        if self._known is not None:
            reserve(self._workspace, range(self._known.quiet.back_to_back_sets))
        lanes = self._known.quiet.empty_calls if self._known is not None and self._task.timed else {}
        self._timed("load", functools.partial(self._load, empty=bool(lanes)))
        self._compare(lanes)
        try:
            failure = self._timed("verify", self._right)
        except ContestantFailed as refused:
            failure = refused.failure
        if self._side is not None and (failure is None or failure.status in EXPLAINED):
            if not self._side.ready:
                self.owes = True
                return self._concluded(failure)
            failure = self._timed("audit", functools.partial(self._side.conclude, failure))
            self._deadline += self._stages["audit"]  # an audit at full size waits for other audits
            self._evidence |= self._side.evidence
            self._labels += self._side.labels
        return self._concluded(failure)

    def _compare(self, lanes: Mapping[int, EmptyTimed]) -> None:
        """Compare the empty kernels timed in the solution's process with the referee's."""
        if self._empty is not None:
            known = empty_kernel.of(self._workspace.device)
            self._compared = known.compare(self._empty, lanes, one_queue=self._contestant.has_one_queue)

    def _concluded(self, failure: Failure | None) -> Outcome:
        """Turn a failure into an outcome; without a failure, time the solution."""
        if failure is not None:
            return failed(failure, self._evidence, self._labels)
        if not self._task.timed:
            untimed = Outcome(
                status=Status.passed,
                reason="right on every input variant; not timed because CUDA sources ran on the CPU",
                evidence=self._evidence,
                labels=tuple(self._labels),
            )
            return self._counted(untimed) if self._config.device is DeviceKind.HOST else untimed
        with self._silence():
            return self._ended(self._timed("measure", self._measure))

    @contextmanager
    def _silence(self) -> Iterator[None]:
        """Use the GPU exclusively; waiting for that does not count as the solution's time."""
        exclusive = self._context.exclusive
        before_s = exclusive.waited_s
        with exclusive.held():
            self._deadline += exclusive.waited_s - before_s
            yield

    def _counted(self, outcome: Outcome) -> Outcome:
        """Add the kernel census to a passed outcome; it is the last request."""
        if outcome.status is not Status.passed:
            return outcome
        coerce = self._config.device_policy == "coerce"
        census = self._timed(
            "census",
            functools.partial(take_census, self._contestant, self._workspace, coerce=coerce, timeout_s=self._left_s()),
        )
        return replace(outcome, evidence={**outcome.evidence, "census": census})

    def _ended(self, outcome: Outcome) -> Outcome:
        """Measure last: CUDA graph time, kernel census, memory given back.

        A graph may break the process, and no clock may run after a profiler. Measuring the memory ends the process.
        """
        if self._known is None or outcome.status is not Status.passed or outcome.timing is None:
            return self._counted(outcome)
        before = self._workspace.device.taken_bytes()
        timing = outcome.timing
        if self._back_to_back_check is not None:
            timing = with_graph(timing, self._back_to_back_check.graph)
        outcome = self._counted(outcome)
        process_bytes = self.end_contestant(before)
        memory = peak_memory(self._known, self._peak_bytes, process_bytes)
        return replace(outcome, timing={**timing, "peak_memory_bytes": memory})

    def end_contestant(self, before: int | None) -> int | None:
        """Stop the process.

        Args:
            before: Bytes of device memory in use before that, or None if the driver does not tell.

        Returns:
            Bytes of device memory that this gave back, or None if unknown.
        """
        self._contestant.kill()
        after = self._workspace.device.taken_bytes()
        return None if before is None or after is None else before - after

    def close(self) -> None:
        """Release exclusive use; cancel the audit unless the verdict waits for it."""
        self._context.exclusive.withdraw()
        if self._side is not None and not self.owes:
            self._side.cancel()

    def _speed_of_light(self) -> tuple[SpeedOfLight | None, TrustFloor | None]:
        """Return the speed of light and the trust floor; None for each that is unknown.

        The first uses the peaks measured on this GPU, if any; the second uses the datasheet if it has this GPU.
        """
        name, precision = self._workspace.device.name, self._task.problem.precision
        peaks = self._context.peaks or (datasheet(name) if name is not None else None)
        if name is None or peaks is None:
            return None, None
        flops, traffic = self._workspace.costs
        light = speed_of_light(flops.total, traffic.total_bytes, peaks, precision)
        return light, trust_floor(traffic, precision, device_name=name, measured=self._context.peaks)

    def _measure(self) -> Outcome:
        """Time the solution in rounds, then back to back, and judge the times."""
        workspace, config = self._workspace, self._config
        verifier = self._verifier()
        findings: list[CallVerdict] = []
        watch = GpuWatch(self._context.monitor)

        checking_s = 0.0

        def verify(planned_calls: Sequence[PlannedCall], done: BurstDone) -> bool:
            nonlocal checking_s
            begin = time.perf_counter()
            # Let audits run meanwhile, but only if that gains more time than stopping them again costs.
            worth = checking_s > max(WORTH_A_GAP_S, 2 * self._context.exclusive.last_s)
            with self._context.exclusive.gap() if worth else nullcontext():
                latest = verifier.check(planned_calls, done, with_reference=False)
                self._expect_still()
                checking_s = time.perf_counter() - begin
                before_s = self._context.exclusive.waited_s
            self._deadline += self._context.exclusive.waited_s - before_s
            findings.extend(latest)
            return not any(finding.failure for finding in latest)

        rounds = run_rounds(
            workspace,
            ReferenceRunner(workspace, lane=0 if self._compared is None else self._compared.lane),
            self._burst,
            verify,
            SettledTimes(
                target=config.relative_half_width,
                budget_s=config.budget_s,
                calibrated=self._known is not None and self._known.pauses is not None,
            ),
            sets=min(len(workspace.sets), config.sets_per_burst + EXTRA_SETS),
            limits=RoundLimits(
                min_samples=config.min_samples,
                max_rounds=MAX_ROUNDS,
                deadline_s=lambda: self._deadline,
                long_s=LONG_S if config.device is DeviceKind.CUDA else math.inf,
            ),
            secret=self._secret,
            look=watch.look,
            doubt=lambda rounds: doubt(rounds, config.device, self._known),
            in_line_s=lambda: self._contestant.in_line_s if config.device is DeviceKind.CUDA else 0.0,
            call_s=self._call_s,
            stress=[held for held in self._variants if held[0] != OWN],
        )
        self._bursts_s["reference"] = sum(held.reference.wall_s for held in rounds.held)
        self._evidence["timed_calls_verified"] = len(findings)
        failure = overall(findings, unmatched=self._unmatched)
        if failure is not None:
            return failed(failure, self._evidence | {"failed_while": "timing"}, self._labels)
        if rounds.lacking:
            # Else a solution that wastes time outside timed calls could decide how few of them are checked.
            words = " before enough timed calls were made on every input variant"
            held = {"failed_while": "timing", "rounds": len(rounds.held)}
            return failed(self._time_was_over(words), self._evidence | held, self._labels)
        back_to_back = self._back_to_back(rounds, verifier, findings)
        self._evidence["timed_calls_verified"] = len(findings)
        if failure := overall(findings, unmatched=self._unmatched):
            return failed(failure, self._evidence | {"failed_while": "calls back to back"}, self._labels)
        self._labels += [label for label in verifier.labels if label not in self._labels]
        light, floor = self._speed_of_light()
        judged = judge_fairly(
            lambda known: judge_times(
                rounds,
                device=config.device,
                light=light,
                floor=floor,
                known=known,
                back_to_back=back_to_back,
                compared=self._compared,
            ),
            self._known,
            None if self._context.again is None else self._learn_again,
            self._contestant.kill,
        )
        # The driver samples rarely: if some rounds show other processes on the GPU, others may be disturbed, too.
        disturbed = watch.repeats.gave_up or (watch.repeats.seen and UNEXPLAINED in judged.labels)
        self._labels += [*judged.labels, *((DISTURBED,) if disturbed else ())]
        if judged.failure is not None:
            return failed(judged.failure, self._evidence | dict(judged.failure.evidence), self._labels, judged.timing)
        speedup, timing = judged.speedup, judged.timing
        if (beside := self._context.baselines) is not None:
            speedup, timing = with_baselines(timing, config.baselines, beside.entries, beside.checks)
        return Outcome(
            status=Status.passed,
            reason=judged.reason,
            speedup=speedup,
            evidence=self._evidence,
            timing={**timing, "gpu_after_rounds": [state.to_json() for state in watch.states], **watch.to_json()},
            labels=tuple(self._labels),
        )

    def _burst_runner(self) -> BackToBackRunner:
        return BackToBackRunner(
            workspace=self._workspace, contestant=self._contestant, request=self._request, limit_s=self._left_s()
        )

    def _learn_again(self) -> ProblemCalibration:
        """Repeat the calibration; its outputs replace those of the last burst."""
        assert self._context.again is not None
        self._closed, self._closed_digests = [], []
        self._known = self._context.again()
        return self._known

    def _back_to_back(self, rounds: Rounds, verifier: Verifier, findings: list[CallVerdict]) -> BackToBackTimes | None:
        """Time calls back to back if they prove more than rounds; check their outputs."""
        if self._known is None or not self._known.back_to_back:
            return None
        self._back_to_back_check = BackToBackCheck(
            self._burst_runner(),
            self._known,
            lambda held: verifier.check(held.planned_calls, held.done, with_reference=False),
            findings,
        )
        claimed_s = statistics.median(time_s for burst in rounds.samples(CallMode.COLD)[1] for time_s in burst)
        begin = time.perf_counter()
        figures = self._back_to_back_check.measure(claimed_s, rounds.windows(CallMode.LATENCY)[1])
        self._stages["back_to_back"] = time.perf_counter() - begin
        if self._back_to_back_check.starved:
            self._labels.append(NOT_QUEUED)
        return figures


def failed(
    failure: Failure,
    evidence: Mapping[str, Any],
    labels: Sequence[str] = (),
    timing: Mapping[str, Any] | None = None,
) -> Outcome:
    """Build the outcome of a solution that did not pass.

    Args:
        failure: Status, reason and evidence; reports in the evidence may add labels.
        evidence: Evidence collected so far.
        labels: Labels collected so far.
        timing: Timing, if the solution was timed before it failed.

    Returns:
        The outcome for the record.
    """
    asked = labels_of_reports(failure.evidence.get("reports", ()))
    return Outcome(
        status=failure.status,
        reason=failure.reason,
        evidence={**evidence, **failure.evidence},
        timing=timing,
        labels=tuple(dict.fromkeys((*labels, *asked))),
        detail=failure.detail,
    )
