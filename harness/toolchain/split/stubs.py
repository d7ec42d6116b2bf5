"""What stands in a kernel's place in the host part: a function that launches it. Pure.

As nvcc's own stubs do: a launch pushes its configuration and calls the kernel as a function, whose address is what the
CUDA runtime knows it by. So kernels can be taken the address of, passed about and given attributes as ever.
"""

from __future__ import annotations

from tree_sitter import Node

from harness.toolchain.cuda_source.syntax import Tree, declared_name, function_name, parameters

MARK = b"harness_kernel"
"""A static object of every stub: its mangled name says of which instance of which kernel."""


class Unsplittable(Exception):
    """A source that is built the ordinary way. The message names the line and why."""

    def __init__(self, data: bytes, at: int, why: str) -> None:
        line = data.count(b"\n", 0, at) + 1
        super().__init__(f"line {line}: {why}")


def stub(data: bytes, tree: Tree, node: Node, template: Node | None) -> tuple[bytes, list[tuple[int, bytes]]]:
    """The stub's body, and names to insert for parameters that have none (byte position and text).

    `node` is the kernel's definition, `template` what holds its template parameters. Raises `Unsplittable`.
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
                raise Unsplittable(data, item.start_byte, "a kernel's parameter without a name")
            named = b"harness_p%d" % number
            inserted.append((item.end_byte, b" " + named))
        pack = b"..." if item.type == "variadic_parameter_declaration" else b""
        types.append(b"::harness_split::passed<decltype(" + named + b")>" + pack)
        values.append(b"(void*)__builtin_addressof(" + named + b")" + pack)
    function = name
    if template is not None:
        function += b"<" + b", ".join(_arguments(data, tree, template)) + b">"
    # The cast chooses among kernels of one name.
    address = b"static_cast<void (*)(" + b", ".join(types) + b")>(&" + function + b")"
    body = b"{ static ::harness_split::Kernel " + MARK + b"(" + address + b"); "
    body += b"void* harness_arguments[] = {" + b", ".join([*values, b"nullptr"]) + b"}; "
    return body + MARK + b".launch(harness_arguments); }", inserted


def _arguments(data: bytes, tree: Tree, template: Node) -> list[bytes]:
    """A template's own parameters as its arguments."""
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
