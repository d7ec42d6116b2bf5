"""Leaderboard rows: ranks, ties, and rows without a rank."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from harness.catalog.authors import Author
from harness.core.record import Record
from harness.core.status import Status
from harness.results.scoring import (
    EAGER,
    THRESHOLDS,
    Figures,
    LikeGroup,
    ScoredRecord,
    Selection,
    Tally,
    counts,
    entries_of,
    merit,
    score,
)


class Metric(StrEnum):
    """Figure by which rows are ranked."""

    geomean = "geomean"
    fast_1 = "fast_1"
    sol = "sol"


class By(StrEnum):
    """Entity that a row stands for."""

    author = "author"
    problem = "problem"
    solution = "solution"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderboardRow(Tally):
    """One row of a leaderboard: figures and counts, and what they are about.

    `author` and `solution` of a problem are those of its best solution. `rank` is None if there is nothing to rank (not
    passed, not timed, disqualified). `to_json` gives the CSV columns in their stable order.
    """

    group: LikeGroup
    rank: int | None = None
    author: str | None = None
    problem: str | None = None
    solution: str | None = None
    status: Status | None = None
    reason: str = ""
    display_name: str | None = None
    model: str | None = None
    kernelbench_rules: bool | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "device": self.group.device,
            "processor": self.group.processor,
            "workload": self.group.workload,
            "baseline": self.group.baseline,
            "rank": self.rank,
            "author": self.author,
            "problem": self.problem,
            "solution": self.solution,
            "status": self.status.value if self.status else None,
            "speedup": self.speedup,
            "speedup_low": self.low,
            "speedup_high": self.high,
            "sol_fraction": self.sol_fraction,
            "results": self.results,
            "passed": self.passed,
            "untimed": self.untimed,
            "disqualified": self.disqualified,
            "unjudged": self.unjudged,
            **{f"fast_{p:g}": self.fast_p.get(p) for p in THRESHOLDS},
            "reason": self.reason,
            "precision": self.group.precision,
            "same_within": self.same_within,
            "driver": self.group.driver or None,
            "display_name": self.display_name,
            "model": self.model,
            "kernelbench_rules": self.kernelbench_rules,
            "backward_s": self.backward_s,
            "reference_backward_s": self.reference_backward_s,
            "held_bytes": self.held_bytes,
            "reference_held_bytes": self.reference_held_bytes,
            "secret_shapes": self.group.secret_shapes,
            "specialisation_gap": self.gap,
        }


COLUMNS = tuple(LeaderboardRow(group=LikeGroup(device="", processor="", workload="", baseline="")).to_json())
"""Columns of a leaderboard's CSV and Parquet files, in their stable order."""


def leaderboard(
    records: Iterable[Record],
    *,
    by: By = By.author,
    metric: Metric = Metric.geomean,
    baseline: str = EAGER,
    selection: Selection = Selection.best,
    problems: Sequence[str] = (),
    authors: Mapping[str, Author] | None = None,
) -> tuple[LeaderboardRow, ...]:
    """Build the rows of all groups, group after group, ranked rows first.

    By author: one row per author, ranked by `metric`. By problem: one row per problem with its best solution, unranked.
    Both end with one unranked row per disqualified solution. By solution: one row per record, ranked within its problem
    by the fraction of the speed of light if that is the `metric`, else by speedup. Rows share a rank ("1, 1, 3") if
    their intervals, widened by their noise floors, overlap that of the rank's first row; fast_1 and sol tie on equal
    values.

    Args:
        records: Records of any runs.
        by: Entity of a row, or its name.
        metric: Figure to rank by, or its name.
        baseline: Baseline of the speedups.
        selection: Samples that count per author and problem, or its name.
        problems: Problems that should have been attempted; one without a record counts as a failure of each author.
        authors: Authors' descriptions by name; they do not affect ranks.

    Raises:
        ValueError: `by`, `metric` or `selection` is an unknown name.
    """
    by, metric, selection = By(by), Metric(metric), Selection(selection)
    groups = _grouped(entries_of(records, baseline=baseline), lambda entry: entry.group)
    rows: list[LeaderboardRow] = []
    for group, entries in sorted(groups.items()):
        if by is By.author:
            rows += _author_rows(group, entries, metric, selection, problems)
        elif by is By.problem:
            rows += _problem_rows(group, entries)
        else:
            rows += _solution_rows(entries, metric)
            continue
        cheats = [entry for entry in entries if entry.status is Status.disqualified]
        rows += map(_solution_row, sorted(cheats, key=lambda entry: (entry.author, entry.solution)))
    return tuple(_introduced(row, (authors or {}).get(row.author or "")) for row in rows)


def _introduced(row: LeaderboardRow, author: Author | None) -> LeaderboardRow:
    return row if author is None else replace(row, display_name=author.display_name, model=author.model)


def _author_rows(
    group: LikeGroup, entries: Sequence[ScoredRecord], metric: Metric, selection: Selection, problems: Sequence[str]
) -> list[LeaderboardRow]:
    rows = []
    for author, own in _grouped(entries, lambda entry: entry.author).items():
        cheats = [f"disqualified: {e.solution}: {e.reason}" for e in own if e.status is Status.disqualified]
        tally = score(own, selection=selection, problems=problems)
        shared = {item.name: getattr(tally, item.name) for item in fields(Tally)}
        rows.append(LeaderboardRow(group=group, author=author, reason=cheats[0] if cheats else "", **shared))
    return _ranked(rows, metric)


def _problem_rows(group: LikeGroup, entries: Sequence[ScoredRecord]) -> list[LeaderboardRow]:
    rows = []
    for (problem, _), own in sorted(_grouped(entries, _problem_of).items()):
        best = max((entry for entry in own if entry.passed), key=merit, default=None)
        shown = {"reason": "no solution passed"} if best is None else _shown(best)
        rows.append(LeaderboardRow(group=group, problem=problem, **shown, **_counts(own)))
    return rows


def _solution_rows(entries: Sequence[ScoredRecord], metric: Metric) -> list[LeaderboardRow]:
    by_speed = Metric.sol if metric is Metric.sol else Metric.geomean
    of_problems = sorted(_grouped(entries, _problem_of).items())
    return [row for _, own in of_problems for row in _ranked([_solution_row(entry) for entry in own], by_speed)]


def _solution_row(entry: ScoredRecord) -> LeaderboardRow:
    return LeaderboardRow(group=entry.group, problem=entry.problem, **_shown(entry), **_counts([entry]))


def _shown(entry: ScoredRecord) -> dict[str, Any]:
    names = ("author", "solution", "status", "reason", "kernelbench_rules", *(item.name for item in fields(Figures)))
    return {name: getattr(entry, name) for name in names}


def _counts(entries: Sequence[ScoredRecord]) -> dict[str, Any]:
    judged = [entry for entry in entries if entry.judged]
    return counts(judged, unjudged=len(entries) - len(judged))


def _problem_of(entry: ScoredRecord) -> tuple[str, str]:
    return entry.problem, entry.problem_digest


def _grouped(entries: Iterable[ScoredRecord], key: Callable[[ScoredRecord], Any]) -> dict[Any, list[ScoredRecord]]:
    groups: dict[Any, list[ScoredRecord]] = defaultdict(list)
    for entry in entries:
        groups[key(entry)].append(entry)
    return groups


def _value(row: LeaderboardRow, metric: Metric) -> float | None:
    """Return the figure that the row is ranked by."""
    if metric is Metric.sol:
        return row.sol_fraction if row.passed else None
    return row.fast_p.get(1.0) if metric is Metric.fast_1 else row.speedup


def _ranked(rows: Sequence[LeaderboardRow], metric: Metric) -> list[LeaderboardRow]:
    """Return rows by falling value with ranks; those without a value last, by name."""
    named = [(row, _value(row, metric)) for row in sorted(rows, key=lambda row: (row.author or "", row.solution or ""))]
    valued = sorted(((row, value) for row, value in named if value is not None), key=lambda pair: -pair[1])
    ranked: list[LeaderboardRow] = []
    leader, rank = valued[0] if valued else None, 1
    for place, (row, value) in enumerate(valued, start=1):
        if leader is not None and value != leader[1] and not (metric is Metric.geomean and _overlap(leader[0], row)):
            leader, rank = (row, value), place
        ranked.append(replace(row, rank=rank))
    return ranked + [row for row, value in named if value is None]


def _overlap(leader: LeaderboardRow, row: LeaderboardRow) -> bool:
    """Return whether the intervals, widened by the noise floors, overlap."""
    if leader.low is None or row.high is None:
        return False
    return row.high * math.exp(row.floor) >= leader.low * math.exp(-leader.floor)
