"""Detect problems that can't run here: missing packages, pretrained weights.

Trusted side. The problem's source is parsed, not executed, before anything is built. KernelBench's level 4, for
example, uses models of the `transformers` package and downloads their weights.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import sys

from harness.core import python_ast

_PRETRAINED = "from_pretrained"


@functools.lru_cache(maxsize=256)  # a problem has many solutions
def unmet_need(source: str) -> str | None:
    """Say why no solution of a problem can be evaluated here.

    Returns:
        One line with the reason and what to do, or None if no obstacle is known.
    """
    try:
        tree = python_ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None  # the catalog and the referee report it
    if missing := [name for name in _packages(tree) if not _installed(name)]:
        named = ", ".join(missing)
        return f"the problem imports {named}, which is not installed: pip install it where the harness runs, run again"
    if any(isinstance(node, ast.Attribute) and node.attr == _PRETRAINED for node in ast.walk(tree)):
        return (
            f"the problem loads pretrained weights ({_PRETRAINED}): a solution would need them too, but it runs "
            "without a network and without a cache of weights; this harness can't evaluate such problems"
        )
    return None


def _packages(tree: ast.Module) -> list[str]:
    """Return the top-level packages that the module imports, in order."""
    names: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            names += [item.name for item in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.append(node.module)
    return list(dict.fromkeys(name.partition(".")[0] for name in names))


def _installed(package: str) -> bool:
    if package in sys.builtin_module_names or package in sys.stdlib_module_names or package in sys.modules:
        return True
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False
