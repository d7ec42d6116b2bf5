"""Quote the lines of a solution's source around an error."""

from __future__ import annotations

from harness.report import format as show

AROUND = 2
"""Number of lines quoted before and after."""

MAX_LINE_CHARS = 160


def quoted(source: str, line: int, *, around: int = AROUND) -> list[str]:
    """Return the numbered lines around `line` (from 1), with `line` marked."""
    lines = source.split("\n")
    if not 1 <= line <= len(lines):
        return []
    first, last = max(1, line - around), min(len(lines), line + around)
    width = len(str(last))
    return [
        f"{'>' if number == line else ' '} {number:{width}} | {show.line(lines[number - 1].rstrip(), MAX_LINE_CHARS)}"
        for number in range(first, last + 1)
    ]
