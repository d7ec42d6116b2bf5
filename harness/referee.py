"""The referee: inputs, truth, verification, timing and verdict for one solution at a time.

The trusted process. It never imports, unpickles or executes anything of a submission: it asks a contestant over
`wire` and reads raw bytes from its own arena. One referee serves one device; it keeps the last problem ready, so
that solutions of one problem following one another share inputs' layout and the reference.
"""

from __future__ import annotations

import functools
import importlib
import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from harness import idle
from harness.audit import Auditor, Subject
from harness.bench import Bench
from harness.claims import Calibration, calibrate
from harness.devices import Device, open_device
from harness.gpustate import GpuMonitor, GpuState
from harness.guest import Guest, GuestFailed
from harness.lint import taken_for_right
from harness.measure import (
    MAX_ROUNDS,
    Limits,
    ReferenceRunner,
    Turn,
    calls_of,
    plan_turns,
    quiet_reference_s,
    run_rounds,
)
from harness.messages import Attach, Burst, BurstDone, CallMode, Load
from harness.model import DeviceKind, Failure, Problem, Status, Workload, one_line
from harness.reference import ProblemError
from harness.reordering import REPEATED_CALLS, Reordering, uses_atomics
from harness.reports import failure_of_reports, labels_of_reports
from harness.roofline import SpeedOfLight, TrustFloor, datasheet, speed_of_light, trust_floor
from harness.sandbox import SandboxPolicy
from harness.sidecheck import AUDITED_CALLS, EXPLAINED, SideCheck, choose_workload, set_bytes, subject_of
from harness.tasks import Outcome, RefereeConfig, Task
from harness.timing import Settled, judge_times
from harness.verify import Finding, Verifier, overall, summarise
from harness.zygote import Zygote

T = TypeVar("T")

STRESS_DRAWS = 2
"""Draws of each stress variant: one draw may hide a mistake (a lost term that happens to be near zero)."""

DEGENERATE = "degenerate_problem"
"""Label: the problem takes answers for right that nothing was computed for, and was scored all the same."""

BUILDS_LATER = ("triton", "load", "cupy", "numba")
"""Words of sources that may bring kernels of their own although nothing was built ahead: those are audited too."""

CALIBRATION_BURSTS = 6
"""Bursts of a trusted contestant by which those of a solution are measured."""

EXTRA_SETS = 2
"""Sets of a burst beyond the timed ones: one call to warm up, one for latency."""


class Referee:
    """Judges solutions on one device. A context manager."""

    def __init__(
        self, config: RefereeConfig, zygote: Zygote, *, device: Device | None = None, auditor: Auditor | None = None
    ) -> None:
        self.config = config
        self.device = device or open_device(config.device, config.device_index)
        self.monitor = GpuMonitor(self.device.uuid)
        self._zygote = zygote
        # Seeds must not be guessable from an earlier run's: a fresh secret each time, never written anywhere.
        self._secret = random.Random(secrets.randbits(256))
        self._auditor = auditor
        self._bench: Bench | None = None
        self._side_bench: Bench | None = None
        self._taken_for_right: dict[tuple[object, ...], tuple[str, ...]] = {}

    def __enter__(self) -> Referee:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop_bench()

    def _drop_bench(self) -> None:
        for held in (self._bench, self._side_bench):
            if held is not None:
                held.close()
        self._bench = self._side_bench = None

    def bench_for(self, problem: Problem, workload: Workload) -> Bench:
        """The problem made ready, kept while solutions to it follow one another. Raises `ProblemError`."""
        held = self._bench
        if held is not None and (held.problem.digest, held.workload) == (problem.digest, workload):
            return held
        self._drop_bench()
        self._bench = Bench(
            problem,
            workload,
            self.device,
            sets_wanted=max(self.config.sets_per_burst + EXTRA_SETS, len(self._variants(problem)) + 1),
            secret=self._secret,
        )
        return self._bench

    def _refuse_degenerate(self, bench: Bench) -> tuple[str, ...]:
        """What the problem wrongly takes for right, looked at once. Raises `ProblemError` unless that is allowed."""
        problem = bench.problem
        key = (problem.digest, problem.precision, bench.workload.name)
        if key not in self._taken_for_right:
            self._taken_for_right[key] = taken_for_right(bench, problem.precision)
        found = self._taken_for_right[key]
        if found and not self.config.allow_degenerate:
            more = f" and {len(found) - 1} more" if found[1:] else ""
            raise ProblemError(
                f"degenerate problem: it takes for right {found[0]}{more}; "
                "harness problems lint says more, --allow-degenerate scores it all the same"
            )
        return found

    def _variants(self, problem: Problem) -> list[tuple[str, int]]:
        """Variant and part of each call of the verification: own inputs with several seeds, each other one twice."""
        stress = [(variant, part) for variant in problem.rules.variants for part in range(STRESS_DRAWS)]
        return [("own", part) for part in range(self.config.seeds)] + stress

    def judge(self, task: Task) -> Outcome:
        """Run, verify and time one solution. Only a fault of the harness raises."""
        begin = time.perf_counter()
        stages: dict[str, float] = {}
        evidence: dict[str, Any] = {"stages_s": stages}
        try:
            bench = self.bench_for(task.problem, task.workload)
            degenerate = self._refuse_degenerate(bench)
            bench.publish()
        except ProblemError as error:
            return Outcome(
                status=Status.harness_error, reason=one_line(f"problem {task.problem.id}: {error}"), evidence=evidence
            )
        except (torch.OutOfMemoryError, MemoryError) as error:
            self._drop_bench()
            return Outcome(
                status=Status.harness_error,
                reason=one_line(
                    f"problem {task.problem.id}, workload {task.workload.name}, does not fit the free memory of the "
                    f"{self.config.device.value} device: {error}"
                ),
                evidence=evidence,
            )
        if task.timed and bench.quiet_s is None and self.config.device is DeviceKind.CUDA:
            bench.quiet_s = quiet_reference_s(bench)
            bench.calibration = self._calibrate(bench, task)
        stages["prepare"] = time.perf_counter() - begin
        evidence["inputs_drawn_on"] = bench.drawn_on
        if degenerate:
            evidence["taken_for_right"] = list(degenerate)
        guest: Guest | None = None
        try:
            with Guest(
                self._zygote, self._policy(task), task.log_path, memory_limit_bytes=self.config.memory_limit_bytes
            ) as guest:
                session = _Session(self, bench, guest, task, evidence, stages, begin)
                try:
                    outcome = session.run()
                finally:
                    session.close()
        except GuestFailed as failed:
            outcome = _failed(failed.failure, evidence)
        if degenerate:
            outcome = replace(outcome, labels=(*outcome.labels, DEGENERATE))
        if guest is not None:
            evidence["sandbox"] = _sandbox_json(guest)
        stages["total"] = time.perf_counter() - begin
        return outcome

    def side_check(self, task: Task, bench: Bench) -> SideCheck | None:
        """Begin the checks on the small workload; None where there are none to make."""
        if self._auditor is None or not (task.parts or any(word in task.source for word in BUILDS_LATER)):
            return None
        workload = choose_workload(task, set_bytes(bench))
        if workload is None:
            return None
        try:
            side = self._side_bench_for(task.problem, workload)
        except (ProblemError, torch.OutOfMemoryError, MemoryError):
            return None  # the problem's small sizes are no fault of the solution's; `problems lint` finds them
        attach = self.attach_request(side, own_allocations=True)

        def full() -> Subject:
            return subject_of(task, bench, self.attach_request(bench, own_allocations=True), calls=1)

        return SideCheck.begin(task, workload, side, attach, self._auditor, self._examine, full)

    def _side_bench_for(self, problem: Problem, workload: Workload) -> Bench:
        held = self._side_bench
        if held is None or (held.problem.digest, held.workload) != (problem.digest, workload):
            if held is not None:
                held.close()
            self._side_bench = None
            wanted = AUDITED_CALLS + len(self._variants(problem))
            self._side_bench = Bench(problem, workload, self.device, sets_wanted=wanted, secret=self._secret)
        assert self._side_bench is not None
        return self._side_bench

    def _examine(self, task: Task) -> Outcome:
        """Judge values alone, over the side bench, beside an audit that reads its first sets."""
        bench, evidence, stages = self._side_bench, {}, {}  # type: ignore[var-annotated]
        assert bench is not None
        begin = time.perf_counter()
        try:
            with Guest(
                self._zygote, self._policy(task), task.log_path, memory_limit_bytes=self.config.memory_limit_bytes
            ) as guest:
                session = _Session(self, bench, guest, task, evidence, stages, begin, first_set=AUDITED_CALLS)
                return session.run()
        except GuestFailed as failed:
            return _failed(failed.failure, evidence)

    def attach_request(self, bench: Bench, *, own_allocations: bool = False) -> Attach:
        """What a contestant needs to know of the arena of `bench`."""
        return Attach(
            nbytes=bench.arena.nbytes,
            device=self.config.device.value,
            device_index=self.config.device_index,
            checked=self.config.checked,
            host_runtime=self.config.host_runtime,
            own_allocations=own_allocations,
        )

    def _calibrate(self, bench: Bench, task: Task) -> Calibration | None:
        """What bursts cost beside their calls, from those of a contestant whose code is the harness's own.

        None where that fails; the first solution then shows why.
        """
        own = replace(task, source=idle.source(bench.traits), filename="idle.py", modules=(), parts=(), readable=())
        sets = min(len(bench.sets), self.config.sets_per_burst + EXTRA_SETS)
        bursts = []
        try:
            with Guest(
                self._zygote, self._policy(own), own.log_path, memory_limit_bytes=self.config.memory_limit_bytes
            ) as guest:
                session = _Session(self, bench, guest, own, {}, {}, time.perf_counter(), first_set=0)
                bursts = session.idle_bursts(sets)
        except GuestFailed:
            return None
        return calibrate(bursts)

    def _policy(self, task: Task) -> SandboxPolicy:
        return SandboxPolicy(
            mode=self.config.sandbox,
            gpu=self.config.device is DeviceKind.CUDA,
            readable=task.readable + ((Path(runtime),) if (runtime := self.config.host_runtime) else ()),
            max_memory_bytes=self.config.memory_limit_bytes,
        )


class _Session:
    """One solution from attach to verdict."""

    def __init__(
        self,
        referee: Referee,
        bench: Bench,
        guest: Guest,
        task: Task,
        evidence: dict[str, Any],
        stages: dict[str, float],
        begin: float,
        *,
        first_set: int | None = None,
    ) -> None:
        self._referee = referee
        self._config = referee.config
        self._monitor = referee.monitor
        self._secret = referee._secret
        self._variants = referee._variants(task.problem)
        self._bench = bench
        self._guest = guest
        self._task = task
        self._evidence = evidence
        self._stages = stages
        self._deadline = begin + self._config.solution_timeout_s
        self._labels: list[str] = []
        self._unmatched: tuple[str, ...] = ()
        self._answered: list[int] = []
        self._on_the_side = first_set is not None
        self._first_set = first_set or 0
        self._side: SideCheck | None = None
        self._closed: list[int] = []
        self._closed_digests: list[int] = []
        # Seconds that the device was with the one and the other; what remains of the stages are draws and checks.
        self._bursts_s = {"solution": 0.0, "reference": 0.0}
        evidence["bursts_s"] = self._bursts_s

    def run(self) -> Outcome:
        self._timed("load", self._load)
        if not self._on_the_side:
            self._side = self._referee.side_check(self._task, self._bench)
        try:
            failure = self._timed("verify", self._right)
        except GuestFailed as failed:
            failure = failed.failure
        if self._side is not None and (failure is None or failure.status in EXPLAINED):
            failure = self._timed("audit", functools.partial(self._side.conclude, failure))
            self._evidence |= self._side.evidence
            self._labels += self._side.labels
        if failure is not None:
            return _failed(failure, self._evidence, self._labels)
        if not self._task.timed:
            return Outcome(
                status=Status.passed,
                reason="right on every input variant; not timed, since CUDA sources ran on the CPU",
                evidence=self._evidence,
                labels=tuple(self._labels),
            )
        return self._timed("measure", self._measure)

    def close(self) -> None:
        """Leave nothing of it running."""
        if self._side is not None:
            self._side.cancel()

    def _right(self) -> Failure | None:
        findings, done = self._verification()
        self._evidence |= summarise(findings)
        failure = failure_of_reports(done.reports) or overall(findings, unmatched=self._unmatched)
        if failure is None and self._config.device is DeviceKind.HOST and self._config.checked and not self._task.timed:
            failure, done = self._timed("reorder", self._reordered)
        if done.reports:
            self._evidence["reports"] = [dict(report) for report in done.reports]
        self._labels += labels_of_reports(done.reports)
        return failure

    def _reordered(self) -> tuple[Failure | None, BurstDone]:
        """The last calls once more, with blocks and threads in another order (CUDA sources on the CPU)."""
        second = Reordering(
            self._bench,
            self._verifier(),
            lambda turns, schedule: self._ask(calls_of(self._bench, turns), schedule)[0],
            uses_atomics(self._task.source),
        )
        failure, done = second.check(self._answered[:REPEATED_CALLS])
        if second.evidence:
            self._evidence["second_schedule"] = second.evidence
        self._labels += second.labels
        return failure, done

    def _timed(self, name: str, step: Callable[[], T]) -> T:
        begin = time.perf_counter()
        try:
            return step()
        finally:
            self._stages[name] = time.perf_counter() - begin

    def _left_s(self) -> float:
        return max(1.0, self._deadline - time.perf_counter())

    def _load(self) -> None:
        bench, config = self._bench, self._config
        self._guest.attach(self._referee.attach_request(bench), bench.arena.fd, config.load_timeout_s)
        loaded = self._guest.load(
            Load(
                source=self._task.source,
                filename=self._task.filename,
                modules=self._task.modules,
                init_tree=bench.init_tree.to_json(),
                init_slots=bench.init_slots,
                state=bench.state_slots,
                seed=bench.model_seed,
            ),
            min(config.load_timeout_s, self._left_s()),
        )
        self._unmatched = loaded.unmatched
        self._evidence["state"] = {"copied": list(loaded.copied), "unmatched": list(loaded.unmatched)}
        if loaded.notes:
            self._evidence["notes"] = list(loaded.notes)

    def _burst(self, turns: Sequence[Turn]) -> tuple[BurstDone, float]:
        """The claims, and the seconds until the outputs lay still.

        A stopped process's kernels run on. What one of them still writes shows by the outputs' checksums, and what it
        takes while they are read the first time is added to the burst.
        """
        done, wall_s = self._ask(calls_of(self._bench, turns))
        if self._config.device is DeviceKind.CUDA:
            self._closed = [turn.index for turn in turns]
            begin = time.perf_counter()
            self._closed_digests = self._bench.output_digests(self._closed)
            middle = time.perf_counter()
            self._expect_still()
            wall_s += max(0.0, (middle - begin) - (time.perf_counter() - middle))
        return done, wall_s

    def idle_bursts(self, sets: int) -> list[tuple[float, list[float]]]:
        """Wall seconds and claimed device seconds of bursts over `sets` sets, by a solution that is trusted."""
        self._load()
        bursts = []
        for number in range(CALIBRATION_BURSTS + 1):
            turns = plan_turns(sets, self._secret, number + 1)
            for turn in turns:
                self._bench.mask(turn.index)
            self._bench.device.synchronize()
            done, wall_s = self._burst(turns)
            bursts.append((wall_s, [claim.device_s for claim in done.claims]))
        return bursts[1:]  # the first one loads and allocates

    def _expect_still(self) -> None:
        """Raise `GuestFailed` where outputs have changed since the burst that they are of was over."""
        if self._bench.output_digests(self._closed) != self._closed_digests:
            raise GuestFailed(
                Failure(
                    status=Status.disqualified,
                    reason="outputs were written after the calls that they are of had closed",
                    evidence={"rule": "late write"},
                )
            )

    def _ask(self, calls: tuple[Any, ...], schedule: int = 0) -> tuple[BurstDone, float]:
        burst = Burst(
            calls=calls,
            input_tree=self._bench.tree.to_json(),
            state_names=self._bench.traits.updates_state,
            restore_state=bool(self._bench.traits.updates_state),
            coerce_device=self._config.device_policy == "coerce",
            schedule=schedule,
        )
        timeout_s = min(self._config.call_timeout_s * len(calls), self._left_s())
        done, wall_s = self._guest.burst(burst, timeout_s)
        self._bursts_s["solution"] += wall_s
        return done, wall_s

    def _verification(self) -> tuple[list[Finding], BurstDone]:
        """Calls over every variant, made like any others, and judged by the same rules as the timed ones.

        As many at once as there are sets; the first burst has one call, so that a solution that hangs or crashes
        costs one call's time limit.
        """
        bench = self._bench
        verifier = self._verifier()
        pending = list(self._variants)
        self._secret.shuffle(pending)
        findings: list[Finding] = []
        size = 1
        while pending:
            now, pending = pending[:size], pending[size:]
            for index, (variant, part) in enumerate(now, self._first_set):
                bench.draw(index, variant, part=part)
                bench.hold_back(index)
                bench.mask(index)
            bench.device.synchronize()
            turns = [Turn(index=self._first_set + number, mode=CallMode.COLD) for number in range(len(now))]
            done, _ = self._burst(turns)
            self._answered = [turn.index for turn in turns]
            findings += verifier.check(turns, done, with_reference=True)
            self._expect_still()
            # The form of an answer is the same for every input: one call tells. Values are worth a second look.
            if any(finding.failure is not None and finding.judgement is None for finding in findings):
                break
            if any(finding.failure for finding in findings) and len(findings) > 1:
                break
            size = len(bench.sets) - self._first_set
        self._labels += verifier.labels
        return findings, done

    def _verifier(self) -> Verifier:
        return Verifier(
            self._bench,
            required=self._task.problem.precision,
            coerce=self._config.device_policy == "coerce",
        )

    def _speed_of_light(self) -> tuple[SpeedOfLight | None, TrustFloor | None]:
        """What this GPU's datasheet allows at best, and what no honest call can beat; None where it is not known."""
        name, precision = self._bench.device.name, self._task.problem.precision
        peaks = datasheet(name) if name is not None else None
        if name is None or peaks is None:
            return None, None
        flops, traffic = self._bench.costs
        light = speed_of_light(flops.total, traffic.total_bytes, peaks, precision)
        return light, trust_floor(traffic, precision, device_name=name)

    def _measure(self) -> Outcome:
        bench, config = self._bench, self._config
        verifier = self._verifier()
        findings: list[Finding] = []
        states: list[GpuState | None] = []
        # `bench.costs` needs it, and nothing may be imported while a burst runs; a worker has begun this long before.
        importlib.import_module("torch._dynamo")

        def verify(turns: Sequence[Turn], done: BurstDone) -> bool:
            latest = verifier.check(turns, done, with_reference=False)
            self._expect_still()
            findings.extend(latest)
            return not any(finding.failure for finding in latest)

        rounds = run_rounds(
            bench,
            ReferenceRunner(bench),
            self._burst,
            verify,
            Settled(target=config.relative_half_width, budget_s=config.budget_s),
            sets=min(len(bench.sets), config.sets_per_burst + EXTRA_SETS),
            limits=Limits(
                min_samples=config.min_samples,
                max_rounds=MAX_ROUNDS,
                deadline_s=self._deadline,
            ),
            secret=self._secret,
            between=lambda: states.append(self._monitor.read()),
        )
        self._bursts_s["reference"] = sum(held.reference.wall_s for held in rounds.held)
        self._evidence["timed_calls_verified"] = len(findings)
        failure = overall(findings, unmatched=self._unmatched)
        if failure is not None:
            return _failed(failure, self._evidence | {"failed_while": "timing"}, self._labels)
        self._labels += [label for label in verifier.labels if label not in self._labels]
        light, floor = self._speed_of_light()
        judged = judge_times(
            rounds,
            device=config.device,
            light=light,
            floor=floor,
            quiet_s=bench.quiet_s,
            calibration=bench.calibration,
        )
        self._labels += judged.labels
        if judged.failure is not None:
            return _failed(judged.failure, self._evidence | dict(judged.failure.evidence), self._labels, judged.timing)
        return Outcome(
            status=Status.passed,
            reason=judged.reason,
            speedup=judged.speedup,
            evidence=self._evidence,
            timing={**judged.timing, "gpu_after_rounds": [state.to_json() for state in states if state is not None]},
            labels=tuple(self._labels),
        )


def _failed(
    failure: Failure,
    evidence: Mapping[str, Any],
    labels: Sequence[str] = (),
    timing: Mapping[str, Any] | None = None,
) -> Outcome:
    return Outcome(
        status=failure.status,
        reason=failure.reason,
        evidence={**evidence, **failure.evidence},
        timing=timing,
        labels=tuple(labels),
        detail=failure.detail,
    )


def _sandbox_json(guest: Guest) -> dict[str, Any]:
    report = guest.sandbox
    held: dict[str, Any] = report.to_json()
    ended = guest.exit_report
    if ended is not None:
        held["peak_memory_bytes"] = ended.peak_memory_bytes
        held["log_truncated"] = ended.log_truncated
    return held
