"""Divide a CUDA source into a device part for nvcc and a host part for g++.

Every line keeps its number in both parts. The device part loses host functions, host variables and torch's headers. The
host part loses device functions, and its kernels become stubs that launch (`stubs`). A source that can't be divided
safely raises `Unsplittable`. See guides/design/split_builds.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

from harness.toolchain.cuda_source.noise import without_noise
from harness.toolchain.cuda_source.syntax import Tree, declarators, declared_name, function_name, walk
from harness.toolchain.cuda_source.tokens import balanced, blank, code, words
from harness.toolchain.split.stubs import Unsplittable, stub

UNNAMED = b"harness_unnamed"
"""Name given to unnamed namespaces, so that both compilers mangle the names in them alike."""

_LANGUAGE = Language(tree_sitter_cuda.language())
_CUDA_WORDS = frozenset({b"__global__", b"__device__", b"__host__", b"__shared__", b"__constant__", b"__managed__"})
_DEVICE_VARIABLE = {b"__device__", b"__constant__"}
_BOUNDS = {b"__launch_bounds__", b"__cluster_dims__", b"__maxnreg__", b"__block_size__"}
"""Attributes with arguments that only nvcc accepts."""
_TELLS_COMPILERS_APART = re.compile(rb"\b(__CUDACC\w*|__NVCC__|__CUDA_ARCH_LIST__|__CUDA_ARCH_FEAT\w*)\b")
_CONDITION = re.compile(rb"^[ \t]*#[ \t]*(?:el)?if(?:n?def)?\b(?P<what>(?:\\\n|[^\n])*)", re.MULTILINE)
_TORCHS_MACRO = re.compile(rb"\b(TORCH|AT|C10|CAFFE2|USE|PYBIND11)_\w+")
_OF_TORCH = re.compile(
    rb"\b(torch|at|c10|caffe2|pybind11|py|ska)\s*::|\bnamespace\s+(torch|at|c10|pybind11)\b|\bPy[A-Z]\w+|\b(TORCH|C10|AT)_\w+"
)
_OF_DEVICE = re.compile(rb"\b(cooperative_groups|nvcuda|wmma|cg)\b")
_TORCHS_HEADER = re.compile(rb"^<(torch|ATen|c10|caffe2|pybind11)/|^<Python\.h>")
_DEVICE_HEADER = re.compile(
    rb"^<(cooperative_groups(\.h|/)|mma\.h|cuda_pipeline|cuda_awbarrier|cuda/|curand_kernel\.h|sm_\d)"
)
_LAUNCHING_HEADER = re.compile(rb"^<(cub|thrust|cutlass|cute|raft|cuda/experimental)/|_device\.h>")
"""Headers whose functions launch kernels, or whose kernels are not in this source."""

_SCOPES = frozenset(
    {"translation_unit", "declaration_list", "preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif"}
)
_STRUCTS = frozenset({"struct_specifier", "class_specifier", "union_specifier"})
_KEPT_IN_BOTH = frozenset({"preproc_call", "comment", "enum_specifier", "concept_definition", ";"})
_SIMPLE = frozenset(
    {
        "type_definition",
        "alias_declaration",
        "using_declaration",
        "namespace_alias_definition",
        "static_assert_declaration",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Both parts, each with as many lines as the source.

    Attributes:
        device: The part for nvcc.
        host: The part for g++.
        templates: True if the compiled host part must say which instances of kernel templates the device part needs.
        variables: Device variables that host code names; True marks `__constant__`.
    """

    device: str
    host: str
    templates: bool
    variables: dict[str, bool]


def split(source: str) -> Parts:
    """Divide a source.

    Raises:
        Unsplittable: The source can't be divided safely.
    """
    data = source.encode("utf-8", "surrogatepass")
    if (found := _TELLS_COMPILERS_APART.search(code(data))) is not None:
        raise Unsplittable(data, found.start(), f"{found[0].decode()} distinguishes compilers")
    for condition in _CONDITION.finditer(data):
        if (found := _TORCHS_MACRO.search(condition["what"])) is not None:
            raise Unsplittable(data, condition.start(), f"#if depends on torch's macro {found[0].decode()}")
    return _Splitter(data).parts()


@dataclass(frozen=True, slots=True)
class _Edit:
    start: int
    end: int
    text: bytes


class _Splitter:
    """Collects the edits of one source."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        clean = without_noise(data)
        self._tree = Tree(Parser(_LANGUAGE).parse(clean).root_node, clean, data)
        self._device: list[_Edit] = []
        self._host: list[_Edit] = []
        self._launches = 0
        self._seen = 0
        self._templates = False
        self._kernels: set[bytes] = set()
        self._host_words: set[bytes] = set()
        self._variables: list[tuple[Node, bytes, bool]] = []

    def parts(self) -> Parts:
        self._scope(self._tree.root)
        written = code(self._data).count(b"<<<")
        if written != self._launches:
            raise Unsplittable(self._data, 0, f"{written - self._launches} kernel launches outside of host functions")
        # A kernel that is not recognised here would be compiled for the host and run there.
        unseen = sum(word == b"__global__" for word, _, _ in words(self._data)) - self._seen
        if unseen:
            raise Unsplittable(self._data, 0, f"{unseen} kernels in an unsupported form")
        if not self._kernels:
            raise Unsplittable(self._data, 0, "no kernels found")
        variables = dict(self._shared_variables())
        self._blank_bounds()
        return Parts(
            device=self._applied(self._device),
            host=self._applied(self._host),
            templates=self._templates,
            variables=variables,
        )

    def _scope(self, scope: Node) -> None:
        for node in scope.children:
            if node.is_named or node.type == ";":
                self._visit(node, node)

    def _visit(self, node: Node, outer: Node) -> None:
        """Record the edits for one declaration at namespace scope.

        `outer` is the node that includes its template parameters.
        """
        kind = node.type
        if kind in _SCOPES:
            self._scope(node)
        elif kind == "namespace_definition":
            self._namespace(node)
        elif kind == "linkage_specification":
            body = node.child_by_field_name("body")
            if body is not None:
                self._visit(body, outer if body.type == "declaration_list" else node)
        elif kind == "template_declaration":
            inner = node.named_children[-1]
            if inner.type in {"template_declaration", "requires_clause"}:
                raise self._refusal(node, "nested templates")
            self._visit(inner, node)
        elif kind == "function_definition":
            self._function(node, outer)
        elif kind == "declaration":
            self._declaration(node, outer)
        elif kind in _STRUCTS:
            self._struct(node, outer)
        elif kind == "preproc_include":
            self._include(node)
        elif kind in {"preproc_def", "preproc_function_def"}:
            self._macro(node)
        elif kind in _SIMPLE:
            self._struct(node, outer)
            if _OF_DEVICE.search(self._tree.of(node)):
                self._drop(self._host, outer)
        elif kind == "template_instantiation":
            # Also for kernels: the device part gets all instances that the compiled host part uses.
            self._seen += b"__global__" in self._words_of(node)
            self._drop(self._device, outer)
        elif kind == "expression_statement":
            self._drop(self._device, outer)
        elif kind not in _KEPT_IN_BOTH and not self._is_condition(node):
            raise self._refusal(node, f"unsupported syntax ({kind})")

    def _is_condition(self, node: Node) -> bool:
        """Whether a node is the condition of an `#if`, not part of its body."""
        parent = node.parent
        if parent is None or not parent.type.startswith("preproc_"):
            return False
        return any(parent.child_by_field_name(name) == node for name in ("name", "condition"))

    def _namespace(self, node: Node) -> None:
        if node.child_by_field_name("name") is None:
            word = next(child for child in node.children if child.type == "namespace")
            for edits in (self._device, self._host):
                edits.append(_Edit(word.start_byte, word.end_byte, b"inline namespace " + UNNAMED))
        body = node.child_by_field_name("body")
        if body is not None:
            self._scope(body)

    def _function(self, node: Node, outer: Node) -> None:
        of = self._words_of(node)
        if b"__global__" in of:
            self._kernel(node, outer)
        elif b"__device__" in of:
            if b"__host__" not in of and b"constexpr" not in of:
                self._drop(self._host, outer)
        else:
            self._host_function(node, outer, keep=b"constexpr" in of and not _OF_TORCH.search(self._tree.of(node)))

    def _kernel(self, node: Node, outer: Node) -> None:
        body = node.child_by_field_name("body")
        name = self._plain_name(node)
        if body is None or body.type != "compound_statement" or name is None:
            raise self._refusal(node, "a kernel in an unsupported form")
        self._kernels.add(name)
        self._seen += 1
        self._unstatic(node, (self._device, self._host))
        template = outer if outer.type == "template_declaration" else None
        self._templates = self._templates or template is not None
        text, named = stub(self._data, self._tree, node, template)
        for at, inserted in named:
            self._host.append(_Edit(at, at, inserted))
        self._replace(self._host, body, text)

    def _host_function(self, node: Node, outer: Node, *, keep: bool) -> None:
        body = node.child_by_field_name("body")
        if body is not None:
            for word, start, _ in words(self._data[body.start_byte : body.end_byte]):
                if word in _CUDA_WORDS:
                    raise Unsplittable(self._data, body.start_byte + start, f"{word.decode()} in a host function")
                self._host_words.add(word)
            self._rewrite_launches(body)
        if not keep:
            self._drop(self._device, outer)

    def _rewrite_launches(self, body: Node) -> None:
        for node in walk(body):
            if node.type != "kernel_call_syntax":
                continue
            call = node.parent
            function = None if call is None else call.child_by_field_name("function")
            if call is None or function is None or call.type != "call_expression":
                raise self._refusal(node, "a kernel launch in an unsupported form")
            configuration = self._data[node.start_byte + 3 : node.end_byte - 3]
            if b"<<<" in configuration:
                raise self._refusal(node, "a kernel launch in another launch's configuration")
            self._launches += 1
            opening = b"(::__cudaPushCallConfiguration(" + configuration + b") ? (void)0 : "
            self._host.append(_Edit(function.start_byte, function.start_byte, opening))
            self._host.append(_Edit(node.start_byte, node.end_byte, b""))
            self._host.append(_Edit(call.end_byte, call.end_byte, b")"))

    def _declaration(self, node: Node, outer: Node) -> None:
        tree = self._tree
        of = self._words_of(node)
        if b"__managed__" in of:
            raise self._refusal(node, "managed memory")
        inner = next((child for child in node.children if child.type in _STRUCTS), None)
        if inner is not None and inner.child_by_field_name("body") is not None:
            self._members(inner)
        is_function = any(_declares_function(item) for item in declarators(node))
        if b"__global__" in of:
            self._seen += 1
            self._unstatic(node, (self._device, self._host))
        elif b"__shared__" in of:
            pass
        elif of & _DEVICE_VARIABLE and not is_function:
            if outer.type == "template_declaration" or b"extern" in of:
                raise self._refusal(node, "a device variable that is a template or is defined elsewhere")
            for declarator in declarators(node):
                name = declared_name(tree, declarator)
                if name is None:
                    raise self._refusal(node, "a device variable in an unsupported form")
                self._variables.append((node, name, b"__constant__" in of))
                if not of & {b"const", b"constexpr"}:
                    self._uninitialise(declarator)
        elif b"__device__" in of:
            if b"__host__" not in of:
                self._drop(self._host, outer)
        else:
            text = tree.of(node)
            constant = b"constexpr" in of or (b"const" in of and b"std::" not in text)
            if is_function or not constant or _OF_TORCH.search(text):
                self._drop(self._device, outer)

    def _uninitialise(self, declarator: Node) -> None:
        """Remove a device variable's initialiser from the host part.

        The host's copy is only an address, and the initialiser may call device functions.
        """
        if declarator.type != "init_declarator":
            return
        inner, value = declarator.child_by_field_name("declarator"), declarator.child_by_field_name("value")
        if inner is None or value is None:
            return
        open_ended = [node for node in walk(inner) if node.type == "array_declarator" and not _sized(node)]
        if len(open_ended) > 1 or (open_ended and value.type != "initializer_list"):
            return
        for node in open_ended:
            count = sum(item.type != "comment" for item in value.named_children)
            self._host.append(_Edit(node.end_byte - 1, node.end_byte - 1, b"%d" % count))
        lines = self._data.count(b"\n", inner.end_byte, declarator.end_byte)
        self._host.append(_Edit(inner.end_byte, declarator.end_byte, b"\n" * lines))

    def _shared_variables(self) -> Iterator[tuple[str, bool]]:
        """Yield device variables that host code names; both parts must mangle them alike."""
        for node, name, constant in self._variables:
            if name in self._host_words:
                if self._words_of(node) & {b"const", b"constexpr"}:
                    raise self._refusal(node, "a constant device variable that host code names")
                self._unstatic(node, (self._device, self._host))
                yield name.decode(), constant

    def _struct(self, node: Node, outer: Node) -> None:
        if _OF_TORCH.search(self._tree.of(node)):
            self._drop(self._device, outer)
        for child in walk(node):
            if child.type in _STRUCTS:
                self._members(child)
                break

    def _members(self, struct: Node) -> None:
        """Replace the bodies of device-only member functions in the host part."""
        for node in walk(struct):
            if node.type != "function_definition":
                continue
            of = self._words_of(node)
            body = node.child_by_field_name("body")
            if b"__device__" in of and not of & {b"__host__", b"constexpr"} and body is not None:
                self._replace(self._host, body, b"{ ::harness_split::never(); }")

    def _include(self, node: Node) -> None:
        path = node.child_by_field_name("path")
        name = b"" if path is None else self._tree.of(path)
        if name.startswith(b'"') and b"." in name:
            name = b"<" + name[1:-1] + b">"
            if not (_TORCHS_HEADER.search(name) or re.fullmatch(rb"<(cuda|device|vector|math)\w*\.h>", name)):
                raise self._refusal(node, "the author's own header")
        if _LAUNCHING_HEADER.search(name):
            raise self._refusal(node, f"{name.decode()}, which brings its own kernels")
        if _TORCHS_HEADER.search(name):
            self._drop(self._device, node)
        elif _DEVICE_HEADER.search(name):
            self._drop(self._host, node)

    def _macro(self, node: Node) -> None:
        body = node.child_by_field_name("value")
        text = b"" if body is None else self._tree.of(body)
        if b"<<<" in text or any(word in _CUDA_WORDS for word, _, _ in words(text)):
            raise self._refusal(node, "a macro that contains CUDA syntax")

    # -- helpers ---------------------------------------------------------------------------------------------

    def _words_of(self, node: Node) -> set[bytes]:
        wanted = _CUDA_WORDS | {b"constexpr", b"const", b"extern", b"static"}
        found = set()
        for child in node.children:
            text = self._tree.of(child)
            if text in wanted:
                found.add(text)
        return found

    def _plain_name(self, node: Node) -> bytes | None:
        name = function_name(self._tree, node)
        return None if name is None else name.partition(b"<")[0].rpartition(b"::")[2].strip()

    def _unstatic(self, node: Node, parts: tuple[list[_Edit], ...]) -> None:
        for child in node.children:
            if self._tree.of(child) == b"static":
                for edits in parts:
                    edits.append(_Edit(child.start_byte, child.end_byte, b""))

    def _drop(self, edits: list[_Edit], node: Node) -> None:
        self._replace(edits, node, b"")

    def _replace(self, edits: list[_Edit], node: Node, text: bytes) -> None:
        lines = self._data.count(b"\n", node.start_byte, node.end_byte)
        edits.append(_Edit(node.start_byte, node.end_byte, text + b"\n" * lines))

    def _blank_bounds(self) -> None:
        """Remove `__launch_bounds__` and the like, which g++ does not know."""
        for word, start, end in words(self._data):
            if word in _BOUNDS and (close := balanced(self._data, end)) is not None:
                blanked = bytearray(self._data[start:close])
                blank(blanked, 0, len(blanked))
                self._host.append(_Edit(start, close, bytes(blanked)))

    def _refusal(self, node: Node, what: str) -> Unsplittable:
        return Unsplittable(self._data, node.start_byte, what)

    def _applied(self, edits: list[_Edit]) -> str:
        """Apply the edits to the source; an edit inside another one is dropped."""
        out = bytearray()
        position = 0
        for edit in sorted(edits, key=lambda item: (item.start, item.start != item.end, -item.end)):
            if edit.start < position or (edit.start == edit.end < position):
                continue
            out += self._data[position : edit.start] + edit.text
            position = edit.end
        out += self._data[position:]
        return bytes(out).decode("utf-8", "surrogatepass")


def _declares_function(declarator: Node) -> bool:
    """Whether this declares a function, not a variable that holds one."""
    node: Node | None = declarator
    while node is not None and node.type in {"pointer_declarator", "reference_declarator"}:
        node = node.child_by_field_name("declarator") or next(iter(node.named_children), None)
    if node is None or node.type != "function_declarator":
        return False
    name = node.child_by_field_name("declarator")
    return name is None or name.type != "parenthesized_declarator"


def _sized(array: Node) -> bool:
    return array.child_by_field_name("size") is not None
