"""Expand macros that hide launches, places or declarations from the parser.

A pass of `rewrite`. Pure. The grammar recognises launches and places only if they are written out.
guides/design/host_device.md has a table of the cases.
"""

from __future__ import annotations

import re

from harness.toolchain.cuda_source.tokens import words

__all__ = ["written_out"]

_LAUNCH = re.compile(
    rb"^[ \t]*#[ \t]*define[ \t]+(?P<name>[A-Za-z_]\w*)[ \t]+(?P<body><<<(?:[^\n\\]|\\\r?\n|\\.)*>>>)[ \t]*\r?$", re.M
)
_PLACE = rb"__(?:global|shared|device|constant|managed|host)__"
_WORD = _PLACE + rb'|__forceinline__|__noinline__|__inline__|__restrict__|inline|static|extern|"C"|const|volatile|void'
_BRACKETS = rb"(?:\[[^\n\\\[\]]*\][ \t]*)+"
_COMMENT = rb"(?:[ \t]*(?://[^\n]*|/\*[^\n]*?\*/))?[ \t]*\r?$"
_HEAD = re.compile(
    rb"^[ \t]*#[ \t]*define[ \t]+(?P<name>[A-Za-z_]\w*)[ \t]+(?P<body>template[ \t]*<[^\n\\]*>|"
    + _BRACKETS
    + rb"|(?:"
    + _WORD
    + rb")(?:[ \t]+(?:"
    + _WORD
    + rb"))*)"
    + _COMMENT,
    re.M,
)
_DEFINED = re.compile(rb"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)(.*?)" + _COMMENT, re.M)
_DIRECTIVE = re.compile(rb"^[ \t]*#[ \t]*(?!define\b)(?:[^\n\\]|\\\r?\n|\\.)*", re.M)


def written_out(source: bytes) -> bytes:
    """Replace each use of such a macro by its body, on one line.

    Macros with parameters stay.
    """
    launches = list(_LAUNCH.finditer(source))
    bodies = {m["name"]: re.sub(rb"\\\r?\n", b" ", m["body"]) for m in launches} | _heads(source)
    if not bodies:
        return source
    kept = [match.span() for match in (*launches, *_HEAD.finditer(source), *_DIRECTIVE.finditer(source))]
    out = bytearray()
    position = 0
    for word, start, end in words(source):
        if (
            word in bodies
            and not any(first <= start < last for first, last in kept)
            and not _is_pasted(source, start, end)
        ):
            out += source[position:start] + bodies[word]
            position = end
    return bytes(out + source[position:])


def _heads(source: bytes) -> dict[bytes, bytes]:
    """Words of declarations, by the macro's name.

    A macro with several definitions, other than an empty one, stays.
    """
    found: dict[bytes, set[bytes]] = {}
    for match in _DEFINED.finditer(source):
        found.setdefault(match[1], set()).add(b" ".join(match[2].split()))
    return {
        match["name"]: b" ".join(match["body"].split())
        for match in _HEAD.finditer(source)
        if re.search(_PLACE + rb"|template|^\[", match["body"]) and len(found[match["name"]] - {b""}) == 1
    }


def _is_pasted(source: bytes, start: int, end: int) -> bool:
    """Whether a macro's body makes a string or another name of it."""
    return source[:start].rstrip(b" \t").endswith(b"#") or source[end:].lstrip(b" \t").startswith(b"##")
