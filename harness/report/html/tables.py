"""Prepare tables of the page: columns, cells, sort keys, links."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, urlencode

from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup, escape

from harness.catalog.authors import Author
from harness.core.record import Record
from harness.core.status import VERDICT_FREE, Status
from harness.report import csv as report_csv
from harness.report import differences as report_differences
from harness.report import format as show
from harness.report.board import Cell as Shown
from harness.report.board import columns
from harness.results.compare import RunDifferences, SolutionDifference
from harness.results.evidence import mapping, number
from harness.results.leaderboard import COLUMNS, By, LeaderboardRow, leaderboard
from harness.results.scoring import LikeGroup, ScoredRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One record with the name of its run, its source, log and feedback text."""

    record: Record
    run: str
    source: str | None = None
    log: str | None = None
    feedback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell.

    Attributes:
        text: Its text.
        key: Number that it sorts by; empty: last.
        link: Address on the page.
        tone: CSS class of the text.
        kind: CSS class of the cell.
        note: Second line.
        tags: Labels after the second line.
    """

    text: str
    key: str = ""
    link: str = ""
    tone: str = ""
    kind: str = ""
    note: str = ""
    tags: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row: its cells, its problem, and the values that filters compare."""

    cells: Sequence[Cell]
    problem: str = ""
    filters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table; each column is its name and whether it sorts as a number.

    `files` are its rows as CSV and JSON: a line of names, then a line for each row in their order.
    """

    id: str
    title: str
    columns: Sequence[tuple[str, bool]]
    rows: Sequence[Row]
    files: Mapping[str, Markup] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchors:
    """Where things are on the page: anchors of records (by `id()`) and of problems."""

    records: Mapping[int, str]
    problems: Mapping[str, str]
    latest: Mapping[tuple[object, ...], Item]
    """(group, problem, author, solution) -> the latest result."""

    def item_of(self, row: ScoredRecord | LeaderboardRow) -> Item | None:
        """Return the result that an entry or a row is about, if it is about one."""
        return self.latest.get((row.group, row.problem, row.author, row.solution))

    def link_of(self, row: ScoredRecord | LeaderboardRow) -> str:
        """Return the anchor of the result that an entry or a row is about, or nothing."""
        item = self.item_of(row)
        return "" if item is None else self.records[id(item.record)]


def filtered(table: str, **wanted: str) -> str:
    """Return the address of a table that shows only the rows with these values."""
    return f"{table}?{urlencode(wanted, quote_via=quote)}"


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
    """Return the CSS class of a status: passed, failed, cheated, unjudged, or none."""
    if status is None:
        return ""
    if status in VERDICT_FREE:
        return "unjudged"
    return {Status.passed: "passed", Status.disqualified: "cheated"}.get(status, "failed")


LONG = ("solution", "best solution", "remark")
"""Columns whose texts break anywhere."""

SHORT = 28
"""Longest text of a number that stays on one line: a speedup with its interval."""


def board(
    by: By, group: LikeGroup, records: Sequence[Record], anchors: Anchors, prefix: str, authors: Mapping[str, Author]
) -> Table:
    """Return the leaderboard of one group by author, problem or solution.

    Empty columns are left out. `prefix` makes its id unique.
    """
    rows = leaderboard(records, by=by, baseline=group.baseline, authors=authors)
    shown = columns(by, rows)
    made = [_row(row, shown, anchors, prefix) for row in rows]
    names = [name for name in shown if by is not By.solution or name != "remark"]
    whole = Table(
        id=f"{prefix}-{by.value}",
        title=TITLES[by],
        columns=[(name, name in KEYS) for name in names],
        rows=made,
        files=_files(rows) if by is By.solution else {},
    )
    empty = ("", show.ABSENT)
    return without(
        whole, *(name for place, name in enumerate(names) if all(r.cells[place].text in empty for r in made))
    )


def without(table: Table, *columns: str) -> Table:
    """Return a table without these columns."""
    used = [place for place, (name, _) in enumerate(table.columns) if name not in columns]
    return replace(
        table,
        columns=[table.columns[place] for place in used],
        rows=[replace(row, cells=[row.cells[place] for place in used]) for row in table.rows],
    )


def _kind(column: str, text: str) -> str:
    """Return the CSS class of a cell: none (no value), or how its lines break."""
    if text == show.ABSENT:
        return "none"
    return "long" if column in LONG else "short" if column in KEYS and len(text) <= SHORT else ""


def _is_empty(cell: Cell) -> bool:
    return cell.text in ("", show.ABSENT) and not cell.tags


def _files(rows: Sequence[LeaderboardRow]) -> dict[str, Markup]:
    """Return the rows as CSV and JSON, the first line the names of the columns."""
    lines = [list(COLUMNS), *(list(row.to_json().values()) for row in rows)]
    return {
        "csv": escape(report_csv.leaderboard(rows).rstrip("\n")),
        "json": Markup("\n").join(map(htmlsafe_json_dumps, lines)),
    }


def _row(row: LeaderboardRow, shown: Mapping[str, Shown], anchors: Anchors, prefix: str) -> Row:
    author = show.line(row.author or "", 100)
    links = {"solution": anchors.link_of(row), "best solution": anchors.link_of(row)}
    if row.problem:
        links["problem"] = anchors.problems[row.problem]
    links["author"] = links["solution"] or (filtered(f"{prefix}-solution", author=author) if author else "")
    item = anchors.item_of(row)
    labels = [show.line(label, 60) for label in item.record.labels] if item else []
    # In a table of solutions the remark is a second line of the name: it needs the width more than a column of its own.
    of_solution = "status" in shown
    cells = []
    for name, text in shown.items():
        if of_solution and name == "remark":
            continue
        value, said, named = KEYS[name](row) if name in KEYS else None, text(row), of_solution and name == "solution"
        cells.append(
            Cell(
                text=said,
                key="" if value is None else repr(value),
                link=links.get(name, ""),
                tone=f"badge {tone_of(row.status)}" if name == "status" else "",
                kind=_kind(name, said),
                note=shown["remark"](row) if named else "",
                tags=labels if named else (),
            )
        )
    if item is None or not of_solution:
        return Row(cells=cells)
    return Row(
        cells=cells,
        problem=item.record.problem,
        filters={
            "status": item.record.status.value,
            "author": author,
            "level": level_of(item.record.problem),
            "label": " ".join(labels),
            "run": show.line(item.run, 120),
        },
    )


def level_of(problem: str) -> str:
    """Return the level of a problem's id: `level1` of `level1/16`; empty without one."""
    return show.line(problem.rpartition("/")[0], 40)


def differences_table(found: RunDifferences, links: Mapping[tuple[str, str], str]) -> Table:
    """Return the comparison of two runs, with links to the later records."""
    return Table(
        id="changes",
        title="What changed",
        columns=[(name, name in NUMERIC) for name in report_differences.COLUMNS],
        rows=[Row(cells=_change(row, links)) for row in found.rows],
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
        rows=[Row(cells=[Cell(text=show.value(name, row.get(name))) for name in names]) for row in kernels],
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
        rows=[Row(cells=[Cell(text=text) for name, text in row if name in said]) for row in cells],
    )


def _whose(row: Mapping[str, Any]) -> str:
    if row.get("kind") in ("copy", "fill"):
        return show.line(row["kind"])
    return show.line(row.get("library") or row.get("owner") or "unknown", 40)


def _sum_of(row: Mapping[str, Any], *names: str) -> str:
    held = [value for name in names if isinstance(value := row.get(name), int)]
    return show.size(sum(held)) if held else show.ABSENT
