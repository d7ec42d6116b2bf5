"""Python sources as trees of the `ast` module, made by one thread at a time.

Pure; imports the standard library only. Nothing is executed. CPython counts how deep a tree is in a place that all
threads share (seen with 3.11.7): of two that are made at the same time, one may end with "SystemError: AST constructor
recursion depth mismatch", whatever the source says. Of a dotted name behind `import` its parser keeps every beginning:
a name of 40,000 parts took it 1.7 GB, so that names of more than `MOST_PARTS` are refused.
"""

from __future__ import annotations

import ast
import re
import threading
from typing import Literal, overload

_ONE_AT_A_TIME = threading.Lock()

MOST_PARTS = 200
"""Parts of a dotted name. More than these no package has, and no chain of attributes either."""

_AROUND_DOTS = re.compile(r"(?<![\s\\])[\s\\]*+\.[\s\\]*+")
_PART = r"[0-9A-Za-z_\x80-\U0010ffff]"
_LONG_NAME = re.compile(rf"(?<![0-9A-Za-z_.\x80-\U0010ffff]){_PART}++(?:\.{_PART}++){{{MOST_PARTS}}}")
"""Begins where a name does, so that each is read once."""


@overload
def parse(source: str | bytes, filename: str = ..., mode: Literal["exec"] = ...) -> ast.Module: ...
@overload
def parse(source: str | bytes, filename: str = ..., *, mode: Literal["eval"]) -> ast.Expression: ...
def parse(source: str | bytes, filename: str = "<unknown>", mode: Literal["exec", "eval"] = "exec") -> ast.AST:
    """What `ast.parse` of this gives. Raises what that raises: `SyntaxError`, `ValueError`, `RecursionError` or
    `MemoryError`, according to what is wrong with the source; a dotted name of too many parts is a `SyntaxError`.
    """
    text = source if isinstance(source, str) else source.decode("latin-1")
    if text.count(".") >= MOST_PARTS and _LONG_NAME.search(_AROUND_DOTS.sub(".", text)):
        raise SyntaxError(f"a dotted name of more than {MOST_PARTS} parts")
    with _ONE_AT_A_TIME:
        return ast.parse(source, filename, mode)
