"""Turn preprocessed CUDA C++ into C++ for the host device by edits.

Runs in the builder's sandbox; text in, text out, nothing is executed. Every edit keeps the number of lines, or restores
it by a line marker, so compiler errors and reports have the solution's lines. guides/design/host_device.md has a table
of the edits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

from harness.hostcuda.translate import ptx
from harness.hostcuda.translate.declarations import edit_shared, register_variables, shared_text
from harness.hostcuda.translate.edits import Edit, FunctionLines, SourceEdits, quoted
from harness.hostcuda.translate.gpu_arithmetic import edit_call, edit_cast, edit_shift
from harness.hostcuda.translate.preprocess import DIRECTIVE, Places
from harness.hostcuda.translate.refusals import Names, declared_refusals, edit_refusals, known_names, mark_host_function
from harness.hostcuda.translate.sides import CodeSide, can_be_doubled, head, last_name, marked_names, side_of
from harness.toolchain.cuda_source.noise import without_noise
from harness.toolchain.cuda_source.syntax import (
    Tree,
    at_namespace_scope,
    declarators,
    declared_name,
    function_name,
    has_word,
    inside_function,
    is_shared,
    parameters,
    walk,
)
from harness.toolchain.cuda_source.tokens import balanced, blank, words

__all__ = ["NotTranslated", "RewrittenSource", "rewrite"]

_LANGUAGE = Language(tree_sitter_cuda.language())
_VARIABLE_WORDS = {b"__constant__", b"__device__", b"__managed__"}
_HEAPS = {CodeSide.DEVICE: b"device", CodeSide.BOTH: b"callers"}
"""The heap that device code allocates from; host code is not edited."""

_ARITHMETIC = {"binary_expression": edit_shift, "assignment_expression": edit_shift, "cast_expression": edit_cast}
_UNTYPED_LAUNCHES = {b"cudaLaunchCooperativeKernel": 0, b"cudaLaunchKernel": 0, b"cudaLaunchKernelExC": 1}
"""Index of the kernel's argument, which is a `void*`."""

_UNCHECKED = b'__attribute__((no_sanitize("thread", "undefined")))'
_BARRIERS = {b"__syncthreads", b"__syncthreads_count", b"__syncthreads_and", b"__syncthreads_or"}
_DROPPED = {b"__launch_bounds__", b"__cluster_dims__", b"__maxnreg__"}
_MEANINGS = {
    b"__global__": b"__attribute__((noinline))",
    b"__noinline__": b"__attribute__((noinline))",
    b"__device__": b"",
    b"__host__": b"",
    b"__constant__": b"",
    b"__managed__": b"",
    b"__grid_constant__": b"",
}
"""CUDA's words for declarations, as g++ takes them."""

_SPLIT_LAUNCH = re.compile(rb"<<[ ]<|>>[ ]>(?=\s*\()")
"""Tokens of a launch that a macro's expansion has put apart."""

_TYPENAME = re.compile(rb"(?<=[(,=?:+*/|&!-])\s*\btypename(?=\s(?:[\w:]|<[^<>;{}()]*>)+[({])|(?<=\breturn )typename\b")
"""`typename` before a value, which the grammar takes for a type's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotTranslated:
    """A construct that the rewriter can't translate, with its 1-based source line."""

    line: int
    construct: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenSource:
    """The rewritten text, and what it contains.

    `kernels` are the names of `__global__` functions, `functions` all functions. `errors` are lines of a compiler's log
    for what nvcc certainly refuses; `refused` are message and called name of each function `hostcuda_refused_N`, which
    stands where nvcc refuses what g++ compiles.
    """

    text: str
    kernels: tuple[str, ...]
    not_emulated: tuple[NotTranslated, ...]
    functions: tuple[FunctionLines, ...]
    errors: str
    refused: tuple[tuple[str, str], ...]


def rewrite(device: str, host: str | None = None) -> RewrittenSource:
    """Rewrite preprocessed CUDA C++ for the headers in `hostcuda/include`.

    Args:
        device: The author's text as preprocessed with `__CUDA_ARCH__`. Text that can't be parsed stays; the compiler
            then reports the error.
        host: The same without `__CUDA_ARCH__`; None if it is equal.

    Returns:
        The rewritten text, with the lines of `device`, and what it contains.
    """
    state, refused = _read(device)
    host_state = _read(host)[0] if host is not None else None
    rewriter = _Rewriter(state, host_state)
    rewriter.edit(state, state.tree.root, None)
    refused += [NotTranslated(line=line, construct=construct) for line, construct in state.not_emulated]
    return RewrittenSource(
        text=_without_words(state.applied(0, len(state.source))).decode(errors="replace"),
        kernels=tuple(name.decode(errors="replace") for name in state.kernels),
        not_emulated=tuple(refused),
        functions=tuple(state.functions),
        errors=declared_refusals(state),
        refused=tuple(state.refused),
    )


def _read(text: str) -> tuple[SourceEdits, list[NotTranslated]]:
    """Parse a text and note the names that it declares."""
    translated = ptx.rewrite(text)
    data = _SPLIT_LAUNCH.sub(lambda found: found[0].replace(b" ", b""), translated.text.encode())
    clean = bytearray(without_noise(data))
    for found in (*DIRECTIVE.finditer(clean), *_TYPENAME.finditer(clean)):
        blank(clean, *found.span())
    parsed = bytes(clean)
    tree = Tree(Parser(_LANGUAGE).parse(parsed).root_node, parsed, data)
    state = SourceEdits(source=data, tree=tree, places=Places(data), marked=marked_names(tree, data))
    for word, start, end in words(data):
        if word in _DROPPED and (close := balanced(data, end)) is not None:
            state.replace(start, close, b"")
    _collect(state)
    lines = Places(translated.text.encode())
    refused = [NotTranslated(line=lines.of_row(r.line)[1], construct=r.construct) for r in translated.refused]
    return state, refused


def _without_words(text: bytes) -> bytes:
    out = bytearray()
    position = 0
    for word, start, end in words(text):
        if word in _MEANINGS:
            out += text[position:start] + _MEANINGS[word]
            position = end
    return bytes(out + text[position:])


# ---- first pass: names


def _collect(state: SourceEdits) -> None:
    tree = state.tree
    for node in walk(tree.root):
        if node.type == "function_definition" and has_word(tree, node, {b"__global__"}):
            name = function_name(tree, node)
            if name is not None:
                state.kernels[name] = _parameter_kinds(node)
                state.kernel_counts[name] = state.kernel_counts.get(name, 0) + 1
        elif node.type == "declaration" and has_word(tree, node, {b"__global__"}):
            # The cluster of a kernel's declaration holds for its definition too.
            cluster = _cluster(head(tree, node))
            names = [declared_name(tree, declarator) for declarator in declarators(node)]
            state.declared_clusters.update({name: cluster for name in names if name is not None and cluster})
        elif node.type in {"declaration", "field_declaration"} and is_shared(tree, node):
            for declarator in declarators(node):
                name = declared_name(tree, declarator)
                if name is None:
                    continue
                state.shared_names.add(name)
                if not inside_function(node):
                    state.outer_shared[name] = shared_text(state, node, declarator)


def _parameter_kinds(node: Node) -> list[bytes]:
    """`*` for each pointer parameter, empty for others."""
    found = [parameter.child_by_field_name("declarator") for parameter in parameters(node)]
    return [b"*" if each is not None and each.type == "pointer_declarator" else b"" for each in found]


# ---- second pass: edits


class _Rewriter:
    """Edits the device's text, with bodies of the host's side if they differ."""

    def __init__(self, device: SourceEdits, host: SourceEdits | None) -> None:
        self._names: Names = known_names(device)
        self._device, self._host = device, host
        self._versions = {} if host is None else self._differing(host)

    def _differing(self, host: SourceEdits) -> dict[int, Node]:
        """The host's version of each function that differs, by the device's node."""
        found = {_identity(host, node): node for node in walk(host.tree.root) if node.type == "function_definition"}
        pairs = [
            (node, found.get(_identity(self._device, node)))
            for node in walk(self._device.tree.root)
            if node.type == "function_definition"
        ]
        return {
            node.id: other
            for node, other in pairs
            if other is not None and _tokens(self._device, node) != _tokens(host, other)
        }

    def edit(self, state: SourceEdits, node: Node, side: CodeSide | None) -> None:
        """Edit a node. `side` is that of the surrounding function, None outside functions."""
        tree = state.tree
        if node.type in {"function_definition", "lambda_expression"}:
            side = side_of(tree, node, side, state.marked)
            state.functions.append(_lines(state, node, side))
        if node.type == "function_definition":
            other = self._versions.get(node.id) if state is self._device else None
            if other is not None and side is CodeSide.HOST:
                state.edits.append(Edit(node.start_byte, node.end_byte, self._hosts(other, node.end_byte)))
                return
            mark_host_function(state, node, side)
            _enter_function(state, node, kernel=has_word(tree, node, {b"__global__"}))
            body = other.child_by_field_name("body") if other is not None else None
            own = node.child_by_field_name("body")
            if side is CodeSide.BOTH and body is not None and own is not None and can_be_doubled(node):
                # nvcc compiles the body twice; here the caller decides at run time which of the two runs. For constant
                # expressions it is the device's.
                version = self._hosts(body, own.start_byte + 1)
                state.insert(own.start_byte + 1, b" if (::hostcuda::on_host())\n" + version)
        elif node.type in {"declaration", "field_declaration"}:
            if is_shared(tree, node) and node.type == "declaration":
                edit_shared(state, node)
                return
            if not inside_function(node):
                mark_host_function(state, node, side_of(tree, node, side, state.marked))
                if node.type == "declaration" and has_word(tree, node, _VARIABLE_WORDS):
                    register_variables(state, node)
        elif node.type == "call_expression":
            if any(child.type == "kernel_call_syntax" for child in node.children):
                state.replace(node.start_byte, node.end_byte, self._launch_text(state, node, side))
                return
            _edit_call(state, node, side)
            if side in _HEAPS:
                edit_call(state, node)
        elif node.type in _ARITHMETIC and side in _HEAPS:
            _ARITHMETIC[node.type](state, node)
        elif node.type == "while_statement":
            _edit_wait(state, node)
        elif node.type == "new_expression" and side in _HEAPS:
            _edit_new(state, node, _HEAPS[side])
        elif node.type == "delete_expression" and side in _HEAPS:
            _edit_delete(state, node, _HEAPS[side])
        elif node.type == "subscript_expression" and side in _HEAPS:
            _edit_subscript(state, node)
        edit_refusals(state, self._names, node, side)
        for child in node.children:
            self.edit(state, child, side)

    def _hosts(self, node: Node, end: int) -> bytes:
        """The host's text of a function or a body; the device's goes on at `end`."""
        assert self._host is not None
        text = self._rendered(self._host, node, side=CodeSide.HOST)
        return (
            b'\n# %d "%b"\n' % _place(self._host, node.start_byte) + text + b'\n# %d "%b"\n' % _place(self._device, end)
        )

    def _rendered(
        self, state: SourceEdits, node: Node, more: Iterable[Edit] = (), side: CodeSide | None = None
    ) -> bytes:
        """The source text of a node with all edits inside it."""
        kept, state.edits = state.edits, []
        self.edit(state, node, side)
        text = state.applied(node.start_byte, node.end_byte, more)
        state.edits = kept
        return text

    def _launch_text(self, state: SourceEdits, node: Node, side: CodeSide | None) -> bytes:
        function = node.child_by_field_name("function")
        arguments = node.child_by_field_name("arguments")
        syntax = next(child for child in node.children if child.type == "kernel_call_syntax")
        if function is None or arguments is None:
            return state.source[node.start_byte : node.end_byte]
        callee = self._rendered(state, function, side=side)
        kinds = state.kernels.get(state.tree.of(function).split(b"<")[0].split(b"::")[-1])
        typed: list[Edit] = []
        for i, argument in enumerate(a for a in arguments.named_children if a.type != "comment"):
            literal = state.tree.of(argument).strip()
            pointer = kinds is not None and i < len(kinds) and kinds[i] == b"*"
            if literal in {b"NULL", b"__null"} or (literal == b"0" and pointer):
                typed.append(Edit(argument.start_byte, argument.end_byte, b"nullptr"))
            elif argument.type == "initializer_list":
                text = b"::hostcuda::Parameter<%d, decltype(%b)>" % (i, callee.replace(b"\n", b" "))
                typed.append(Edit(argument.start_byte, argument.start_byte, text))
        passed = self._rendered(state, arguments, typed, side).strip()[1:-1]
        return (
            b"static_cast<void>(::hostcuda::start(::hostcuda::Configuration(%b), false, %b, %d, "
            b"[=](auto&&... hostcuda_a) %b { %b(hostcuda_a...); }%b))"
        ) % (
            state.source[syntax.start_byte + 3 : syntax.end_byte - 3],
            quoted(callee),
            state.line(node),
            _UNCHECKED,
            callee,
            b", " + passed if passed.strip() else b"",
        )


def _identity(state: SourceEdits, node: Node) -> tuple[tuple[str, int], bytes]:
    """Where a function's body begins, and its name: what its two versions share."""
    body = node.child_by_field_name("body")
    return state.places.of((body or node).start_byte), last_name(state.tree, node)


def _tokens(state: SourceEdits, node: Node) -> list[bytes]:
    return DIRECTIVE.sub(b"", state.source[node.start_byte : node.end_byte]).split()


def _place(state: SourceEdits, position: int) -> tuple[int, bytes]:
    file, line = state.places.of(position)
    return line, file.encode()


def _lines(state: SourceEdits, node: Node, side: CodeSide) -> FunctionLines:
    (file, first), (_, last) = state.places.of(node.start_byte), state.places.of(node.end_byte)
    around = state.functions[-1].name if node.type == "lambda_expression" and state.functions else ""
    return FunctionLines(
        file=file,
        first=first,
        last=last,
        name=last_name(state.tree, node).decode(errors="replace") or around,
        side=CodeSide.BOTH if node.has_error else side,
        kernel=node.type == "function_definition" and has_word(state.tree, node, {b"__global__"}),
    )


def _enter_function(state: SourceEdits, node: Node, *, kernel: bool) -> None:
    tree, body = state.tree, node.child_by_field_name("body")
    if body is None or body.type != "compound_statement":
        return
    text = b""
    if kernel:
        name = function_name(tree, node) or b"?"
        declared = [parameter.child_by_field_name("declarator") for parameter in parameters(node)]
        names = [(declared_name(tree, each) if each is not None else None) or b"?" for each in declared]
        before = head(tree, node)
        bounds = _attribute(before, b"__launch_bounds__")
        bound = b"static_cast<int>(" + bounds[0] + b")" if bounds else b"0"
        cluster = _cluster(before) or state.declared_clusters.get(name, b"")
        dims = b", ::hostcuda::Dim3{" + cluster + b"}" if cluster else b""
        text += b" ::hostcuda::enter(%b, %b, %b%b);" % (quoted(name), quoted(b",".join(names)), bound, dims)
        if at_namespace_scope(node) and state.kernel_counts.get(name) == 1:
            state.insert(
                node.end_byte,
                b" static ::hostcuda::KernelRegistration hostcuda_k%b(reinterpret_cast<const void*>(&%b), %b%b);"
                % (state.number(), name, bound, dims),
            )
    if state.outer_shared:
        used = {tree.of(n) for n in walk(body) if n.type == "identifier"}
        text += b"".join(b" " + state.outer_shared[name] for name in sorted(used & set(state.outer_shared)))
    if text:
        state.insert(body.start_byte + 1, text)


def _attribute(before: bytes, name: bytes) -> list[bytes]:
    """The arguments of an attribute before a body; empty without it."""
    for word, _, after in words(before):
        close = balanced(before, after) if word == name else None
        if close is not None:
            inside = before[before.index(b"(", after) + 1 : close - 1].replace(b"\n", b" ")
            parts = [b""]
            depth = 0
            for i, c in enumerate(inside):
                depth += (c in b"([{<") - (c in b")]}>")
                if c == ord(",") and depth == 0:
                    parts.append(b"")
                else:
                    parts[-1] += inside[i : i + 1]
            return [part.strip() for part in parts]
    return []


def _cluster(before: bytes) -> bytes:
    """The dimensions of `__cluster_dims__`, as a C++ list; empty without it."""
    return b", ".join(b"static_cast<unsigned>(" + part + b")" for part in _attribute(before, b"__cluster_dims__"))


def _edit_call(state: SourceEdits, node: Node, side: CodeSide | None) -> None:
    function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if function is None or arguments is None:
        return
    name = state.tree.of(function)
    if side in _HEAPS and name in {b"malloc", b"free"}:
        state.replace(function.start_byte, function.end_byte, b"::hostcuda::" + _HEAPS[side] + b"_" + name)
    elif name in _BARRIERS:
        # Two barriers are two, even on one line.
        comma = b", " if arguments.named_children else b""
        state.insert(arguments.end_byte - 1, comma + b"::hostcuda::Place(" + state.number() + b")")
    elif name in _UNTYPED_LAUNCHES and len(arguments.named_children) > _UNTYPED_LAUNCHES[name]:
        first = arguments.named_children[_UNTYPED_LAUNCHES[name]]
        value: Node | None = None
        if first.type == "cast_expression":
            value = first.child_by_field_name("value")
        elif first.type == "call_expression":
            callee, inner = first.child_by_field_name("function"), first.child_by_field_name("arguments")
            cast = callee is not None and state.tree.of(callee).startswith((b"reinterpret_cast", b"static_cast"))
            value = inner.named_children[0] if cast and inner is not None and inner.named_children else None
        if value is not None:
            state.replace(first.start_byte, first.end_byte, state.source[value.start_byte : value.end_byte])


def _edit_new(state: SourceEdits, node: Node, heap: bytes) -> None:
    """Allocate from this heap, unless it is a placement new."""
    word = next((child for child in node.children if child.type == "new"), None)
    if word is not None and node.child_by_field_name("placement") is None:
        state.replace(node.start_byte, word.end_byte, b"::new (::hostcuda::" + heap + b"_heap)")


def _edit_delete(state: SourceEdits, node: Node, heap: bytes) -> None:
    if node.has_error or not node.named_children:
        return
    value = node.named_children[-1]
    of_arrays = any(child.type == "[" for child in node.children)
    called = b"::hostcuda::" + heap + (b"_delete_array(" if of_arrays else b"_delete(")
    state.replace(node.start_byte, value.start_byte, called)
    state.insert(value.end_byte, b")")


def _edit_subscript(state: SourceEdits, node: Node) -> None:
    """Take the compiler's check of bounds from a subscript of a `__shared__` array.

    Kernels exceed its inner bounds on purpose (`s[0][t]` for all of `s`); the shadow memory guards the whole of it.
    """
    base = node.child_by_field_name("argument")
    root = base
    while root is not None and root.type == "subscript_expression":
        root = root.child_by_field_name("argument")
    if base is not None and root is not None and not node.has_error and state.tree.of(root) in state.shared_names:
        state.insert(base.start_byte, b"::hostcuda::without_bounds(")
        state.insert(base.end_byte, b")")


def _edit_wait(state: SourceEdits, node: Node) -> None:
    body = node.child_by_field_name("body")
    if body is None:
        return
    if (body.type == "expression_statement" and state.tree.of(body) == b";") or (
        body.type == "compound_statement" and not body.named_children
    ):
        state.replace(body.start_byte, body.end_byte, b"{ ::hostcuda::poll_hint(); }")
