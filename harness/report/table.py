"""Make tables of escaped texts for the terminal and for Markdown.

On narrow terminals, a table is shown as a block of lines for each row. Pages in Markdown and HTML scroll instead.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

PROSE = 24
"""Least columns of a cell that is wrapped; a longest word may need more."""

BETWEEN = 3
"""Columns for the border of a cell."""


@dataclass(frozen=True, slots=True)
class Fitting:
    """Show `table` if it has place for all words, else its rows as blocks.

    No column is narrower than its longest word or, if its text is wrapped, than `PROSE`.

    A block has the first `named` cells as its heading, then the other cells that are not empty.
    """

    table: Table
    named: int = 2

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.table.title:
            yield self.table.title  # not part of the table, which may be narrower
            self.table.title = None
        widths = [_widths(column) for column in self.table.columns]
        if sum(least for least, _ in widths) + BETWEEN * len(widths) <= options.max_width:
            for column, (least, whole) in zip(self.table.columns, widths, strict=True):
                column.no_wrap = whole <= least  # so that only the others become narrower
            yield self.table
            return
        headers = [column.header for column in self.table.columns]
        for row in zip(*(column.cells for column in self.table.columns), strict=True):
            texts = [cell if isinstance(cell, Text) else Text(str(cell)) for cell in row]
            yield Text("  ").join(text for text in texts[: self.named] if text.plain)
            others = list(zip(headers, texts, strict=True))[self.named :]
            cells = [Text.assemble((f"{name}: ", "dim"), text) for name, text in others if text.plain not in ("", "-")]
            if cells:
                yield Padding(Text(" · ").join(cells), (0, 0, 0, 2))


def _widths(column: Column) -> tuple[int, int]:
    """Return the least readable width of a column, and that without line breaks.

    A heading may always be wrapped.
    """
    heading, *cells = (cell if isinstance(cell, Text) else Text(str(cell)) for cell in (column.header, *column.cells))
    words = max((cell_len(word) for text in (heading, *cells) for word in text.plain.split()), default=0)
    whole = max((text.cell_len for text in cells), default=0)
    return max(words, min(whole, PROSE)), max(whole, heading.cell_len)


def table_of(
    columns: Iterable[str], rows: Iterable[Iterable[str | Text]], *, right: Collection[str] = (), title: Text | str = ""
) -> Table:
    """Make a table; the columns named in `right` are aligned to the right."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=title or None, title_justify="left")
    for name in columns:
        table.add_column(name, overflow="fold", justify="right" if name in right else "left")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return table


def markdown_table(columns: Sequence[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Return the lines of a GitHub Markdown table; the cells of `rows` are escaped."""
    lines = [columns, ["---"] * len(columns), *([escape_markdown(cell) for cell in row] for row in rows)]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def escape_markdown(text: str) -> str:
    """Escape a line for Markdown: no links, images, HTML, mentions or table cells."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = re.sub(r"([\\`*_{}\[\]#!|~])", r"\\\1", escaped)
    # An entity breaks mentions and bare links without a visible change of the page.
    escaped = re.sub(r"\bwww\.", lambda found: f"{found[0][:-1]}&#46;", escaped, flags=re.IGNORECASE)
    return escaped.replace("@", "&#64;").replace("://", "&#58;//")
