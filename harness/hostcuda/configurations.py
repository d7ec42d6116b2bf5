"""Macros that stand for a launch's configuration alone: `#define ON <<<grid, block>>>`, used as `kernel ON (x, n);`.

Charter: a pass of `rewrite`, before the parser sees the text: the grammar knows launches only where they are written
out. Pure; imports `tokens` beside it.
"""

from __future__ import annotations

import re

from .tokens import words

__all__ = ["written_out"]

_DEFINITION = re.compile(
    rb"^[ \t]*#[ \t]*define[ \t]+(?P<name>[A-Za-z_]\w*)[ \t]+(?P<body><<<(?:[^\n\\]|\\\r?\n|\\.)*>>>)[ \t]*\r?$", re.M
)


def written_out(source: bytes) -> bytes:
    """The source with each use of such a macro replaced by its body, on one line. Macros with parameters stay."""
    bodies = {m["name"]: re.sub(rb"\\\r?\n", b" ", m["body"]) for m in _DEFINITION.finditer(source)}
    if not bodies:
        return source
    defined = [match.span() for match in _DEFINITION.finditer(source)]
    out = bytearray()
    position = 0
    for word, start, end in words(source):
        if word in bodies and not any(first <= start < last for first, last in defined):
            out += source[position:start] + bodies[word]
            position = end
    return bytes(out + source[position:])
