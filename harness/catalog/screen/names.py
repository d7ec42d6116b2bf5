"""Resolve Python expressions to dotted names through imports and aliases."""

from __future__ import annotations

import ast
from collections.abc import Iterable


class Names:
    """Names of one file, such as `t` after `import torch as t`."""

    def __init__(self, nodes: Iterable[ast.AST]) -> None:
        self._known: dict[str, str] = {}
        self.imported: set[str] = set()
        """First parts of imported dotted names."""
        aliases: list[tuple[str, ast.expr]] = []
        for node in nodes:
            if isinstance(node, ast.Import):
                for item in node.names:
                    whole = item.name if item.asname else item.name.partition(".")[0]
                    self._add(item.asname or whole, whole)
            elif isinstance(node, ast.ImportFrom):
                for item in node.names:
                    self._add(item.asname or item.name, f"{node.module or ''}.{item.name}".lstrip("."))
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                aliases.append((node.targets[0].id, node.value))
        for name, value in aliases:
            # `sync = torch.cuda.synchronize` and `sync = getattr(torch.cuda, "synchronize")`, in any order of names.
            dotted = self.dotted(value)
            if dotted is not None and dotted.partition(".")[0] != name and self.is_imported(dotted):
                self._known.setdefault(name, dotted)

    def _add(self, name: str, dotted: str) -> None:
        self._known[name] = dotted
        self.imported.add(dotted.partition(".")[0])

    def is_imported(self, dotted: str) -> bool:
        return dotted.partition(".")[0] in self.imported

    def dotted(self, node: ast.AST) -> str | None:
        """Return the dotted name, such as `torch.cuda.Event`, for every way to write it.

        A name that is not imported stays as it is. The result is None for other expressions.
        """
        parts: list[str] = []
        while True:
            if isinstance(node, ast.Attribute):
                parts.append(node.attr)
                node = node.value
            elif isinstance(node, ast.Call) and _is_getattr(node):
                parts.append(str(getattr(node.args[1], "value", "")))
                node = node.args[0]
            elif isinstance(node, ast.Call) and _imports(node):
                base = str(getattr(node.args[0], "value", ""))
                return ".".join([base, *reversed(parts)])
            else:
                break
        if not isinstance(node, ast.Name):
            return None
        return ".".join([self._known.get(node.id, node.id), *reversed(parts)])


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_getattr(node: ast.Call) -> bool:
    return (
        isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) >= 2 and _is_text(node.args[1])
    )


def _imports(node: ast.Call) -> bool:
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    return name in ("__import__", "import_module") and bool(node.args) and _is_text(node.args[0])
