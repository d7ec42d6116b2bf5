"""Tables of the page as values: columns, and rows of cells with what they sort by and where they lead.

Pure; imports `scoring`, `comparing` and `report`. Texts are shown by `report.format`; the template escapes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness.comparing import Difference, Differences
from harness.model import Record, Status
from harness.report import differences as report_differences
from harness.report import format as show
from harness.report.board import CELLS
from harness.scoring import By, LeaderboardRow, LikeGroup, leaderboard


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """`key` is what a numeric column sorts by (empty: nothing, last); `link` an anchor of the page, or empty."""

    text: str
    key: str = ""
    link: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`columns` are names and whether they sort as numbers."""

    id: str
    title: str
    columns: Sequence[tuple[str, bool]]
    rows: Sequence[Sequence[Cell]]


KEYS: Mapping[str, Callable[[LeaderboardRow], float | None]] = {
    "rank": lambda row: row.rank,
    "mean speedup": lambda row: row.speedup,
    "speedup": lambda row: row.speedup,
    "faster than 1x": lambda row: row.fast_p.get(1.0),
    "speed of light": lambda row: row.sol_fraction,
    "problems passed": lambda row: row.passed,
    "solutions passed": lambda row: row.passed,
}
"""Columns that sort as numbers, and by which."""

TITLES = {By.author: "Authors", By.problem: "Problems", By.solution: "Solutions"}


def tone_of(status: Status | None) -> str:
    """The class of a status: passed, failed, cheated, or none."""
    if status is None:
        return ""
    return {Status.passed: "passed", Status.disqualified: "cheated"}.get(status, "failed")


def boards(
    group: LikeGroup, records: Sequence[Record], links: Mapping[tuple[object, ...], str], number: int
) -> list[Table]:
    """The leaderboards of one group of like records, by author, problem and solution."""
    return [
        Table(
            id=f"g{number}-{by.value}",
            title=TITLES[by],
            columns=[(name, name in KEYS) for name in CELLS[by]],
            rows=[_row(row, by, links) for row in leaderboard(records, by=by, baseline=group.baseline)],
        )
        for by in By
    ]


def _row(row: LeaderboardRow, by: By, links: Mapping[tuple[object, ...], str]) -> list[Cell]:
    link = links.get((row.group, row.problem, row.author, row.solution), "")
    cells = []
    for name, text in CELLS[by].items():
        value = KEYS[name](row) if name in KEYS else None
        here = link if name in ("solution", "best solution") or (name == "author" and row.solution) else ""
        tone = tone_of(row.status) if name == "status" else ""
        cells.append(Cell(text=text(row), key="" if value is None else repr(value), link=here, tone=tone))
    return cells


def differences_table(found: Differences, links: Mapping[tuple[str, str], str]) -> Table:
    """Two runs compared, a row a solution, linked to the later one's record."""
    numeric = ("later over earlier", "speedup before", "after")
    return Table(
        id="changes",
        title="What changed",
        columns=[(name, name in numeric) for name in report_differences.COLUMNS],
        rows=[_change(row, links) for row in found.rows],
    )


def _change(row: Difference, links: Mapping[tuple[str, str], str]) -> list[Cell]:
    keys = {3: row.ratio, 4: row.before_speedup, 5: row.after_speedup}
    tones = {"green": "passed", "red": "failed"}
    link = links.get((row.problem, row.later_solution), "")
    return [
        Cell(
            text=text,
            key="" if (value := keys.get(place)) is None else repr(value),
            link=link if place == 1 else "",
            tone=tones.get(report_differences.STYLES.get(row.outcome, ""), "") if place == 2 else "",
        )
        for place, text in enumerate(report_differences.cells(row))
    ]


def kernel_table(kernels: Sequence[Mapping[str, object]]) -> Table:
    """What compilers and profiles say of a solution's kernels, whatever plain values they hold."""
    names = list(dict.fromkeys(name for row in kernels for name in row if name != "symbol"))
    return Table(
        id="",
        title="Kernels",
        columns=[(show.line(name.removesuffix("_bytes").replace("_", " "), 40), False) for name in names],
        rows=[[Cell(text=show.value(name, row.get(name))) for name in names] for row in kernels],
    )
