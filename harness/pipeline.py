"""From solution files to records: build all, judge one after another, append each as it finishes.

Trusted side; the conductor. Builds run in sandboxed builders, many at once, ahead of the referees; solutions of one
problem follow one another, so that a referee keeps that problem ready. It prints nothing: whoever calls gets events.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from harness.build import PRELOAD, BuildCache, BuildOutcome, Toolchain, build_solution, open_toolchain
from harness.build.arguments import describe
from harness.catalog import Catalog, CatalogError, find_solutions, load_problems
from harness.config import RunConfig
from harness.environment import Environment
from harness.executors import Executor
from harness.executors.local import LocalExecutor
from harness.model import DeviceKind, Failure, Problem, Record, Solution, Status, Workload, one_line
from harness.reference import load_reference
from harness.store import RunStore, timestamp
from harness.tasks import Outcome, RefereeConfig, Task
from harness.zygote import Zygote


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """`total` solutions will be evaluated; `skipped` have their record from before (resume)."""

    run_dir: Path
    total: int
    skipped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFinished:
    """One solution is built, or failed to."""

    solution: Solution
    wall_s: float
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SolutionFinished:
    """One solution has its record, which is on disk."""

    record: Record


Event = RunStarted | BuildFinished | SolutionFinished


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A finished run: its folder, the records of the solutions asked for, how long it took (seconds)."""

    run_dir: Path
    records: tuple[Record, ...]
    skipped: int
    wall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One solution with what it is held against."""

    solution: Solution
    problem: Problem
    workload: Workload


def plan(config: RunConfig) -> tuple[Catalog, list[Job]]:
    """Every solution that the configuration names, grouped by problem. Raises `CatalogError` listing all faults."""
    catalog = load_problems(config.problems)
    solutions = find_solutions(config.paths, catalog, problem_id=config.problem)
    jobs = []
    faults = []
    for solution in solutions:
        problem = catalog[solution.problem_id]
        if config.precision is not None:
            problem = replace(problem, precision=config.precision)
        workload = problem.workloads.get(config.workload)
        if workload is None:
            known = ", ".join(problem.workloads)
            faults.append(f"{problem.id} declares no workload {config.workload!r}; it has {known}")
            continue
        jobs.append(Job(solution=solution, problem=problem, workload=workload))
    if faults:
        raise CatalogError(sorted(set(faults)))
    return catalog, sorted(jobs, key=lambda job: (job.problem.id, job.solution.label))


def evaluate_run(
    config: RunConfig, *, environment: Environment, on_event: Callable[[Event], None] = lambda event: None
) -> RunSummary:
    """Evaluate everything that `config` names and append the records to its run folder.

    Raises `CatalogError` (wrong call, before anything is compiled), `StoreError`, `ExecutorError` or `MachineError`
    (the machine can't). Whatever happens to one solution leaves the others alone. On `KeyboardInterrupt` every
    process is ended; what is finished is on disk.
    """
    begin = time.perf_counter()
    _, jobs = plan(config)
    settings = config.to_json()
    store = (
        RunStore.resume(config.run_dir, config=settings)
        if config.resume and config.run_dir.exists()
        else RunStore.create(config.run_dir, config=settings, environment=environment.to_json())
    )
    with store:
        finished = store.finished() if config.resume else {}
        pending = [job for job in jobs if not _is_done(job, config, finished)]
        on_event(RunStarted(run_dir=config.run_dir, total=len(pending), skipped=len(jobs) - len(pending)))
        records: list[Record] = []
        if pending:
            _Run(config, environment, store, on_event, records).run(pending)
    return RunSummary(
        run_dir=config.run_dir,
        records=tuple(records),
        skipped=len(jobs) - len(pending),
        wall_s=time.perf_counter() - begin,
    )


def _is_done(job: Job, config: RunConfig, finished: Any) -> bool:
    identity = (job.problem.id, job.solution.label, config.device.value, job.workload.name)
    held = finished.get(identity)
    return (
        held is not None
        and held.status is not Status.harness_error
        and held.solution_digest == job.solution.digest
        and held.problem_digest == job.problem.digest
    )


def describe_arguments(problem: Problem) -> dict[str, Any] | None:
    """Shapes of the constructor's arguments and of one call's inputs, at the small workload where there is one.

    None where the problem does not tell; then what a solution compiles late is built where it runs.
    """
    workload = problem.workloads.get("small", Workload(name="full"))
    try:
        reference = load_reference(problem, workload)
        with torch.device("meta"):
            inputs = reference.get_inputs()
        return describe(reference.init_inputs(), inputs)
    except Exception:
        # Whatever is wrong with the problem, the referee finds it and says so; here it only costs time.
        return None


def referee_configs(config: RunConfig, device_count: int, host_runtime: str | None) -> list[RefereeConfig]:
    """One referee's configuration for each device."""
    return [
        RefereeConfig(
            host_runtime=host_runtime,
            device=config.device,
            device_index=index,
            sandbox=config.sandbox,
            checked=config.checked,
            device_policy=config.device_policy,
            seeds=config.seeds,
            load_timeout_s=config.load_timeout_s,
            call_timeout_s=config.call_timeout_s,
            solution_timeout_s=config.solution_timeout_s,
            min_samples=config.timing.min_samples,
            sets_per_burst=config.timing.sets_per_burst,
            relative_half_width=config.timing.relative_half_width,
            budget_s=config.timing.budget_s,
            memory_limit_bytes=config.memory_limit_bytes,
        )
        for index in range(device_count)
    ]


@dataclass(slots=True)
class _Run:
    """State of one run between start and end."""

    config: RunConfig
    environment: Environment
    store: RunStore
    on_event: Callable[[Event], None]
    records: list[Record]
    lock: threading.Lock = field(default_factory=threading.Lock)
    described: dict[str, dict[str, Any] | None] = field(default_factory=dict)

    def run(self, jobs: Sequence[Job]) -> None:
        config = self.config
        logs = config.run_dir / "logs"
        logs.mkdir(exist_ok=True)
        gpus = len(self.environment.gpus) if config.device is DeviceKind.CUDA else 1
        toolchain = open_toolchain(config.device, config.cache_dir, checked=config.checked)
        cache = BuildCache(config.cache_dir)
        runtime = next((str(folder) for folder in toolchain.runtime), None)
        with (
            LocalExecutor(referee_configs(config, max(1, min(gpus, 1)), runtime), logs / "_referee.log") as executor,
            Zygote(preload=PRELOAD, log_path=logs / "_builder.log") as zygote,
            ThreadPoolExecutor(config.jobs, thread_name_prefix="build") as builders,
            ThreadPoolExecutor(executor.slots, thread_name_prefix="judge") as judges,
        ):
            try:
                self._flow(jobs, builders, judges, executor, zygote, toolchain, cache)
            except BaseException:
                builders.shutdown(wait=False, cancel_futures=True)
                judges.shutdown(wait=False, cancel_futures=True)
                executor.close()
                zygote.close()
                raise

    def _flow(
        self,
        jobs: Sequence[Job],
        builders: ThreadPoolExecutor,
        judges: ThreadPoolExecutor,
        executor: Executor,
        zygote: Zygote,
        toolchain: Toolchain,
        cache: BuildCache,
    ) -> None:
        building = {builders.submit(self._build, job, zygote, toolchain, cache): job for job in jobs}
        judging: set[Future[Record]] = set()
        # Builds are under way while the referees start; a device that is missing ends the run here.
        executor.wait_ready()
        while building or judging:
            futures: list[Future[Any]] = [*building, *judging]
            done, _ = wait(futures, return_when=FIRST_COMPLETED)
            for built in [future for future in building if future in done]:
                job, outcome = building.pop(built), built.result()
                failed = outcome.failure is not None
                self.on_event(BuildFinished(solution=job.solution, wall_s=outcome.wall_s, failed=failed))
                if failed:
                    outcome.release()
                    self._finish(self._record_of_build(job, outcome))
                else:
                    judging.add(judges.submit(self._judge, job, outcome, executor))
            for judged in [future for future in judging if future in done]:
                judging.remove(judged)
                self._finish(judged.result())

    def _build(self, job: Job, zygote: Zygote, toolchain: Toolchain, cache: BuildCache) -> BuildOutcome:
        return build_solution(
            job.solution.source,
            job.solution.path.name,
            zygote=zygote,
            toolchain=toolchain,
            cache=cache,
            log_path=self.store.log_path(job.solution.label),
            timeout_s=self.config.compile_timeout_s,
            sandbox=self.config.sandbox,
            arguments=self._arguments(job.problem),
        )

    def _arguments(self, problem: Problem) -> dict[str, Any] | None:
        """What `ModelNew` is constructed with and called with, as shapes, so that builds find all they need."""
        with self.lock:
            if problem.digest not in self.described:
                self.described[problem.digest] = describe_arguments(problem)
            return self.described[problem.digest]

    def _judge(self, job: Job, built: BuildOutcome, executor: Executor) -> Record:
        begin = time.perf_counter()
        log_path = self.store.log_path(job.solution.label)
        run_log = log_path.with_name(log_path.name + ".run")
        task = Task(
            problem=job.problem,
            workload=job.workload,
            source=job.solution.source,
            filename=job.solution.path.name,
            modules=built.injected(),
            readable=built.readable,
            log_path=run_log,
            timed=self.config.device is DeviceKind.CUDA or not built.has_cuda_sources,
        )
        try:
            outcome = executor.judge(task)
        finally:
            built.release()
        _join_logs(log_path, run_log, outcome.detail)
        return self._record(job, outcome, built.to_json(), built.wall_s + time.perf_counter() - begin)

    def _record_of_build(self, job: Job, built: BuildOutcome) -> Record:
        assert built.failure is not None
        failure: Failure = built.failure
        _join_logs(self.store.log_path(job.solution.label), None, failure.detail)
        outcome = Outcome(status=failure.status, reason=failure.reason, evidence=failure.evidence)
        return self._record(job, outcome, built.to_json(), built.wall_s)

    def _record(self, job: Job, outcome: Outcome, build: dict[str, Any], wall_s: float) -> Record:
        return Record(
            problem=job.problem.id,
            author=job.solution.author,
            solution=job.solution.label,
            sample=job.solution.sample,
            device=self.config.device,
            workload=job.workload.name,
            status=outcome.status,
            reason=one_line(outcome.reason),
            labels=outcome.labels,
            speedup=outcome.speedup,
            evidence=outcome.evidence,
            timing=outcome.timing,
            build=build,
            environment=self.environment.for_record(self.config.device),
            solution_digest=job.solution.digest,
            problem_digest=job.problem.digest,
            finished_at=timestamp(),
            wall_s=wall_s,
        )

    def _finish(self, record: Record) -> None:
        with self.lock:
            self.store.append(record)
            self.records.append(record)
        self.on_event(SolutionFinished(record=record))


def _join_logs(log_path: Path, run_log: Path | None, detail: str) -> None:
    """One log file a solution: the build's output, what the solution printed, and the verdict's details."""
    with log_path.open("ab") as log:
        if run_log is not None and run_log.exists():
            output = run_log.read_bytes()
            run_log.unlink()
            if output:
                log.write(b"\n== output of the solution's process ==\n" + output)
        if detail:
            log.write(b"\n== details ==\n" + detail.encode(errors="replace") + b"\n")
