"""Rewrite declarations of `__shared__`, `__device__` and `__constant__` variables.

A pass of `rewrite`. Pure.
"""

from __future__ import annotations

from tree_sitter import Node

from harness.hostcuda.translate.edits import SourceEdits, quoted
from harness.toolchain.cuda_source.syntax import (
    base_type,
    declarators,
    declared_name,
    has_word,
    inside_function,
    is_extern,
    name_node,
    walk,
)

__all__ = ["edit_shared", "register_variables", "shared_text"]

_CONSTANT = {b"const", b"constexpr"}


def shared_text(state: SourceEdits, node: Node, declarator: Node) -> bytes:
    number, base = state.number(), base_type(state.tree, node, declarators(node))
    named = name_node(declarator)
    assert named is not None
    name, text = state.tree.of(named), state.tree.of(declarator).replace(b"\n", b" ")
    type_name, tag = b"hostcuda_t" + number, b"hostcuda_v" + number
    at = named.start_byte - declarator.start_byte
    typedef = b"typedef " + base + b" " + text[:at] + type_name + text[at + len(name) :] + b"; "
    if is_extern(state.tree, node):
        # For nvcc it is one variable of the namespace; two types, as in two instances of a template, are an error.
        one = b"{ extern " + base + b" " + text + b"; } "
        return b"%b%b%b& %b = ::hostcuda::dynamic_shared_as<%b>(); (void)%b;" % (
            one,
            typedef,
            type_name,
            name,
            type_name,
            name,
        )
    return (
        b"%bstruct %b { static constexpr const char* hostcuda_name() { return %b; } enum { hostcuda_line = %d }; }; "
        b"%b& %b = ::hostcuda::SharedVariable<%b, %b>::get();"
    ) % (typedef, tag, quoted(name), state.line(node), type_name, name, type_name, tag)


def edit_shared(state: SourceEdits, node: Node) -> None:
    if not inside_function(node):
        state.replace(node.start_byte, node.end_byte, b"")
    elif all(name_node(declarator) is not None for declarator in declarators(node)):
        pieces = [shared_text(state, node, declarator) for declarator in declarators(node)]
        state.replace(node.start_byte, node.end_byte, b" ".join(pieces))


def _is_variable(declarator: Node) -> bool:
    """Whether it declares memory of its own: not a function, not a reference."""
    return not any(node.type in {"function_declarator", "reference_declarator"} for node in walk(declarator))


def register_variables(state: SourceEdits, node: Node) -> None:
    """Tell the runtime of the device variables that `node` declares."""
    if is_extern(state.tree, node) or node.parent is None:
        return
    found = []
    for declarator in declarators(node):
        inner = declarator
        if declarator.type == "init_declarator":
            inner = declarator.child_by_field_name("declarator") or declarator
        name = declared_name(state.tree, inner)
        if _is_variable(inner) and name is not None:
            found.append(name)
    if node.parent.type == "template_declaration":
        if found and not has_word(state.tree, node, _CONSTANT):
            # Each instance would need a registration, but the source does not say which instances exist.
            state.not_emulated.append((state.line(node), "a template of device variables"))
            state.insert(node.start_byte, b"hostcuda_template_of_device_variables ")  # makes the compilation fail
        return
    managed = b", true" if has_word(state.tree, node, {b"__managed__"}) else b""
    for name in found:
        registered = b"(&%b, sizeof(%b), %b%b);" % (name, name, quoted(name), managed)
        state.insert(node.end_byte, b" static ::hostcuda::SymbolRegistration hostcuda_s" + state.number() + registered)
