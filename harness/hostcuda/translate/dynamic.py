"""Find `extern __shared__` arrays of one name with two types in one source.

Runs in the builder's sandbox; text in, findings out. nvcc refuses them, because they are one variable; on the host
device each would be its own view of the block's memory. Only certain cases are found: types that depend on no template
or alias, in functions of the global namespace, without preprocessor conditions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

from harness.toolchain.cuda_source.noise import without_noise
from harness.toolchain.cuda_source.syntax import (
    Tree,
    base_type,
    declarators,
    inside_function,
    is_extern,
    is_shared,
    name_node,
    walk,
)

__all__ = ["Clash", "clashes"]

_LANGUAGE = Language(tree_sitter_cuda.language())
_CERTAIN = re.compile(
    r"(?:unsigned )?(?:char|short|int)|float|double|bool|(?:u?(?:char|short|int)|float|double)[234]|(?:__)?half2?"
    r"|__nv_bfloat162?"
)
_MEANT = {"__half": "half", "__half2": "half2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Clash:
    """A declaration that conflicts with an earlier one of its name; 1-based position."""

    line: int
    column: int
    message: str


def clashes(source: str) -> tuple[Clash, ...]:
    """The declarations that nvcc certainly refuses, in source order."""
    data = without_noise(source.encode())
    tree = Tree(Parser(_LANGUAGE).parse(data).root_node, data, 0, False)
    first: dict[bytes, tuple[str, int]] = {}
    found: list[Clash] = []
    for node in walk(tree.root):
        if node.type != "declaration" or not is_shared(tree, node) or not is_extern(tree, node):
            continue
        held = declarators(node)
        named = name_node(held[0]) if len(held) == 1 else None
        if named is None or not inside_function(node) or not _is_plain(node):
            continue
        kind = " ".join(base_type(tree, node, held).decode(errors="replace").split())
        kind, line = _MEANT.get(kind, kind), named.start_point[0] + 1
        if not _CERTAIN.fullmatch(kind) or held[0].type != "array_declarator":
            continue
        name = tree.of(named)
        other, at = first.setdefault(name, (kind, line))
        if other != kind:
            text = f'declaration is incompatible with previous "{name.decode()}" (declared at line {at})'
            found.append(Clash(line=line, column=named.start_point[1] + 1, message=text))
    return tuple(found)


def _is_plain(node: Node) -> bool:
    """Whether it is inside a function of the global namespace that is not a template."""
    around = node.parent
    while around is not None and around.type != "translation_unit":
        if around.type not in {"compound_statement", "function_definition"} or around.has_error:
            return False
        around = around.parent
    return around is not None
