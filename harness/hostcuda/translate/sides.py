"""For which side a function's body is compiled: host, device, or both.

Runs in the builder's sandbox. Pure; the text is preprocessed.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from tree_sitter import Node

from harness.toolchain.cuda_source.syntax import Tree, declarators, function_declarator, walk
from harness.toolchain.cuda_source.tokens import words

__all__ = ["CodeSide", "can_be_doubled", "enclosing_class", "head", "last_name", "marked_names", "side_of"]

_FUNCTIONS = {"function_definition", "lambda_expression"}
_DEVICE = {b"__global__", b"__device__"}
_CONSTANT = {b"constexpr", b"consteval"}
_UNKNOWABLE = re.compile(
    rb"force_cuda_host_device|hd_warning_disable|nv_exec_check_disable"
    rb"|__attribute__[ \t]*\(\([ \t]*(?:device|host|global)\b"
)
"""Text outside functions' heads that changes their side, or which calls nvcc checks."""


class CodeSide(Enum):
    """The side of code; `BOTH` also if it is unknown."""

    HOST = auto()
    DEVICE = auto()
    BOTH = auto()


def side_of(tree: Tree, node: Node, around: CodeSide | None, marked: frozenset[bytes] | None) -> CodeSide:
    """The side of a function or lambda.

    `around` is the side of the surrounding function; `marked` is the result of `marked_names`.
    """
    said = {word for word, _, _ in words(head(tree, node))}
    if b"__global__" in said or (b"__device__" in said and b"__host__" not in said):
        return CodeSide.DEVICE
    if b"__device__" in said:
        return CodeSide.BOTH
    if around is not None:
        return around
    before = node.prev_sibling
    odd = (
        marked is None
        or said & _CONSTANT
        or any(name in marked for name in _names(tree, node))
        or (before is not None and before.type == "ERROR")
    )
    return CodeSide.BOTH if odd else CodeSide.HOST


def marked_names(tree: Tree, source: bytes) -> frozenset[bytes] | None:
    """Last names of functions that some declaration marks for the device.

    Their other declarations mean the same, even without a mark. None if heads do not tell the side of functions.
    """
    if _UNKNOWABLE.search(source) is not None:
        return None
    return frozenset(
        _names(tree, declarator, node)[0]
        for node in walk(tree.root)
        if node.type in {"declaration", "field_declaration", "function_definition"}
        and any(tree.of(child) in _DEVICE for child in node.children)
        for declarator in declarators(node)
    )


def _names(tree: Tree, declarator: Node, node: Node | None = None) -> list[bytes]:
    """The names of a function: with its class, and without if it may have none."""
    last, scope = last_name(tree, declarator), b""
    inner = declarator if declarator.type == "function_declarator" else function_declarator(declarator)
    name = inner.child_by_field_name("declarator") if inner is not None else None
    while name is not None and name.type == "qualified_identifier":
        around = name.child_by_field_name("scope")
        scope = tree.of(around).split(b"<")[0] if around is not None else b""
        name = name.child_by_field_name("name")
    if scope:
        return [scope + b"::" + last, last]
    class_ = enclosing_class(node or declarator)
    named = class_.child_by_field_name("name") if class_ is not None else None
    return [tree.of(named).split(b"<")[0] + b"::" + last if named is not None else last]


def enclosing_class(node: Node) -> Node | None:
    """The class that a member is declared in."""
    around = node.parent
    while around is not None and around.type not in {"struct_specifier", "class_specifier"}:
        around = around.parent if around.type in {"field_declaration_list", "template_declaration"} else None
    return around


def last_name(tree: Tree, node: Node) -> bytes:
    """The last name of a function or its declarator; empty for anything else."""
    declarator = node if node.type == "function_declarator" else function_declarator(node)
    name = declarator.child_by_field_name("declarator") if declarator is not None else None
    while name is not None and name.type == "qualified_identifier":
        name = name.child_by_field_name("name")
    return tree.of(name) if name is not None else b""


def head(tree: Tree, node: Node) -> bytes:
    """The source between the previous node and a function's body.

    For a lambda, from its capture on.
    """
    body = node.child_by_field_name("body")
    start, end = node.start_byte, body.start_byte if body is not None else node.end_byte
    if node.type != "lambda_expression":
        start = node.prev_sibling.end_byte if node.prev_sibling is not None else start
        if node.prev_sibling is None and node.parent == tree.root:
            start = 0
    return tree.source[start:end]


def can_be_doubled(node: Node) -> bool:
    """Whether a function can have a body for each side.

    It can't if its text was not understood, if it has labels, or if the return type is deduced, since it may differ.
    """
    body = node.child_by_field_name("body")
    if body is None or body.type != "compound_statement" or node.has_error:
        return False
    result, declarator = node.child_by_field_name("type"), function_declarator(node)
    told = declarator is not None and any(child.type == "trailing_return_type" for child in declarator.children)
    if result is not None and result.type == "placeholder_type_specifier" and not told:
        return False
    waiting = list(body.children)
    while waiting:
        inner = waiting.pop()
        if inner.type == "labeled_statement":
            return False
        if inner.type not in _FUNCTIONS:
            waiting.extend(inner.children)
    return True
