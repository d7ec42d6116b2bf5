"""Find C++ and CUDA in the strings of a Python file, with their lines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_CODE = re.compile(
    r"__global__|#\s*include\b|\b(?:at|torch)::Tensor\b|extern\s+\"C\"|\b(?:void|float|int|double)\s+\w+\s*\([^()]*\)\s*\{"
)
"""Distinguishes C++ from prose, names and compiler flags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """One text of C++. Line i of `text` (from 0) is line `lines[i]` of the file."""

    text: str
    lines: Sequence[int]


def embedded(tree: ast.Module, file_lines: Sequence[str]) -> tuple[Embedded, ...]:
    """Return the strings of `tree` that look like C++, without docstrings."""
    skipped: set[int] = set()
    found: list[Embedded] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            skipped.update(id(item) for item in ast.walk(node) if item is not node)
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        text = _text(node)
        if text is not None and _CODE.search(text):
            found.append(Embedded(text=text, lines=tuple(_lines(node, text, file_lines))))
    return tuple(found)


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        # Values inserted at run time are mostly numbers or types.
        return "".join(
            item.value if isinstance(item, ast.Constant) and isinstance(item.value, str) else "0"
            for item in node.values
        )
    return None


def _lines(node: ast.AST, text: str, file_lines: Sequence[str]) -> Iterator[int]:
    first = getattr(node, "lineno", 1)
    last = getattr(node, "end_lineno", None) or first
    pieces = text.split("\n")
    if last - first == len(pieces) - 1:
        yield from range(first, last + 1)
        return
    # With escapes, continuations or adjacent literals, find each line in the literal's lines of the file.
    last = min(last, len(file_lines))
    places: Mapping[str, int] = {_bare(file_lines[i - 1]): i for i in range(last, first - 1, -1)}
    held = first
    for piece in pieces:
        wanted = _bare(piece)
        held = places.get(wanted, held) if wanted else held
        yield held


def _bare(line: str) -> str:
    """Return a line of code without indentation, quotes and the escape at its end."""
    held = line.strip(" \t'\",")
    return held.removesuffix("\\n").removesuffix("\\").strip(" \t'\",")
