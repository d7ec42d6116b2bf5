"""Leaderboard rows: ranks, ties, and rows without a rank.

`harness.results.scoring.scores` says which records are compared.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from harness.catalog.authors import Author
from harness.core.record import Record
from harness.core.status import Status
from harness.results.scoring.scores import (
    EAGER,
    THRESHOLDS,
    LikeGroup,
    ScoredRecord,
    Selection,
    entries_of,
    merit,
    score,
    shares,
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
class LeaderboardRow:
    """One row of a leaderboard.

    Boards of authors and of problems end with one row per disqualified solution. `to_json` gives the CSV columns in
    their stable order.

    Attributes:
        group: Conditions that all compared rows share.
        rank: The rank; None if there is nothing to rank (not passed, not timed, disqualified).
        author: The author; for a problem, that of its best solution.
        problem: The problem's id.
        solution: The solution; for a problem, its best one.
        status: Status of the solution.
        speedup: The solution's speedup; for an author, the geometric mean over solved problems.
        low: Lower end of the speedup's interval.
        high: Upper end of the speedup's interval.
        floor: Noise floor, a difference of logs.
        same_within: Share within which the speedup is 1; None if it is not.
        sol_fraction: Reached fraction of the speed of light.
        results: Number of evaluated solutions.
        passed: Number of passes.
        untimed: Number of passes without a time.
        disqualified: Number of disqualified solutions.
        unjudged: Number of solutions without a verdict.
        fast_p: Share of results with a speedup above p, by p.
        reason: Reason of the record, or of a disqualification.
        display_name: The author's self-chosen name; only `author` identifies an author.
        model: The model that the author states.
    """

    group: LikeGroup
    rank: int | None
    author: str | None = None
    problem: str | None = None
    solution: str | None = None
    status: Status | None = None
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    floor: float = 0.0
    same_within: float | None = None
    sol_fraction: float | None = None
    results: int
    passed: int
    untimed: int
    disqualified: int
    unjudged: int
    fast_p: Mapping[float, float | None] = field(default_factory=dict)
    reason: str = ""
    display_name: str | None = None
    model: str | None = None

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
        }


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

    Returns:
        The rows.

    Raises:
        ValueError: `by`, `metric` or `selection` is an unknown name.
    """
    by, metric, selection = By(by), Metric(metric), Selection(selection)
    groups: dict[LikeGroup, list[ScoredRecord]] = defaultdict(list)
    for entry in entries_of(records, baseline=baseline):
        groups[entry.group].append(entry)
    rows: list[LeaderboardRow] = []
    for group in sorted(groups):
        held = groups[group]
        if by is By.solution:
            rows += _solution_rows(group, held, metric)
            continue
        if by is By.author:
            rows += _author_rows(group, held, metric, selection, problems)
        else:
            rows += _problem_rows(group, held)
        cheated = sorted((e for e in held if e.status is Status.disqualified), key=lambda e: (e.author, e.solution))
        rows += [_solution_row(group, entry) for entry in cheated]
    return tuple(_introduced(row, (authors or {}).get(row.author or "")) for row in rows)


def _introduced(row: LeaderboardRow, author: Author | None) -> LeaderboardRow:
    return row if author is None else replace(row, display_name=author.display_name, model=author.model)


def _author_rows(
    group: LikeGroup, entries: Sequence[ScoredRecord], metric: Metric, selection: Selection, problems: Sequence[str]
) -> list[LeaderboardRow]:
    scored = []
    for author, own in _grouped(entries, lambda entry: entry.author).items():
        figures = score(own, selection=selection, problems=problems)
        cheated = [entry for entry in own if entry.status is Status.disqualified]
        row = LeaderboardRow(
            group=group,
            rank=None,
            author=author,
            speedup=figures.geomean,
            low=figures.low,
            high=figures.high,
            floor=figures.floor,
            same_within=figures.same_within,
            sol_fraction=figures.sol_fraction,
            results=figures.results,
            passed=figures.passed,
            untimed=figures.untimed,
            disqualified=figures.disqualified,
            unjudged=figures.unjudged,
            fast_p=figures.fast_p,
            reason=f"disqualified: {cheated[0].solution}: {cheated[0].reason}" if cheated else "",
        )
        value = {
            Metric.geomean: figures.geomean,
            Metric.fast_1: figures.fast_p.get(1.0),
            Metric.sol: figures.sol_fraction,
        }[metric]
        scored.append((row, value))
    return _ranked(scored, intervals=metric is Metric.geomean)


def _problem_rows(group: LikeGroup, entries: Sequence[ScoredRecord]) -> list[LeaderboardRow]:
    rows = []
    for (problem, _), own in sorted(_grouped(entries, lambda e: (e.problem, e.problem_digest)).items()):
        passed = [entry for entry in own if entry.passed]
        best = max(passed, key=merit) if passed else None
        rows.append(
            LeaderboardRow(
                group=group,
                rank=None,
                problem=problem,
                author=best.author if best else None,
                solution=best.solution if best else None,
                status=best.status if best else None,
                speedup=best.speedup if best else None,
                low=best.low if best else None,
                high=best.high if best else None,
                floor=best.floor if best else 0.0,
                same_within=best.same_within if best else None,
                sol_fraction=best.sol_fraction if best else None,
                **_counts(own),
                reason=best.reason if best else "no solution passed",
            )
        )
    return rows


def _solution_rows(group: LikeGroup, entries: Sequence[ScoredRecord], metric: Metric) -> list[LeaderboardRow]:
    rows: list[LeaderboardRow] = []
    light = metric is Metric.sol
    for _, own in sorted(_grouped(entries, lambda e: (e.problem, e.problem_digest)).items()):
        values = [entry.sol_fraction if light and entry.passed else None if light else entry.speedup for entry in own]
        scored = [(_solution_row(group, entry), value) for entry, value in zip(own, values, strict=True)]
        rows += _ranked(scored, intervals=not light)
    return rows


def _solution_row(group: LikeGroup, entry: ScoredRecord) -> LeaderboardRow:
    return LeaderboardRow(
        group=group,
        rank=None,
        author=entry.author,
        problem=entry.problem,
        solution=entry.solution,
        status=entry.status,
        speedup=entry.speedup,
        low=entry.low,
        high=entry.high,
        floor=entry.floor,
        same_within=entry.same_within,
        sol_fraction=entry.sol_fraction,
        **_counts([entry]),
        reason=entry.reason,
    )


def _counts(entries: Sequence[ScoredRecord]) -> dict[str, Any]:
    judged = [entry for entry in entries if entry.judged]
    return {
        "results": len(judged),
        "passed": sum(1 for entry in judged if entry.passed),
        "untimed": sum(1 for entry in judged if entry.passed and entry.speedup is None),
        "disqualified": sum(1 for entry in judged if entry.status is Status.disqualified),
        "unjudged": len(entries) - len(judged),
        "fast_p": shares(judged),
    }


def _grouped(entries: Sequence[ScoredRecord], key: Callable[[ScoredRecord], Any]) -> dict[Any, list[ScoredRecord]]:
    held: dict[Any, list[ScoredRecord]] = defaultdict(list)
    for entry in entries:
        held[key(entry)].append(entry)
    return held


def _ranked(scored: Sequence[tuple[LeaderboardRow, float | None]], *, intervals: bool) -> list[LeaderboardRow]:
    """Return rows by falling value with ranks.

    Rows without a value come last, by name.
    """
    named = sorted(scored, key=lambda item: (item[0].author or "", item[0].solution or ""))
    ranked = sorted((item for item in named if item[1] is not None), key=lambda item: -(item[1] or 0.0))
    rows: list[LeaderboardRow] = []
    leader: tuple[LeaderboardRow, float | None] | None = None
    rank = 0
    for place, (row, value) in enumerate(ranked, start=1):
        if leader is None or not _tied(leader, (row, value), intervals):
            leader, rank = (row, value), place
        rows.append(replace(row, rank=rank))
    return rows + [row for row, value in named if value is None]


def _tied(a: tuple[LeaderboardRow, float | None], b: tuple[LeaderboardRow, float | None], intervals: bool) -> bool:
    if a[1] == b[1]:
        return True
    if not intervals or a[0].low is None or b[0].high is None:
        return False
    return b[0].high * math.exp(b[0].floor) >= a[0].low * math.exp(-a[0].floor)
