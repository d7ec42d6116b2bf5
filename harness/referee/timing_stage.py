"""Time one correct solution: rounds, back to back, CUDA graph, census, memory.

Trusted side. `timing/` has the measurements and their judgement. The order is fixed: a graph may break the process, no
clock may run after a profiler, the memory that the process gives back is known only after its end, and then its GPU
work is launched once more by another process.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from harness.core.choices import DeviceKind
from harness.core.status import Status
from harness.core.task import Outcome
from harness.devices.empty_kernel import Compared
from harness.devices.gpu_specs import datasheet
from harness.devices.interference import DISTURBED
from harness.devices.nvml import GpuWatch
from harness.protocol.messages import BurstDone, CallMode
from harness.referee.baselines import with_baselines
from harness.referee.contestants.census_request import take_census
from harness.referee.contestants.client import ContestantClient
from harness.referee.contestants.pool import Purpose
from harness.referee.context import EvidenceLog, RefereeContext
from harness.referee.correctness.verifier import CallVerdict, Verifier, overall
from harness.referee.problem.burst_plan import EXTRA_SETS, PlannedCall
from harness.referee.problem.roofline import SpeedOfLight, TrustFloor, speed_of_light, trust_floor
from harness.referee.problem.stress_variants import OWN, checked_variants
from harness.referee.timing.back_to_back import BackToBackCheck, BackToBackTimes
from harness.referee.timing.back_to_back_burst import BackToBackRunner
from harness.referee.timing.recalibrate import judge_fairly
from harness.referee.timing.reference_timing import NONSTOP_BELOW_S, ProblemCalibration
from harness.referee.timing.relaunching import NOT_RELAUNCHED, SLOWER_RELAUNCHED, RelaunchedTimes, Relaunching, typical
from harness.referee.timing.rounds import (
    LONG_S,
    LONG_SETS,
    MAX_ROUNDS,
    ReferenceRunner,
    RoundRules,
    Rounds,
    RoundSettings,
    SolutionSide,
    run_rounds,
)
from harness.referee.timing.speedup import (
    NOT_QUEUED,
    UNEXPLAINED,
    JudgedTimes,
    SettledTimes,
    doubt,
    judge_times,
    peak_memory,
    with_graph,
)

WORTH_A_GAP_S = 0.05
"""If checking the outputs of a burst takes longer than this, audits may run on the GPU meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _JudgedRounds:
    """Accepted times of a solution, and how to judge them again.

    `judge` is `judge_times` with all arguments but `known` and `factor`.
    """

    judged: JudgedTimes
    judge: Callable[..., JudgedTimes]
    watch: GpuWatch

    @property
    def claimed_s(self) -> float:
        """Typical device time of a cold call that counts so far, in seconds."""
        return typical([time_s for burst in self.judged.timing["solution"]["samples_s"] for time_s in burst])


class _TimedCallCheck:
    """Check the outputs of timed calls; audits may use the GPU meanwhile."""

    def __init__(self, context: RefereeContext, client: ContestantClient) -> None:
        self._exclusive = context.exclusive
        self._client = client
        self.verifier = Verifier.of(client)
        self.findings: list[CallVerdict] = []
        self._checking_s = 0.0

    def __call__(self, planned_calls: Sequence[PlannedCall], done: BurstDone) -> bool:
        """Return whether these calls are correct."""
        exclusive, begin = self._exclusive, time.perf_counter()
        # Let audits run meanwhile, but only if that gains more time than stopping them again costs.
        worth = self._checking_s > max(WORTH_A_GAP_S, 2 * exclusive.last_s)
        with exclusive.gap() if worth else exclusive.starts():
            latest = self.verifier.check(planned_calls, done, with_reference=False)
            self._client.expect_still()
            self._checking_s = time.perf_counter() - begin
            before_s = exclusive.waited_s
        self._client.deadline_s += exclusive.waited_s - before_s
        self.findings += latest
        return not any(finding.failure for finding in latest)


class TimingStage:
    """Time one solution and judge the times.

    Args:
        context: What the referee's evaluations share.
        client: The solution's contestant.
        log: Gets evidence, labels and seconds.
        known: Calibration of the problem; None if there is none.
        compared: Empty kernels of the solution's process, compared with the referee's.
    """

    def __init__(
        self,
        context: RefereeContext,
        client: ContestantClient,
        log: EvidenceLog,
        *,
        known: ProblemCalibration | None,
        compared: Compared | None,
    ) -> None:
        self._context = context
        self._client = client
        self._log = log
        self._known = known
        self._compared = compared
        self._back_to_back_check: BackToBackCheck | None = None

    def run(self, call_s: float) -> Outcome:
        """Return the outcome of a correct solution.

        Args:
            call_s: Seconds of a call in the correctness stage.

        Returns:
            Passed, with times if the task is timed; or why the times do not count.
        """
        if not self._client.task.timed:
            reason = "right on every input variant; not timed because CUDA sources ran on the CPU"
            untimed = self._passed(Outcome(status=Status.passed, reason=reason))
            return self._with_census(untimed) if self._client.config.device is DeviceKind.HOST else untimed
        with self._exclusive_gpu():
            with self._log.stage("measure"):
                judged = self._measure(call_s)
            return judged if isinstance(judged, Outcome) else self._with_last_measurements(judged)

    def run_rounds_only(self, call_s: float) -> Outcome:
        """Time a correct solution without graph, census and memory; its process goes on.

        Args:
            call_s: Seconds of a call in the correctness stage.

        Returns:
            Passed with times, or why the times do not count.
        """
        with self._exclusive_gpu(), self._log.stage("measure"):
            judged = self._measure(call_s)
        return judged if isinstance(judged, Outcome) else self._outcome(judged, judged.judged)

    def _end_contestant(self, before: int | None) -> int | None:
        """Stop the process.

        Args:
            before: Bytes of device memory in use before that, or None if the driver does not tell.

        Returns:
            Bytes of device memory that this gave back, or None if unknown.
        """
        self._client.contestant.kill()
        after = self._client.workspace.device.taken_bytes()
        return None if before is None or after is None else before - after

    @contextmanager
    def _exclusive_gpu(self) -> Iterator[None]:
        """Use the GPU exclusively; waiting for that does not count as the solution's time."""
        exclusive = self._context.exclusive
        before_s = exclusive.waited_s
        with exclusive.held():
            self._client.deadline_s += exclusive.waited_s - before_s
            yield

    @contextmanager
    def _untimed(self) -> Iterator[None]:
        """Let contestants start meanwhile.

        Waiting for them does not count as the time of the solution.
        """
        exclusive = self._context.exclusive
        before_s = exclusive.waited_s
        with exclusive.starts():
            yield
        self._client.deadline_s += exclusive.waited_s - before_s

    def _passed(self, outcome: Outcome) -> Outcome:
        return replace(outcome, evidence=self._log.evidence, labels=tuple(self._log.labels))

    def _with_census(self, outcome: Outcome) -> Outcome:
        """Add the kernel census to a passed outcome; it is the last request."""
        if outcome.status is not Status.passed:
            return outcome
        client = self._client
        with self._log.stage("census", client.workspace.ledger):
            coerce = client.config.device_policy == "coerce"
            census = take_census(client.contestant, client.workspace, coerce=coerce, timeout_s=client.left_s)
        return replace(outcome, evidence={**outcome.evidence, "census": census})

    def _with_last_measurements(self, rounds: _JudgedRounds) -> Outcome:
        """Add graph time, kernel census, memory and relaunched work; end the process."""
        judged, client = rounds.judged, self._client
        if self._known is None:
            return self._with_census(self._outcome(rounds, judged))
        relaunching = self._relaunching(rounds)
        if relaunching is not None:
            with self._log.stage("record_launches"):
                relaunching.record()
        before = client.workspace.device.taken_bytes()
        timing = judged.timing
        if self._back_to_back_check is not None:
            timing = with_graph(timing, self._back_to_back_check.graph)
        outcome = self._with_census(self._outcome(rounds, replace(judged, timing=timing)))
        process_bytes = self._end_contestant(before)
        memory = peak_memory(self._known, client.peak_bytes, process_bytes)
        outcome = replace(outcome, timing={**(outcome.timing or {}), "peak_memory_bytes": memory})
        if relaunching is None:
            return outcome
        with self._log.stage("relaunch"):
            relaunched = relaunching.measure(rounds.claimed_s, self._known.quiet.empty_calls)
        return self._by_relaunched(rounds, outcome, relaunched)

    def _relaunching(self, rounds: _JudgedRounds) -> Relaunching | None:
        """Return how to relaunch the solution's work; None for long calls."""
        known, client, context = self._known, self._client, self._context
        if known is None or rounds.claimed_s >= NONSTOP_BELOW_S:
            return None

        def start() -> ContestantClient:
            contestant = context.contestant(client.task, Purpose.RELAUNCHING)
            return context.client(client.workspace, contestant, client.task, EvidenceLog(), time.perf_counter())

        return Relaunching(
            client,
            start,
            sets=self._sets(math.inf),
            stress=checked_variants(client.task.problem, client.config.seeds),
            untimed=context.exclusive.starts,
        )

    def _by_relaunched(self, rounds: _JudgedRounds, outcome: Outcome, relaunched: RelaunchedTimes) -> Outcome:
        """Return the outcome with the relaunched work's time, if it is longer."""
        claimed_s = rounds.claimed_s
        factor, timing = relaunched.factor(claimed_s), dict(outcome.timing or {})
        if factor > 1.0:
            slower = rounds.judge(known=self._known, factor=factor)
            again = self._outcome(rounds, slower)
            measured = {"graph_s": timing["solution"].get("graph_s")} if "back_to_back" in timing else {}
            of_process = ("back_to_back", "calibrated_again", "peak_memory_bytes")
            kept = {name: timing[name] for name in of_process if name in timing}
            timing = {**(again.timing or {}), **kept}
            timing["solution"] = {**timing["solution"], **measured}
            outcome = replace(outcome, reason=again.reason, speedup=again.speedup)
        timing["relaunched"] = relaunched.to_json(claimed_s)
        if not relaunched.lack:
            hidden_s = timing["hidden_per_call_s"]
            timing["hidden_per_call_s"] = min(
                relaunched.hidden_s(claimed_s), math.inf if hidden_s is None else hidden_s
            )
        label = NOT_RELAUNCHED if relaunched.lack else SLOWER_RELAUNCHED if factor > 1.0 else None
        labels = outcome.labels if label is None else (*outcome.labels, label)
        return replace(outcome, timing=timing, labels=labels)

    def _measure(self, call_s: float) -> Outcome | _JudgedRounds:
        """Time the solution in rounds, then back to back, and judge the times.

        Returns:
            The failure's outcome, or the judged rounds.
        """
        client, log, config = self._client, self._log, self._client.config
        check = _TimedCallCheck(self._context, client)
        watch = GpuWatch(self._context.monitor)
        rounds = self._run_rounds(check, watch, call_s)
        client.bursts_s["reference"] = sum(each.reference.wall_s for each in rounds.held)
        log.evidence["timed_calls_verified"] = len(check.findings)
        if failure := overall(check.findings, unmatched=client.unmatched):
            return log.failed(failure, failed_while="timing")
        if rounds.lacking:
            # Else a solution that wastes time outside timed calls could decide how few of them are checked.
            late = client.time_was_over(" before enough timed calls were made on every input variant")
            return log.failed(late, failed_while="timing", rounds=len(rounds.held))
        if (backward := log.evidence.get("backward")) is not None:
            backward |= {name: times for name, times in rounds.passes().items() if times}
        back_to_back = self._back_to_back(rounds, check)
        log.evidence["timed_calls_verified"] = len(check.findings)
        if failure := overall(check.findings, unmatched=client.unmatched):
            return log.failed(failure, failed_while="calls back to back")
        log.labels += [label for label in check.verifier.labels if label not in log.labels]
        light, floor = self._speed_of_light()
        judge = functools.partial(
            judge_times,
            rounds,
            device=config.device,
            light=light,
            floor=floor,
            back_to_back=back_to_back,
            compared=self._compared,
        )
        judged = judge_fairly(judge, self._known, self._new_calibrations())
        # The driver samples rarely: if some rounds show other processes on the GPU, others may be disturbed, too.
        disturbed = watch.repeats.gave_up or (watch.repeats.seen and UNEXPLAINED in judged.labels)
        log.labels += [*judged.labels, *((DISTURBED,) if disturbed else ())]
        if judged.failure is not None:
            return log.failed(judged.failure, timing=judged.timing)
        return _JudgedRounds(judged=judged, judge=judge, watch=watch)

    def _outcome(self, rounds: _JudgedRounds, judged: JudgedTimes) -> Outcome:
        """Return the outcome of judged times, with the baselines."""
        speedup, timing, watch = judged.speedup, judged.timing, rounds.watch
        if (beside := self._context.baselines) is not None:
            speedup, timing = with_baselines(timing, self._client.config.baselines, beside.entries, beside.checks)
        timing = {**timing, "gpu_after_rounds": [state.to_json() for state in watch.states], **watch.to_json()}
        return self._passed(Outcome(status=Status.passed, reason=judged.reason, speedup=speedup, timing=timing))

    def _sets(self, call_s: float) -> int:
        """Return the number of input sets of a burst, for calls of `call_s` seconds."""
        sets = min(len(self._client.workspace.sets), self._client.config.sets_per_burst + EXTRA_SETS)
        on_host = self._client.config.device is DeviceKind.HOST
        # Else a network on the CPU takes a minute for the least number of rounds.
        return min(sets, LONG_SETS) if on_host and call_s >= LONG_S else sets

    def _run_rounds(self, check: _TimedCallCheck, watch: GpuWatch, call_s: float) -> Rounds:
        client, workspace, config = self._client, self._client.workspace, self._client.config
        on_gpu = config.device is DeviceKind.CUDA
        return run_rounds(
            workspace,
            ReferenceRunner(workspace, lane=0 if self._compared is None else self._compared.lane),
            SolutionSide(
                burst=client.burst, verify=check, in_line_s=lambda: client.contestant.in_line_s if on_gpu else 0.0
            ),
            RoundRules(
                settled=SettledTimes(
                    target=config.relative_half_width,
                    budget_s=config.budget_s,
                    calibrated=self._known is not None and self._known.pauses is not None,
                    settled_at=client.task.settled_at,
                ),
                look=watch.look,
                doubt=lambda rounds: doubt(rounds, config.device, self._known),
                deadline_s=lambda: client.deadline_s,
                untimed=self._untimed,
            ),
            RoundSettings(
                sets=self._sets(call_s),
                min_samples=config.min_samples if client.task.settled_at is None else 1,
                max_rounds=MAX_ROUNDS,
                long_s=LONG_S if on_gpu else math.inf,
                call_s=call_s,
                stress=[each for each in checked_variants(client.task.problem, config.seeds) if each[0] != OWN],
            ),
            workspace.secret,
        )

    def _back_to_back(self, rounds: Rounds, check: _TimedCallCheck) -> BackToBackTimes | None:
        """Time calls back to back if they prove more than rounds; check their outputs."""
        if self._known is None or not self._known.back_to_back:
            return None
        self._back_to_back_check = BackToBackCheck(
            BackToBackRunner.of(self._client),
            self._known,
            lambda burst: check.verifier.check(burst.planned_calls, burst.done, with_reference=False),
            check.findings,
        )
        claimed_s = statistics.median(time_s for burst in rounds.samples(CallMode.COLD)[1] for time_s in burst)
        begin = time.perf_counter()
        figures = self._back_to_back_check.measure(claimed_s, rounds.windows(CallMode.LATENCY)[1])
        self._log.stages_s["back_to_back"] = time.perf_counter() - begin
        if self._back_to_back_check.starved:
            self._log.labels.append(NOT_QUEUED)
        return figures

    def _speed_of_light(self) -> tuple[SpeedOfLight | None, TrustFloor | None]:
        """Return the speed of light and the trust floor; None for each that is unknown.

        The first uses the peaks measured on this GPU, if any; the second uses the datasheet if it has this GPU.
        """
        workspace, measured = self._client.workspace, self._context.problem.peaks
        name, problem = workspace.device.name, self._client.task.problem
        peaks = measured or (datasheet(name) if name is not None else None)
        if name is None or peaks is None:
            return None, None
        flops, traffic = workspace.costs
        light = speed_of_light(flops.total, traffic.total_bytes, peaks, problem.costs.rate or problem.precision)
        return light, trust_floor(traffic, problem.precision, device_name=name, measured=measured)

    def _new_calibrations(self) -> Iterator[ProblemCalibration]:
        """Calibrate again beside the stopped process, then once more after its end.

        The outputs of trusted code replace those of the last burst.
        """
        for dead in (False, True):
            if self._known is None:
                return
            if dead:
                self._client.contestant.kill()
            self._client.forget_outputs()
            self._known = self._context.problem.learn_again(self._client.task)
            yield self._known
