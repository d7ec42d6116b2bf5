"""Rewrite declarations of `__shared__`, `__device__` and `__constant__` variables.

A pass of `rewrite`. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from harness.hostcuda.translate.edits import Edit, SourceEdits, quoted
from harness.toolchain.cuda_source.syntax import (
    Tree,
    base_type,
    declarators,
    declared_name,
    has_word,
    inside_function,
    is_extern,
    name_node,
    walk,
)
from harness.toolchain.cuda_source.tokens import balanced, words

__all__ = ["edit_shared", "extents_by_macro", "names_by_macro", "register_variables", "shared_text"]

_CONSTANT = {b"const", b"constexpr"}


def shared_text(state: SourceEdits, tree: Tree, node: Node, declarator: Node, name: bytes) -> bytes:
    number = state.number()
    base = base_type(tree, node, declarators(node))
    named = name_node(declarator)
    assert named is not None
    name, text = _written(state, tree, named), _written(state, tree, declarator)
    said = quoted(name)
    if tree.in_macro:  # a scope may use the macro twice, with two names
        number += b"_##" + name
        said = b"HOSTCUDA_TEXT(" + name + b")"
    type_name, tag = b"hostcuda_t" + number, b"hostcuda_v" + number
    at = named.start_byte - declarator.start_byte
    shape = text[:at] + type_name + text[at + len(name) :]
    typedef = b"typedef " + base + b" " + shape.replace(b"\n", b" ") + b"; "
    if is_extern(tree, node):
        # For nvcc it is one variable of the namespace; two types, as in two instances of a template, are an error.
        one = b"{ extern " + base + b" " + text.replace(b"\n", b" ") + b"; } "
        return (
            one
            + typedef
            + type_name
            + b"& "
            + name
            + b" = ::hostcuda::dynamic_shared_as<"
            + type_name
            + b">(); (void)"
            + name
            + b";"
        )
    line = str(node.start_point[0] + 1).encode() if not tree.in_macro else b"__LINE__"
    return (
        typedef
        + b"struct "
        + tag
        + b" { static constexpr const char* hostcuda_name() { return "
        + said
        + b"; } enum { hostcuda_line = "
        + line
        + b" }; }; "
        + type_name
        + b"& "
        + name
        + b" = ::hostcuda::SharedVariable<"
        + type_name
        + b", "
        + tag
        + b">::get();"
    )


def _written(state: SourceEdits, tree: Tree, node: Node) -> bytes:
    """A node's text in the source.

    In a macro's body, the parser saw names instead of pasted tokens.
    """
    if not tree.in_macro:
        return tree.of(node)
    start, end = node.start_byte + tree.offset, node.end_byte + tree.offset
    return bytes(state.source[start:end]).replace(b"\\\r\n", b"   ").replace(b"\\\n", b"  ")


def names_by_macro(state: SourceEdits, tree: Tree, declarator: Node) -> Iterator[bytes]:
    """The names that a macro's uses give to the variable that it declares."""
    named = name_node(declarator)
    if named is None or not tree.taken:
        return
    parts = [part.strip() for part in _written(state, tree, named).split(b"##")]
    for meant in _uses(state.source, tree.macro, tree.taken):
        yield b"".join(meant.get(part, part) for part in parts)


def extents_by_macro(source: bytes, macro: bytes, taken: tuple[bytes, ...]) -> list[bytes]:
    """Parameters of a macro that are array extents, `[16][17]`, in every use."""
    uses = list(_uses(source, macro, taken)) if taken else []
    return [name for name in taken if uses and all(meant.get(name, b"").startswith(b"[") for meant in uses)]


def _uses(source: bytes, macro: bytes, taken: tuple[bytes, ...]) -> Iterator[dict[bytes, bytes]]:
    """The arguments of each use of a macro, by its parameters."""
    definition = re.compile(rb"#[ \t]*define[ \t]+$")
    for word, start, end in words(source):
        close = balanced(source, end) if word == macro else None
        if close is None or definition.search(source, source.rfind(b"\n", 0, start) + 1, start):
            continue
        given = [piece.strip() for piece in source[source.index(b"(", end) + 1 : close - 1].split(b",")]
        yield dict(zip(taken, given, strict=False))


def edit_shared(state: SourceEdits, tree: Tree, node: Node) -> None:
    start, end = node.start_byte + tree.offset, min(node.end_byte + tree.offset, tree.end)
    if not inside_function(node):
        state.replace(start, end, b"", in_macro=tree.in_macro)
        return
    pieces = []
    for declarator in declarators(node):
        name = declared_name(tree, declarator)
        if name is None:
            return
        pieces.append(shared_text(state, tree, node, declarator, name))
    state.replace(start, end, b" ".join(pieces), in_macro=tree.in_macro)


def _is_variable(declarator: Node) -> bool:
    """Whether it declares memory of its own: not a function, not a reference."""
    inner: Node | None = declarator
    if declarator.type == "init_declarator":
        inner = declarator.child_by_field_name("declarator")
    return inner is not None and not any(
        node.type in {"function_declarator", "reference_declarator"} for node in walk(inner)
    )


def register_variables(state: SourceEdits, tree: Tree, node: Node) -> None:
    if is_extern(tree, node) or node.parent is None:
        return
    if node.parent.type == "template_declaration":
        if any(_is_variable(declarator) for declarator in declarators(node)) and not has_word(tree, node, _CONSTANT):
            # Each instance would need a registration, but the source does not say which instances exist.
            state.not_emulated.append((node.start_point[0] + 1, "a template of device variables"))
            at = node.start_byte + tree.offset
            state.edits.append(Edit(at, at, b"hostcuda_template_of_device_variables "))  # makes the compilation fail
        return
    pieces = []
    managed = has_word(tree, node, {b"__managed__"})
    for declarator in declarators(node):
        inner = declarator
        if inner.type == "init_declarator":
            nested = inner.child_by_field_name("declarator")
            if nested is None:
                continue
            inner = nested
        if not _is_variable(inner):
            continue
        name = declared_name(tree, inner)
        if name is not None:
            pieces.append(
                b" static ::hostcuda::SymbolRegistration hostcuda_s"
                + state.number()
                + b"(&"
                + name
                + b", sizeof("
                + name
                + b"), "
                + quoted(name)
                + (b", true" if managed else b"")
                + b");"
            )
    if pieces:
        at = node.end_byte + tree.offset
        state.edits.append(Edit(at, at, b"".join(pieces)))
