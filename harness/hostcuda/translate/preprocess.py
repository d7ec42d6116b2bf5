"""Separate the author's text of a preprocessed unit from that of headers.

Runs in the builder's sandbox; text in, text out. g++ expands macros and decides conditions (`-E -fpch-preprocess`).
`rewrite` edits the author's text, then the unit is put together again and compiled (`-fpreprocessed`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from harness.toolchain.cuda_source.tokens import code

__all__ = ["DIRECTIVE", "Places", "PreprocessedUnit", "author_text", "marked"]

_MARK = "hostcuda_line_"
_MARKS = re.compile(rf'("(?:[^"\\\n]|\\.)*")|{_MARK}(\d+) ?')
_MARKER = re.compile(r'^# (\d+) "((?:[^"\\]|\\.)*)".*\n', re.M)
_HEADER = "#hostcuda "
"""Begins the line that stands for the text of headers."""

_STAND_IN = re.compile(rf"^{_HEADER}(\d+)\n", re.M)
_WORDS = re.compile(r"\b__(?:device|host|global|constant|managed|grid_constant)__(?!\w)")
_MOST_BLANK_LINES = 1000

DIRECTIVE = re.compile(rb"^#.*$", re.M)
"""Lines of a preprocessed text that are no C++: markers, stand-ins for headers, pragmas."""


def marked(source: str) -> str:
    """Mark the lines on which a statement inside parentheses begins.

    For instance in a lambda that is a macro's argument: the preprocessor writes the macro's expansion on one line.
    """
    lines = code(source.encode()).decode(errors="replace").split("\n")
    out = source.split("\n")
    depth, last, continued = 0, "", False
    for number, line in enumerate(lines):
        directive = continued or line.lstrip().startswith("#")
        continued = directive and line.rstrip("\r").endswith("\\")
        if directive or not line.strip():
            continue
        if depth > 0 and last in ";{}":
            out[number] = f"{_MARK}{number + 1} {out[number]}"
        depth = max(0, depth + line.count("(") - line.count(")"))
        last = line.rstrip(" \t\r\\")[-1:] or last
    return "\n".join(out)


@dataclass(frozen=True, slots=True)
class PreprocessedUnit:
    """The author's text of a unit, and the text of headers.

    `text` has the author's files only, with line markers. A line `#hostcuda N` in it stands for `headers[N]`.
    """

    text: str
    headers: tuple[str, ...]

    def restored(self, text: str, before: str) -> str:
        """The unit with the edited `text`; `before` comes in front of the author's text."""

        def header(found: re.Match[str]) -> str:
            number = int(found[1])
            # The words mean something in the author's text only; those before it are expanded.
            return self.headers[0] + before if number == 0 else _WORDS.sub("", self.headers[number])

        return _STAND_IN.sub(header, text)


def author_text(preprocessed: str, owns: Callable[[str], bool]) -> PreprocessedUnit:
    """Split the output of `g++ -E`.

    Args:
        preprocessed: The output.
        owns: Whether a file is the author's.
    """
    headers = [""]
    out = [f"{_HEADER}0\n"]
    other: list[str] = []
    author_reached = False
    place: tuple[str, int] | None = None
    markers = list(_MARKER.finditer(preprocessed))
    ends = [*(marker.start() for marker in markers[1:]), len(preprocessed)][: len(markers)]
    for marker, end in zip(markers, ends, strict=True):
        file, line, text = marker[2], int(marker[1]), preprocessed[marker.end() : end]
        if not owns(file):
            other.append(marker[0] + text)
            continue
        if not author_reached:
            headers[0], other, author_reached = "".join(other), [], True
        if not text.strip():
            continue
        if other:
            out.append(f"{_HEADER}{len(headers)}\n")
            headers.append("".join(other))
            other, place = [], None
        for number, each in enumerate(text.split("\n"), line):
            if each.strip():
                _go_to(out, place, file, number, joins=not each.startswith("#"))
                place = file, _append(out, each + "\n", file, number) + 1
    if other:
        out.append(f"{_HEADER}{len(headers)}\n")
        headers.append("".join(other))
    return PreprocessedUnit("".join(out), tuple(headers))


def _go_to(out: list[str], place: tuple[str, int] | None, file: str, line: int, *, joins: bool) -> None:
    """Continue in another line: by line ends, by joining lines, or by a marker."""
    ahead = line - place[1] if place is not None and place[0] == file else -2
    if 0 <= ahead < _MOST_BLANK_LINES:
        out.append("\n" * ahead)
    elif joins and ahead == -1 and not out[-1][out[-1].rfind("\n", 0, -1) + 1 :].startswith("#"):
        out[-1] = out[-1][:-1] + " "
    else:
        out.append(f'# {line} "{file}"\n')


def _append(out: list[str], text: str, file: str, line: int) -> int:
    """Append a preprocessed line without marks; returns the line where it ends."""
    position = 0
    for found in _MARKS.finditer(text):
        if found[1] is not None and _MARK not in found[1]:
            continue
        before, position = text[position : found.start()], found.end()
        if found[1] is not None:
            out.append(before + re.sub(rf" ?{_MARK}\d+", "", found[1]))
        elif int(found[2]) == line:
            out.append(before)
        else:
            line = int(found[2])
            out.append(f'{before}\n# {line} "{file}"\n')
    out.append(text[position:])
    return line


class Places:
    """The file and the line that each position of an author's text comes from."""

    def __init__(self, text: bytes) -> None:
        self._starts = [0]
        self._places = [("", 0)]
        for found in re.finditer(rb'^# (\d+) "(.*)"\n', text, re.M):
            self._starts.append(found.end())
            self._places.append((found[2].decode(errors="replace"), int(found[1])))
        self._text = text

    def of(self, position: int) -> tuple[str, int]:
        """File and line of a byte's position."""
        index = bisect_right(self._starts, position) - 1
        file, line = self._places[index]
        return file, line + self._text.count(b"\n", self._starts[index], position)

    def of_row(self, row: int) -> tuple[str, int]:
        """File and line of a row of the text, counted from 1."""
        position = 0
        for _ in range(row - 1):
            position = self._text.index(b"\n", position) + 1
        return self.of(position)
