"""Write the host stub of a kernel: a function that launches it.

This is what nvcc's own stubs do. A launch pushes its configuration and then calls the kernel as a function. The CUDA
runtime knows the kernel by that function's address, so taking addresses, passing kernels around and setting attributes
work as usual.
"""

from __future__ import annotations

from tree_sitter import Node

from harness.toolchain.cuda_source.syntax import Tree, declared_name, function_name, parameters

MARK = b"harness_kernel"
"""A static object in every stub. Its mangled name tells the kernel and the instance."""


class Unsplittable(Exception):
    """A source that must be compiled whole. The message gives the line and the reason."""

    def __init__(self, data: bytes, at: int, why: str) -> None:
        line = data.count(b"\n", 0, at) + 1
        super().__init__(f"line {line}: {why}")


def stub(data: bytes, tree: Tree, node: Node, template: Node | None) -> tuple[bytes, list[tuple[int, bytes]]]:
    """Write a kernel's stub.

    Args:
        data: The source.
        tree: Its syntax tree.
        node: The kernel's definition.
        template: The node with its template parameters, if any.

    Returns:
        The stub's body, and names to insert for unnamed parameters (byte position, text).

    Raises:
        Unsplittable: A parameter without a name.
    """
    name = function_name(tree, node)
    assert name is not None
    inserted: list[tuple[int, bytes]] = []
    types, values = [], []
    for number, item in enumerate(parameters(node)):
        declarator = item.child_by_field_name("declarator")
        if declarator is None and tree.of(item).strip() == b"void":
            continue
        named = None if declarator is None else declared_name(tree, declarator)
        if named is None:
            if declarator is not None and declarator.type not in {"abstract_pointer_declarator"}:
                raise Unsplittable(data, item.start_byte, "a kernel parameter without a name")
            named = b"harness_p%d" % number
            inserted.append((item.end_byte, b" " + named))
        pack = b"..." if item.type == "variadic_parameter_declaration" else b""
        types.append(b"::harness_split::passed<decltype(" + named + b")>" + pack)
        values.append(b"(void*)__builtin_addressof(" + named + b")" + pack)
    function = name
    if template is not None:
        function += b"<" + b", ".join(_arguments(data, tree, template)) + b">"
    # The cast chooses among overloaded kernels.
    address = b"static_cast<void (*)(" + b", ".join(types) + b")>(&" + function + b")"
    body = b"{ static ::harness_split::Kernel " + MARK + b"(" + address + b"); "
    body += b"void* harness_arguments[] = {" + b", ".join([*values, b"nullptr"]) + b"}; "
    return body + MARK + b".launch(harness_arguments); }", inserted


def _arguments(data: bytes, tree: Tree, template: Node) -> list[bytes]:
    """Return a template's own parameters, written as arguments."""
    found = []
    listed = template.child_by_field_name("parameters")
    for item in [] if listed is None else listed.named_children:
        if item.type == "comment":
            continue
        kinds = {"type_identifier"} if "type_parameter" in item.type else {"identifier", "variadic_declarator"}
        names = [child for child in item.named_children if child.type in kinds][:1]
        if not names:
            raise Unsplittable(data, item.start_byte, "a template parameter without a name")
        name = names[0]
        if name.type == "variadic_declarator":
            name = name.named_children[0]
        pack = b"..." if item.type.startswith("variadic") else b""
        found.append(tree.of(name) + pack)
    return found
