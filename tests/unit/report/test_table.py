"""Tables on narrow terminals: every cell stays whole and on one line where columns would be letters wide."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from harness.report.table import EACH, Fitting

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


def test_where_it_fits_it_is_a_table() -> None:
    text = shown(EACH * len(HEADERS))
    assert "┏" in text
    assert "outcome: " not in text


@pytest.mark.parametrize("width", [30, 40, EACH * len(HEADERS) - 1])
def test_else_each_cell_has_a_line_and_empty_ones_none(width: int) -> None:
    lines = shown(width).splitlines()
    assert lines[0].strip() == "the group"
    assert [line.strip() for line in lines if ": " in line] == [
        "outcome: slower",
        "speedup: 0.952x (0.947 to"[: width - 2] if width < 33 else "speedup: 0.952x (0.947 to 0.958)",
        "outcome: same",
        "remark: beyond",
    ]
    assert "level1/16" in lines[1]
    assert "bob/[red]x[/red].py" in " ".join(lines), "a name is no markup"


def test_no_rows_leave_the_title_alone() -> None:
    assert shown(20, rows=()).split() == ["the", "group"]
    assert shown(20, rows=(), title="").strip() == ""
