"""For which side a function's body is compiled: host, device, or both.

Runs in the builder's sandbox. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from enum import Enum, auto

from tree_sitter import Node

from harness.toolchain.cuda_source.syntax import Tree, declarators, function_declarator, walk
from harness.toolchain.cuda_source.tokens import words

__all__ = ["ARCHITECTURE", "CodeSide", "architecture_words", "marked_names", "side_of", "two_versions"]

ARCHITECTURE = b"__CUDA_ARCH__"
"""Defined while nvcc compiles for the device, undefined while it compiles the same text for the host."""

_CONDITIONS = {"preproc_if", "preproc_ifdef", "preproc_elif", "preproc_elifdef"}
_FUNCTIONS = {"function_definition", "lambda_expression"}
_DEVICE = {b"__global__", b"__device__"}
_CONSTANT = {b"constexpr", b"consteval"}
_LIKE_A_MACRO = re.compile(rb"[A-Z][A-Z0-9_]{2,}")
_UNKNOWABLE = re.compile(
    rb"force_cuda_host_device|#[ \t]*define[ \t]+__(?:device|host|global)__"
    rb"|__attribute__[ \t]*\(\([ \t]*(?:device|host|global)\b"
)
"""Text outside functions' heads that changes their side."""


class CodeSide(Enum):
    """The side of code; `BOTH` also if it is unknown."""

    HOST = auto()
    DEVICE = auto()
    BOTH = auto()


def side_of(tree: Tree, source: bytes, node: Node, around: CodeSide | None, marked: Container[bytes]) -> CodeSide:
    """The side of a function or lambda.

    `around` is the side of the surrounding function; `marked` is the result of `marked_names`.
    """
    said = {word for word, _, _ in words(_head(tree, source, node))}
    if b"__global__" in said or (b"__device__" in said and b"__host__" not in said):
        return CodeSide.DEVICE
    if b"__device__" in said:
        return CodeSide.BOTH
    if around is not None:
        return around
    before = node.prev_sibling
    odd = (
        any(_LIKE_A_MACRO.fullmatch(word) for word in said)
        or said & _CONSTANT
        or any(name in marked for name in _last_names(tree, node))
        or (before is not None and before.type == "ERROR")
    )
    return CodeSide.BOTH if odd else CodeSide.HOST


class AnyName(Container[bytes]):
    """Contains every name, for sources whose heads do not tell the side of functions."""

    def __contains__(self, name: object) -> bool:
        return True


def marked_names(source: bytes, trees: Iterable[Tree]) -> Container[bytes]:
    """Last names of functions that some declaration marks for the device.

    Their other declarations mean the same, even without a mark.
    """
    if _UNKNOWABLE.search(source) is not None:
        return AnyName()
    return {name for tree in trees for name in _marked(tree)}


def _marked(tree: Tree) -> Iterator[bytes]:
    for node in walk(tree.root):
        if node.type in {"declaration", "field_declaration", "function_definition"} and any(
            tree.of(child) in _DEVICE for child in node.children
        ):
            for declarator in declarators(node):
                yield from _names(tree, declarator)


def _names(tree: Tree, declarator: Node | None) -> set[bytes]:
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator")
    name = declarator.child_by_field_name("declarator") if declarator is not None else None
    while name is not None and name.type == "qualified_identifier":
        name = name.child_by_field_name("name")
    return {tree.of(name)} if name is not None else set()


def _last_names(tree: Tree, node: Node) -> set[bytes]:
    return _names(tree, node.child_by_field_name("declarator")) if node.type == "function_definition" else set()


def _head(tree: Tree, source: bytes, node: Node) -> bytes:
    """The source before a function's body, from the end of the previous node.

    For a lambda, from its capture on.
    """
    body = node.child_by_field_name("body")
    start, end = node.start_byte, body.start_byte if body is not None else node.end_byte
    if node.type == "function_definition":
        start = node.prev_sibling.end_byte if node.prev_sibling is not None else tree.start - tree.offset
    return source[max(start + tree.offset, 0) : end + tree.offset]


def architecture_words(tree: Tree, node: Node) -> Iterator[Node]:
    """The words of a preprocessor condition that ask for the architecture."""
    if node.type not in _CONDITIONS:
        return
    for asked in (node.child_by_field_name("condition"), node.child_by_field_name("name")):
        if asked is not None:
            yield from (found for found in walk(asked) if tree.of(found) == ARCHITECTURE and not found.child_count)


def two_versions(tree: Tree, node: Node) -> bool:
    """Whether a function's body asks for the architecture and can be doubled.

    It can't if its text was not understood, if it has labels, or if the return type is deduced, since it may differ.
    """
    body = node.child_by_field_name("body")
    if node.type != "function_definition" or body is None or body.type != "compound_statement" or node.has_error:
        return False
    result, declarator = node.child_by_field_name("type"), function_declarator(node)
    told = declarator is not None and any(child.type == "trailing_return_type" for child in declarator.children)
    if result is not None and result.type == "placeholder_type_specifier" and not told:
        return False
    asks, waiting = False, list(body.children)
    while waiting:
        inner = waiting.pop()
        if inner.type == "labeled_statement":
            return False
        asks = asks or any(True for _ in architecture_words(tree, inner))
        if inner.type not in _FUNCTIONS:
            waiting.extend(inner.children)
    return asks
