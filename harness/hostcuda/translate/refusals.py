"""Find device code that nvcc refuses and g++ accepts, other than wrong calls.

Runs in the builder's sandbox. Only certain cases are found, in functions that nvcc certainly compiles for the device.
guides/design/host_device.md lists them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from harness.hostcuda.translate.functors import member_calls
from harness.hostcuda.translate.spaces import Survey, called, certain, is_call
from harness.toolchain.cuda_source.syntax import (
    Tree,
    declarators,
    function_declarator,
    inside_function,
    name_node,
    walk,
)

__all__ = ["SourceRefusal", "refusals"]

_STREAMS = {b"std::cout", b"std::cerr", b"std::clog", b"std::endl"}
_NOT_THE_HOSTS = {
    b"const",
    b"constexpr",
    b"constinit",
    b"extern",
    b"__device__",
    b"__constant__",
    b"__managed__",
    b"__shared__",
}
_WRITES = {"assignment_expression": "left", "update_expression": "argument"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRefusal:
    """One error; line and column are 1-based."""

    line: int
    column: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variable:
    """A variable at namespace scope.

    `constant` means constant memory, else it is the host's. `dimensions` is the number of subscripts to an element.
    """

    constant: bool
    dimensions: int


def refusals(read: Survey | None) -> tuple[SourceRefusal, ...]:
    """The errors that nvcc certainly reports, in source order."""
    if read is None:
        return ()
    found = [*_kernels(read), *(_at(node, message) for node, message in member_calls(read))]
    variables = _variables(read)
    for function in read.device_code():
        for node in certain(read.tree, function, read.macros):
            message = _refused(read.tree, node, variables)
            if message:
                found.append(_at(node, message))
    return tuple(sorted(set(found), key=lambda each: (each.line, each.column)))


def _at(node: Node, message: str) -> SourceRefusal:
    return SourceRefusal(line=node.start_point[0] + 1, column=node.start_point[1] + 1, message=message)


def _kernels(read: Survey) -> Iterator[SourceRefusal]:
    kernels = {name for name, held in read.by_name.items() if all(f.kernel for f in held)}
    for function in read.functions:
        if function.node.has_error:
            continue
        result = function.node.child_by_field_name("type")
        if (
            function.kernel
            and result is not None
            and result.type == "primitive_type"
            and read.tree.of(result) != b"void"
        ):
            yield _at(result, "a __global__ function must have a void return type")
        if function.template or not function.plain:
            continue
        for node in certain(read.tree, function, read.macros):
            if is_call(node) and called(read.tree, node) in kernels:
                yield _at(node, "a __global__ function call must be configured")


def _variables(read: Survey) -> dict[bytes, _Variable]:
    """Variables at namespace scope with a built-in type and a unique name."""
    found: dict[bytes, _Variable] = {}
    declared: dict[bytes, int] = {}
    for name in _declared_names(read.tree):
        declared[name] = declared.get(name, 0) + 1
    for node in walk(read.tree.root):
        if node.type != "declaration" or not _at_the_top(node) or node.has_error:
            continue
        said = {read.tree.of(child) for child in node.children}
        kind = node.child_by_field_name("type")
        if kind is None or kind.type not in {"primitive_type", "sized_type_specifier"}:
            continue
        constant = b"__constant__" in said
        if not constant and said & _NOT_THE_HOSTS:
            continue
        for declarator in declarators(node):
            variable = _variable(declarator, constant=constant)
            named = name_node(declarator)
            name = read.tree.of(named) if named is not None else b""
            if variable is not None and declared.get(name) == 1 and name not in read.macros:
                found[name] = variable
    return found


def _variable(declarator: Node, *, constant: bool) -> _Variable | None:
    inner: Node | None = declarator
    if inner is not None and inner.type == "init_declarator":
        inner = inner.child_by_field_name("declarator")
    dimensions = 0
    while inner is not None and inner.type == "array_declarator":
        dimensions, inner = dimensions + 1, inner.child_by_field_name("declarator")
    if inner is None or inner.type != "identifier":
        return None
    return _Variable(constant=constant, dimensions=dimensions)


def _at_the_top(node: Node) -> bool:
    """Whether it is declared at namespace scope, without preprocessor conditions."""
    around = node.parent
    while around is not None and around.type != "translation_unit":
        if around.type not in {"declaration_list", "namespace_definition", "linkage_specification"}:
            return False
        around = around.parent
    return around is not None and not inside_function(node) and function_declarator(node) is None


def _declared_names(tree: Tree) -> Iterator[bytes]:
    """Each name, once per declaration of any kind."""
    for node in walk(tree.root):
        if node.type in {"identifier", "field_identifier", "type_identifier"} and _declares(node):
            yield tree.of(node)


def _declares(node: Node) -> bool:
    parent = node.parent
    if parent is None or parent.type in {"field_expression", "argument_list", "call_expression"}:
        return False
    if node.type != "identifier":
        return True
    if parent.type in {"subscript_expression", "assignment_expression", "binary_expression", "update_expression"}:
        return False
    if parent.type == "init_declarator":
        return parent.child_by_field_name("declarator") == node
    if parent.type == "array_declarator":
        return parent.child_by_field_name("declarator") == node
    return parent.type.endswith(
        ("declarator", "declaration", "specifier", "parameters", "capture", "parameter_list")
    ) or parent.type in {"enumerator", "for_range_loop", "ERROR", "lambda_capture_initializer", "using_declaration"}


def _refused(tree: Tree, node: Node, variables: dict[bytes, _Variable]) -> str:
    if node.type in {"throw_statement", "try_statement", "throw_expression"}:
        return "device code does not support exception handling"
    if node.type == "qualified_identifier" and tree.of(node) in _STREAMS:
        return f'identifier "{tree.of(node).decode()}" is undefined in device code'
    if node.type in _WRITES:
        written, subscripts = node.child_by_field_name(_WRITES[node.type]), 0
        while written is not None and written.type == "subscript_expression":
            written, subscripts = written.child_by_field_name("argument"), subscripts + 1
        variable = variables.get(tree.of(written)) if written is not None and written.type == "identifier" else None
        if variable is not None and variable.constant and subscripts == variable.dimensions == 0:
            return "expression must be a modifiable lvalue"
    if node.type == "identifier" and node.parent is not None and node.parent.type != "qualified_identifier":
        variable = variables.get(tree.of(node))
        if variable is not None and not variable.constant:
            return f'identifier "{tree.of(node).decode()}" is undefined in device code'
    return ""
