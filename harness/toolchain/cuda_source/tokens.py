"""Find the words of a C++ source outside of comments and literals.

Used before a syntax tree exists: to find attributes and the ends of their parentheses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["balanced", "blank", "code", "words"]

_TOKEN = re.compile(
    rb"""//(?:[^\n\\]|\\.)* | /\*.*?\*/ | (?:u8|[uUL])?R"(?P<d>[^()\\\s]{0,16})\(.*?\)(?P=d)"
    | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' | (?P<number>\d(?:['\w.]|[eEpP][+-])*) | (?P<word>[A-Za-z_]\w*)""",
    re.S | re.X,
)


def words(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield identifiers and keywords with their byte ranges."""
    for match in _TOKEN.finditer(data):
        if match.group("word") is not None:
            yield match.group("word"), match.start(), match.end()


def balanced(data: bytes, start: int) -> int | None:
    """Return the end of the parenthesised group at `start`, or None.

    Blanks may precede the parenthesis.
    """
    i = start
    while i < len(data) and data[i : i + 1] in (b" ", b"\t", b"\n", b"\r", b"\\"):
        i += 1
    if data[i : i + 1] != b"(":
        return None
    depth = 0
    while i < len(data):
        match = _TOKEN.match(data, i)
        if match is not None:
            i = match.end()
            continue
        if data[i : i + 1] == b"(":
            depth += 1
        elif data[i : i + 1] == b")":
            depth -= 1
            if depth == 0:
                return i + 1
        i += 1
    return None


def code(data: bytes) -> bytes:
    """Return the source with comments and literals blanked, byte for byte as long."""
    out = bytearray(data)
    for match in _TOKEN.finditer(data):
        if match.group("word") is None and match.group("number") is None:
            blank(out, match.start(), match.end())
    return bytes(out)


def blank(data: bytearray, start: int, end: int) -> None:
    """Overwrite a range with spaces; line ends and backslashes stay."""
    for i in range(start, end):
        if data[i] not in b"\n\r\\":
            data[i] = ord(" ")
