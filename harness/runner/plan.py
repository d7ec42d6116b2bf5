"""Which solutions a run is about: found, paired with problem and workload, cut to a shard, less those already done.

Control layer, trusted side; reads files, starts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from harness.catalog import CatalogError, find_solutions, load_problems
from harness.catalog.problems import WORKLOADS_FILE
from harness.core.config import RunConfig
from harness.core.problem import Problem, Solution, Workload
from harness.core.record import Record
from harness.core.status import Failure, Status
from harness.results.reader import Identity

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSolution:
    """One solution with what it is held against."""

    solution: Solution
    problem: Problem
    workload: Workload

    @property
    def failure(self) -> Failure | None:
        """Why there is nothing to judge, as far as reading the files tells: the solution's fault first."""
        return self.solution.failure or self.problem.failure


def plan(config: RunConfig) -> list[PlannedSolution]:
    """Every solution that the configuration names, grouped by problem. Raises `CatalogError` listing all faults."""
    catalog = load_problems(config.problems)
    solutions = find_solutions(config.paths, catalog, problem_id=config.problem, author=config.author)
    known = catalog.known
    jobs = []
    faults = []
    for solution in solutions:
        problem = known[solution.problem_id]
        workload = problem.workloads.get(config.workload)
        if problem.failure is not None:  # which workloads it declares nobody can know
            workload = Workload(name=config.workload)
        precision = config.precision or (workload.precision if workload is not None else None)
        if precision is not None:
            problem = replace(problem, precision=precision)
        if workload is None:
            declared = ", ".join(problem.workloads)
            sizes = f"name one by --workload, or declare {config.workload!r} in {WORKLOADS_FILE} beside the problem"
            faults.append(f"{problem.id} declares no workload {config.workload!r}; it has {declared}: {sizes}")
            continue
        jobs.append(PlannedSolution(solution=solution, problem=problem, workload=workload))
    if faults:
        raise CatalogError(sorted(set(faults)))
    ordered = sorted(jobs, key=lambda job: (job.problem.id, job.solution.label))
    return part(ordered, config.shard)


def part(items: Sequence[T], shard: str | None) -> list[T]:
    """The share of shard `i/n`: neighbours stay together, sizes differ by at most one; all items where it is None.

    Every item is in one of the n parts, as long as all of them see the same items in the same order.
    """
    if shard is None:
        return list(items)
    number, count = (int(text) for text in shard.split("/"))
    return list(items[(number - 1) * len(items) // count : number * len(items) // count])


def identity_of(job: PlannedSolution, config: RunConfig) -> Identity:
    """What the record of this job will be found by."""
    return job.problem.id, job.solution.label, config.device.value, job.workload.name


def is_done(job: PlannedSolution, config: RunConfig, finished: Mapping[Identity, Record]) -> bool:
    """Whether a resumed run has the verdict on this job already: of these very files, and not a `harness_error`."""
    held = finished.get(identity_of(job, config))
    return (
        held is not None
        and held.status is not Status.harness_error
        and held.solution_digest == job.solution.digest
        and held.problem_digest == job.problem.digest
    )
