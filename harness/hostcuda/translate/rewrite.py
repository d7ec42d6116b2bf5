"""Turn CUDA C++ into C++ for the host device, by edits of its syntax tree.

Runs in the builder's sandbox; text in, text out, nothing is executed. Every edit keeps the number of lines, or restores
it by `#line`, so compiler errors and reports have the solution's lines. Bodies of macros are parsed and edited like
code. guides/design/host_device.md has a table of the edits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

from harness.hostcuda.translate import ptx
from harness.hostcuda.translate.configurations import written_out
from harness.hostcuda.translate.declarations import (
    edit_shared,
    extents_by_macro,
    names_by_macro,
    register_variables,
    shared_text,
)
from harness.hostcuda.translate.edits import Edit, SourceEdits, applied, quoted
from harness.hostcuda.translate.gpu_arithmetic import ARITHMETIC, conditional_names, edit_call, edit_cast, edit_shift
from harness.hostcuda.translate.legible import legible
from harness.hostcuda.translate.pieces import alone, declarations
from harness.hostcuda.translate.sides import CodeSide, architecture_words, marked_names, side_of, two_versions
from harness.toolchain.cuda_source.noise import without_noise
from harness.toolchain.cuda_source.syntax import (
    Tree,
    at_namespace_scope,
    declarators,
    declared_name,
    errors,
    function_name,
    has_word,
    inside_function,
    is_shared,
    launches,
    parameters,
    walk,
)
from harness.toolchain.cuda_source.tokens import balanced, words

__all__ = ["NotTranslated", "RewrittenSource", "rewrite"]

_LANGUAGE = Language(tree_sitter_cuda.language())
_VARIABLE_WORDS = {b"__constant__", b"__device__", b"__managed__"}
_LAST_ARGUMENTS = b"__VA_ARGS__"
_HOLDS_CUDA = re.compile(rb"<<<|__(?:shared|global|device|constant)__|\b(?:new|delete|malloc|free)\b|\]\s*\[")

_MOST_PIECES = 400
"""Each piece is parsed with as many blanks around it as the source is long."""
_HEAPS = {CodeSide.DEVICE: b"device", CodeSide.BOTH: b"callers"}
"""The heap that device code allocates from; host code is not edited."""

_ARITHMETIC = {"binary_expression": edit_shift, "assignment_expression": edit_shift, "cast_expression": edit_cast}

_NO_ARCHITECTURE = b"hostcuda_no_architecture"
"""Never defined."""

_UNTYPED_LAUNCHES = {b"cudaLaunchCooperativeKernel": 0, b"cudaLaunchKernel": 0, b"cudaLaunchKernelExC": 1}
"""Index of the kernel's argument, which is a `void*`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotTranslated:
    """A construct that the rewriter can't translate, with its 1-based source line."""

    line: int
    construct: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenSource:
    """The rewritten source, with the same line numbers.

    `kernels` are the names of `__global__` functions.
    """

    text: str
    kernels: tuple[str, ...]
    not_emulated: tuple[NotTranslated, ...]


def rewrite(source: str) -> RewrittenSource:
    """Rewrite CUDA C++ as C++ for the headers in `harness/hostcuda/include`.

    Args:
        source: Text of a CUDA source. Text that can't be parsed stays; the compiler then reports the error.

    Returns:
        The rewritten text with the same line numbers, and what it contains.
    """
    translated = ptx.rewrite(source)
    data = written_out(translated.text.encode())
    state = SourceEdits(source=data, parser=Parser(_LANGUAGE))
    for word, start, end in words(data):
        if word == b"__noinline__":
            state.edits.append(Edit(start, end, b"__attribute__((noinline))"))
    clean = legible(without_noise(data))
    parsed = _parsed(state, clean)
    trees = [*parsed, *(body for tree in parsed for body in _macro_bodies(state, tree))]
    for each in trees:
        _collect(state, each)
    state.marked = marked_names(data, trees)
    state.conditional = conditional_names(data)
    for each in trees:
        _edit(state, each, each.root, CodeSide.BOTH if each.in_macro else None)
    refused = [NotTranslated(line=r.line, construct=r.construct) for r in translated.refused]
    refused += [NotTranslated(line=line, construct=construct) for line, construct in state.not_emulated]
    refused += _lost_clusters(state)
    return RewrittenSource(
        text=applied(state).decode(errors="replace"),
        kernels=tuple(name.decode(errors="replace") for name in state.kernels),
        not_emulated=tuple(refused),
    )


def _parsed(state: SourceEdits, clean: bytes) -> list[Tree]:
    """The source as one tree; if that has errors, one tree per declaration."""
    whole = Tree(state.parser.parse(clean).root_node, clean, 0, False)
    if not whole.root.has_error or (ranges := declarations(clean)) is None or len(ranges) > _MOST_PIECES:
        return [whole]
    parts = [
        Tree(state.parser.parse(text).root_node, text, 0, False, start)
        for (start, _), text in zip(ranges, alone(clean, ranges), strict=True)
    ]
    return parts if sum(errors(part.root) for part in parts) <= errors(whole.root) else [whole]


def _macro_bodies(state: SourceEdits, tree: Tree) -> Iterator[Tree]:
    """Parse bodies of macros with CUDA syntax or `][`, as statements or declarations."""
    for node in walk(tree.root):
        if node.type not in {"preproc_def", "preproc_function_def"}:
            continue
        body = node.child_by_field_name("value")
        if body is None:
            continue
        text = tree.of(body)
        if _HOLDS_CUDA.search(text) is None and ARITHMETIC.search(text) is None:
            continue
        flat = text.replace(b"\\\r\n", b"   ").replace(b"\\\n", b"  ").replace(b"##", b"__")
        named, held = node.child_by_field_name("name"), node.child_by_field_name("parameters")
        macro = tree.of(named) if named is not None else b""
        taken = tuple(tree.of(n) for n in held.named_children if n.type == "identifier") if held is not None else ()
        if b"__shared__" in text:
            flat = _with_extents(flat, extents_by_macro(state.source, macro, taken))
        head, tail = b"void hostcuda_body() {\n", b"\n;}"
        statements = head + flat + tail
        candidates = (
            (state.parser.parse(statements).root_node, statements, len(head)),
            (state.parser.parse(flat).root_node, flat, 0),
        )
        root, parsed, skipped = min(candidates, key=lambda c: (errors(c[0]), -launches(c[0])))
        start, end = body.start_byte + tree.offset, body.end_byte + tree.offset
        yield Tree(root, parsed, start - skipped, True, start, end, macro, taken)


def _with_extents(body: bytes, names: list[bytes]) -> bytes:
    """Replace array extents in a macro's body by brackets of equal length.

    Extents are the variadic arguments, or the named parameters, behind a name.
    """
    meant = rb"|".join(re.escape(name) for name in (_LAST_ARGUMENTS, *names))
    pattern = re.compile(rb"(?<=\w)[ \t]+(?:" + meant + rb")(?=[ \t]*(?:[;,]|$))")
    return pattern.sub(lambda match: b"[" + b"1" * (len(match[0]) - 2) + b"]", body)


# ---- first pass: names


def _collect(state: SourceEdits, tree: Tree) -> None:
    for node in walk(tree.root):
        if node.type == "function_definition" and has_word(tree, node, {b"__global__"}):
            name = function_name(tree, node)
            if name is not None:
                state.kernels[name] = _parameter_kinds(tree, node)
                state.kernel_counts[name] = state.kernel_counts.get(name, 0) + 1
        elif node.type == "declaration" and has_word(tree, node, {b"__global__"}):
            _note_declared_cluster(state, tree, node)
        elif node.type in {"declaration", "field_declaration"} and is_shared(tree, node):
            for declarator in declarators(node):
                name = declared_name(tree, declarator)
                if name is None:
                    continue
                state.shared_names.add(name)
                if tree.in_macro:
                    state.shared_names.update(names_by_macro(state, tree, declarator))
                if not inside_function(node):
                    state.outer_shared[name] = shared_text(state, tree, node, declarator, name)


def _note_declared_cluster(state: SourceEdits, tree: Tree, node: Node) -> None:
    """Note the cluster of a kernel's declaration, which holds for its definition too."""
    cluster = _cluster(_head(state, tree, node, node.end_byte))
    for declarator in declarators(node):
        name = declared_name(tree, declarator)
        if name is not None and cluster:
            state.declared_clusters[name] = cluster


def _parameter_kinds(tree: Tree, node: Node) -> list[bytes]:
    """`*` for each pointer parameter, empty for others."""
    kinds = []
    for parameter in parameters(node):
        declarator = parameter.child_by_field_name("declarator")
        kinds.append(b"*" if declarator is not None and declarator.type == "pointer_declarator" else b"")
    return kinds


# ---- second pass: edits


def _edit(state: SourceEdits, tree: Tree, node: Node, side: CodeSide | None) -> None:
    """Edit a node. `side` is that of the surrounding function, None outside functions."""
    if node.type in {"preproc_def", "preproc_function_def"}:
        return
    if node.type in {"function_definition", "lambda_expression"}:
        side = side_of(tree, state.source, node, side, state.marked)
    if node.type == "function_definition":
        _enter_function(state, tree, node, kernel=has_word(tree, node, {b"__global__"}))
        if side is CodeSide.BOTH and not tree.in_macro and two_versions(tree, node):
            _add_hosts_version(state, tree, node)
    elif node.type == "declaration":
        if is_shared(tree, node):
            edit_shared(state, tree, node)
            return
        if not inside_function(node) and has_word(tree, node, _VARIABLE_WORDS) and not tree.in_macro:
            register_variables(state, tree, node)
    elif node.type == "call_expression":
        if any(child.type == "kernel_call_syntax" for child in node.children):
            start, end = node.start_byte + tree.offset, node.end_byte + tree.offset
            state.replace(start, end, _launch_text(state, tree, node), in_macro=tree.in_macro)
            return
        _edit_call(state, tree, node, side)
        if _is_arithmetic(state, tree, side):
            edit_call(state, tree, node)
    elif node.type in _ARITHMETIC and _is_arithmetic(state, tree, side):
        _ARITHMETIC[node.type](state, tree, node)
    elif node.type == "while_statement":
        _edit_wait(state, tree, node)
    elif node.type == "new_expression" and side in _HEAPS:
        _edit_new(state, tree, node, _HEAPS[side])
    elif node.type == "delete_expression" and side in _HEAPS:
        _edit_delete(state, tree, node, _HEAPS[side])
    elif side is CodeSide.HOST:
        for asked in architecture_words(tree, node):
            state.edits.append(Edit(asked.start_byte + tree.offset, asked.end_byte + tree.offset, _NO_ARCHITECTURE))
    elif node.type == "subscript_expression":
        _edit_subscript(state, tree, node)
    for child in node.children:
        _edit(state, tree, child, side)


def _is_arithmetic(state: SourceEdits, tree: Tree, side: CodeSide | None) -> bool:
    """Whether arithmetic here runs on a GPU, and is not the preprocessor's."""
    return side in _HEAPS and tree.macro not in state.conditional


def _rendered(
    state: SourceEdits, tree: Tree, node: Node, more: Sequence[Edit] = (), side: CodeSide | None = None
) -> bytes:
    """The source text of a node with all edits inside it."""
    inner = SourceEdits(
        source=state.source,
        parser=state.parser,
        kernels=state.kernels,
        declared_clusters=state.declared_clusters,
        shared_names=state.shared_names,
        outer_shared=state.outer_shared,
        counter=state.counter,
        marked=state.marked,
        conditional=state.conditional,
    )
    _edit(inner, tree, node, side)
    state.counter = inner.counter
    start, end = node.start_byte + tree.offset, node.end_byte + tree.offset
    out = bytearray()
    position = start
    for edit in sorted([*inner.edits, *more], key=lambda e: (e.start, e.end)):
        if edit.start < position or edit.end > end:
            continue
        out += state.source[position : edit.start] + edit.text
        position = edit.end
    return bytes(out + state.source[position:end])


def _launch_text(state: SourceEdits, tree: Tree, node: Node) -> bytes:
    function = node.child_by_field_name("function")
    arguments = node.child_by_field_name("arguments")
    syntax = next(child for child in node.children if child.type == "kernel_call_syntax")
    if function is None or arguments is None:
        return state.source[node.start_byte + tree.offset : node.end_byte + tree.offset]
    callee = _rendered(state, tree, function)
    start, end = syntax.start_byte + tree.offset + 3, syntax.end_byte + tree.offset - 3
    configuration = bytes(state.source[start:end])
    kinds = state.kernels.get(tree.of(function).split(b"<")[0].split(b"::")[-1])
    typed: list[Edit] = []
    for i, argument in enumerate(a for a in arguments.named_children if a.type != "comment"):
        literal = tree.of(argument).strip()
        pointer = kinds is not None and i < len(kinds) and kinds[i] == b"*"
        if literal == b"NULL" or (literal == b"0" and pointer):
            typed.append(Edit(argument.start_byte + tree.offset, argument.end_byte + tree.offset, b"nullptr"))
        elif argument.type == "initializer_list":
            at = argument.start_byte + tree.offset
            flat = callee.replace(b"\\\n", b" ").replace(b"\n", b" ")
            typed.append(Edit(at, at, b"::hostcuda::Parameter<%d, decltype(%b)>" % (i, flat)))
    passed = _rendered(state, tree, arguments, typed).strip()[1:-1]
    if passed.replace(b"\\\n", b"").strip():
        passed = b", " + passed
    return (
        b"static_cast<void>(::hostcuda::start(::hostcuda::Configuration("
        + configuration
        + b"), false, "
        + quoted(callee)
        + b", __LINE__, [&](auto&&... hostcuda_a) HOSTCUDA_UNCHECKED { "
        + callee
        + b"(hostcuda_a...); }"
        + passed
        + b"))"
    )


def _enter_function(state: SourceEdits, tree: Tree, node: Node, *, kernel: bool) -> None:
    body = node.child_by_field_name("body")
    if body is None or body.type != "compound_statement":
        return
    text = b""
    bound, cluster = b"0", b""
    if kernel:
        name = function_name(tree, node) or b"?"
        names = []
        for parameter in parameters(node):
            declarator = parameter.child_by_field_name("declarator")
            names.append((declared_name(tree, declarator) if declarator is not None else None) or b"?")
        head = _head(state, tree, node, body.start_byte)
        bounds = _attribute(head, b"__launch_bounds__")
        bound = b"static_cast<int>(" + bounds[0] + b")" if bounds else b"0"
        cluster = _cluster(head) or state.declared_clusters.get(name, b"")
        entered = b", ".join(part for part in (quoted(name), quoted(b",".join(names)), bound, cluster) if part)
        text += b" HOSTCUDA_ENTER(" + entered + b");"
    if state.outer_shared:
        used = {tree.of(n) for n in walk(body) if n.type == "identifier"}
        for name in sorted(used & set(state.outer_shared)):
            text += b" " + state.outer_shared[name]
    if text:
        at = body.start_byte + tree.offset + 1
        state.edits.append(Edit(at, at, text))
    if kernel and not tree.in_macro and at_namespace_scope(node):
        own = function_name(tree, node)
        if own is not None and state.kernel_counts.get(own) == 1:
            registration = (
                b" static ::hostcuda::KernelRegistration hostcuda_k"
                + state.number()
                + b"(reinterpret_cast<const void*>(&"
                + own
                + b"), "
                + bound
                + (b", ::hostcuda::Dim3{" + cluster + b"}" if cluster else b"")
                + b");"
            )
            at = node.end_byte + tree.offset
            state.edits.append(Edit(at, at, registration))


def _add_hosts_version(state: SourceEdits, tree: Tree, node: Node) -> None:
    """Double the body of a function for both sides that asks for the architecture.

    nvcc compiles it twice; here the caller decides at run time which body runs. For constant expressions it is the
    device's.
    """
    body = node.child_by_field_name("body")
    if body is None:
        return
    text = _rendered(state, tree, body, side=CodeSide.HOST)
    at = body.start_byte + tree.offset + 1
    line = b"%d" % (body.start_point[0] + 1)
    state.edits.append(Edit(at, at, b" if (::hostcuda::on_host()) " + text + b"\n#line " + line + b"\n"))


def _head(state: SourceEdits, tree: Tree, node: Node, end: int) -> bytes:
    """The source from the previous declaration's end, with attributes, to `end`."""
    start = node.start_byte
    if node.prev_sibling is not None:
        start = node.prev_sibling.end_byte
    elif node.parent == tree.root and not tree.in_macro:
        start = tree.start
    state.heads.append((start + tree.offset, end + tree.offset))
    return bytes(state.source[start + tree.offset : end + tree.offset])


def _attribute(head: bytes, name: bytes) -> list[bytes]:
    """The arguments of an attribute before a body; empty without it.

    The attribute is blanked for the parser, so the words of the source are read.
    """
    for word, _, after in words(head):
        if word != name:
            continue
        close = balanced(head, after)
        if close is None:
            return []
        inside = head[head.index(b"(", after) + 1 : close - 1].replace(b"\\\n", b" ").replace(b"\n", b" ")
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


def _lost_clusters(state: SourceEdits) -> Iterator[NotTranslated]:
    """Find `__cluster_dims__` in a macro, away from a kernel's head.

    A kernel without its cluster would compute something else, so code that uses the macro does not compile.
    """
    for word, start, end in words(state.source):
        if word == b"__cluster_dims__" and not any(first <= start < last for first, last in state.heads):
            state.edits.append(Edit(start, end, b"hostcuda_cluster_dims_of_no_kernel"))
            yield NotTranslated(line=state.source.count(b"\n", 0, start) + 1, construct="__cluster_dims__ in a macro")


def _cluster(head: bytes) -> bytes:
    """The dimensions of `__cluster_dims__`, as a C++ list; empty without it."""
    return b", ".join(b"static_cast<unsigned>(" + part + b")" for part in _attribute(head, b"__cluster_dims__"))


def _edit_call(state: SourceEdits, tree: Tree, node: Node, side: CodeSide | None) -> None:
    function = node.child_by_field_name("function")
    arguments = node.child_by_field_name("arguments")
    if function is None or arguments is None:
        return
    name = tree.of(function)
    if side in _HEAPS and name in {b"malloc", b"free"}:
        state.replace(
            function.start_byte + tree.offset,
            function.end_byte + tree.offset,
            b"::hostcuda::" + _HEAPS[side] + b"_" + name,
            in_macro=tree.in_macro,
        )
    elif name in _UNTYPED_LAUNCHES and len(arguments.named_children) > _UNTYPED_LAUNCHES[name]:
        first = arguments.named_children[_UNTYPED_LAUNCHES[name]]
        value: Node | None = None
        if first.type == "cast_expression":
            value = first.child_by_field_name("value")
        elif first.type == "call_expression":
            callee = first.child_by_field_name("function")
            inner = first.child_by_field_name("arguments")
            if (
                callee is not None
                and inner is not None
                and tree.of(callee).startswith((b"reinterpret_cast", b"static_cast"))
                and inner.named_children
            ):
                value = inner.named_children[0]
        if value is not None:
            kept = bytes(state.source[value.start_byte + tree.offset : value.end_byte + tree.offset])
            state.replace(first.start_byte + tree.offset, first.end_byte + tree.offset, kept, in_macro=tree.in_macro)


def _edit_new(state: SourceEdits, tree: Tree, node: Node, heap: bytes) -> None:
    """Allocate from this heap, unless it is a placement new."""
    word = next((child for child in node.children if child.type == "new"), None)
    if word is not None and node.child_by_field_name("placement") is None:
        start, end = node.start_byte + tree.offset, word.end_byte + tree.offset
        state.replace(start, end, b"::new (::hostcuda::" + heap + b"_heap)", in_macro=tree.in_macro)


def _edit_delete(state: SourceEdits, tree: Tree, node: Node, heap: bytes) -> None:
    if node.has_error or not node.named_children or node.named_children[-1].end_byte + tree.offset > tree.end:
        return
    value = node.named_children[-1]
    of_arrays = any(child.type == "[" for child in node.children)
    called = b"::hostcuda::" + heap + (b"_delete_array(" if of_arrays else b"_delete(")
    start, at, end = (place + tree.offset for place in (node.start_byte, value.start_byte, value.end_byte))
    state.replace(start, at, called, in_macro=tree.in_macro)
    state.edits.append(Edit(end, end, b")"))


def _edit_subscript(state: SourceEdits, tree: Tree, node: Node) -> None:
    """Take the compiler's check of bounds from a subscript of a `__shared__` array.

    Kernels exceed its inner bounds on purpose (`s[0][t]` for all of `s`); the shadow memory guards the whole of it.
    """
    base = node.child_by_field_name("argument")
    if base is None or node.has_error or base.end_byte + tree.offset > tree.end:
        return
    root: Node | None = base
    while root is not None and root.type == "subscript_expression":
        root = root.child_by_field_name("argument")
    if root is not None and tree.of(root) in state.shared_names:
        start, end = base.start_byte + tree.offset, base.end_byte + tree.offset
        state.edits += [Edit(start, start, b"::hostcuda::without_bounds("), Edit(end, end, b")")]


def _edit_wait(state: SourceEdits, tree: Tree, node: Node) -> None:
    body = node.child_by_field_name("body")
    if body is None:
        return
    empty = (body.type == "expression_statement" and tree.of(body) == b";") or (
        body.type == "compound_statement" and not body.named_children
    )
    if empty and body.end_byte + tree.offset <= tree.end:
        state.replace(
            body.start_byte + tree.offset,
            body.end_byte + tree.offset,
            b"{ ::hostcuda::poll_hint(); }",
            in_macro=tree.in_macro,
        )
