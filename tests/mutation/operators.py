"""Plant one small mistake at a time in CUDA source.

tree-sitter finds the places. An operator takes a node of the syntax tree and yields edits. All operators but `mask` and
`tail` change code of functions for the device only.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

_LANGUAGE = Language(tree_sitter_cuda.language())
_DEVICE = re.compile(rb"\b__(?:global|device)__\b")
_BARRIER_CALL = re.compile(
    rb"(?:__syncthreads\w*|__syncwarp|__pipeline_wait_prior|__pipeline_commit"
    rb"|(?:[\w:]*::)?(?:sync|wait|wait_prior)|.*(?:\.|->)(?:sync|wait|arrive_and_wait|consumer_wait))",
    re.DOTALL,
)
_BARRIER_ASM = re.compile(rb"bar\.sync|barrier|mbarrier|wait_group|wait_all|commit_group|\.wait")
_FENCE_CALL = re.compile(rb"__threadfence\w*|(?:[\w:]*::)?atomic_thread_fence")
_FENCE_ASM = re.compile(rb"fence|membar")
_FULL_MASK = re.compile(rb"0[xX][fF]{8}[uU]?")
_FLOAT = re.compile(rb"(\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?[fF]?")
_WIDER = {b"<": b"<=", b"<=": b"<", b">": b">=", b">=": b">", b"==": b"!=", b"!=": b"=="}
_NARROW = {
    b"long long": b"int",
    b"long": b"int",
    b"int64_t": b"int",
    b"size_t": b"unsigned",
    b"unsigned long long": b"unsigned",
    b"uint64_t": b"unsigned",
    b"int": b"short",
    b"int32_t": b"short",
    b"unsigned": b"unsigned short",
    b"unsigned int": b"unsigned short",
    b"uint32_t": b"unsigned short",
}
_OTHER_CALL = {
    b"fmaxf": b"fminf",
    b"fminf": b"fmaxf",
    b"max": b"min",
    b"min": b"max",
    b"__shfl_down_sync": b"__shfl_up_sync",
    b"__shfl_up_sync": b"__shfl_down_sync",
}
_OTHER_OPERATOR = {b"+": b"-", b"+=": b"-=", b"-=": b"+=", b"*=": b"/="}
_ORDERED = frozenset({b"-", b"/", b"%", b"<<", b">>"})
_ASSERTIONS = frozenset({b"TORCH_CHECK", b"static_assert", b"assert", b"AT_ASSERTM", b"C10_CUDA_CHECK"})
HALF_BITS = "0xffffe000"
"""Keeps the 10 bits of a float32's mantissa that fp16 and tf32 have."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the bytes from `start` to `end` by `text`."""

    start: int
    end: int
    text: bytes

    def applied(self, source: bytes) -> bytes:
        """Return the changed source."""
        return source[: self.start] + self.text + source[self.end :]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One edit of a source, the operator's name, and how to learn whether its place is executed.

    Attributes:
        operator: Name of the operator, a key of `OPERATORS`.
        edit: The mistake.
        probe: Edits that make code trap that reaches the statement; empty where no trap can stand.
    """

    operator: str
    edit: Edit
    probe: tuple[Edit, ...]


@dataclass(slots=True)
class Place:
    """A node with what operators ask about its surroundings.

    Attributes:
        node: The node.
        device: Whether it belongs to a function for the device.
        kernel: Whether that function is a kernel.
        floats: Names of float variables, arrays and pointers of the function.
        returns_float: Whether the function returns a float.
    """

    node: Node
    device: bool
    kernel: bool
    floats: frozenset[bytes]
    returns_float: bool


def _text(node: Node | None) -> bytes:
    return b"" if node is None or node.text is None else node.text


def _field(node: Node, name: str) -> Node | None:
    return node.child_by_field_name(name)


def _replaced(node: Node, text: bytes) -> Edit:
    return Edit(node.start_byte, node.end_byte, text)


def _operator(node: Node) -> Node | None:
    return _field(node, "operator")


def _only(node: Node, kind: str) -> bool:
    """Return whether the node is a statement of one expression of this kind."""
    return node.type == "expression_statement" and [child.type for child in node.named_children] == [kind]


def _call(node: Node) -> bytes:
    """Return the function's name if the node is a statement that only calls it."""
    return _text(_field(node.named_children[0], "function")) if _only(node, "call_expression") else b""


def _assembly(node: Node) -> bytes:
    return _text(node) if _only(node, "gnu_asm_expression") else b""


def _barrier(place: Place) -> Iterator[Edit]:
    if _BARRIER_CALL.fullmatch(_call(place.node)) or _BARRIER_ASM.search(_assembly(place.node)):
        yield _replaced(place.node, b";")


def _bound(place: Place) -> Iterator[Edit]:
    node = place.node
    sign = _operator(node) if node.type == "binary_expression" else None
    if sign is not None and (other := _WIDER.get(_text(sign))):
        yield _replaced(sign, other)


def _bound_dropped(place: Place) -> Iterator[Edit]:
    node = place.node
    if node.type == "if_statement" and not any(child.type == "constexpr" for child in node.children):
        condition = _field(node, "condition")
        if condition is not None and condition.named_child_count == 1 and (value := _field(condition, "value")):
            yield _replaced(value, b"true")
    if node.type == "conditional_expression" and (condition := _field(node, "condition")):
        yield _replaced(condition, b"true")
    if node.type == "binary_expression" and _text(_operator(node)) in (b"&&", b"||"):
        for side in ("left", "right"):
            yield _replaced(node, _text(_field(node, side)))


def _mask(place: Place) -> Iterator[Edit]:
    if place.node.type == "number_literal" and _FULL_MASK.fullmatch(_text(place.node)):
        yield _replaced(place.node, b"0x7fffffffu")
        yield _replaced(place.node, b"0x0000ffffu")
    elif place.node.type == "preproc_arg":
        for found in _FULL_MASK.finditer(_text(place.node)):
            at = place.node.start_byte
            yield Edit(at + found.start(), at + found.end(), b"0x7fffffffu")
            yield Edit(at + found.start(), at + found.end(), b"0x0000ffffu")


def _index(place: Place) -> Iterator[Edit]:
    indices = _field(place.node, "indices") if place.node.type == "subscript_expression" else None
    if indices is not None and indices.named_child_count == 1:
        index = indices.named_children[0]
        for step in (b"+", b"-"):
            yield _replaced(index, b"(" + _text(index) + b") " + step + b" 1")


def _base(node: Node | None) -> bytes:
    """Return the name of the variable that an expression such as `a[i][j]` or `*a` stores to."""
    while node is not None and node.type in ("subscript_expression", "pointer_expression", "parenthesized_expression"):
        node = _field(node, "argument") or (node.named_children[0] if node.named_children else None)
    return _text(node) if node is not None and node.type == "identifier" else b""


def _rounded(expression: bytes) -> bytes:
    return b"__int_as_float(__float_as_int(" + expression + b") & " + HALF_BITS.encode() + b")"


def _precision(place: Place) -> Iterator[Edit]:
    node = place.node
    if node.type == "primitive_type" and _text(node) == b"double":
        yield _replaced(node, b"float")
    if node.type == "number_literal" and _FLOAT.fullmatch(text := _text(node)) and re.search(rb"[.eE]", text):
        value = float(text.rstrip(b"fF"))
        try:
            (half,) = struct.unpack("<e", struct.pack("<e", value))
        except OverflowError:
            return
        if half != value:
            yield _replaced(node, repr(half).encode() + (b"f" if text[-1:] in b"fF" else b""))
    if node.type == "assignment_expression" and _base(_field(node, "left")) in place.floats:
        left, right, sign = _text(_field(node, "left")), _text(_field(node, "right")), _text(_operator(node))
        if sign in (b"+=", b"-=", b"*="):
            yield _replaced(node, left + b" = " + _rounded(left + b" " + sign[:1] + b" (" + right + b")"))
        elif sign == b"=" and right:
            yield _replaced(node, left + b" = " + _rounded(right))


def _scale(place: Place) -> Iterator[Edit]:
    node = place.node
    value: Node | None = None
    if node.type == "assignment_expression" and _base(_field(node, "left")) in place.floats:
        value = _field(node, "right")
    elif node.type == "return_statement" and place.returns_float and node.named_child_count == 1:
        value = node.named_children[0]
    elif node.type == "init_declarator" and _base(_field(node, "declarator")) in place.floats:
        value = _field(node, "value")
    if value is not None and value.type not in ("initializer_list", "assignment_expression", "lambda_expression"):
        yield _replaced(value, b"(" + _text(value) + b") * 1.001f")


def _narrow(place: Place) -> Iterator[Edit]:
    if place.node.type in ("primitive_type", "sized_type_specifier") and (other := _NARROW.get(_text(place.node))):
        yield _replaced(place.node, other)


def _fence(place: Place) -> Iterator[Edit]:
    node = place.node
    if _FENCE_CALL.fullmatch(_call(node)) or (
        _FENCE_ASM.search(_assembly(node)) and not _BARRIER_ASM.search(_assembly(node))
    ):
        yield _replaced(node, b";")
    elif node.type == "type_qualifier" and _text(node) == b"volatile":
        yield _replaced(node, b"")


def _atomic(place: Place) -> Iterator[Edit]:
    if _call(place.node) == b"atomicAdd":
        arguments = _field(place.node.named_children[0], "arguments")
        if arguments is not None and arguments.named_child_count == 2:
            to, value = arguments.named_children
            yield _replaced(place.node, b"*(" + _text(to) + b") += " + _text(value) + b";")


def _early_return(place: Place) -> Iterator[Edit]:
    node = place.node
    if not place.kernel or node.type != "compound_statement" or node.parent is None:
        return
    if node.parent.type == "function_definition":
        for child in node.named_children[:12]:
            if child.type != "comment":
                yield Edit(child.start_byte, child.start_byte, b"if (threadIdx.x == 1) return; ")
    elif node.parent.type in ("for_statement", "while_statement") and node.named_children:
        yield Edit(node.start_byte + 1, node.start_byte + 1, b" if (threadIdx.x == 1) break;")


def _stride(place: Place) -> Iterator[Edit]:
    node = place.node
    if node.parent is not None and node.parent.type == "for_statement" and node == _field(node.parent, "update"):
        if node.type == "assignment_expression" and (right := _field(node, "right")):
            sign = _text(_operator(node))
            if sign in (b"+=", b"-="):
                yield _replaced(right, b"(" + _text(right) + b") + 1")
            elif sign in (b"*=", b"/=", b">>=", b"<<="):
                yield _replaced(right, b"2 * (" + _text(right) + b")")
        elif node.type == "update_expression" and (argument := _field(node, "argument")):
            yield _replaced(node, _text(argument) + (b" -= 2" if b"--" in _text(node) else b" += 2"))
    if node.type == "binary_expression" and _text(_operator(node)) == b"*" and (right := _field(node, "right")):
        above = node.parent
        while above is not None and above.type in ("binary_expression", "parenthesized_expression"):
            above = above.parent
        if above is not None and above.type == "subscript_argument_list":
            yield _replaced(right, b"(" + _text(right) + b" + 1)")


def _tail(place: Place) -> Iterator[Edit]:
    node = place.node
    if node.type != "binary_expression":
        return
    left, right = _field(node, "left"), _field(node, "right")
    if _text(_operator(node)) == b"/" and left is not None and left.type == "parenthesized_expression":
        inner = left.named_children[0] if left.named_child_count == 1 else None
        parts = inner
        while parts is not None and parts.type == "binary_expression" and _text(_operator(parts)) in (b"+", b"-"):
            parts = _field(parts, "left")
        if parts is not None and inner is not None and parts != inner:
            yield _replaced(left, b"(" + _text(parts) + b")")
    loop = node.parent is not None and node.parent.type == "for_statement"
    if place.device and loop and _text(_operator(node)) == b"<" and right is not None:
        yield _replaced(right, _text(right) + b" - 1")


def _operand(place: Place) -> Iterator[Edit]:
    node = place.node
    sign = _operator(node)
    if node.type == "binary_expression" and sign is not None:
        left, right = _text(_field(node, "left")), _text(_field(node, "right"))
        if _text(sign) in _ORDERED:
            yield _replaced(node, b"((" + right + b") " + _text(sign) + b" (" + left + b"))")
        elif other := _OTHER_OPERATOR.get(_text(sign)):
            yield _replaced(sign, other)
    elif node.type == "assignment_expression" and sign is not None and (other := _OTHER_OPERATOR.get(_text(sign))):
        yield _replaced(sign, other)
    elif node.type == "conditional_expression":
        first, second = _field(node, "consequence"), _field(node, "alternative")
        if first is not None and second is not None and first.type != second.type != "comma_expression":
            head = _text(_field(node, "condition"))
            yield _replaced(node, head + b" ? (" + _text(second) + b") : (" + _text(first) + b")")
    elif node.type == "call_expression":
        function = _field(node, "function")
        if function is not None and (other := _OTHER_CALL.get(_text(function))):
            yield _replaced(function, other)
        arguments = _field(node, "arguments")
        if arguments is not None and arguments.named_child_count >= 3:
            *_, first, second = arguments.named_children
            if first.type != "comment" and second.type != "comment":
                yield Edit(first.start_byte, second.end_byte, _text(second) + b", " + _text(first))
    elif node.type == "subscript_expression":
        inner = _field(node, "argument")
        if inner is not None and inner.type == "subscript_expression":
            one, two = _field(inner, "indices"), _field(node, "indices")
            yield Edit(inner.end_byte - len(_text(one)), node.end_byte, _text(two) + _text(one))


OPERATORS: dict[str, Callable[[Place], Iterator[Edit]]] = {
    "barrier removed": _barrier,
    "bound changed": _bound,
    "bound dropped": _bound_dropped,
    "mask narrowed": _mask,
    "index off by one": _index,
    "lower precision": _precision,
    "scale of 1.001": _scale,
    "type narrowed": _narrow,
    "fence or volatile dropped": _fence,
    "atomic dropped": _atomic,
    "early return": _early_return,
    "wrong stride": _stride,
    "missing tail": _tail,
    "swapped operand": _operand,
}
EVERYWHERE = frozenset({"mask narrowed", "missing tail"})
"""Operators that change host code and constants, too."""


def _float_names(function: Node) -> frozenset[bytes]:
    """Return the names of a function's variables, arrays and pointers of type float."""
    found, waiting = set(), [function]
    while waiting:
        node = waiting.pop()
        waiting += node.named_children
        if node.type not in ("declaration", "parameter_declaration") or _text(_field(node, "type")) != b"float":
            continue
        for child in node.children_by_field_name("declarator"):
            while child.type != "identifier":
                below = _field(child, "declarator") or next(
                    (
                        one
                        for one in child.named_children
                        if one.type.endswith("declarator") or one.type == "identifier"
                    ),
                    None,
                )
                if below is None:
                    break
                child = below
            found.add(_text(child))
    return frozenset(found)


def _probe(node: Node) -> tuple[Edit, ...]:
    """Return edits that trap before the statement which holds the node."""
    while node.parent is not None:
        above = node.parent
        if above.type == "compound_statement":
            return (Edit(node.start_byte, node.start_byte, b"__trap(); "),)
        if above.type == "function_definition":
            body = _field(above, "body")
            if body is None or body.type != "compound_statement":
                return ()
            return (Edit(body.start_byte + 1, body.start_byte + 1, b" __trap();"),)
        bodies = [_field(above, name) for name in ("body", "consequence", "alternative")]
        holds = above.type in ("if_statement", "for_statement", "while_statement", "do_statement") and node in bodies
        if (holds or above.type == "else_clause") and node.type not in ("compound_statement", "else_clause"):
            return (Edit(node.start_byte, node.start_byte, b"{ __trap(); "), Edit(node.end_byte, node.end_byte, b" }"))
        node = above
    return ()


def mutations(source: bytes) -> list[Mutation]:
    """Return all mistakes that can be planted in a CUDA source, in order of place; each changed text once.

    Args:
        source: CUDA source as UTF-8.
    """
    found: list[Mutation] = []
    outside = Place(
        node=Parser(_LANGUAGE).parse(source).root_node,
        device=False,
        kernel=False,
        floats=frozenset(),
        returns_float=False,
    )
    waiting = [outside]
    while waiting:
        place = waiting.pop()
        node = place.node
        if node.type == "ERROR" or (node.type == "call_expression" and _text(_field(node, "function")) in _ASSERTIONS):
            continue
        if node.type in ("static_assert_declaration", "comment", "template_parameter_list"):
            continue
        if node.type == "function_definition" and not place.device:
            body = _field(node, "body")
            head = source[node.start_byte : body.start_byte if body is not None else node.end_byte]
            if _DEVICE.search(head):
                returns = _text(_field(node, "type")) == b"float" and b"*" not in head.split(b"(")[0]
                place = Place(
                    node, device=True, kernel=b"__global__" in head, floats=_float_names(node), returns_float=returns
                )
        for name, operator in OPERATORS.items():
            if place.device or name in EVERYWHERE:
                for edit in operator(place):
                    found.append(Mutation(operator=name, edit=edit, probe=_probe(node) if place.device else ()))
        waiting += [replace(place, node=child) for child in reversed(node.children)]
    kept: dict[bytes, Mutation] = {}
    for mutation in found:
        if (text := mutation.edit.applied(source)) != source:
            kept.setdefault(text, mutation)
    return list(kept.values())
