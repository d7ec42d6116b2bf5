"""Read module definitions that only name functions and their arguments.

Runs in the builder's sandbox. Example: `PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f, "text", py::arg("x"),
py::arg("n") = 1); }`. Such a definition needs no pybind11, whose headers, together with all of torch's, cost ten
seconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

from harness.toolchain.cuda_source.syntax import walk

__all__ = ["Argument", "Definition", "module_definition"]

_HEAD = re.compile(rb"PYBIND11_MODULE\s*\(\s*TORCH_EXTENSION_NAME\s*,\s*(\w+)\s*\)")
_FUNCTION = re.compile(rb"&?\s*((?:::)?\w+(?:::\w+)*)")
_TEXTS = {"string_literal", "raw_string_literal", "concatenated_string"}
_NAME = re.compile(rb'"([A-Za-z_]\w*)"')
_ARGUMENT = re.compile(
    rb'(?:(?:py|pybind11)::arg\s*\(\s*"([A-Za-z_]\w*)"\s*\)|"([A-Za-z_]\w*)"_a)(?:\s*=\s*(?:'
    rb"(-?\d{1,9}|-?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?[fF]?|true|false)"
    rb"|(?:(?:py|pybind11)::none\s*\(\s*\)|(?:std|c10|at|torch)::nullopt)))?"
)
"""A name, and a default that is a literal or None; Python code can see which object a default is."""


@dataclass(frozen=True, slots=True)
class Argument:
    """The name of an argument and its default.

    The default is a C++ literal, `nullptr` for None; it is None if the argument is required.
    """

    name: str
    default: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A module definition, `text`, as it is written in the source; empty for none.

    `functions` maps Python names to C++ functions, qualified as in the source. `arguments` has the named arguments of a
    function; `doc` is the module's docstring as a C++ literal.
    """

    text: str
    functions: dict[str, str]
    arguments: dict[str, tuple[Argument, ...]] = field(default_factory=dict)
    doc: str | None = None

    def without(self, source: str) -> str:
        """`source` with the definition blanked, keeping the lines."""
        return source.replace(self.text, "\n" * self.text.count("\n"), 1) if self.text else source


def module_definition(source: str) -> Definition | None:
    """Find the module definition of a source.

    Returns:
        The definition. None if there is none, if there are several, or if it does more than name functions.
    """
    if "PYBIND11_MODULE" not in source:
        return None
    data = source.encode()
    tree = Parser(Language(tree_sitter_cuda.language())).parse(data)
    found = [
        (node, head[1])
        for node in walk(tree.root_node)
        if node.type == "function_definition"
        and (head := _HEAD.match(data, node.start_byte)) is not None
        and node.child_by_field_name("body") is not None
    ]
    if len(found) != 1 or source.count("PYBIND11_MODULE") != 1:
        return None
    node, module = found[0]
    body = node.child_by_field_name("body")
    assert body is not None
    functions: dict[str, str] = {}
    arguments: dict[str, tuple[Argument, ...]] = {}
    doc: str | None = None
    for statement in body.named_children:
        if statement.type == "comment":
            continue
        if doc is None and (doc := _doc(data, statement, module)) is not None:
            continue
        bound = _bound(data, statement, module)
        if bound is None or bound[0] in functions:
            return None
        functions[bound[0]] = bound[1]
        if bound[2]:
            arguments[bound[0]] = bound[2]
    text = data[node.start_byte : node.end_byte].decode()
    return Definition(text=text, functions=functions, arguments=arguments, doc=doc) if functions else None


def _doc(data: bytes, statement: Node, module: bytes) -> str | None:
    """The text of `m.doc() = "text";`, None for any other statement."""
    if statement.type != "expression_statement" or not statement.named_children:
        return None
    given = statement.named_children[0]
    left, right = given.child_by_field_name("left"), given.child_by_field_name("right")
    if given.type != "assignment_expression" or left is None or right is None or right.type not in _TEXTS:
        return None
    return _text(data, right).decode() if b"".join(_text(data, left).split()) == module + b".doc()" else None


def _bound(data: bytes, statement: Node, module: bytes) -> tuple[str, str, tuple[Argument, ...]] | None:
    """Name, function and named arguments of `m.def("name", &function, ...);`.

    None for any other statement.
    """
    if statement.type != "expression_statement" or not statement.named_children:
        return None
    call = statement.named_children[0]
    callee, arguments = call.child_by_field_name("function"), call.child_by_field_name("arguments")
    if call.type != "call_expression" or callee is None or arguments is None or _text(data, callee) != module + b".def":
        return None
    given = [node for node in arguments.named_children if node.type != "comment"]
    if len(given) < 2:
        return None
    rest = [node for node in given[2:] if node.type not in _TEXTS]
    named = [_ARGUMENT.fullmatch(_text(data, node)) for node in rest]
    if len(given) - 2 - len(rest) > 1 or not all(named):
        return None
    name, function = _NAME.fullmatch(_text(data, given[0])), _FUNCTION.fullmatch(_text(data, given[1]))
    if name is None or function is None:
        return None
    held = tuple(_argument(found) for found in named if found is not None)
    if len({argument.name for argument in held}) < len(held):
        return None
    return name[1].decode(), function[1].decode(), held


def _argument(found: re.Match[bytes]) -> Argument:
    name = (found[1] or found[2]).decode()
    if found[3] is not None:
        return Argument(name, found[3].decode())
    return Argument(name, "nullptr" if b"=" in found[0] else None)


def _text(data: bytes, node: Node) -> bytes:
    return data[node.start_byte : node.end_byte]
