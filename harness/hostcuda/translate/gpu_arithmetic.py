"""Write shifts and conversions to integers as a GPU does them.

Runs in the builder's sandbox; text in, text out. `harness/hostcuda/include/hostcuda/arithmetic.h` has the other half.
Conversions without a cast stay as they are; g++'s check finds those that matter (`runtime/bounds.cpp`).
"""

from __future__ import annotations

import re

from tree_sitter import Node

from harness.hostcuda.translate.edits import Edit, SourceEdits
from harness.toolchain.cuda_source.syntax import Tree

__all__ = ["ARITHMETIC", "conditional_names", "edit_call", "edit_cast", "edit_shift"]

_INTEGER = re.compile(
    rb"(?:std::)?(?:u?int(?:_fast|_least)?(?:8|16|32|64)_t|u?intptr_t|s?size_t|ptrdiff_t)|uchar|ushort|uint|ulong"
    rb"|(?:(?:unsigned|signed|long|short|int|char)\s*)+"
)
_STATIC_CAST = re.compile(rb"static_cast\s*<(.*)>", re.S)
_SHIFTS = {b"<<", b">>", b"<<=", b">>="}
_CONDITION = re.compile(rb"^[ \t]*#[ \t]*(?:el)?if\b[^\n]*", re.M)
_MACRO = re.compile(rb"^[ \t]*#[ \t]*define[ \t]+(\w+)([^\n]*)", re.M)

ARITHMETIC = re.compile(rb"<<|>>|\(\s*(?:std::)?(?:unsigned|signed|u?int\w*|long|short|char)\s*\)|\bstatic_cast\b")
"""Text that `edit_shift`, `edit_cast` or `edit_call` may change."""


def conditional_names(source: bytes) -> set[bytes]:
    """Names that preprocessor conditions depend on.

    Their macros must stay as they are.
    """
    names = set(re.findall(rb"\w+", b" ".join(_CONDITION.findall(source))))
    bodies: dict[bytes, bytes] = dict(_MACRO.findall(source))
    fresh = names & bodies.keys()
    while fresh:
        fresh = {word for name in fresh for word in re.findall(rb"\w+", bodies[name])} & bodies.keys() - names
        names |= fresh
    return names


def edit_shift(state: SourceEdits, tree: Tree, node: Node) -> None:
    """Write `a << n` as `a << shift << n`.

    Not if `n` is a number, or the operator a stream's, or a member is shifted in its place: it may be a bit-field.
    """
    operator, count = node.child_by_field_name("operator"), node.child_by_field_name("right")
    left = node.child_by_field_name("left")
    if operator is None or count is None or tree.of(operator) not in _SHIFTS or count.type == "number_literal":
        return
    if node.type == "assignment_expression" and left is not None and left.type == "field_expression":
        return
    text = tree.of(node)
    if node.has_error or b'"' in text or b"std::" in text or count.end_byte + tree.offset > tree.end:
        return
    _insert(state, tree, operator.end_byte, b" ::hostcuda::shift " + tree.of(operator))


def edit_cast(state: SourceEdits, tree: Tree, node: Node) -> None:
    """Write `(int)x` as `(int)(Converted<int>)x`."""
    wanted, value = node.child_by_field_name("type"), node.child_by_field_name("value")
    if wanted is None or value is None or not _converts(tree, tree.of(wanted), value):
        return
    close = next((child for child in node.children if child.type == ")"), None)
    if close is not None:
        _insert(state, tree, close.end_byte, b"(::hostcuda::Converted<" + tree.of(wanted) + b">)")


def edit_call(state: SourceEdits, tree: Tree, node: Node) -> None:
    """Write `static_cast<int>(x)` and `int(x)` as conversions of `Converted<int>(x)`."""
    function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if function is None or arguments is None or len(arguments.named_children) != 1:
        return
    name, value = tree.of(function), arguments.named_children[0]
    cast = _STATIC_CAST.fullmatch(name)
    wanted = name if cast is None else cast[1].strip()
    if not _converts(tree, wanted, value):
        return
    _insert(state, tree, value.start_byte, b"::hostcuda::Converted<" + wanted + b">(")
    _insert(state, tree, value.end_byte, b")")


def _converts(tree: Tree, wanted: bytes, value: Node) -> bool:
    known = _INTEGER.fullmatch(wanted) is not None and b"\n" not in wanted
    return known and not value.has_error and value.type != "number_literal" and value.end_byte + tree.offset <= tree.end


def _insert(state: SourceEdits, tree: Tree, at: int, text: bytes) -> None:
    state.edits.append(Edit(at + tree.offset, at + tree.offset, text))
