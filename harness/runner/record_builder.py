"""One solution through an executor: what a referee is asked, and the record that comes of the answer.

Control layer, trusted side. Used by the conductor's threads.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.catalog import unmet_need
from harness.core.choices import DeviceKind
from harness.core.config import RunConfig
from harness.core.environment import Environment
from harness.core.policy import Policy, refusal
from harness.core.record import Record
from harness.core.status import Status, one_line
from harness.core.task import Outcome, Task
from harness.referee.contestants.kernel_census import KernelSources, conclude
from harness.results.reader import timestamp
from harness.runner.executors import Built, Executor, Slot
from harness.runner.plan import PlannedSolution

_FOR_A_GPU = re.compile(r"^[ \t]*(?:import|from)[ \t]+triton\b|\b__global__\b", re.MULTILINE)


Next = tuple[PlannedSolution, Built, Path]
"""A solution that is likely to be judged next, built, with its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenVerdict:
    """A solution on which a slot owes the verdict: `settle` makes the record. `begin_unix_s` is when it was begun,
    `judged_s` how long the slot was at it.
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
    """The record of a solution that was built, or what is needed to `settle` it where that waits for what goes on
    beside the slot's work. Its output is appended to `log_path`. Raises `SlotLost`.

    What can be done of the solutions `ahead` begins meanwhile; it is lost where others come next after all.
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
    """The record of a solution whose verdict was left open. Raises `SlotLost`."""
    begin = time.perf_counter()
    outcome = executor.settle(slot, held.task, held.built)
    return _record(held, outcome, slot, config, settled_s=time.perf_counter() - begin)


def _record(held: OpenVerdict, outcome: Outcome, slot: Slot, config: RunConfig, *, settled_s: float = 0.0) -> Record:
    job, built = held.job, held.built
    outcome = _held_to(config.policy, _counted(outcome, job, built))
    ran_on = {"slot": slot.name, "begin_unix_s": held.begin_unix_s, "end_unix_s": held.begin_unix_s + held.judged_s}
    outcome = replace(outcome, evidence={**outcome.evidence, "ran_on": ran_on})
    _join_logs(held.log_path, held.task.log_path, outcome.detail)
    wall_s = built.wall_s + held.judged_s + settled_s
    return record_of(job, outcome, built, config, slot.environment, wall_s=wall_s)


def foreseen_task(job: PlannedSolution, config: RunConfig, log_path: Path) -> Task:
    """What is known of a job's task before anything of it is built: all that getting its problem ready takes."""
    return Task(
        problem=job.problem,
        workload=job.workload,
        source="",
        filename=job.solution.path.name,
        modules=(),
        readable=(),
        log_path=log_path.with_name(log_path.name + ".run"),
        timed=config.device is DeviceKind.CUDA,
        small=job.problem.workloads.get("small"),
    )


def _built_task(job: PlannedSolution, built: Built, config: RunConfig, log_path: Path) -> Task:
    """The task, without the modules."""
    ran_on_cpu = built.has_cuda_sources or brings_gpu_code(job.solution.source)
    return replace(
        foreseen_task(job, config, log_path),
        source=job.solution.source,
        timed=config.device is DeviceKind.CUDA or not ran_on_cpu,
    )


def _counted(outcome: Outcome, job: PlannedSolution, built: Built) -> Outcome:
    """`outcome` with what the contestant said of its kernels held against the build: evidence and labels."""
    claimed = outcome.evidence.get("census")
    if claimed is None:
        return outcome
    concluded = conclude(claimed, KernelSources.of(job.solution.source, built.to_json()))
    labels = (*outcome.labels, *(label for label in concluded.labels if label not in outcome.labels))
    return replace(outcome, evidence={**outcome.evidence, "census": dict(concluded.evidence)}, labels=labels)


def _held_to(policy: Policy, outcome: Outcome) -> Outcome:
    """`outcome`, refused where the run's policy says so. Only what passed can be."""
    if outcome.status is not Status.passed:
        return outcome
    refused = refusal(policy, labels=outcome.labels, evidence=outcome.evidence, speedup=outcome.speedup)
    if refused is None:
        return outcome
    evidence = {**outcome.evidence, **refused.evidence}
    return replace(outcome, status=refused.status, reason=refused.reason, speedup=None, evidence=evidence)


def brings_gpu_code(source: str) -> bool:
    """Whether a solution's text holds kernels: of Triton's, which the host device executes with Triton's own
    interpreter, or of CUDA's, which it may build where it runs, so that no build tells of them.
    """
    return _FOR_A_GPU.search(source) is not None


def where_unjudged(slots: Sequence[Slot], environment: Environment, device: DeviceKind) -> Mapping[str, Any]:
    """What the record of a solution says of the machine that no slot judged: what one of them would have said, so that
    a failed build counts among the results of the device that it was for; this machine's where none says yet.
    """
    return next((slot.environment for slot in slots if slot.environment), environment.for_record(device))


def record_of_build(
    job: PlannedSolution, built: Built, config: RunConfig, where: Mapping[str, Any], log_path: Path
) -> Record:
    """The record of a solution whose build failed."""
    failure = built.failure
    assert failure is not None
    _join_logs(log_path, None, failure.detail)
    outcome = Outcome(status=failure.status, reason=failure.reason, evidence=failure.evidence)
    return record_of(job, outcome, built, config, where, wall_s=built.wall_s)


def record_unbuilt(
    executor: Executor, job: PlannedSolution, config: RunConfig, where: Mapping[str, Any]
) -> Record | None:
    """The record of a solution that there is no use in building: its file or its problem's can't be read, or the
    problem needs what is not here, or was found to be at fault. None where nothing is known to stand in the way.
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
    """An outcome with all that a record says about where it comes from."""
    # Results of one problem at two classes must never be ranked together, and the workload's name does not tell.
    override = {"precision_override": config.precision.value} if config.precision is not None else {}
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
        evidence={**outcome.evidence, **override},
        timing=outcome.timing,
        build=built.to_json() if built is not None else None,
        environment=dict(environment),
        solution_digest=job.solution.digest,
        problem_digest=job.problem.digest,
        finished_at=timestamp(),
        wall_s=wall_s,
    )


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
