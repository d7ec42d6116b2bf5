"""Shorten the end of a log to the lines that help the author of a solution.

Pure functions. A traceback starts with calls of the harness, in files that the author does not have, and a log repeats
it in several sections: both are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

LINES = 15
"""Number of lines that are kept, from the end."""

_SECTION = re.compile(r"== [^=].* ==")
_BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File "(?:.*/)?([^"/]+)", line \d+')


def log_end(log: str, file_name: str) -> list[str]:
    """Return the last lines of an escaped log that concern the solution.

    It leaves out the frames of a traceback before the first one in the solution's file (all frames if none is in it),
    repeated tracebacks except the last, and headings without lines.
    """
    blocks = [(heading, _own_part(lines, file_name)) for heading, lines in _blocks(log)]
    kept: list[list[str]] = []
    seen: set[tuple[str, ...]] = set()
    told = False
    for heading, lines in reversed(blocks):
        if (heading and not told) or (lines[0] == _BEGIN and tuple(lines) in seen):
            continue
        told = not heading
        seen.add(tuple(lines))
        kept.append(lines)
    left = [line for lines in reversed(kept) for line in lines]
    cut = [f"[… {len(left) - LINES} lines before]"] if len(left) > LINES else []
    return cut + [line[:200] for line in left[-LINES:]]


def _blocks(log: str) -> Iterator[tuple[bool, list[str]]]:
    """Split a log into headings (True), tracebacks and other text (False)."""
    held: list[str] = []
    for line in log.rstrip().split("\n"):
        heading = _SECTION.fullmatch(line) is not None
        if held and (heading or line == _BEGIN):
            yield False, held
            held = []
        if heading:
            yield True, [line]
        elif line.strip():
            held.append(line)
    if held:
        yield False, held


def _own_part(lines: Sequence[str], file_name: str) -> list[str]:
    if lines[0] != _BEGIN:
        return list(lines)
    frames = [(place, found[1]) for place, line in enumerate(lines) if (found := _FRAME.match(line))]
    own = next((place for place, name in frames if name == file_name), None)
    if own is None:
        # Frames and the lines of source below them are indented, the exception is not.
        own = next((place for place, line in enumerate(lines) if place and not line.startswith("  ")), len(lines))
    return [lines[0], *lines[own:]]
