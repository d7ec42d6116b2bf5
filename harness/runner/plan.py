"""Select the solutions of a run.

Trusted side; reads files, starts nothing. Solutions are found, paired with problems and workloads, cut to a shard, and
filtered by records that exist already.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from harness.catalog import CatalogError, RejectedFile, find_solutions, load_problems
from harness.catalog.problems import WORKLOADS_FILE
from harness.core.config import RunConfig
from harness.core.problem import Problem, Solution, Workload
from harness.core.status import FAILED, Failure, Status
from harness.referee.small_sizes import SMALL, UNDERIVED
from harness.results.reader import Identity, latest_run
from harness.results.selection import has_status, is_named
from harness.results.writer import FinishedSolution, RunStore
from harness.runner.group import Group

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSolution:
    """One solution with its problem and workload.

    Attributes:
        solution: The solution.
        problem: Its problem, as the run judges it.
        workload: The problem's sizes.
        input_key: Key of the inputs, of an evaluation that is repeated; None draws one.
        shape_key: Key of the secret shapes; None means that of the solutions submitted together.
        on_host: What the CPU found first, in a cascade.
        group: Solutions with which it is compared; None times it as precisely as a single one.
    """

    solution: Solution
    problem: Problem
    workload: Workload
    input_key: str | None = None
    shape_key: str | None = None
    on_host: Mapping[str, Any] | None = None
    group: Group | None = None

    @property
    def failure(self) -> Failure | None:
        """Why it can't be evaluated, as far as its files show.

        The solution's failure first.
        """
        return self.solution.failure or self.problem.failure

    @property
    def place(self) -> Hashable:
        """Key of the problem and workload that a referee keeps loaded.

        Solutions with the same key are evaluated one after another.
        """
        return self.problem.digest, self.workload.name, str(sorted(self.workload.sizes.items()))


@dataclass(eq=False, slots=True, kw_only=True)
class PendingSolution:
    """One solution on its way to a record.

    Attributes:
        job: The solution with its problem and workload.
        log_path: The solution's log.
        losses: Number of slots that were lost while they evaluated it.
    """

    job: PlannedSolution
    log_path: Path
    losses: int = 0


def plan(config: RunConfig, on_rejected: Callable[[RejectedFile], None] | None = None) -> list[PlannedSolution]:
    """Return every solution that the configuration selects, grouped by problem.

    Files that can't be evaluated go to `on_rejected`; if it is None, or no solution is left, they are errors. Raises
    `CatalogError` with all errors that were found.
    """
    catalog = load_problems(config.problems, config.problem)
    rejected: list[RejectedFile] = []
    solutions = find_solutions(config.paths, catalog, config.problem, config.author, rejected.append)
    if rejected and (on_rejected is None or not solutions):
        raise CatalogError([*map(str, rejected)])
    for file in rejected:
        assert on_rejected is not None
        on_rejected(file)
    known = catalog.known
    jobs = []
    faults = []
    for solution in solutions:
        job, fault = paired(solution, known[solution.problem_id], config)
        jobs.append(job)
        faults += [] if fault is None else [fault]
    if len(faults) == len(jobs):  # probably a wrong name
        raise CatalogError(sorted(set(faults)))
    jobs = _with_earlier_status(_named(jobs, config.pattern), config)
    ordered = sorted(jobs, key=lambda job: (job.problem.id, job.solution.label))
    return part(ordered, config.shard)


def _named(jobs: Sequence[PlannedSolution], pattern: str | None) -> list[PlannedSolution]:
    """Return the solutions that `pattern` selects.

    Raises:
        CatalogError: It selects none.
    """
    named = [job for job in jobs if is_named(pattern, job.solution.label, job.problem.id)]
    if not named:
        first = f"{jobs[0].solution.label} ({jobs[0].problem.id})"
        raise CatalogError([f"-k {pattern!r:.60} is in no name or problem of these {len(jobs)} solutions: {first}, …"])
    return named


def _with_earlier_status(jobs: list[PlannedSolution], config: RunConfig) -> list[PlannedSolution]:
    """Return the solutions that had the wanted status in the run before this one.

    Raises:
        CatalogError: There is no such run, or no solution with that status.
    """
    if config.status is None:
        return jobs
    before = latest_run(config.out, besides=config.run_dir)
    if before is None:
        raise CatalogError([f"--status {config.status}: there is no earlier run in {config.out}; leave it out"])
    records = RunStore.open(before).records()
    wanted = {(item.problem, item.solution) for item in records if has_status(config.status, item.status)}
    selected = [job for job in jobs if (job.problem.id, job.solution.label) in wanted]
    if not selected:
        said = "failed" if config.status == FAILED else f"had the status {config.status}"
        raise CatalogError(
            [f"none of these {len(jobs)} solutions {said} in the last run, {before}: nothing to evaluate"]
        )
    return selected


def paired(solution: Solution, problem: Problem, config: RunConfig) -> tuple[PlannedSolution, str | None]:
    """Pair a solution with its problem at the run's workload.

    Returns:
        The pair, and why the problem has no such workload; then the pair has a failure.
    """
    workload = problem.workloads.get(config.workload)
    if problem.failure is not None:  # its declared workloads are unknown
        workload = Workload(name=config.workload)
    elif workload is None and config.workload == SMALL:
        workload = UNDERIVED
    problem = config.judged(problem, workload)
    fault = None
    if workload is None:
        declared = ", ".join(problem.workloads)
        sizes = f"pass one of them with --workload, or add {config.workload!r} to {WORKLOADS_FILE} next to the problem"
        fault = f"{problem.id} declares no workload {config.workload!r}; it has {declared}: {sizes}"
        failure = Failure(status=Status.harness_error, reason=f"problem {fault}", evidence={"phase": "read"})
        workload, problem = Workload(name=config.workload), replace(problem, failure=failure)
    return PlannedSolution(solution=solution, problem=problem, workload=workload), fault


def part(items: Sequence[T], shard: str | None) -> list[T]:
    """Return the items of shard `i/n`; all items if `shard` is None.

    Neighbours stay together and sizes differ by at most one. The n shards together contain every item once, if all see
    the same items in the same order.
    """
    if shard is None:
        return list(items)
    number, count = (int(text) for text in shard.split("/"))
    return list(items[(number - 1) * len(items) // count : number * len(items) // count])


def identity_of(job: PlannedSolution, config: RunConfig) -> Identity:
    """Return the identity of this solution's record."""
    return job.problem.id, job.solution.label, config.device.value, job.workload.name


def is_done(job: PlannedSolution, config: RunConfig, finished: Mapping[Identity, FinishedSolution]) -> bool:
    """Return whether a resumed run has this solution's verdict already.

    The verdict must be of the same file contents, and not a `harness_error`.
    """
    held = finished.get(identity_of(job, config))
    return (
        held is not None
        and held.status is not Status.harness_error
        and held.solution_digest == job.solution.digest
        and held.problem_digest == job.problem.digest
    )
