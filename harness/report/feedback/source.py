"""Quoting the solution's own source: the lines around an error.

Pure; imports `report.format`.
"""

from __future__ import annotations

from harness.report import format as show

AROUND = 2
"""Lines quoted before and after."""

MAX_LINE_CHARS = 160


def quoted(source: str, line: int, *, around: int = AROUND) -> list[str]:
    """Lines `line - around` to `line + around` (from 1) with their numbers, the one meant marked; none if beyond."""
    lines = source.split("\n")
    if not 1 <= line <= len(lines):
        return []
    first, last = max(1, line - around), min(len(lines), line + around)
    width = len(str(last))
    return [
        f"{'>' if number == line else ' '} {number:{width}} | {show.line(lines[number - 1].rstrip(), MAX_LINE_CHARS)}"
        for number in range(first, last + 1)
    ]
