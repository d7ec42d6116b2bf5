"""Send one solution through an executor and build its record from the outcome.

Trusted side. Used by the runner's threads.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.catalog import unmet_need
from harness.core import policy
from harness.core.choices import DeviceKind
from harness.core.config import RunConfig
from harness.core.environment import Environment
from harness.core.record import DERIVED_SIZES, SECRET_SHAPES, Record
from harness.core.status import Status, one_line
from harness.core.task import Outcome, Task
from harness.protocol.kernel_packages import imports_kernel_package
from harness.referee.contestants.kernel_census import KernelSources, conclude
from harness.referee.small_sizes import SMALL, NoSmallSizes, SmallSizes, no_sizes
from harness.results.reader import timestamp
from harness.runner.executors import Built, Executor, Slot
from harness.runner.plan import PlannedSolution

_FOR_A_GPU = re.compile(r"\b__global__\b")


Next = tuple[PlannedSolution, Built, Path]
"""A solution that is probably evaluated next, with its build and its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenVerdict:
    """A solution whose verdict is still open on a slot; `settle` makes its record.

    Attributes:
        job: The solution with its problem and workload.
        built: Its build.
        task: The task that the referee has.
        log_path: The solution's log.
        begin_unix_s: Start of the evaluation, in seconds since 1970.
        judged_s: How long the slot evaluated it, in seconds.
    """

    job: PlannedSolution
    built: Built
    task: Task
    log_path: Path
    begin_unix_s: float
    judged_s: float


def begin(
    executor: Executor,
    slot: Slot,
    job: PlannedSolution,
    built: Built,
    config: RunConfig,
    log_path: Path,
    ahead: Sequence[Next] = (),
) -> Record | OpenVerdict:
    """Evaluate a built solution; return its record, or the open verdict for `settle`.

    The verdict stays open if it waits for an audit. The solution's output is appended to `log_path`. The solutions
    `ahead` are hints: their audits may start meanwhile. Raises `SlotLost`.
    """
    begin, begin_unix_s = time.perf_counter(), time.time()
    task = _built_task(job, built, config, log_path)
    coming = [(_built_task(next_job, next_built, config, path), next_built) for next_job, next_built, path in ahead]
    outcome = executor.judge(slot, task, built, coming)
    held = OpenVerdict(
        job=job,
        built=built,
        task=task,
        log_path=log_path,
        begin_unix_s=begin_unix_s,
        judged_s=time.perf_counter() - begin,
    )
    return held if outcome is None else _record(held, outcome, slot, config)


def settle(executor: Executor, slot: Slot, held: OpenVerdict, config: RunConfig) -> Record:
    """Wait for an open verdict and return the record. Raises `SlotLost`."""
    begin = time.perf_counter()
    outcome = executor.settle(slot, held.task, held.built)
    return _record(held, outcome, slot, config, settled_s=time.perf_counter() - begin)


def _record(held: OpenVerdict, outcome: Outcome, slot: Slot, config: RunConfig, *, settled_s: float = 0.0) -> Record:
    job, built = held.job, held.built
    outcome = policy.apply(config.policy, _with_census(outcome, job, built))
    ran_on = {"slot": slot.name, "begin_unix_s": held.begin_unix_s, "end_unix_s": held.begin_unix_s + held.judged_s}
    outcome = replace(outcome, evidence={**outcome.evidence, "ran_on": ran_on})
    _join_logs(held.log_path, held.task.log_path, outcome.detail)
    wall_s = built.wall_s + held.judged_s + settled_s
    record = record_of(job, outcome, built, config, slot.environment, wall_s=wall_s)
    if job.group is not None:
        job.group.add(record)
    return record


def foreseen_task(job: PlannedSolution, config: RunConfig, log_path: Path) -> Task:
    """Return the task of a solution before its build: enough to load its problem."""
    return Task(
        problem=job.problem,
        workload=job.workload,
        source="",
        filename=job.solution.path.name,
        modules=(),
        readable=(),
        log_path=log_path.with_name(log_path.name + ".run"),
        timed=config.device is DeviceKind.CUDA,
        small=job.problem.workloads.get(SMALL),
        checked_on_host=config.audit == "auto" and bool((job.on_host or {}).get("kernels_checked")),
        input_key=job.input_key,
        shape_key=job.shape_key,
    )


def with_small_sizes(job: PlannedSolution, small_sizes: SmallSizes) -> PlannedSolution:
    """Give the problem a workload `small`, which audits and the host device need.

    Returns:
        The job with derived sizes, if the problem declares none. If none can be derived, a job at that workload has a
        `failure`, and another one stays as it is: its audit takes the whole problem, or is incomplete.

    Raises:
        CacheError: The cache can't be used.
    """
    problem, workload = job.problem, job.workload
    if job.failure is not None or SMALL in problem.workloads:
        return job
    try:
        problem = small_sizes.completed(problem)
    except NoSmallSizes as error:
        if workload.derived:
            return replace(job, problem=replace(problem, failure=no_sizes(problem, error)))
        return job
    return replace(job, problem=problem, workload=problem.workloads[SMALL] if workload.derived else workload)


def _built_task(job: PlannedSolution, built: Built, config: RunConfig, log_path: Path) -> Task:
    """Return the task of a built solution, without the modules."""
    ran_on_cpu = built.has_cuda_sources or brings_gpu_code(job.solution.source)
    return replace(
        foreseen_task(job, config, log_path),
        source=job.solution.source,
        timed=config.device is DeviceKind.CUDA or not ran_on_cpu,
        settled_at=None if job.group is None else job.group.settled_at(),
    )


def _with_census(outcome: Outcome, job: PlannedSolution, built: Built) -> Outcome:
    """Add evidence and labels from the kernel census.

    The contestant's claims are checked against the build.
    """
    claimed = outcome.evidence.get("census")
    if claimed is None:
        return outcome
    concluded = conclude(claimed, KernelSources.of(job.solution.source, built.to_json()))
    labels = (*outcome.labels, *(label for label in concluded.labels if label not in outcome.labels))
    return replace(outcome, evidence={**outcome.evidence, "census": dict(concluded.evidence)}, labels=labels)


def brings_gpu_code(source: str) -> bool:
    """Return whether a source contains kernels in CUDA or of a package (Triton).

    On the host device Triton's interpreter executes the latter. A solution may build the former itself, so that no
    build reports them.
    """
    return imports_kernel_package(source) or _FOR_A_GPU.search(source) is not None


def where_unjudged(slots: Sequence[Slot], environment: Environment, device: DeviceKind) -> Mapping[str, Any]:
    """Return the environment for the record of a solution that no slot evaluated.

    It is the environment of a slot, so that a failed build counts for the device that it was made for. If no slot has
    one yet, it is this machine's.
    """
    return next((slot.environment for slot in slots if slot.environment), environment.for_record(device))


def record_of_build(
    job: PlannedSolution, built: Built, config: RunConfig, where: Mapping[str, Any], log_path: Path
) -> Record:
    """Return the record of a solution whose build failed."""
    failure = built.failure
    assert failure is not None
    _join_logs(log_path, None, failure.detail)
    outcome = Outcome(status=failure.status, reason=failure.reason, evidence=failure.evidence)
    return record_of(job, outcome, built, config, where, wall_s=built.wall_s)


def record_unbuilt(
    executor: Executor, job: PlannedSolution, config: RunConfig, where: Mapping[str, Any]
) -> Record | None:
    """Return the record of a solution that need not be built; None if it has to be.

    Reasons: a file is unreadable, the problem needs something that this machine lacks, or the problem is at fault.
    """
    if (failure := job.failure) is not None:
        outcome = Outcome(status=failure.status, reason=failure.reason, evidence=failure.evidence)
    elif (need := unmet_need(job.problem.source)) is not None:
        outcome = Outcome(status=Status.unsupported, reason=need)
    elif (fault := executor.at_fault(job.problem)) is not None:
        outcome = fault
    else:
        return None
    return record_of(job, outcome, None, config, where, wall_s=0.0)


def record_of(
    job: PlannedSolution,
    outcome: Outcome,
    built: Built | None,
    config: RunConfig,
    environment: Mapping[str, Any],
    *,
    wall_s: float,
) -> Record:
    """Make a record of an outcome, with everything that says where it comes from."""
    # Results at two precision classes must never be ranked together, and the workload's name does not show the class.
    override = {"precision_override": config.conditions} if config.conditions is not None else {}
    small = job.problem.workloads.get(SMALL)
    cascade = {"cascade": dict(job.on_host)} if job.on_host is not None else {}
    shapes = {SECRET_SHAPES: config.shapes} if config.shapes else {}
    derived = {DERIVED_SIZES: dict(small.sizes)} if small is not None and small.derived else {}
    return Record(
        problem=job.problem.id,
        author=job.solution.author,
        solution=job.solution.label,
        sample=job.solution.sample,
        device=config.device,
        workload=job.workload.name,
        status=outcome.status,
        reason=one_line(outcome.reason),
        labels=outcome.labels,
        speedup=outcome.speedup,
        evidence={**outcome.evidence, **override, **shapes, **derived, **cascade},
        timing=outcome.timing,
        build=built.to_json() if built is not None else None,
        environment=dict(environment),
        solution_digest=job.solution.digest,
        problem_digest=job.problem.digest,
        finished_at=timestamp(),
        wall_s=wall_s,
    )


def _join_logs(log_path: Path, run_log: Path | None, detail: str) -> None:
    """Join the build's output, the solution's output and the details in one file."""
    output = b""
    if run_log is not None and run_log.exists():
        output = run_log.read_bytes()
        run_log.unlink()
    if output or detail:  # an empty file for each solution of a long run would be many
        with log_path.open("ab") as log:
            if output:
                log.write(b"\n== output of the solution's process ==\n" + output)
            if detail:
                log.write(b"\n== details ==\n" + detail.encode(errors="replace") + b"\n")
