"""What a problem needs that this machine or this harness does not have, found in its text before anything is built.

Imports `python_syntax` only; trusted side. Nothing is executed. It matters for problems written for other
machines: KernelBench's level 4 wraps whole models of the `transformers` package and downloads their weights.
"""

from __future__ import annotations

import ast
import importlib.util
import sys

from harness.core import python_ast

_PRETRAINED = "from_pretrained"


def unmet_need(source: str) -> str | None:
    """Why no solution of the problem with this source can be judged here, with what to do; None where nothing is known
    to stand in the way.
    """
    try:
        tree = python_ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None  # the catalog's and the referee's to say
    if missing := [name for name in _packages(tree) if not _installed(name)]:
        named = ", ".join(missing)
        return f"the problem imports {named}, not installed here: pip install it where the harness runs, and try again"
    if any(isinstance(node, ast.Attribute) and node.attr == _PRETRAINED for node in ast.walk(tree)):
        return (
            f"the problem loads a model with its weights ({_PRETRAINED}): a solution would have to do so too, and it "
            "runs without a network and without a cache of weights; this harness can't judge such problems"
        )
    return None


def _packages(tree: ast.Module) -> list[str]:
    """Top-level packages that the module imports when it is loaded, in order."""
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
