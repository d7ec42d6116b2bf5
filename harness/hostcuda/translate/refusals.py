"""Let g++ find what nvcc refuses and g++ accepts.

Runs in the builder's sandbox. Functions of the host get an attribute by which g++ warns of each call that it compiles,
with the line; a call in device code is an error of nvcc's. Other constructs get a call of such a function beside them.
So overloads, templates, conditions and unevaluated operands are g++'s matter. See guides/design/host_device.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from tree_sitter import Node

from harness.hostcuda.translate.edits import FunctionLines, SourceEdits
from harness.hostcuda.translate.sides import CodeSide, enclosing_class, head, side_of
from harness.toolchain.cuda_source.syntax import (
    at_namespace_scope,
    declarators,
    function_declarator,
    walk,
)
from harness.toolchain.cuda_source.tokens import words

__all__ = ["Names", "declarations", "declared_refusals", "edit_refusals", "in_log", "known_names", "mark_host_function"]

Names = dict[bytes, str]
"""What each name certainly means: a `kernel`, a `device` function, a variable of the `host` or in `constant` memory."""

_STREAMS = {b"std::cout", b"std::cerr", b"std::clog", b"std::endl"}
_NOT_MARKED = {b"virtual", b"friend", b"always_inline", b"__forceinline__", b"default", b"delete", b"static_assert"}
_NOT_THE_HOSTS = {b"const", b"constexpr", b"constinit", b"extern", b"__device__", b"__managed__", b"__shared__"}
_NOT_DECLARING = {
    "argument_list",
    "assignment_expression",
    "binary_expression",
    "call_expression",
    "field_expression",
    "subscript_expression",
    "update_expression",
}
_WARNED = re.compile(
    r"^([^:\n]+):(\d+):(\d+): warning: .*: hostcuda (host|refused): (.*) \[-Wattribute-warning\]$", re.M
)
_ARRAY = re.compile(r"^([^:\n]+):(\d+):(\d+): warning: .*\[-Wvla\]$", re.M)

_CLASH = re.compile(
    r"^([^:\n]+):(\d+):(\d+): error: conflicting declaration ['‘].*?(\w+) ?\[\]['’]\n"
    r"(?:.*\n){,4}?[^:\n]+:(\d+):\d+: note: previous declaration",
    re.M,
)
"""For instance two dynamic shared arrays of one name and two types, which are one variable."""


# ---- names


def known_names(state: SourceEdits) -> Names:
    """Names at namespace scope that are unique in the source, with their meaning."""
    meanings = dict(_functions(state)) | dict(_variables(state))
    found: dict[bytes, list[str]] = {}
    for node in walk(state.tree.root):
        if node.type == "ERROR":
            for word, _, _ in words(state.tree.of(node)):
                found.setdefault(word, []).append("")
        elif node.type in {"identifier", "field_identifier", "type_identifier"} and _declares(node):
            found.setdefault(state.tree.of(node), []).append(meanings.get(node.id, ""))
    several = {"kernel", "device"}  # functions may be declared again
    return {
        name: held[0]
        for name, held in found.items()
        if held[0] and len(set(held)) == 1 and (len(held) == 1 or held[0] in several)
    }


def _declares(node: Node) -> bool:
    parent = node.parent
    if parent is None or parent.type in _NOT_DECLARING:
        return False
    if node.type != "identifier" or parent.type == "qualified_identifier":
        return True
    if parent.type in {"init_declarator", "array_declarator"}:
        return parent.child_by_field_name("declarator") == node
    if parent.type == "template_function":
        return parent.parent is not None and parent.parent.type == "function_declarator"
    return parent.type.endswith(
        ("declarator", "declaration", "specifier", "parameters", "capture", "parameter_list")
    ) or parent.type in {"enumerator", "for_range_loop", "ERROR", "lambda_capture_initializer", "using_declaration"}


def _functions(state: SourceEdits) -> Iterator[tuple[int, str]]:
    for node in walk(state.tree.root):
        declarator = function_declarator(node) if node.type in {"function_definition", "declaration"} else None
        name = declarator.child_by_field_name("declarator") if declarator is not None else None
        if name is None or name.type != "identifier":
            continue
        template = node.parent is not None and node.parent.type == "template_declaration"
        if not at_namespace_scope(node.parent if template and node.parent is not None else node):
            continue
        said = {word for word, _, _ in words(head(state.tree, node))}
        if not said & {b"constexpr", b"consteval"} and side_of(state.tree, node, None, state.marked) is CodeSide.DEVICE:
            yield name.id, "kernel" if b"__global__" in said else "device"


def _variables(state: SourceEdits) -> Iterator[tuple[int, str]]:
    """Variables at namespace scope with a built-in type."""
    for node in walk(state.tree.root):
        if node.type != "declaration" or not at_namespace_scope(node) or node.has_error:
            continue
        said = {state.tree.of(child) for child in node.children}
        kind = node.child_by_field_name("type")
        if kind is None or kind.type not in {"primitive_type", "sized_type_specifier"}:
            continue
        constant = b"__constant__" in said
        for declarator in declarators(node):
            inner: Node | None = declarator
            if declarator.type == "init_declarator":
                inner = declarator.child_by_field_name("declarator")
            while not constant and inner is not None and inner.type == "array_declarator":
                inner = inner.child_by_field_name("declarator")
            # nvcc accepts stores to arrays in constant memory.
            if inner is not None and inner.type == "identifier" and (constant or not said & _NOT_THE_HOSTS):
                yield inner.id, "constant" if constant else "host"


# ---- edits


def mark_host_function(state: SourceEdits, node: Node, side: CodeSide | None) -> None:
    """Let g++ warn of calls of a function that is the host's only."""
    declarator = function_declarator(node)
    if side is not CodeSide.HOST or node.has_error or declarator is None or len(declarators(node)) != 1:
        return
    body, result = node.child_by_field_name("body"), node.child_by_field_name("type")
    if node.type == "function_definition" and body is None:
        return  # defaulted or deleted
    said = {word for word, _, _ in words(head(state.tree, node))}
    guide = result is None and any(child.type == "trailing_return_type" for child in declarator.children)
    name = b" ".join(state.tree.of(declarator.named_children[0]).split())
    if said & _NOT_MARKED or guide or b'"' in name or declarator.named_children[0].type.endswith("_declarator"):
        return
    first = next(child for child in node.children if child.type not in {"attribute_declaration", "comment"})
    class_ = enclosing_class(node)
    named = class_.child_by_field_name("name") if class_ is not None else None
    text = state.tree.of(named) + b"::" + name if named is not None else name
    state.insert(first.start_byte, b'__attribute__((noipa, warning("hostcuda host: %b"))) ' % text)


def edit_refusals(state: SourceEdits, names: Names, node: Node, side: CodeSide | None) -> None:
    """Put a call beside a construct that nvcc refuses wherever it is compiled."""
    if side is CodeSide.DEVICE:
        message = _in_device_code(state, names, node)
        if (message and node.type == "throw_statement") or (message and node.type == "try_statement"):
            state.insert(node.start_byte, b"{ " + state.refusal(message) + b"; ")
            state.insert(node.end_byte, b" }")
        elif message:
            _beside(state, node, state.refusal(message))
    called = _called(state, node)
    meaning = names.get(called, "")
    if meaning == "kernel":
        _beside(state, node, state.refusal("a __global__ function call must be configured"))
    elif meaning == "device" and side is CodeSide.HOST and state.functions:
        caller = state.functions[-1].name
        message = (
            f'calling a __device__ function("{called.decode()}") from a __host__ function("{caller}") is not allowed'
        )
        _beside(state, node, state.refusal(message, called.decode()))


def _beside(state: SourceEdits, node: Node, call: bytes) -> None:
    state.insert(node.start_byte, b"(" + call + b", ")
    state.insert(node.end_byte, b")")


def _called(state: SourceEdits, node: Node) -> bytes:
    """The bare name that a call calls; empty for anything else."""
    if node.type != "call_expression" or any(child.type == "kernel_call_syntax" for child in node.children):
        return b""
    function = node.child_by_field_name("function")
    if function is not None and function.type == "template_function":
        function = function.child_by_field_name("name")
    return state.tree.of(function) if function is not None and function.type == "identifier" else b""


def _in_device_code(state: SourceEdits, names: Names, node: Node) -> str:
    if node.type in {"throw_statement", "try_statement"}:
        return "device code does not support exception handling"
    if node.type not in {"identifier", "qualified_identifier"}:
        return ""
    text = state.tree.of(node)
    if text in _STREAMS or (names.get(text) == "host" and not _declares(node)):
        return f'identifier "{text.decode()}" is undefined in device code'
    parent = node.parent if names.get(text) == "constant" else None
    written = {"assignment_expression": "left", "update_expression": "argument"}.get(parent.type if parent else "")
    if parent is not None and written is not None and parent.child_by_field_name(written) == node:
        return "expression must be a modifiable lvalue"
    return ""


def declared_refusals(state: SourceEdits) -> str:
    """Errors of nvcc for declarations that g++ accepts, as lines of a log."""
    log = ""
    for node in walk(state.tree.root):
        result = node.child_by_field_name("type") if node.type in {"function_definition", "declaration"} else None
        if (
            result is not None
            and result.type == "primitive_type"
            and state.tree.of(result) != b"void"
            and any(state.tree.of(child) == b"__global__" for child in node.children)
            and not node.has_error
        ):
            file, line = state.places.of(result.start_byte)
            log += f"{file}:{line}:1: error: a __global__ function must have a void return type\n"
    return log


def declarations(refused: Iterable[tuple[str, str]]) -> str:
    """The declarations of the functions that `edit_refusals` calls."""
    texts = [message.replace("\\", "\\\\").replace('"', '\\"') for message, _ in refused]
    return "".join(
        f'__attribute__((warning("hostcuda refused: {text}"))) void hostcuda_refused_{number}();\n'
        for number, text in enumerate(texts, 1)
    )


# ---- what g++ says


def in_log(
    log: str, functions: Iterable[FunctionLines], refused: Iterable[tuple[str, str]], foreign: Callable[[str], bool]
) -> str:
    """The errors of nvcc that g++ has only warned of, as lines of a compiler's log.

    Args:
        log: The compiler's output.
        functions: The author's functions.
        refused: Messages and called names.
        foreign: Whether a header may declare a name, too, so that a call by that name is not certain.
    """
    callees = dict(refused)
    spans = list(functions)
    found: dict[tuple[str, int, int], str] = {}
    compiled = ": error: " not in log  # what could not be parsed may have confused the grammar, too
    for match in _WARNED.finditer(log) if compiled else ():
        file, line, message = match[1], int(match[2]), match[5]
        if match[4] == "host":
            caller = _device_function(spans, file, line)
            if caller is None:
                continue
            by = "__global__" if caller.kernel else "__device__"
            message = f'calling a __host__ function("{message}") from a {by} function("{caller.name}") is not allowed'
        elif callees.get(message) and foreign(callees[message]):
            continue
        found.setdefault((file, line, int(match[3])), message)
    for match in _ARRAY.finditer(log) if compiled else ():
        if _device_function(spans, match[1], int(match[2])) is not None:
            found.setdefault((match[1], int(match[2]), int(match[3])), "expression must have a constant value")
    for match in _CLASH.finditer(log):
        if _device_function(spans, match[1], int(match[2])) is not None:
            text = f'declaration is incompatible with previous "{match[4]}" (declared at line {match[5]})'
            found.setdefault((match[1], int(match[2]), int(match[3])), text)
    return "".join(f"{file}:{line}:{column}: error: {text}\n" for (file, line, column), text in sorted(found.items()))


def _device_function(spans: Iterable[FunctionLines], file: str, line: int) -> FunctionLines | None:
    """The device function of a line; None if another side has a part of it."""
    around = [each for each in spans if each.file == file and each.first <= line <= each.last]
    inside = [each for each in around if each.first < line < each.last]
    closest = min(inside, key=lambda each: each.last - each.first, default=None)
    meant = [each for each in around if each not in inside] + ([closest] if closest is not None else [])
    if not meant or any(each.side is not CodeSide.DEVICE for each in meant):
        return None
    return min(meant, key=lambda each: each.last - each.first)
