"""Screen C++ and CUDA.

tree-sitter parses the code, also if it is broken, and rules match nodes.

Nothing is recursive, so deeply nested code can't exhaust the stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

from harness.catalog.screen.rules import names, triggers

_WORDS = triggers("cpp")
_TYPES = triggers("cpp_types")
_CALLED = triggers("cpp_calls")
_ASSEMBLY = triggers("assembly")
_NAMESPACED_ONLY = names("namespaced_only")
_LIBRARY_PREFIXES = names("library_prefixes")
_LIBRARY_OPERATIONS = names("library_operations")
_JOINING = names("cpp_joins")

_LANGUAGE = Language(tree_sitter_cuda.language())
_NAMES = frozenset({"identifier", "field_identifier", "type_identifier", "namespace_identifier"})
_WORD = re.compile(rb"[A-Za-z_]\w*")
_KEPT_TYPE = re.compile(rb"Tensor|map\s*<|vector\s*<|deque\s*<|list\s*<|optional\s*<|CUDAGraph|unique_ptr|shared_ptr")
_INTEGER = re.compile(rb"\d+")
_LIBRARY_FUNCTION = re.compile(
    r"cuda[A-Z]\w*|cu(?:Event|Stream|Launch|Ctx|Mem)\w*|nvml\w*|cupti\w*|clock_gettime$|gettimeofday$"
)
"""Functions of libraries, which a solution has no reason to define."""

_LOOKUPS = frozenset({"find", "count", "contains", "emplace", "insert", "try_emplace", "at"})

MAX_LOOKED_AT = 4096
"""Most bytes of one node's text to examine."""

MIN_CHECKED = 8
"""Least number that hard-codes a size if the code compares a size with it."""

MIN_CONSTANT = 2048
"""Least named constant that may be a workload's size; smaller ones may be tile sizes."""

Found = list[tuple[str, int]]


@dataclass(slots=True)
class CudaFindings:
    """Findings in one text of C++, and facts that rules about the whole file need.

    Attributes:
        found: Rule and line (from 0, in the text) of each finding.
        kernels: Names of `__global__` functions, with the lines of their definitions.
        mentioned: Number of occurrences of each name, without its declarations.
        library_lines: Lines that call a library.
        joined: Whether the text has a name that makes a stream or the host wait.
        broken_lines: Lines that the parser does not understand.
    """

    found: Found = field(default_factory=list)
    kernels: dict[str, int] = field(default_factory=dict)
    mentioned: dict[str, int] = field(default_factory=dict)
    library_lines: list[int] = field(default_factory=list)
    joined: bool = False
    broken_lines: tuple[int, ...] = ()


def cuda_findings(text: str) -> CudaFindings:
    """Screen one text of C++. Never raises, for any string."""
    data = text.encode("utf-8", "replace")
    root = Parser(_LANGUAGE).parse(data).root_node
    result = CudaFindings()
    held = _CudaPass(data, result)
    held.run(root)
    return result


def _walk(root: Node) -> Iterator[Node]:
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


class _CudaPass:
    def __init__(self, data: bytes, result: CudaFindings) -> None:
        self._data = data
        self._result = result
        self._broken: list[int] = []
        self._words: dict[str, int] = {}
        self._updated: set[bytes] = set()
        self._static_numbers: dict[bytes, Node] = {}

    def text(self, node: Node) -> bytes:
        """Return a node's source, at most `MAX_LOOKED_AT` bytes.

        Nodes nest, and the time must stay linear.
        """
        return self._data[node.start_byte : min(node.end_byte, node.start_byte + MAX_LOOKED_AT)]

    def note(self, rule: str, node: Node) -> None:
        self._result.found.append((rule, node.start_point[0]))

    def run(self, root: Node) -> None:
        declared: dict[str, int] = {}
        for node in _walk(root):
            kind = node.type
            if kind == "ERROR" or node.is_missing:
                self._broken.append(node.start_point[0])
            if kind in _NAMES:
                self._word(self.text(node), node)
            elif kind == "preproc_arg":
                for match in _WORD.finditer(self.text(node)):
                    self._word(match[0], node)
            elif kind == "call_expression":
                self._call(node)
            elif kind == "gnu_asm_expression":
                self._assembly(node)
            elif kind == "string_literal":
                self._string(node)
            elif kind == "kernel_call_syntax":
                self._launch(node)
            elif kind == "declaration":
                self._declaration(node)
            elif kind == "function_definition":
                self._definition(node, declared)
            elif kind == "catch_clause":
                if b"throw" not in self.text(node):
                    self.note("falls_back", node)
            elif kind == "binary_expression":
                self._comparison(node)
            elif kind == "subscript_expression":
                if any(b"data_ptr" in self.text(item) for item in node.children[1:]):
                    self.note("cache_by_address", node)
            elif kind == "preproc_def":
                self._constant(node, self.text(node).partition(b" ")[2])
            elif kind in ("update_expression", "assignment_expression"):
                self._update(node)
            elif kind == "attribute_specifier" and b"constructor" in self.text(node):
                self.note("native_tricks", node)
        for name, where in self._static_numbers.items():
            if name in self._updated:
                self.note("call_counter", where)
        self._finish(declared)

    def _finish(self, declared: dict[str, int]) -> None:
        result = self._result
        result.joined = any(name in self._words for name in _JOINING)
        result.broken_lines = tuple(self._broken[:16])
        result.mentioned = {name: self._words.get(name, 0) - declared.get(name, 0) for name in self._words}

    def _word(self, word: bytes, node: Node) -> None:
        name = word.decode("utf-8", "replace")
        self._words[name] = self._words.get(name, 0) + 1
        rule = _WORDS.get(name)
        if name in _TYPES and node.type == "type_identifier":
            rule = _TYPES[name]
        if rule is not None:
            self.note(rule, node)
        if name.startswith(_LIBRARY_PREFIXES):
            self._library(node)

    def _library(self, node: Node) -> None:
        self.note("vendor_library", node)
        self._result.library_lines.append(node.start_point[0])

    def _call(self, node: Node) -> None:
        function = node.child_by_field_name("function")
        if function is None:
            return
        # Split `at::matmul`, `x.matmul` or `f<int>` into qualifiers and the last name.
        called = re.sub(rb"\s+", b"", self._data[max(function.start_byte, function.end_byte - 200) : function.end_byte])
        base = called.partition(b"<")[0] if not called.startswith(b"<") else called
        pieces = re.split(rb"::|\.|->", base)
        name = pieces[-1].decode("utf-8", "replace")
        scoped = len(pieces) > 1
        rule = _CALLED.get(name)
        method = b"." in base or b"->" in base
        bare = name in _NAMESPACED_ONLY and (not scoped or method)
        own = method and rule in ("descriptors", "file_access", "process_exit")  # a method of the solution's object
        if rule is not None and not bare and not own:
            self.note(rule, node)
        if (
            scoped
            and name in _LIBRARY_OPERATIONS
            and (pieces[0] in (b"at", b"torch") or name in ("matmul", "mm", "bmm"))
        ):
            self._library(node)
        if base.startswith((b"cub::", b"thrust::", b"cutlass::")):
            self._library(node)
        arguments = node.child_by_field_name("arguments")
        keyed = arguments is not None and name in _LOOKUPS and b"data_ptr" in self.text(arguments)
        if keyed:
            self.note("cache_by_address", node)

    def _assembly(self, node: Node) -> None:
        text = self.text(node).decode("utf-8", "replace")
        for mark, rule in _ASSEMBLY.items():
            if mark in text:
                self.note(rule, node)

    def _string(self, node: Node) -> None:
        text = self.text(node)
        if text.startswith((b'"/proc', b'"/dev/', b'"/sys/')):
            self.note("process_memory", node)
        if b"LD_PRELOAD" in text:
            self.note("native_tricks", node)

    def _launch(self, node: Node) -> None:
        sizes = [self.text(item) for item in node.children if item.type not in ("<<<", ">>>", ",")][:2]
        if len(sizes) == 2 and all(size.strip() in (b"1", b"dim3(1)", b"dim3(1,1,1)") for size in sizes):
            self.note("tiny_launch", node)

    def _declaration(self, node: Node) -> None:
        words = {self.text(item) for item in node.children}
        if {b"constexpr", b"const", b"__constant__", b"__shared__", b"extern"} & words:
            if b"constexpr" in words or b"const" in words:
                self._constant(node, self.text(node))
            return
        outside = node.parent is not None and node.parent.type in ("translation_unit", "declaration_list")
        static = b"static" in words or b"thread_local" in words
        if b"__device__" in words:
            self.note("static_tensor", node)
            return
        if not (static or outside) or any(item.type == "function_declarator" for item in _walk(node)):
            return
        kind = node.child_by_field_name("type")
        text = self.text(kind) if kind is not None else b""
        pointer = any(item.type == "pointer_declarator" for item in node.children)
        pointer = pointer or any(
            child.type == "pointer_declarator"
            for item in node.children
            if item.type == "init_declarator"
            for child in item.children
        )
        if _KEPT_TYPE.search(text) or pointer:
            self.note("static_tensor", node)
        else:
            name = next((self.text(item) for item in _walk(node) if item.type == "identifier"), None)
            if name is not None:
                self._static_numbers[name] = node

    def _update(self, node: Node) -> None:
        changed = _WORD.search(self.text(node))
        if changed and (node.type == "update_expression" or self.text(node.children[1]) in (b"+=", b"-=")):
            self._updated.add(changed[0])

    def _constant(self, node: Node, text: bytes) -> None:
        _, equals, value = text.partition(b"=")
        held = value if equals else text.partition(b" ")[2]
        numbers = [int(match[0]) for match in _INTEGER.finditer(held[:80]) if len(match[0]) < 12]
        plain = re.fullmatch(rb"[\s\d*+();uUlL<]+", held[:80]) is not None
        if plain and max(numbers, default=0) >= MIN_CONSTANT:
            self.note("hard_coded_shape", node)

    def _definition(self, node: Node, declared: dict[str, int]) -> None:
        declarator = node.child_by_field_name("declarator")
        while declarator is not None and declarator.type != "function_declarator":
            declarator = declarator.child_by_field_name("declarator")
        inner = declarator.child_by_field_name("declarator") if declarator is not None else None
        if inner is None:
            return
        name = self.text(inner).decode("utf-8", "replace")
        if any(self.text(item) == b"__global__" for item in node.children):
            self._result.kernels.setdefault(name, node.start_point[0])
            declared[name] = declared.get(name, 0) + 1
        elif _LIBRARY_FUNCTION.match(name):
            self.note("clock_patch", node)

    def _comparison(self, node: Node) -> None:
        operator = node.child_by_field_name("operator")
        if operator is None or self.text(operator) not in (b"==", b"!="):
            return
        sides: Sequence[Node] = [item for item in (node.child_by_field_name(k) for k in ("left", "right")) if item]
        texts = [self.text(item) for item in sides]
        # Tests of alignment or for a missing tensor are no cache.
        address = any(b"data_ptr" in text and b"%" not in text and b"&" not in text for text in texts)
        if address and not any(text in (b"nullptr", b"NULL", b"0") for text in texts):
            self.note("cache_by_address", node)
        sized = any(b"size(" in text or b"sizes(" in text or b"numel(" in text for text in texts)
        numbers = [int(text) for text in texts if text.isdigit() and len(text) < 12]
        if sized and max(numbers, default=0) >= MIN_CHECKED:
            self.note("hard_coded_shape", node)
