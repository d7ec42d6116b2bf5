"""A parsed Python file, with parents of nodes and values of names.

Nothing is recursive, so deeply nested code can't exhaust the stack.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from harness.catalog.screen.names import Names

MAX_FOLLOWED = 8
"""Most assignments of one name to follow."""

MAX_NODES = 2000
"""Most nodes to follow from one expression; keeps the time linear in the file."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class File:
    """All nodes of one file, in breadth-first order."""

    def __init__(self, tree: ast.Module) -> None:
        self.nodes = list(ast.walk(tree))
        self.names = Names(self.nodes)
        self._parents = {id(child): node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self._values: dict[str, list[ast.expr]] = {}
        self.read = {_name(node) for node in self.nodes if isinstance(getattr(node, "ctx", None), ast.Load)}
        """Names of variables and attributes that the file reads."""
        self.shared: set[tuple[int, str]] = set()
        """Names that functions declare global or nonlocal, with the function's id()."""
        for node in self.nodes:
            if isinstance(node, ast.Global | ast.Nonlocal):
                self.shared |= {(id(self.function_of(node)), name) for name in node.names}
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self._values.setdefault(target.id, []).append(node.value)

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self._parents.get(id(node))

    def values(self, name: str) -> list[ast.expr]:
        """Return the values assigned to a plain name anywhere in the file."""
        return self._values.get(name, [])

    def followed(self, node: ast.expr) -> Iterator[ast.AST]:
        """Yield the nodes of an expression and of its names' values.

        There are at most `MAX_NODES`.
        """
        return itertools.islice(self._follow(node), MAX_NODES)

    def _follow(self, node: ast.expr) -> Iterator[ast.AST]:
        seen: set[str] = set()
        pending = [node]
        while pending:
            for item in ast.walk(pending.pop()):
                yield item
                if isinstance(item, ast.Name) and item.id not in seen:
                    seen.add(item.id)
                    pending += self._values.get(item.id, [])[:MAX_FOLLOWED]

    def function_of(self, node: ast.AST) -> Function | None:
        """Return the innermost function around a node, or None."""
        held = self._parents.get(id(node))
        while held is not None and not isinstance(held, Function):
            held = self._parents.get(id(held))
        return held

    def inside_function(self, node: ast.AST) -> bool:
        return self.function_of(node) is not None

    def parameters(self, function: Function | None) -> set[str]:
        """Return the names of the positional and keyword parameters, without `self`."""
        if function is None:
            return set()
        held = function.args
        return {item.arg for item in (*held.posonlyargs, *held.args, *held.kwonlyargs)} - {"self"}


def _name(node: ast.AST) -> str:
    return str(getattr(node, "id", None) or getattr(node, "attr", ""))


def targets(node: ast.AST) -> list[ast.expr]:
    """Return the targets that a statement binds, changes or deletes."""
    if isinstance(node, ast.Assign | ast.Delete):
        return list(node.targets)
    return [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr | ast.For) else []


def is_constant(node: ast.expr) -> bool:
    """Tell whether an expression is a literal, or a tuple or list of literals."""
    if isinstance(node, ast.Tuple | ast.List):
        return all(isinstance(item, ast.Constant) for item in node.elts)
    return isinstance(node, ast.Constant)


def integers(node: ast.expr) -> list[int]:
    """Return an expression's integer literals: itself, or a tuple's or list's items."""
    items = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
    held = [item.value for item in items if isinstance(item, ast.Constant)]
    return [value for value in held if isinstance(value, int) and not isinstance(value, bool)]
