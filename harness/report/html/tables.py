"""Prepare tables of the page: columns, cells, sort keys, links."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.catalog.authors import Author
from harness.core.record import Record
from harness.core.status import Status
from harness.report import differences as report_differences
from harness.report import format as show
from harness.report.board import Cell as Shown
from harness.report.board import columns
from harness.results.compare import RunDifferences, SolutionDifference
from harness.results.evidence import mapping, number
from harness.results.leaderboard import By, LeaderboardRow, leaderboard
from harness.results.scoring import LikeGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell: `key` is its sort number (empty: last), `link` an anchor of the page."""

    text: str
    key: str = ""
    link: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table; each column is its name and whether it sorts as a number."""

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
"""Column -> number that it sorts by."""

NUMERIC = ("later over earlier", "speedup before", "after")
"""Columns of a comparison that sort by number."""

TITLES = {By.author: "Authors", By.problem: "Problems", By.solution: "Solutions"}


def tone_of(status: Status | None) -> str:
    """Return the CSS class of a status: passed, failed, cheated, or none."""
    if status is None:
        return ""
    return {Status.passed: "passed", Status.disqualified: "cheated"}.get(status, "failed")


def boards(
    group: LikeGroup,
    records: Sequence[Record],
    links: Mapping[tuple[object, ...], str],
    number: int,
    authors: Mapping[str, Author] | None = None,
) -> list[Table]:
    """Return the leaderboards of one group, by author, problem and solution."""
    made = []
    for by in By:
        rows = leaderboard(records, by=by, baseline=group.baseline, authors=authors)
        cells = columns(by, rows)
        made.append(
            Table(
                id=f"g{number}-{by.value}",
                title=TITLES[by],
                columns=[(name, name in KEYS) for name in cells],
                rows=[_row(row, cells, links) for row in rows],
            )
        )
    return made


def _row(row: LeaderboardRow, shown: Mapping[str, Shown], links: Mapping[tuple[object, ...], str]) -> list[Cell]:
    link = links.get((row.group, row.problem, row.author, row.solution), "")
    cells = []
    for name, text in shown.items():
        value = KEYS[name](row) if name in KEYS else None
        here = link if name in ("solution", "best solution") or (name == "author" and row.solution) else ""
        tone = tone_of(row.status) if name == "status" else ""
        cells.append(Cell(text=text(row), key="" if value is None else repr(value), link=here, tone=tone))
    return cells


def differences_table(found: RunDifferences, links: Mapping[tuple[str, str], str]) -> Table:
    """Return the comparison of two runs, with links to the later records."""
    return Table(
        id="changes",
        title="What changed",
        columns=[(name, name in NUMERIC) for name in report_differences.COLUMNS],
        rows=[_change(row, links) for row in found.rows],
    )


def _change(row: SolutionDifference, links: Mapping[tuple[str, str], str]) -> list[Cell]:
    keys = dict(zip(NUMERIC, (row.ratio, row.before_speedup, row.after_speedup), strict=True))
    tone = {"green": "passed", "red": "failed"}.get(report_differences.STYLES.get(row.outcome, ""), "")
    link = links.get((row.problem, row.later_solution), "")
    return [
        Cell(
            text=text,
            key="" if (value := keys.get(name)) is None else repr(value),
            link=link if name == "solution" else "",
            tone=tone if name == "outcome" else "",
        )
        for name, text in zip(report_differences.COLUMNS, report_differences.cells(row), strict=True)
    ]


def kernel_table(kernels: Sequence[Mapping[str, Any]]) -> Table | None:
    """Return a table of compiled kernels with all values that the compiler reported."""
    if not kernels:
        return None
    names = list(dict.fromkeys(name for row in kernels for name in row if name != "symbol"))
    return Table(
        id="",
        title="Kernels",
        columns=[(show.line(name.removesuffix("_bytes").replace("_", " "), 40), False) for name in names],
        rows=[[Cell(text=show.value(name, row.get(name))) for name in names] for row in kernels],
    )


CENSUS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "kernel": lambda row: show.line(row.get("name") or show.ABSENT, 160),
    "owner": lambda row: _whose(row),
    "launches": lambda row: show.value("calls", row.get("calls")),
    "time": lambda row: show.value("total_s", row.get("total_s")),
    "share": lambda row: show.share(number(row, "share")),
    "grid": lambda row: show.extents(row.get("grid"), " x "),
    "block": lambda row: show.extents(row.get("block"), " x "),
    "registers": lambda row: show.value("registers", row.get("registers")),
    "shared memory": lambda row: _sum_of(row, "static_shared_bytes", "dynamic_shared_bytes"),
    "occupancy": lambda row: show.share(number(row, "occupancy", "share")),
    "limited by": lambda row: show.value("limiter", mapping(row, "occupancy").get("limiter")),
}
"""Columns of the kernel census, each from a row of `evidence.census.kernels`."""


def census_table(kernels: Sequence[Mapping[str, Any]]) -> Table | None:
    """Return the kernels of one call, slowest first, without empty columns."""
    if not kernels:
        return None
    cells = [[(name, text(row)) for name, text in CENSUS.items()] for row in kernels]
    said = {name for row in cells for name, text in row if text != show.ABSENT}
    return Table(
        id="",
        title="Kernels of one call",
        columns=[(name, False) for name in CENSUS if name in said],
        rows=[[Cell(text=text) for name, text in row if name in said] for row in cells],
    )


def _whose(row: Mapping[str, Any]) -> str:
    if row.get("kind") in ("copy", "fill"):
        return show.line(row["kind"])
    return show.line(row.get("library") or row.get("owner") or "unknown", 40)


def _sum_of(row: Mapping[str, Any], *names: str) -> str:
    held = [value for name in names if isinstance(value := row.get(name), int)]
    return show.size(sum(held)) if held else show.ABSENT
