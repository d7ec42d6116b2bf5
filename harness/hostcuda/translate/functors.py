"""Find calls in device code of member functions that exist only for the host.

Runs in the builder's sandbox. The most frequent case is a functor without `__device__`. As in `spaces`, only certain
cases are found. The class of an object is known from its declaration, or from the arguments of a launch or call that
nvcc certainly compiles:

    struct F { float operator()(float v) const; };
    F f;  f(x)   F()(x)   F{}(x)   F::m(x)   f.m(x)   p->m(x)
    template <class O> __global__ void k(float* x, O op) { op(*x); }        k<<<1, 1>>>(x, F())   k<F><<<1, 1>>>(x, f)

Not checked: constructors, destructors, operators other than `()`, conversions, calls from methods and lambdas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tree_sitter import Node

from harness.hostcuda.translate.spaces import Function, Survey, called, certain, is_call
from harness.toolchain.cuda_source.syntax import Tree, declarators, function_declarator, name_node, walk
from harness.toolchain.cuda_source.tokens import words

__all__ = ["member_calls"]

_CALL = b"operator()"
_MOST_INSTANCES = 2000
"""Limit of functions with the classes given to them; a source with more is followed up to here."""

_SIDES = frozenset({b"__global__", b"__device__", b"__host__"})
_NOT_CERTAIN = frozenset({b"constexpr", b"consteval", b"virtual"})
_LIKE_A_MACRO = re.compile(rb"[A-Z][A-Z0-9_]{2,}")
_CLASSES = frozenset({"struct_specifier", "class_specifier"})
_AROUND_CLASSES = frozenset(
    {"declaration_list", "linkage_specification", "namespace_definition", "template_declaration", "translation_unit"}
)
_PASSED_OVER = frozenset(
    {
        "ERROR",
        "alignof_expression",
        "class_specifier",
        "decltype",
        "noexcept",
        "requires_clause",
        "requires_expression",
        "sizeof_expression",
        "static_assert_declaration",
        "struct_specifier",
        "template_argument_list",
    }
)
_DISPATCHES = b"AT_DISPATCH_"
"""Macros of torch whose last argument is a lambda that they call."""


@dataclass(slots=True)
class _FunctorScope:
    """The meaning of names in one function.

    These are type parameters, and objects and pointers of known class.
    """

    types: dict[bytes, bytes | None]
    objects: dict[bytes, bytes] = field(default_factory=dict)
    pointers: dict[bytes, bytes] = field(default_factory=dict)


def member_calls(read: Survey) -> Iterator[tuple[Node, str]]:
    """Yield each call that nvcc certainly refuses, with its message."""
    hosts = _Members(read).hosts()
    if not hosts:
        return
    waiting: list[tuple[Function, tuple[tuple[bytes, bytes], ...]]] = []
    for function in read.functions:
        if function.template or function.body is None or function.node.has_error:
            continue
        if function.node.id in read.reached or not function.marks & {b"__global__", b"__device__"}:
            waiting.append((function, ()))
    seen: set[tuple[int, tuple[tuple[bytes, bytes], ...]]] = set()
    while waiting and len(seen) < _MOST_INSTANCES:
        function, given = waiting.pop()
        if (function.node.id, given) in seen:
            continue
        seen.add((function.node.id, given))
        inside = _Inside(read, hosts, function, dict(given))
        yield from inside.wrong()
        waiting.extend(inside.instances())


class _Members:
    """Classes at namespace scope, with the names of their host-only functions."""

    def __init__(self, read: Survey) -> None:
        self._read = read
        self._tree = read.tree

    def hosts(self) -> dict[bytes, frozenset[bytes]]:
        """For each class, the names that only host functions have.

        Classes with an ambiguous name, or with members that are not all understood, are left out.
        """
        found: dict[bytes, frozenset[bytes]] = {}
        elsewhere = self._defined_elsewhere()
        doubtful = self._doubtful_names()
        for node in walk(self._tree.root):
            name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
            if node.type not in _CLASSES or name is None or body is None or not _in_the_open(node):
                continue
            own = self._of_class(body)
            if name.type == "type_identifier" and self._tree.of(name) not in doubtful and not node.has_error:
                held = own - elsewhere
                if held:
                    found[self._tree.of(name)] = frozenset(held)
        return found

    def _of_class(self, body: Node) -> set[bytes]:
        hosts: set[bytes] = set()
        others: set[bytes] = set()
        before: Node | None = None
        for child in body.children:
            if child.type.startswith("preproc_"):
                return set()
            inner = child
            if child.type == "template_declaration":
                inner = next((c for c in child.children if c.type in {"function_definition", "declaration"}), child)
            if child.type == "using_declaration":
                others.update(self._tree.of(child).split(b"::")[-1:])
                others.update(word for word, _, _ in words(self._tree.of(child)))
                others.add(_CALL)
            declarator = function_declarator(inner) if inner.type != "friend_declaration" else None
            if declarator is not None:
                named = declarator.child_by_field_name("declarator")
                name = _flat(self._tree.of(named)) if named is not None else b""
                if name in self._read.macros or _LIKE_A_MACRO.fullmatch(name):
                    return set()
                start = before.end_byte if before is not None else body.start_byte + 1
                (hosts if self._is_the_hosts(inner, declarator, start) else others).add(name)
            elif child.type in {"function_definition", "ERROR"} or self._is_a_macro(inner):
                return set()
            before = child
        return hosts - others

    def _is_a_macro(self, node: Node) -> bool:
        """Whether a member may be the result of a macro."""
        if node.type not in {"field_declaration", "declaration"}:
            return False
        return any(
            word in self._read.macros or (_LIKE_A_MACRO.fullmatch(word) and b"(" in self._tree.of(node))
            for word, _, _ in words(self._tree.of(node))
        )

    def _is_the_hosts(self, node: Node, declarator: Node, start: int) -> bool:
        name, held = declarator.child_by_field_name("declarator"), declarator.child_by_field_name("parameters")
        body = node.child_by_field_name("body")
        if name is None or held is None:
            return False
        end = body.start_byte if body is not None else node.end_byte
        parts = (self._read.data[start : name.start_byte], self._read.data[held.end_byte : end])
        said = {word for part in parts for word, _, _ in words(part)}
        if said & _NOT_CERTAIN or said & _SIDES - {b"__host__"}:
            return False
        if any(word in self._read.macros or _LIKE_A_MACRO.fullmatch(word) for word in said):
            return False
        if body is None and (node.type == "function_definition" or b"=" in parts[1]):
            return False  # defaulted, deleted or pure virtual
        return name.type in {"operator_name", "field_identifier"}

    def _defined_elsewhere(self) -> set[bytes]:
        """Names of members whose definition outside the class may add `__device__`."""
        found: set[bytes] = set()
        for node in walk(self._tree.root):
            declarator = function_declarator(node) if node.type in {"function_definition", "declaration"} else None
            named = declarator.child_by_field_name("declarator") if declarator is not None else None
            if declarator is None or named is None or named.type != "qualified_identifier":
                continue
            outer = node.parent if node.parent is not None and node.parent.type == "template_declaration" else node
            start = outer.prev_sibling.end_byte if outer.prev_sibling is not None else 0
            said = {word for word, _, _ in words(self._read.data[start : named.start_byte])}
            odd = any(word in self._read.macros or _LIKE_A_MACRO.fullmatch(word) for word in said)
            if said & (_SIDES | _NOT_CERTAIN) or odd or node.has_error:
                last: Node | None = named
                while last is not None and last.type == "qualified_identifier":
                    last = last.child_by_field_name("name")
                found.add(_flat(self._tree.of(last)) if last is not None else b"")
        return found

    def _doubtful_names(self) -> set[bytes]:
        """Names of classes that are ambiguous or defined more than once."""
        defined: set[bytes] = set()
        found = set(self._read.macros) | {f.name for f in self._read.functions}
        for node in walk(self._tree.root):
            name = node.child_by_field_name("name")
            if node.type in _CLASSES and name is not None and node.child_by_field_name("body") is not None:
                base = name.child_by_field_name("name") if name.type == "template_type" else name
                text = self._tree.of(base) if base is not None else b""
                if name.type != "type_identifier" or text in defined:
                    found.add(text)
                defined.add(text)
            elif node.type in {"alias_declaration", "enum_specifier", "union_specifier", "namespace_definition"}:
                found.update([self._tree.of(name)] if name is not None else [])
            elif node.type in {"declaration", "parameter_declaration", "type_definition", "field_declaration"}:
                for declarator in declarators(node):
                    named = name_node(declarator)
                    found.update([self._tree.of(named)] if named is not None else [])
            elif node.type == "template_type" and node.parent is not None and node.parent.type in _CLASSES:
                base = node.child_by_field_name("name")
                found.update([self._tree.of(base)] if base is not None else [])
            elif node.type == "ERROR":
                found.update(word for word, _, _ in words(self._tree.of(node)))
        return found


class _Inside:
    """One function, with the classes that its type parameters have."""

    def __init__(
        self, read: Survey, hosts: dict[bytes, frozenset[bytes]], function: Function, given: dict[bytes, bytes]
    ) -> None:
        self._read, self._tree, self._hosts = read, read.tree, hosts
        self._function = function
        self._scope = _FunctorScope(types={name: given.get(name) for name in _type_parameters(read.tree, function)})
        self._declare()

    def wrong(self) -> Iterator[tuple[Node, str]]:
        """Calls of host functions in this function, if it is device code."""
        if not (self._function.kernel or self._function.device):
            return
        by = "__global__" if self._function.kernel else "__device__"
        for node in certain(self._tree, self._function, self._read.macros):
            found = self._member(node) if is_call(node) else None
            if found is not None and found[1] in self._hosts[found[0]]:
                whose, member, caller = (each.decode(errors="replace") for each in (*found, self._function.name))
                yield (
                    node,
                    f'calling a __host__ function("{whose}::{member}") from a {by} function("{caller}") is not allowed',
                )

    def instances(self) -> Iterator[tuple[Function, tuple[tuple[bytes, bytes], ...]]]:
        """The templates that this function certainly instantiates.

        In device code also the device functions that it calls.
        """
        ours = self._function.kernel or self._function.device
        nodes = certain(self._tree, self._function, self._read.macros) if ours else self._of_the_host()
        for node in nodes:
            name = called(self._tree, node) if node.type == "call_expression" else None
            held = [f for f in self._read.by_name.get(name, ()) if f.body is not None] if name is not None else []
            if len(held) != 1 or held[0].node.has_error:
                continue
            other = held[0]
            if is_call(node):
                follows = other.device if ours else other.template and other.host
            else:
                follows = not ours and other.kernel and other.template
            if follows:
                yield other, self._given(other, node)

    def _of_the_host(self) -> Iterator[Node]:
        """Like `certain`, for host code: lambdas are compiled, unless they are templates."""
        waiting = [self._function.body] if self._function.body is not None else []
        while waiting:
            node = waiting.pop()
            if node.type in _PASSED_OVER or node.type.startswith("preproc_"):
                continue
            if node.type == "if_statement" and any(child.type == "constexpr" for child in node.children):
                continue
            if node.type == "lambda_expression":
                head = node.child_by_field_name("declarator")
                if node.child_by_field_name("template_parameters") is not None or (
                    head is not None and b"auto" in self._tree.of(head)
                ):
                    continue
            if is_call(node):
                name = called(self._tree, node)
                may_vanish = name is not None and not name.startswith(_DISPATCHES)
                if may_vanish and (name in self._read.macros or name == b"typeid" or _like_a_macro(name)):
                    continue
            yield node
            waiting.extend(node.children)

    def _declare(self) -> None:
        """Find names declared once in the function, with a class or a pointer to one."""
        held: dict[bytes, tuple[bytes | None, bool]] = {}
        times: dict[bytes, int] = {}
        for node in walk(self._function.node):
            if node.type in {"structured_binding_declarator", "lambda_capture_initializer"}:
                for inner in walk(node):
                    if inner.type == "identifier":
                        times[self._tree.of(inner)] = 2
            if node.type not in {
                "declaration",
                "for_range_loop",
                "optional_parameter_declaration",
                "parameter_declaration",
                "variadic_parameter_declaration",
            }:
                continue
            kind = node.child_by_field_name("type")
            for declarator in declarators(node):
                named = name_node(declarator)
                if named is None:
                    continue
                name = self._tree.of(named)
                times[name] = times.get(name, 0) + 1
                inner = declarator
                value = None
                if inner.type == "init_declarator":
                    value, inner = inner.child_by_field_name("value"), inner.child_by_field_name("declarator") or inner
                pointer = inner.type == "pointer_declarator"
                if inner.type in {"pointer_declarator", "reference_declarator"}:
                    inner = inner.named_children[-1] if inner.named_children else inner
                if inner.type != "identifier" or node.type in {"for_range_loop", "variadic_parameter_declaration"}:
                    continue
                known = self._type(kind)
                if kind is not None and kind.type == "placeholder_type_specifier" and value is not None and not pointer:
                    known = self._value(value)
                held[name] = (known, pointer)
        for name, (known, pointer) in held.items():
            if known is not None and times[name] == 1 and name not in self._read.macros:
                (self._scope.pointers if pointer else self._scope.objects)[name] = known

    def _type(self, node: Node | None) -> bytes | None:
        if node is not None and node.type in {"template_type", "template_function"}:
            node = node.child_by_field_name("name")
        if node is None or node.type not in {"type_identifier", "identifier", "namespace_identifier"}:
            return None
        name = self._tree.of(node)
        if name in self._scope.types:
            return self._scope.types[name]
        return name if name in self._hosts else None

    def _value(self, node: Node | None) -> bytes | None:
        """The class of an expression that names or makes an object."""
        while node is not None and node.type == "parenthesized_expression":
            node = node.named_children[0] if len(node.named_children) == 1 else None
        if node is None:
            return None
        if node.type == "identifier":
            return self._scope.objects.get(self._tree.of(node))
        if node.type == "compound_literal_expression":
            return self._type(node.child_by_field_name("type"))
        if is_call(node):
            function = node.child_by_field_name("function")
            if function is not None and self._tree.of(function) not in self._scope.objects:
                return self._type(function)
        return None

    def _member(self, call: Node) -> tuple[bytes, bytes] | None:
        """The class and the name of the called member function."""
        function = call.child_by_field_name("function")
        if function is None:
            return None
        if function.type == "field_expression":
            whose, member = function.child_by_field_name("argument"), function.child_by_field_name("field")
            pointed = any(child.type == "->" for child in function.children)
            if pointed:
                known = (
                    self._scope.pointers.get(self._tree.of(whose))
                    if whose is not None and whose.type == "identifier"
                    else None
                )
            else:
                known = self._value(whose)
            name = self._last(member)
            return (known, name) if known is not None and name is not None else None
        if function.type == "qualified_identifier":
            known, name = (
                self._type(function.child_by_field_name("scope")),
                self._last(function.child_by_field_name("name")),
            )
            return (known, name) if known is not None and name is not None else None
        known = self._value(function)
        return (known, _CALL) if known is not None else None

    def _last(self, node: Node | None) -> bytes | None:
        while node is not None and node.type in {"template_method", "template_function", "dependent_name"}:
            inner = node.child_by_field_name("name")
            node = inner if inner is not None else (node.named_children[-1] if node.named_children else None)
        if node is None or node.type not in {"field_identifier", "identifier", "operator_name"}:
            return None
        return _flat(self._tree.of(node))

    def _given(self, other: Function, call: Node) -> tuple[tuple[bytes, bytes], ...]:
        """The classes that another function's type parameters get by a call or launch."""
        taken = _type_parameters(self._tree, other)
        given: dict[bytes, bytes] = {}
        named = call.child_by_field_name("function")
        explicit = named.child_by_field_name("arguments") if named is not None else None
        said = explicit.named_children if explicit is not None else []
        for (name, is_type), argument in zip(taken.items(), said, strict=False):
            if is_type and argument.type == "type_descriptor" and len(argument.named_children) == 1:
                known = self._type(argument.child_by_field_name("type"))
                if known is not None:
                    given[name] = known
        explicitly = set(list(taken)[: len(said)])
        declarator = function_declarator(other.node)
        held = declarator.child_by_field_name("parameters") if declarator is not None else None
        passed = call.child_by_field_name("arguments")
        if held is None or passed is None:
            return tuple(sorted(given.items()))
        values = [child for child in passed.named_children if child.type != "comment"]
        expected = [child for child in held.named_children if child.type.endswith("parameter_declaration")]
        for parameter, value in zip(expected, values, strict=False):
            kind, declarator = parameter.child_by_field_name("type"), parameter.child_by_field_name("declarator")
            name = self._tree.of(kind) if kind is not None and kind.type == "type_identifier" else b""
            if parameter.type == "variadic_parameter_declaration":
                break
            if not taken.get(name) or name in explicitly or (declarator and declarator.type == "pointer_declarator"):
                continue
            known = self._value(value)
            if known is not None:
                given[name] = known
        return tuple(sorted(given.items()))


def _type_parameters(tree: Tree, function: Function) -> dict[bytes, bool]:
    """Names of a template's parameters, in order, and whether each is a type."""
    outer = function.node.parent if function.node.type != "template_declaration" else function.node
    held = outer.child_by_field_name("parameters") if outer is not None and function.template else None
    found: dict[bytes, bool] = {}
    for child in held.named_children if held is not None else ():
        name = next((n for n in reversed(list(walk(child))) if n.type in {"type_identifier", "identifier"}), None)
        plain = child.type in {"type_parameter_declaration", "optional_type_parameter_declaration"}
        if child.type == "optional_type_parameter_declaration":
            name = child.child_by_field_name("name")
        if child.type != "comment":
            found[tree.of(name) if name is not None else b"%d" % len(found)] = plain
    return found


def _in_the_open(node: Node) -> bool:
    """Whether a class is at namespace scope, without preprocessor conditions."""
    around = node.parent
    while around is not None and around.type in _AROUND_CLASSES:
        around = around.parent
    return around is None


def _like_a_macro(name: bytes | None) -> bool:
    return name is not None and _LIKE_A_MACRO.fullmatch(name) is not None


def _flat(name: bytes) -> bytes:
    return b"".join(name.split())
