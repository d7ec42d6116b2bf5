"""Tables on narrow terminals: rows are blocks where columns would be letters wide."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from harness.report.table import BETWEEN, PROSE, Fitting

HEADERS = ("problem", "solution", "outcome", "speedup", "remark")
ROWS = (
    ("level1/16", "ann/level1/16_tiled.py", "slower", "0.952x (0.947 to 0.958)", ""),
    ("level1/17", "bob/[red]x[/red].py", "same", "-", "beyond"),
)


def shown(width: int, rows: tuple[tuple[str, ...], ...] = ROWS, title: str = "the group") -> str:
    table = Table(title=Text(title) if title else None)
    for name in HEADERS:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    stream = io.StringIO()
    Console(file=stream, width=width, markup=False, highlight=False).print(Group(Fitting(table)))
    return stream.getvalue()


LONG = "data race on shared `as[0][0]` in kernel `matmul_kernel`: read on line 25, write by another thread on line 22"
RACE = (("level1/1", "broken/level1/1_missing_barrier.py", "data_race", "-", LONG),)
LEAST = sum((9, 22, 7, 23, 6)) + 5 * BETWEEN
"""Columns for the longest words of `ROWS`, whose speedup stays on one line."""


def test_where_it_fits_it_is_a_table() -> None:
    text = shown(LEAST)
    assert "┏" in text
    assert "outcome: " not in text


@pytest.mark.parametrize("width", [30, 40, LEAST - 1])
def test_else_each_row_is_a_block_without_its_empty_cells(width: int) -> None:
    text = shown(width)
    assert text.splitlines()[0].strip() == "the group"
    assert " ".join(text.split()).removeprefix("the group ") == (
        "level1/16 ann/level1/16_tiled.py outcome: slower · speedup: 0.952x (0.947 to 0.958) "
        "level1/17 bob/[red]x[/red].py outcome: same · remark: beyond"
    ), "a name is no markup, and an empty cell has no heading"


@pytest.mark.parametrize("width", range(60, 180, 5))
def test_no_column_is_narrower_than_its_words(width: int) -> None:
    text = " ".join(shown(width, rows=RACE).replace("│", " ").split())
    for word in (*RACE[0][:3], *LONG.split()):
        assert word in text, f"{word} is cut at {width} columns"
    cells = [line.split("│")[-2].strip() for line in shown(width, rows=RACE).splitlines() if line.startswith("│")]
    assert all(cells) or len(cells) <= len(LONG) // PROSE + 2, "prose is wrapped to lines of words, not of syllables"


def test_no_rows_leave_the_title_alone() -> None:
    assert shown(20, rows=()).split() == ["the", "group"]
    assert shown(20, rows=(), title="").strip() == ""
