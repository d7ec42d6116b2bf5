"""Query a CUDA syntax tree: declarations, names, parameters, launches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

__all__ = [
    "Tree",
    "at_namespace_scope",
    "base_type",
    "declarators",
    "declared_name",
    "function_declarator",
    "function_name",
    "has_word",
    "inside_function",
    "is_extern",
    "is_shared",
    "name_node",
    "parameters",
    "walk",
]

_NAME_TYPES = {"identifier", "field_identifier", "type_identifier", "qualified_identifier"}


@dataclass(frozen=True, slots=True)
class Tree:
    """A parsed source.

    Attributes:
        root: Root node.
        text: The parsed bytes, with blanks in place of what the grammar can't parse.
        source: The source, byte for byte as long.
    """

    root: Node
    text: bytes
    source: bytes

    def of(self, node: Node) -> bytes:
        """Return the bytes of a node."""
        return self.text[node.start_byte : node.end_byte]


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all its descendants, in source order."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(reversed(current.children))


def has_word(tree: Tree, node: Node, wanted: set[bytes]) -> bool:
    """Whether a direct child of `node` is one of the `wanted` words."""
    return any(
        (child.child_count == 0 and tree.of(child) in wanted)
        or (child.child_count and child.type == "type_qualifier" and tree.of(child) in wanted)
        for child in node.children
    )


def is_shared(tree: Tree, node: Node) -> bool:
    """Whether a declaration is `__shared__`."""
    return any(tree.of(child) == b"__shared__" for child in node.children)


def is_extern(tree: Tree, node: Node) -> bool:
    """Whether a declaration is `extern`."""
    return any(tree.of(child) == b"extern" for child in node.children)


def inside_function(node: Node) -> bool:
    """Whether a node is inside the body of a function or lambda."""
    parent = node.parent
    while parent is not None:
        if parent.type in {"compound_statement", "lambda_expression"}:
            return True
        parent = parent.parent
    return False


def declarators(node: Node) -> list[Node]:
    """Return the declarators of a declaration."""
    return node.children_by_field_name("declarator")


def declared_name(tree: Tree, declarator: Node) -> bytes | None:
    """Return the name that a declarator declares, or None."""
    node = name_node(declarator)
    return tree.of(node) if node is not None else None


def name_node(declarator: Node) -> Node | None:
    """Return the node of the name that a declarator declares, or None."""
    node = declarator
    while node.type not in _NAME_TYPES:
        inner = node.child_by_field_name("declarator")
        if inner is None:
            inner = next(
                (c for c in node.named_children if c.type in _NAME_TYPES or c.type.endswith("_declarator")), None
            )
        if inner is None:
            return None
        node = inner
    return node


def function_declarator(node: Node) -> Node | None:
    """Return the function declarator of a definition or declaration, or None."""
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator")
    return declarator


def function_name(tree: Tree, node: Node) -> bytes | None:
    """Return a function's name as written, with its qualifiers, or None."""
    declarator = function_declarator(node)
    if declarator is None:
        return None
    name = declarator.child_by_field_name("declarator")
    return tree.of(name) if name is not None else None


def parameters(node: Node) -> list[Node]:
    """Return the parameter declarations of a function."""
    declarator = function_declarator(node)
    parameters = declarator.child_by_field_name("parameters") if declarator is not None else None
    if parameters is None:
        return []
    return [p for p in parameters.named_children if p.type.endswith("parameter_declaration")]


def at_namespace_scope(node: Node) -> bool:
    """Whether a node is at namespace scope."""
    parent = node.parent
    while parent is not None and parent.type != "translation_unit":
        if parent.type not in {"namespace_definition", "declaration_list", "linkage_specification"}:
            return False
        parent = parent.parent
    return parent is not None


def base_type(tree: Tree, node: Node, declarators: list[Node]) -> bytes:
    """Return the type of a declaration, without storage and CUDA qualifiers."""
    words_dropped = {b"__shared__", b"extern", b"static", b"__device__", b"inline"}
    pieces = []
    for child in node.children:
        if declarators and child.start_byte >= declarators[0].start_byte:
            break
        if tree.of(child) in words_dropped:
            continue
        pieces.append(tree.of(child))
    return b" ".join(pieces)
