"""Parse untrusted Python sources with `ast`, one thread at a time.

CPython keeps the depth of the tree in memory that all threads share (seen with 3.11.7). If two threads parse at the
same time, one may fail with "SystemError: AST constructor recursion depth mismatch" for any source.

For a dotted name after `import`, CPython's parser stores every prefix: a name of 40,000 parts took 1.7 GB. So names
of more than `MOST_PARTS` parts are refused.
"""

from __future__ import annotations

import ast
import re
import threading
from dataclasses import dataclass
from typing import Literal, overload

_ONE_AT_A_TIME = threading.Lock()

MOST_PARTS = 200
"""Largest number of parts of a dotted name; no package and no chain of attributes has more."""

_AROUND_DOTS = re.compile(r"(?<![\s\\])[\s\\]*+\.[\s\\]*+")
_PART = r"[0-9A-Za-z_\x80-\U0010ffff]"
_LONG_NAME = re.compile(rf"(?<![0-9A-Za-z_.\x80-\U0010ffff]){_PART}++(?:\.{_PART}++){{{MOST_PARTS}}}")
"""Matches only from the beginning of a name, so that each name is read once."""


@overload
def parse(source: str | bytes, filename: str = ..., mode: Literal["exec"] = ...) -> ast.Module: ...
@overload
def parse(source: str | bytes, filename: str = ..., *, mode: Literal["eval"]) -> ast.Expression: ...
def parse(source: str | bytes, filename: str = "<unknown>", mode: Literal["exec", "eval"] = "exec") -> ast.AST:
    """Parse `source` like `ast.parse`, under a lock.

    Args:
        source: Python source.
        filename: Name for messages.
        mode: `exec` for a file, `eval` for one expression.

    Returns:
        The syntax tree.

    Raises:
        SyntaxError: The source is invalid, or a dotted name has more than `MOST_PARTS` parts.
        ValueError: The source contains a null byte.
        RecursionError: The source nests too deep.
        MemoryError: The source nests too deep for the parser's stack.
    """
    text = source if isinstance(source, str) else source.decode("latin-1")
    if text.count(".") >= MOST_PARTS and _LONG_NAME.search(_AROUND_DOTS.sub(".", text)):
        raise SyntaxError(f"a dotted name of more than {MOST_PARTS} parts")
    with _ONE_AT_A_TIME:
        return ast.parse(source, filename, mode)


_COOKIE = re.compile(r"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", re.ASCII)
_BLANK = re.compile(r"[ \t\f]*(?:#.*)?")
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class DeclaredEncoding:
    """An encoding declaration (`# coding: NAME`) and its line, from 1."""

    name: str
    line: int


def declared_encoding(source: str) -> DeclaredEncoding | None:
    """Return the encoding declaration of a source without a byte-order mark, or None.

    The rule is that of PEP 263: a comment in the first line, or in the second if the first is blank or a comment.
    `tokenize.detect_encoding` does not take a lone carriage return as the end of a line; the compiler does.
    """
    lines = _LINE_END.split(source, maxsplit=2)[:2]
    for number, line in enumerate(lines, 1):
        if match := _COOKIE.match(line):
            return DeclaredEncoding(match[1], number)
        if not _BLANK.fullmatch(line):
            break
    return None


def is_utf8(encoding: str) -> bool:
    """Tell whether Python decodes a source as UTF-8 if it declares this encoding."""
    name = encoding.lower().replace("_", "-")
    return name in ("utf-8", "utf8") or name.startswith("utf-8-")
