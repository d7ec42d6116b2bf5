"""Render the leaderboard: tables for the terminal or Markdown.

Pure functions. Both have one table for each group of comparable results; device, processor, workload and baseline are
in its heading. Texts come from submissions.

Descriptions of authors (display name, model) are columns on pages that scroll. On the terminal, which lacks space, they
follow the author in brackets, or are lines below the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.text import Text

from harness.core.choices import DeviceKind
from harness.core.status import Status
from harness.report import format as show
from harness.report.table import Fitting, escape_markdown, markdown_table, table_of
from harness.results.leaderboard import By, LeaderboardRow
from harness.results.scoring import DECLARED, LikeGroup

MAX_ROWS = 200
"""Most rows of one group on the terminal; CSV and JSON have all rows."""

Cell = Callable[[LeaderboardRow], str]


def _speedup(row: LeaderboardRow) -> str:
    if row.speedup is None and row.untimed:
        return show.TOO_NOISY if row.too_noisy == row.untimed else "not timed"
    return show.speedup_with_interval(row.speedup, row.low, row.high, row.same_within, baseline=row.group.baseline)


def _text(name: str) -> Cell:
    return lambda row: show.line(getattr(row, name) or show.ABSENT, 100)


def _author(row: LeaderboardRow) -> str:
    name = show.line(row.author or show.ABSENT, 100)
    return f"{name}: {show.line(row.solution, 100)}" if row.status is Status.disqualified else name


def _remark(row: LeaderboardRow) -> str:
    if row.status is Status.disqualified:
        return f"disqualified: {show.line(row.reason, 160)}"
    parts = [f"{untimed} not timed"] if (untimed := row.untimed - row.too_noisy) else []
    parts += [f"{row.too_noisy} {show.TOO_NOISY}"] if row.too_noisy else []
    parts += [f"{row.unjudged} without a verdict"] if row.unjudged else []
    parts += [f"{row.disqualified} disqualified (see below)"] if row.disqualified else []
    return "; ".join(parts)


def _sol(row: LeaderboardRow) -> str:
    return show.share(row.sol_fraction)


def _gap(row: LeaderboardRow) -> str:
    return "" if row.gap is None else f"{show.digits(row.gap)} times as fast"


def _passed(row: LeaderboardRow) -> str:
    return f"{row.passed} of {row.results}"


GAP = "at the shown sizes"
"""Heading of the specialisation gap, a column of runs with secret shapes."""

CELLS: Mapping[By, Mapping[str, Cell]] = {
    By.author: {
        "rank": _text("rank"),
        "author": _author,
        "mean speedup": _speedup,
        GAP: _gap,
        "faster than 1x": lambda row: show.share(row.fast_p.get(1.0)),
        "speed of light": _sol,
        "problems passed": _passed,
        "remark": _remark,
    },
    By.problem: {
        "problem": _text("problem"),
        "best solution": _text("solution"),
        "speedup": _speedup,
        GAP: _gap,
        "speed of light": _sol,
        "solutions passed": _passed,
        "remark": _remark,
    },
    By.solution: {
        "rank": _text("rank"),
        "problem": _text("problem"),
        "solution": _text("solution"),
        "status": _text("status"),
        "speedup": _speedup,
        GAP: _gap,
        "speed of light": _sol,
        "remark": lambda row: "" if row.status is Status.passed else show.line(row.reason, 160),
    },
}
"""Heading -> cell, for each kind of row."""


SAID: Mapping[str, str] = {"author's name": "display_name", "model": "model"}
"""Heading -> field of an author's description."""

WHOSE: Mapping[By, str] = {By.author: "author", By.problem: "best solution", By.solution: "solution"}
"""The column that descriptions of authors follow."""

MAX_INTRODUCED = 10
"""Most authors that are described below a table on the terminal."""


def columns(by: By, rows: Sequence[LeaderboardRow]) -> dict[str, Cell]:
    """Return heading -> cell for a page that scrolls.

    `SAID` and `GAP` are left out if no row has them.
    """
    said = {name: _text(field) for name, field in SAID.items() if any(getattr(row, field) for row in rows)}
    held: dict[str, Cell] = {}
    for name, cell in CELLS[by].items():
        if name == GAP and all(row.gap is None for row in rows):
            continue
        held |= {name: cell, **(said if name == WHOSE[by] else {})}
    return held


def _introduction(row: LeaderboardRow) -> str:
    """Describe the author of a row in a few words, beyond the name."""
    called = row.display_name
    if called is not None and called.casefold() == (row.author or "").casefold():
        called = None
    return "; ".join(show.line(text, 40) for text in (called, row.model) if text)


def _introduced_author(row: LeaderboardRow) -> str:
    said = "" if row.status is Status.disqualified else _introduction(row)
    return f"{_author(row)} ({said})" if said else _author(row)


def _introductions(rows: Sequence[LeaderboardRow]) -> list[str]:
    """Return a line for each author of these rows with a description."""
    said = {row.author: said for row in rows if row.author and (said := _introduction(row))}
    lines = [f"{show.line(author, 100)}: {text}" for author, text in said.items()]
    more = [f"… {len(lines) - MAX_INTRODUCED} more: --by author shows all"] if len(lines) > MAX_INTRODUCED else []
    return lines[:MAX_INTRODUCED] + more


def heading(group: LikeGroup) -> str:
    """Return the heading of a group: what its rows have in common."""
    processor = show.line(group.processor, 80)
    workload = f"workload {show.line(group.workload, 40)}"
    if group.precision != DECLARED:
        workload += f", precision {show.line(group.precision, 40)} for all"
    if group.secret_shapes:
        workload += f" and {show.shapes(group.secret_shapes)}"
    if group.device == DeviceKind.HOST.value:
        return f"host: {processor}, {workload}; no GPU times, speedups of CPU code over {group.baseline} on the CPU"
    driver = f", driver {show.line(group.driver, 40)}" if group.driver else ""
    return (
        f"{show.line(group.device, 20)}: {processor}{driver}, {workload}, speedup over {show.line(group.baseline, 40)}"
    )


def table(rows: Sequence[LeaderboardRow], by: By, *, most: int = MAX_ROWS) -> RenderableType:
    """Render tables for the terminal, with at most `most` rows of each group."""
    parts: list[RenderableType] = []
    cells = {**CELLS[by], "author": _introduced_author} if by is By.author else CELLS[by]
    for group, members in groupby(rows, key=lambda row: row.group):
        own = list(members)
        lines = [[cell(row) for cell in cells.values()] for row in own[:most]]
        filled = [place for place in range(len(cells)) if any(line[place] not in ("", show.ABSENT) for line in lines)]
        names, lines = [list(cells)[place] for place in filled], [[line[place] for place in filled] for line in lines]
        parts.append(Fitting(table_of(names, lines, right=("rank",), title=Text(heading(group)))))
        if by is not By.author:
            parts += [Text(line, style="dim") for line in _introductions(own[:most])]
        if len(own) > most:
            whole = f"harness leaderboard --by {by.value} with --csv or --json shows all"
            parts.append(Text(f"… {len(own) - most} more rows: {whole}"))
    return Group(*parts) if parts else Text("no records to rank")


def markdown(rows: Sequence[LeaderboardRow], by: By) -> str:
    """Render GitHub Markdown tables."""
    parts = []
    for group, members in groupby(rows, key=lambda row: row.group):
        own = list(members)
        cells = columns(by, own)
        lines = markdown_table(list(cells), ([cell(row) for cell in cells.values()] for row in own))
        parts.append("\n".join([f"**{escape_markdown(heading(group))}**", "", *lines]))
    return "\n\n".join(parts or ["no records to rank"]) + "\n"
