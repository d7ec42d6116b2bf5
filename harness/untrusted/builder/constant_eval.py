"""Evaluate constant expressions of a Python text without executing it.

Untrusted side: reads hostile texts in a process of its own. A name is constant if the whole text binds it once, to a
constant that the text does not modify. Scopes do not matter: a wrong value costs a useless compilation only.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from harness.toolchain.spec import MAX_SOURCE_BYTES

_MAX_CHARS = MAX_SOURCE_BYTES
"""Longest text that is put together; no extension may have more."""
_MAX_ITEMS = 4096
_MAX_INT = 2**63

_MUTATING = frozenset(
    {"append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault", "sort", "update"}
)
_BARE_FIELDS = re.compile(r"(?:[^%]|%[sd%])*")


class NotPlain(Exception):
    """The text does not determine the value."""


class Reader:
    """Evaluates expressions of one module.

    Raises `RecursionError` if an expression nests too deeply.
    """

    def __init__(self, tree: ast.Module) -> None:
        self._bound: dict[str, list[ast.expr | None]] = {}
        """Values given to each name; None stands for one that can't be evaluated."""
        self._known: dict[str, Any] = {}
        for name, value in _bindings(tree):
            self._bound.setdefault(name, []).append(value)

    def value(self, node: ast.expr) -> Any:
        """Return an expression's value: text, number, list, tuple, mapping or None.

        Raises `NotPlain` if the text does not determine it.
        """
        found = self._read(node)
        if (
            (isinstance(found, str) and len(found) > _MAX_CHARS)
            or (isinstance(found, list | tuple | dict) and len(found) > _MAX_ITEMS)
            or (isinstance(found, int) and not -_MAX_INT < found < _MAX_INT)
        ):
            raise NotPlain
        return found

    def _read(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=str() | int() | float() | None as held):
                return held
            case ast.Name(id=name):
                return self._named(name)
            case ast.JoinedStr(values=parts):
                return "".join(self._part(part) for part in parts)
            case ast.List(elts=items):
                return [self.value(item) for item in items]
            case ast.Tuple(elts=items):
                return tuple(self.value(item) for item in items)
            case ast.Dict(keys=keys, values=values) if all(keys):
                return {self.value(key): self.value(item) for key, item in zip(keys, values, strict=True) if key}
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -_number(self.value(operand))
            case ast.BinOp(left=left, op=op, right=right):
                return _combined(op, self.value(left), self.value(right))
            case ast.Call(keywords=[], func=ast.Attribute(attr="dedent") | ast.Name(id="dedent"), args=[argument]):
                return textwrap.dedent(_text(self.value(argument)))
            case ast.Call(keywords=[], func=ast.Attribute(value=owner, attr=method), args=arguments):
                return _method(_text(self.value(owner)), method, [self.value(item) for item in arguments])
            case ast.Call(keywords=[], func=ast.Name(id="str"), args=[argument]):
                return _shown(self.value(argument))
        raise NotPlain

    def _named(self, name: str) -> Any:
        if name not in self._known:
            self._known[name] = NotPlain  # until its value is known, which may mention it
            match self._bound.get(name):
                case [ast.expr() as node]:
                    self._known[name] = self.value(node)
        if self._known[name] is NotPlain:
            raise NotPlain
        return self._known[name]

    def _part(self, part: ast.expr) -> str:
        match part:
            case ast.Constant(value=str(text)):
                return text
            case ast.FormattedValue(value=value, conversion=-1 | 115, format_spec=None):
                return _shown(self.value(value))
        raise NotPlain


def _bindings(tree: ast.Module) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield each name that is bound or modified, and its value if it is plain."""
    given: dict[ast.expr, ast.expr] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    given.update(_pairs(target, value))
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                given[target] = value
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name, given.get(node)
            case (
                ast.arg(arg=name)
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
                | ast.MatchMapping(rest=str(name))
                | ast.Subscript(ctx=ast.Store() | ast.Del(), value=ast.Name(id=name))
            ):
                yield name, None
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in _MUTATING:
                yield name, None
            case ast.alias(name=name, asname=other):
                yield other or name.partition(".")[0], None


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield targets and values; `a, (b, c) = x, (y, z)` has five pairs."""
    yield target, value
    match target, value:
        case ((ast.Tuple(elts=targets) | ast.List(elts=targets)), (ast.Tuple(elts=values) | ast.List(elts=values))):
            if len(targets) == len(values) and not any(isinstance(item, ast.Starred) for item in (*targets, *values)):
                for one, held in zip(targets, values, strict=True):
                    yield from _pairs(one, held)


def _number(value: Any) -> Any:
    if type(value) not in (int, float):
        raise NotPlain
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise NotPlain
    return value


def _shown(value: Any) -> str:
    """Format a value inside a text."""
    if not isinstance(value, str | int):
        raise NotPlain
    return str(value)


def _combined(op: ast.operator, left: Any, right: Any) -> Any:
    match op, left, right:
        case (ast.Add(), str(), str()) | (ast.Add(), list(), list()) | (ast.Add(), tuple(), tuple()):
            return left + right
        case ast.Mult(), str(), int() if len(left) * right <= _MAX_CHARS:
            return left * right
        case ast.Mod(), str(), _:
            several = right if isinstance(right, tuple) else (right,)
            if not _BARE_FIELDS.fullmatch(left) or not all(isinstance(item, str | int) for item in several):
                raise NotPlain
            return left % right
    number, other = _number(left), _number(right)
    match op:
        case ast.Add():
            return number + other
        case ast.Sub():
            return number - other
        case ast.Mult():
            return number * other
        case ast.FloorDiv() if other:
            return number // other
    raise NotPlain


def _method(text: str, method: str, arguments: list[Any]) -> str:
    """Return the result of a text's method."""
    match method, arguments:
        case (("strip" | "lstrip" | "rstrip" | "upper" | "lower"), []) | (("strip" | "lstrip" | "rstrip"), [str()]):
            return str(getattr(text, method)(*arguments))
        case "replace", [str(old), str(new)] if len(text) + text.count(old) * len(new) <= _MAX_CHARS:
            return text.replace(old, new)
        case "join", [list() | tuple() as items] if all(isinstance(item, str) for item in items):
            if sum(map(len, items)) + len(text) * len(items) <= _MAX_CHARS:
                return text.join(items)
    raise NotPlain
