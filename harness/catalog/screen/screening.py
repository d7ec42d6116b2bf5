"""Run all passes of the screen over one solution's source.

The findings are advice: no status, label or score depends on them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from harness.catalog.screen.cuda import CudaFindings, cuda_findings
from harness.catalog.screen.findings import Screening, settle
from harness.catalog.screen.python import Found, python_findings
from harness.catalog.screen.sources import Embedded, embedded
from harness.core import python_ast
from harness.core.status import one_line

MAX_CHARS = 2**18
"""Largest file in characters; real solutions have a few kilobytes.

Texts that are hard to parse (`a<` repeated) take up to 30 us a character, and more if they are longer.
"""

CUDA_SUFFIXES = frozenset({".cu", ".cuh", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp"})
"""Suffixes of files that are C++ or CUDA as a whole."""


def screen(source: str) -> Screening:
    """Screen a Python file, and the C++ and CUDA in its strings.

    Args:
        source: Text of the file; no string raises an exception.

    Returns:
        Findings, or why the file could not be screened.
    """
    if len(source) > MAX_CHARS:
        return _too_large(source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = python_ast.parse(source)
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        return Screening(findings=(), unreadable=one_line(f"{where}not valid Python: {error.msg}", limit=200))
    except (ValueError, RecursionError, MemoryError) as error:
        return Screening(findings=(), unreadable=one_line(f"line 1: not valid Python: {error}", limit=200))
    lines = source.split("\n")
    parts = embedded(tree, lines)
    found, notes, kernels = _embedded_findings(parts)
    found += python_findings(tree, has_kernels=kernels)
    return Screening(findings=settle(found, lines), notes=tuple(notes))


def screen_cuda(source: str) -> Screening:
    """Screen a file that is C++ or CUDA as a whole.

    Args:
        source: Text of the file; no string raises an exception.

    Returns:
        Findings, or why the file could not be screened.
    """
    if len(source) > MAX_CHARS:
        return _too_large(source)
    lines = source.split("\n")
    found, notes, _ = _embedded_findings([Embedded(text=source, lines=range(1, len(lines) + 1))])
    return Screening(findings=settle(found, lines), notes=tuple(notes))


def _too_large(source: str) -> Screening:
    return Screening(findings=(), unreadable=f"{len(source)} characters, more than {MAX_CHARS}: not looked at")


def _embedded_findings(parts: Sequence[Embedded]) -> tuple[Found, list[str], bool]:
    """Return findings in all texts of C++, notes, and whether one has a kernel.

    Notes name parts that were screened incompletely.
    """
    held: list[tuple[Embedded, CudaFindings]] = [(part, cuda_findings(part.text)) for part in parts]
    found: Found = []
    notes: list[str] = []
    joined = any(item.joined for _, item in held)
    kernels = any(item.kernels for _, item in held)
    for part, item in held:
        last = len(part.lines) - 1
        placed = [(rule, part.lines[min(line, last)]) for rule, line in item.found]
        if not joined:
            placed += [("stream_not_joined", line) for rule, line in placed if rule == "stream"]
        for name, line in item.kernels.items():
            # The launch may be in another text than its kernel.
            if not any(other.mentioned.get(name, 0) > 0 for _, other in held):
                placed.append(("decoy_kernel", part.lines[min(line, last)]))
        if item.library_lines and not kernels:
            placed.append(("library_only", part.lines[min(item.library_lines[0], last)]))
        if item.broken_lines:
            first = part.lines[min(item.broken_lines[0], last)]
            notes.append(f"line {first}: the parser does not understand all C++ here; findings may be incomplete")
        found += placed
    return found, notes, kernels or any("__global__" not in part.text and "{" in part.text for part in parts)
