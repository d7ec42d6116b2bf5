"""Show tables on narrow terminals: a block of lines for each row.

Other pages (Markdown, HTML, CSV) scroll and do not need this.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

EACH = 11
"""Average characters per column that a readable table needs."""


@dataclass(frozen=True, slots=True)
class Fitting:
    """Show `table` if its columns are wide enough, else its rows as blocks.

    The terminal needs `EACH` characters for each column.

    A block has the first `named` cells as its heading, then a line for each other cell that is not empty.
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
