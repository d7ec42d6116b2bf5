"""Python sources as trees of the `ast` module, made by one thread at a time.

Pure; imports the standard library only. Nothing is executed. CPython counts how deep a tree is in a place that all
threads share (seen with 3.11.7): of two that are made at the same time, one may end with "SystemError: AST constructor
recursion depth mismatch", whatever the source says.
"""

from __future__ import annotations

import ast
import threading
from typing import Literal, overload

_ONE_AT_A_TIME = threading.Lock()


@overload
def parse(source: str | bytes, filename: str = ..., mode: Literal["exec"] = ...) -> ast.Module: ...
@overload
def parse(source: str | bytes, filename: str = ..., *, mode: Literal["eval"]) -> ast.Expression: ...
def parse(source: str | bytes, filename: str = "<unknown>", mode: Literal["exec", "eval"] = "exec") -> ast.AST:
    """What `ast.parse` of this gives. Raises what that raises: `SyntaxError`, `ValueError`, `RecursionError` or
    `MemoryError`, according to what is wrong with the source."""
    with _ONE_AT_A_TIME:
        return ast.parse(source, filename, mode)
