"""Judge the solutions of a run again, with the seeds that their records released.

Trusted side. The inputs, their order and the secret choices of the checks follow from `evidence.seeds`. So a
deterministic solution gets the same values, and its verdict does not depend on luck. Times are measured anew and
compared by their intervals.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from harness.catalog import CatalogError, bounded_source, load_problems
from harness.catalog.source_lookup import SourceFinder
from harness.core.config import Machine, RunConfig, resolve
from harness.core.problem import Problem, Solution
from harness.core.record import Record
from harness.core.status import VERDICT_FREE
from harness.results.compare import Change, compare_records
from harness.results.evidence import mapping, rows, text, whole
from harness.results.writer import SETTINGS_OF_A_RUN, SETTINGS_OF_RECORDS
from harness.runner.plan import PlannedSolution, paired


class Repeat(StrEnum):
    """Result of judging a solution again."""

    same = "same"
    """The same status and, of a timed solution, the same speedup within the noise."""
    differs = "differs"
    """Another status, or a speedup beyond intervals and noise floor."""
    unknown = "can't tell"
    """Judged under other conditions, not judged, or too noisy to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One solution judged again.

    Attributes:
        solution: Its label.
        repeat: The result.
        why: The evidence for it, one line.
    """

    solution: str
    repeat: Repeat
    why: str


def settings_again(head: Mapping[str, Any], machine: Machine, **options: object) -> RunConfig:
    """Return the settings that decided the verdicts of a run, for a new run.

    Args:
        head: Content of the run's `run.yaml`.
        machine: This machine.
        **options: Settings of the new run, as of `resolve`.

    Raises:
        ConfigError: A setting is wrong.
    """
    settings = dict(mapping(head, "config"))
    for entry in rows(head, "resumed_with"):
        for name, value in mapping(entry, "config").items():
            settings[name] = {**mapping(settings, name), **value} if isinstance(value, Mapping) else value
    names = (*SETTINGS_OF_A_RUN, *SETTINGS_OF_RECORDS, "problems")
    given = {name: settings.get(name) for name in names if name != "timing"} | dict(mapping(settings, "timing"))
    given |= {name: value for name, value in options.items() if value is not None}
    return resolve(machine=machine, run_id="replay", options=given, source="run.yaml")


def planned_again(
    records: Sequence[Record], config: RunConfig, solutions: Sequence[Path]
) -> tuple[list[PlannedSolution], list[Replayed]]:
    """Plan the evaluation of the solutions that these records judged.

    Args:
        records: The records.
        config: Settings of the new run; `problems` is the folder of problems.
        solutions: Folders with the sources of solutions.

    Returns:
        The solutions to evaluate, and those that can't be judged again with the reason.
    """
    try:
        known: Mapping[str, Problem] = load_problems(config.problems).known
        no_problem = f"{config.problems} has no such problem"
    except CatalogError as error:
        known, no_problem = {}, str(error)
    finder = SourceFinder(solutions)
    jobs: list[PlannedSolution] = []
    left: list[Replayed] = []
    for record in records:
        job, why = _planned(record, config, known.get(record.problem), finder.path_of(record))
        if job is not None:
            jobs.append(job)
        else:
            reason = why or f"{record.problem}: {no_problem}; pass --problems DIR"
            left.append(Replayed(solution=record.solution, repeat=Repeat.unknown, why=reason))
    return jobs, left


def _planned(
    record: Record, config: RunConfig, problem: Problem | None, path: Path | None
) -> tuple[PlannedSolution | None, str | None]:
    if path is None:
        return None, f"no file has the digest of its source, {record.solution_digest:.12}; pass --solutions DIR"
    if problem is None:
        return None, None
    source, failure = bounded_source(path)
    solution = Solution(
        problem_id=record.problem,
        author=record.author,
        label=record.solution,
        path=path,
        source=source,
        sample=record.sample,
        failure=failure,
    )
    job, fault = paired(solution, problem, dataclasses.replace(config, workload=record.workload))
    if fault is not None or job.problem.digest != record.problem_digest:
        return None, fault or f"{problem.path} is not the problem that was judged: the digests differ"
    seeds = mapping(record.evidence, "seeds")
    again = dataclasses.replace(job.problem, model_seed=whole(seeds, "model"))
    inputs, shapes = text(seeds, "inputs") or None, text(seeds, "shapes") or None
    return dataclasses.replace(job, problem=again, input_key=inputs, shape_key=shapes), None


def compared_again(before: Record, after: Record) -> Replayed:
    """Compare a record with the one of the repeated evaluation."""
    row = compare_records(before, after)
    seeds = "" if before.evidence.get("seeds") else "; its record releases no seeds, so the inputs were new ones"
    statuses = f"{before.status} before, {after.status} now: {after.reason}"
    times = "" if row.ratio is None else f"{row.ratio:.3g} times as fast as before ({row.low:.3g} to {row.high:.3g})"
    if row.unlike:
        repeat, why = Repeat.unknown, f"judged under other conditions: {'; '.join(row.unlike)}"
    elif before.status in VERDICT_FREE or after.status in VERDICT_FREE:
        repeat, why = Repeat.unknown, statuses
    elif before.status is not after.status:
        repeat, why = Repeat.differs, statuses
    elif row.outcome in (Change.faster, Change.slower):
        repeat, why = Repeat.differs, times
    elif row.outcome is Change.unclear:
        repeat, why = Repeat.unknown, f"{times or 'times'}: too noisy to tell"
    else:
        repeat, why = Repeat.same, times or str(after.status)
    return Replayed(solution=before.solution, repeat=repeat, why=why + seeds)
