"""Tables on narrow terminals: where columns would be a few letters wide, each row becomes a block of lines instead.

Pure; imports rich. Other pages (Markdown, HTML, CSV) scroll, and have no use for this.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

EACH = 11
"""Characters a column, on average, below which a table is no longer read at a glance."""


@dataclass(frozen=True, slots=True)
class Fitting:
    """`table` as it is where the terminal has `EACH` characters for each of its columns; else its rows one below
    another: the first `named` cells as a heading, then a line for each other cell that holds something.
    """

    table: Table
    named: int = 2

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width >= EACH * len(self.table.columns):
            yield self.table
            return
        if self.table.title:
            yield self.table.title
        headers = [column.header for column in self.table.columns]
        for row in zip(*(column.cells for column in self.table.columns), strict=True):
            texts = [cell if isinstance(cell, Text) else Text(str(cell)) for cell in row]
            yield Text("  ").join(text for text in texts[: self.named] if text.plain)
            for header, text in list(zip(headers, texts, strict=True))[self.named :]:
                if text.plain not in ("", "-"):
                    yield Padding(Text.assemble(f"{header}: ", text), (0, 0, 0, 2))
