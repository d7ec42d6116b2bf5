"""Quoting the solution's own source: the lines around an error, and where a line of its CUDA text stands in its file.

Pure; imports `report.format`. The source is parsed, never executed.
"""

from __future__ import annotations

import ast
import re

from harness.report import format as show

AROUND = 2
"""Lines quoted before and after."""

MAX_SOURCE_CHARS = 1_000_000
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


def line_in_file(source: str, kernel: str, line: int) -> int | None:
    """The line of the solution's file that is line `line` (from 1) of the CUDA text in it which defines `kernel`.

    None where no text or several define it, or the text does not stand in the file as it is.
    """
    name = re.escape(kernel.split("<")[0].split("(")[0].split("::")[-1].strip())
    if not name or len(source) > MAX_SOURCE_CHARS:
        return None
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    texts = [
        (node.lineno, node.value.split("\n"))
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.search(rf"__global__[^;{{]{{0,400}}\b{name}\s*\(", node.value)
    ]
    if len(texts) != 1:
        return None
    begin, lines = texts[0]
    file_lines, place = source.split("\n"), begin + line - 1
    if not (1 <= line <= len(lines) and place <= len(file_lines)):
        return None
    return place if lines[line - 1].strip() and lines[line - 1].strip() in file_lines[place - 1] else None
