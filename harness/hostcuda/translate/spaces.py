"""Find calls between host and device code that nvcc refuses, and the device code.

Runs in the builder's sandbox; text in, findings out, nothing is executed. g++ compiles both sides as one, so a helper
without `__device__` would pass. Only certain cases are found. A name counts if all its declarations agree, nothing else
has that name, and no macro may replace `__device__`. A call counts if nvcc certainly compiles it. All else passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

from harness.toolchain.cuda_source.noise import without_noise
from harness.toolchain.cuda_source.syntax import Tree, declarators, function_declarator, walk
from harness.toolchain.cuda_source.tokens import words

__all__ = ["Function", "Spaces", "Survey", "WrongCall", "called", "calls", "certain", "is_call", "spaces", "survey"]

_LANGUAGE = Language(tree_sitter_cuda.language())
_MARKS = frozenset({b"__global__", b"__device__", b"__host__"})
_CONSTANT = frozenset({b"constexpr", b"consteval"})
_UNKNOWABLE = re.compile(
    rb"nv_exec_check_disable|hd_warning_disable|force_cuda_host_device|NV_IF_TARGET|nv/target"
    rb"|#[ \t]*define[ \t]+__(?:device|host|global)__|__attribute__[ \t]*\(\([ \t]*(?:device|host|global)\b"
)
"""Text that changes a function's side, or which calls nvcc checks, without the words that are read here."""

_DEFINE = re.compile(rb"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)", re.M)
_LIKE_A_MACRO = re.compile(rb"[A-Z][A-Z0-9_]{2,}")
_DECLARING = frozenset(
    {
        "alias_declaration",
        "array_declarator",
        "attributed_declarator",
        "declaration",
        "enumerator",
        "for_range_loop",
        "init_declarator",
        "lambda_capture_initializer",
        "lambda_capture_specifier",
        "namespace_alias_definition",
        "optional_parameter_declaration",
        "parameter_declaration",
        "parenthesized_declarator",
        "pointer_declarator",
        "preproc_params",
        "qualified_identifier",
        "reference_declarator",
        "structured_binding_declarator",
        "template_parameter_list",
        "type_definition",
        "using_declaration",
        "variadic_declarator",
        "variadic_parameter_declaration",
    }
)
"""Parents of an identifier that may name something declared here or elsewhere."""

_SCOPES = frozenset(
    {
        "declaration_list",
        "linkage_specification",
        "namespace_definition",
        "preproc_elif",
        "preproc_elifdef",
        "preproc_else",
        "preproc_if",
        "preproc_ifdef",
    }
)

_NOT_FOR_SURE = frozenset(
    {
        "ERROR",
        "alignof_expression",
        "class_specifier",
        "decltype",
        "gnu_asm_expression",
        "lambda_expression",
        "noexcept",
        "requires_clause",
        "requires_expression",
        "sizeof_expression",
        "static_assert_declaration",
        "struct_specifier",
        "template_argument_list",
    }
)
"""A call inside one of these is not evaluated, or not by the function around it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongCall:
    """A refused call; line and column are 1-based.

    `by_host`: host code calls a device function; otherwise the reverse.
    """

    line: int
    column: int
    callee: str
    by_host: bool
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spaces:
    """Wrong calls, and the lines of functions compiled for the device.

    `device_lines` has their first and last lines.
    """

    wrong_calls: tuple[WrongCall, ...] = ()
    device_lines: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function. `marks` are the words that say where it runs.

    `plain`: its head contains no possible macro for such words, and no preprocessor condition surrounds it.
    """

    name: bytes
    marks: frozenset[bytes]
    plain: bool
    template: bool
    constant: bool
    body: Node | None
    node: Node

    @property
    def host(self) -> bool:
        return self.plain and not self.constant and self.marks <= {b"__host__"}

    @property
    def device(self) -> bool:
        return self.plain and not self.constant and self.marks == {b"__device__"}

    @property
    def kernel(self) -> bool:
        return self.plain and self.marks == {b"__global__"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """A parsed source.

    `data` is its text, `functions` those at namespace scope. `by_name` has those whose name nothing else has. `reached`
    are the ids of functions that nvcc certainly compiles for the device. `unsure` are ambiguous names.
    """

    tree: Tree
    data: bytes
    macros: frozenset[bytes]
    functions: tuple[Function, ...]
    by_name: dict[bytes, list[Function]]
    reached: set[int]
    unsure: set[bytes]

    def device_code(self) -> Iterator[Function]:
        """The functions certainly compiled for the device that parse without errors."""
        return (f for f in self.functions if f.node.id in self.reached and not f.node.has_error)


def survey(source: str) -> Survey | None:
    """Parse a source; None if words outside this module's view may decide."""
    data = source.encode()
    if _UNKNOWABLE.search(data) is not None:
        return None
    clean = without_noise(data)
    tree = Tree(Parser(_LANGUAGE).parse(clean).root_node, clean, 0, False)
    macros = frozenset(_DEFINE.findall(data))
    functions, heads = _functions(tree, data, macros)
    unsure = _unsure(tree, heads) | macros
    by_name: dict[bytes, list[Function]] = {}
    for function in functions:
        if function.name not in unsure:
            by_name.setdefault(function.name, []).append(function)
    return Survey(
        tree=tree,
        data=data,
        macros=macros,
        functions=tuple(functions),
        by_name=by_name,
        reached=_reached(tree, functions, by_name, macros),
        unsure=unsure,
    )


def spaces(read: Survey | None) -> Spaces:
    """The certain errors of a CUDA source, and where its device code is."""
    if read is None:
        return Spaces()
    tree, macros, by_name = read.tree, read.macros, read.by_name
    defined = {name for name, held in by_name.items() if any(f.body is not None for f in held)}
    host = {name for name in defined if all(f.host for f in by_name[name])}
    device = {name for name in defined if all(f.device for f in by_name[name])}
    wrong = []
    for function in read.functions:
        if function.node.has_error:
            continue
        if function.node.id in read.reached:
            kind = "__global__" if function.kernel else "__device__"
            wrong += [
                _wrong(function, name, node, "__host__", kind)
                for name, node in calls(tree, function, macros)
                if name in host
            ]
        elif function.host and not function.template:
            wrong += [
                _wrong(function, name, node, "__device__", "__host__")
                for name, node in calls(tree, function, macros)
                if name in device
            ]
    lines = [
        (f.node.start_point[0] + 1, f.node.end_point[0] + 1)
        for f in read.functions
        if f.body is not None
        and f.plain
        and not f.node.has_error
        and f.marks & {b"__global__", b"__device__"}
        and (not f.template or f.node.id in read.reached)
    ]
    return Spaces(wrong_calls=tuple(sorted(wrong, key=lambda w: (w.line, w.column))), device_lines=tuple(lines))


def _wrong(caller: Function, callee: bytes, node: Node, of: str, by: str) -> WrongCall:
    name = callee.decode(errors="replace")
    return WrongCall(
        line=node.start_point[0] + 1,
        column=node.start_point[1] + 1,
        callee=name,
        by_host=by == "__host__",
        message=f'calling a {of} function("{name}") from a {by} function("{caller.name.decode(errors="replace")}") '
        "is not allowed",
    )


def _functions(tree: Tree, data: bytes, macros: frozenset[bytes]) -> tuple[list[Function], set[int]]:
    """Functions declared or defined at namespace scope, and their declarators' ids."""
    found: list[Function] = []
    heads: set[int] = set()
    waiting = [(tree.root, False)]
    while waiting:
        scope, conditional = waiting.pop()
        conditional = conditional or scope.type.startswith("preproc_")
        before: Node | None = None
        for node in scope.children:
            if node.type in _SCOPES:
                waiting.append((node, conditional))
            inner = node
            if node.type == "template_declaration":
                inner = next((c for c in node.children if c.type in {"function_definition", "declaration"}), node)
            if inner.type in {"function_definition", "declaration"}:
                start = before.end_byte if before is not None else scope.start_byte
                understood = not conditional and (before is None or before.type != "ERROR")
                function = _function(tree, data, macros, node, inner, start, understood=understood)
                declarator = function_declarator(inner)
                if function is not None and declarator is not None:
                    found.append(function)
                    heads.add(declarator.id)
            before = node
    return sorted(found, key=lambda f: f.node.start_byte), heads


def _function(
    tree: Tree, data: bytes, macros: frozenset[bytes], outer: Node, node: Node, start: int, *, understood: bool
) -> Function | None:
    declarator = function_declarator(node)
    name = declarator.child_by_field_name("declarator") if declarator is not None else None
    if declarator is None or name is None or name.type != "identifier":
        return None
    if node.type == "declaration" and len(declarators(node)) != 1:
        return None
    body = node.child_by_field_name("body")
    end = body.start_byte if body is not None else node.end_byte
    template = outer.child_by_field_name("parameters") if outer.type == "template_declaration" else None
    front = data[start : template.start_byte] if template is not None else b""
    front += b" " + data[template.end_byte if template is not None else start : name.start_byte]
    held = declarator.child_by_field_name("parameters")
    tail = data[held.end_byte if held is not None else declarator.end_byte : end]
    said = {word for part in (front, tail) for word, _, _ in words(part)}
    odd = any(word in macros or _LIKE_A_MACRO.fullmatch(word) for word in said)
    return Function(
        name=tree.of(name),
        marks=frozenset(said & _MARKS),
        plain=understood and not odd and (body is None or body.type == "compound_statement"),
        template=outer.type == "template_declaration",
        constant=bool(said & _CONSTANT),
        body=body,
        node=node,
    )


def _unsure(tree: Tree, heads: set[int]) -> set[bytes]:
    """Names that may also mean a variable, a parameter, a type or a member.

    Words of unparsed text count too.
    """
    found: set[bytes] = set()
    for parent in walk(tree.root):
        if parent.type == "ERROR":
            found.update(word for word, _, _ in words(tree.of(parent)))
        declaring = parent.type in _DECLARING or (parent.type == "function_declarator" and parent.id not in heads)
        for node in parent.children:
            if (
                node.type == "type_identifier"
                or (node.type == "field_identifier" and parent.type != "field_expression")
                or (node.type == "identifier" and declaring)
            ):
                found.add(tree.of(node))
            elif node.type == "template_function" and parent.type == "function_declarator":
                found.update(word for word, _, _ in words(tree.of(node)))
    return found


def _reached(
    tree: Tree, functions: list[Function], by_name: dict[bytes, list[Function]], macros: frozenset[bytes]
) -> set[int]:
    """Functions that nvcc certainly compiles for the device.

    These are kernels, launched kernel templates, and the functions they call; nvcc does not check uncalled ones.
    """
    launched = {
        name
        for f in functions
        if not f.template and not f.marks & {b"__global__", b"__device__"}
        for name in _launched(tree, f)
    }
    waiting = [f for f in functions if f.kernel and f.body is not None and (not f.template or f.name in launched)]
    reached: set[int] = set()
    while waiting:
        function = waiting.pop()
        if function.node.id in reached or function.node.has_error:
            continue
        reached.add(function.node.id)
        for name, _ in calls(tree, function, macros):
            held = [f for f in by_name.get(name, ()) if f.body is not None]
            if len(held) == 1 and held[0].device:
                waiting.append(held[0])
    return reached


def _launched(tree: Tree, function: Function) -> Iterator[bytes]:
    if function.body is None:
        return
    for node in walk(function.body):
        if node.type == "call_expression" and any(child.type == "kernel_call_syntax" for child in node.children):
            name = called(tree, node)
            if name is not None:
                yield name


def certain(tree: Tree, function: Function, macros: frozenset[bytes]) -> Iterator[Node]:
    """The nodes of a function's body that are certainly compiled and evaluated."""
    waiting = [function.body] if function.body is not None else []
    while waiting:
        node = waiting.pop()
        if node.type in _NOT_FOR_SURE or node.type.startswith("preproc_"):
            continue
        if node.type == "if_statement" and any(child.type == "constexpr" for child in node.children):
            continue
        if is_call(node):
            name = called(tree, node)
            if name is not None and (name in macros or name == b"typeid" or _LIKE_A_MACRO.fullmatch(name)):
                continue
        yield node
        waiting.extend(node.children)


def calls(tree: Tree, function: Function, macros: frozenset[bytes]) -> Iterator[tuple[bytes, Node]]:
    """Calls by a bare name that are certainly compiled with the function."""
    for node in certain(tree, function, macros):
        name = called(tree, node) if is_call(node) else None
        if name is not None:
            yield name, node


def is_call(node: Node) -> bool:
    """Whether it is a call and not a launch."""
    return node.type == "call_expression" and not any(child.type == "kernel_call_syntax" for child in node.children)


def called(tree: Tree, call: Node) -> bytes | None:
    """The bare name that is called, or None."""
    function = call.child_by_field_name("function")
    if function is not None and function.type == "template_function":
        function = function.child_by_field_name("name")
    return tree.of(function) if function is not None and function.type == "identifier" else None
