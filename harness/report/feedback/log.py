"""Shorten the end of a log to the lines that help the author of a solution.

Pure functions. A traceback has calls of the harness, in files that the author does not have, and a log repeats it in
several sections: both are left out. So are the builds, which succeeded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

LINES = 15
"""Number of lines that are kept, from the end."""

_SECTION = re.compile(r"== [^=].* ==")
_BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File "((?:.*/)?([^"/]+))", line \d+')
_BUILD = "== building extension "
_OWN_CODE = "/harness/"
"""In the path of each file of the harness."""


def log_end(log: str, file_name: str) -> list[str]:
    """Return the last lines of an escaped log that concern the solution.

    It leaves out the output of builds, the frames of a traceback before the first one in the solution's file (all
    frames if none is in it), frames of the harness, all tracebacks of one exception except the last, and headings
    without lines.
    """
    kept: list[list[str]] = []
    seen: set[str] = set()
    own: list[list[str]] = []  # of the section whose heading comes next
    for heading, lines in reversed(list(_blocks(log))):
        if not heading:
            exception = _exception(lines)
            if exception not in seen:
                own.append(_own_part(lines, file_name))
                seen |= {exception} if exception else set()
            continue
        if own and not lines[0].startswith(_BUILD):
            kept += [*own, lines]
        own = []
    kept += own
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


def _exception(lines: Sequence[str]) -> str:
    """Return the exception below a traceback, or an empty text."""
    if lines[0] != _BEGIN:
        return ""
    return "\n".join(line for line in lines[1:] if not line.startswith("  "))


def _own_part(lines: Sequence[str], file_name: str) -> list[str]:
    if lines[0] != _BEGIN:
        return list(lines)
    kept: list[str] = []
    begun = skipped = False
    for line in lines[1:]:
        if found := _FRAME.match(line):
            path, name = found[1], found[2]
            begun = begun or name == file_name
            skipped = not begun or _OWN_CODE in path
            line = line.replace(path, name, 1) if name == file_name else line
        elif not line.startswith("  "):  # frames and the lines of source below them are indented
            skipped = False
        if not skipped:
            kept.append(line)
    return [_BEGIN, *kept]
