"""The end of a log, as its solution's author can use it: where an exception ended the solution, which line it was.

Pure. A traceback begins with the harness's own calls, on files that its author does not have, and the same one stands
in several sections of a log: neither is told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

LINES = 15
"""So many lines from the end of what is left."""

_SECTION = re.compile(r"== [^=].* ==")
_BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File "(?:.*/)?([^"/]+)", line \d+')


def log_end(log: str, file_name: str) -> list[str]:
    """The last lines of `log`, which was made safe to show, that tell something about the solution in `file_name`.

    Of each traceback the frames before the first one in that file are left out, and all where none is in it; of alike
    tracebacks all but the last; headings with nothing below them.
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
    """The log in parts, each with whether it is a section's heading: such headings, tracebacks (with what follows up to
    the next part), and what stands before those. Empty lines are left out.
    """
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
