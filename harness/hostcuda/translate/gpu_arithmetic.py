"""Write shifts and conversions to integers as a GPU does them.

Runs in the builder's sandbox; text in, text out. `harness/hostcuda/include/hostcuda/arithmetic.h` has the other half.
Conversions without a cast stay as they are; g++'s check finds those that matter (`runtime/bounds.cpp`).
"""

from __future__ import annotations

import re

from tree_sitter import Node

from harness.hostcuda.translate.edits import SourceEdits

__all__ = ["edit_call", "edit_cast", "edit_shift"]

_INTEGER = re.compile(
    rb"(?:std::)?(?:u?int(?:_fast|_least)?(?:8|16|32|64)_t|u?intptr_t|s?size_t|ptrdiff_t)|uchar|ushort|uint|ulong"
    rb"|(?:(?:unsigned|signed|long|short|int|char)\s*)+"
)
_STATIC_CAST = re.compile(rb"static_cast\s*<(.*)>", re.S)
_SHIFTS = {b"<<", b">>", b"<<=", b">>="}


def edit_shift(state: SourceEdits, node: Node) -> None:
    """Write `a << n` as `a << shift << n`.

    Not if `n` is a number, or the operator a stream's, or a member is shifted in its place: it may be a bit-field.
    """
    operator, count = node.child_by_field_name("operator"), node.child_by_field_name("right")
    left, of = node.child_by_field_name("left"), state.tree.of
    if operator is None or count is None or of(operator) not in _SHIFTS or count.type == "number_literal":
        return
    if node.type == "assignment_expression" and left is not None and left.type == "field_expression":
        return
    if not node.has_error and b'"' not in of(node) and b"std::" not in of(node):
        state.insert(operator.end_byte, b" ::hostcuda::shift " + of(operator))


def edit_cast(state: SourceEdits, node: Node) -> None:
    """Write `(int)x` as `(int)(Converted<int>)x`."""
    wanted, value = node.child_by_field_name("type"), node.child_by_field_name("value")
    if wanted is None or value is None or not _converts(state.tree.of(wanted), value):
        return
    close = next((child for child in node.children if child.type == ")"), None)
    if close is not None:
        state.insert(close.end_byte, b"(::hostcuda::Converted<" + state.tree.of(wanted) + b">)")


def edit_call(state: SourceEdits, node: Node) -> None:
    """Write `static_cast<int>(x)` and `int(x)` as conversions of `Converted<int>(x)`."""
    function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if function is None or arguments is None or len(arguments.named_children) != 1:
        return
    name, value = state.tree.of(function), arguments.named_children[0]
    cast = _STATIC_CAST.fullmatch(name)
    wanted = name if cast is None else cast[1].strip()
    if _converts(wanted, value):
        state.insert(value.start_byte, b"::hostcuda::Converted<" + wanted + b">(")
        state.insert(value.end_byte, b")")


def _converts(wanted: bytes, value: Node) -> bool:
    known = _INTEGER.fullmatch(wanted) is not None and b"\n" not in wanted
    return known and not value.has_error and value.type != "number_literal"
