"""Evaluate constant expressions of a Python text without executing it.

Untrusted side: reads hostile texts in a process of its own. A name is constant if it is bound once in its scope, to a
constant. A list or mapping that the text may modify is not constant.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
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


@dataclass(slots=True, eq=False)
class _ConstantScope:
    """The scope of a module, function, comprehension or class body.

    `bound` holds the values given to each name; None stands for a value that can't be evaluated.
    """

    parent: _ConstantScope | None
    is_class: bool = False
    bound: dict[str, list[ast.expr | None]] = field(default_factory=dict)
    elsewhere: dict[str, _ConstantScope] = field(default_factory=dict)
    """Names declared `global` or `nonlocal`, with their scope."""


class Reader:
    """Evaluates expressions of one module.

    Raises `RecursionError` if the module nests too deeply.
    """

    def __init__(self, tree: ast.Module) -> None:
        self._module = _ConstantScope(None)
        self._calls: list[ast.Call] = []
        self._scope_of: dict[ast.Name, _ConstantScope] = {}
        self._mutated: set[str] = set()
        self._worth: dict[ast.expr, Any] = {}
        self._under_way: set[ast.expr] = set()
        self._visit_all(tree.body, self._module)

    def calls(self, wanted: Callable[[ast.Call], bool]) -> Iterator[ast.Call]:
        """Yield the wanted calls in the order of the text."""
        yield from sorted(filter(wanted, self._calls), key=lambda call: (call.lineno, call.col_offset))

    def value(self, node: ast.expr) -> Any:
        """Return an expression's value: text, number, list, tuple, mapping or None.

        Raises `NotPlain` if the text does not determine it.
        """
        if node in self._worth:
            return self._worth[node]
        if node in self._under_way:
            raise NotPlain
        self._under_way.add(node)
        try:
            self._worth[node] = found = _checked(self._read(node))
        finally:
            self._under_way.discard(node)
        return found

    # -- bindings ------------------------------------------------------------------------------------------------

    def _visit_all(self, nodes: list[Any], scope: _ConstantScope) -> None:
        for node in nodes:
            self._visit(node, scope)

    def _visit(self, node: ast.AST, scope: _ConstantScope) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._bind(scope, node.name, None)
                self._visit_all(
                    [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)], scope
                )
                self._function(node.args, node.body, scope)
            case ast.Lambda():
                self._visit_all([*node.args.defaults, *filter(None, node.args.kw_defaults)], scope)
                self._function(node.args, [node.body], scope)
            case ast.ClassDef():
                self._bind(scope, node.name, None)
                self._visit_all([*node.decorator_list, *node.bases, *node.keywords], scope)
                self._visit_all(node.body, _ConstantScope(scope, is_class=True))
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                self._visit_all(list(ast.iter_child_nodes(node)), _ConstantScope(scope))
            case ast.Global() | ast.Nonlocal():
                for name in node.names:
                    outer = self._module if isinstance(node, ast.Global) else _outer(scope, name)
                    scope.elsewhere[name] = outer
            case ast.Assign():
                self._visit(node.value, scope)
                for target in node.targets:
                    self._assign(target, node.value, scope)
            case ast.AnnAssign(value=ast.expr() as value, target=target):
                self._visit(value, scope)
                self._assign(target, value, scope)
            case ast.NamedExpr():
                self._visit(node.value, scope)
                self._bind(scope, node.target.id, None)
                if scope.parent is not None:  # in a comprehension it binds in the scope around it
                    self._bind(scope.parent, node.target.id, None)
            case ast.AugAssign(target=ast.Name(id=name)):
                self._visit(node.value, scope)
                self._bind(scope, name, None)
            case ast.Import() | ast.ImportFrom():
                for item in node.names:
                    self._bind(scope, item.asname or item.name.partition(".")[0], None)
            case _:
                self._visit_other(node, scope)

    def _visit_other(self, node: ast.AST, scope: _ConstantScope) -> None:
        match node:
            case ast.Name(ctx=ast.Load()):
                self._scope_of[node] = scope
            case ast.Name(id=name):
                self._bind(scope, name, None)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                self._bind(scope, name, None)
            case ast.MatchMapping(rest=str(name)):
                self._bind(scope, name, None)
            case ast.Subscript(ctx=ast.Store() | ast.Del(), value=ast.Name(id=name)):
                self._mutated.add(name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in _MUTATING:
                self._mutated.add(name)
        if isinstance(node, ast.Call):
            self._calls.append(node)
        self._visit_all(list(ast.iter_child_nodes(node)), scope)

    def _function(self, parameters: ast.arguments, body: list[Any], scope: _ConstantScope) -> None:
        own = _ConstantScope(scope)
        several = (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs)
        for item in (*several, parameters.vararg, parameters.kwarg):
            if item is not None:
                self._bind(own, item.arg, None)
        self._visit_all(body, own)

    def _assign(self, target: ast.expr, value: ast.expr, scope: _ConstantScope) -> None:
        match target, value:
            case ast.Name(id=name), _:
                self._bind(scope, name, value)
            case ((ast.Tuple(elts=targets) | ast.List(elts=targets)), (ast.Tuple(elts=values) | ast.List(elts=values))):
                starred = any(isinstance(item, ast.Starred) for item in (*targets, *values))
                if starred or len(targets) != len(values):
                    self._visit(target, scope)
                else:
                    for one, held in zip(targets, values, strict=True):
                        self._assign(one, held, scope)
            case _:
                self._visit(target, scope)

    def _bind(self, scope: _ConstantScope, name: str, value: ast.expr | None) -> None:
        scope.elsewhere.get(name, scope).bound.setdefault(name, []).append(value)

    # -- values ------------------------------------------------------------------------------------------------

    def _read(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=str() | int() | float() | None as held):
                return held
            case ast.Name():
                return self._named(node)
            case ast.JoinedStr(values=parts):
                return "".join(self._part(part) for part in parts)
            case ast.List(elts=items):
                return [self.value(item) for item in items]
            case ast.Tuple(elts=items):
                return tuple(self.value(item) for item in items)
            case ast.Dict(keys=keys, values=values):
                if any(key is None for key in keys):
                    raise NotPlain
                return {self.value(key): self.value(item) for key, item in zip(keys, values, strict=True) if key}
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -_number(self.value(operand))
            case ast.BinOp(left=left, op=op, right=right):
                return _combined(op, self.value(left), self.value(right))
            case ast.Call(keywords=[], func=ast.Attribute(value=owner, attr=method), args=arguments):
                if method == "dedent" and isinstance(owner, ast.Name) and len(arguments) == 1:
                    return textwrap.dedent(_text(self.value(arguments[0])))
                return _method(_text(self.value(owner)), method, [self.value(item) for item in arguments])
            case ast.Call(keywords=[], func=ast.Name(id="dedent"), args=[argument]):
                return textwrap.dedent(_text(self.value(argument)))
            case ast.Call(keywords=[], func=ast.Name(id="str"), args=[argument]):
                return _shown(self.value(argument))
        raise NotPlain

    def _named(self, node: ast.Name) -> Any:
        scope: _ConstantScope | None = self._scope_of.get(node)
        first = scope
        while scope is not None:
            scope = scope.elsewhere.get(node.id, scope)
            # A name bound in a class body is visible in that body only.
            if node.id in scope.bound and (scope is first or not scope.is_class):
                values = scope.bound[node.id]
                if len(values) != 1 or values[0] is None:
                    raise NotPlain
                held = self.value(values[0])
                if node.id in self._mutated and isinstance(held, list | dict):
                    raise NotPlain
                return held
            scope = scope.parent
        raise NotPlain

    def _part(self, part: ast.expr) -> str:
        match part:
            case ast.Constant(value=str(text)):
                return text
            case ast.FormattedValue(value=value, conversion=-1 | 115, format_spec=None):
                return _shown(self.value(value))
        raise NotPlain


def _outer(scope: _ConstantScope, name: str) -> _ConstantScope:
    """Return the function around `scope` that a nonlocal name belongs to."""
    outer = scope.parent
    while outer is not None and outer.parent is not None and (outer.is_class or name not in outer.bound):
        outer = outer.parent
    return outer or scope


def _checked(value: Any) -> Any:
    """Return `value`, or raise `NotPlain` if it is too large for an extension."""
    match value:
        case str():
            good = len(value) <= _MAX_CHARS
        case int():
            good = -_MAX_INT < value < _MAX_INT
        case list() | tuple() | dict():
            good = len(value) <= _MAX_ITEMS
        case _:
            good = True
    if not good:
        raise NotPlain
    return value


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
        case ast.Add(), str(), str():
            return left + right
        case (ast.Add(), list(), list()) | (ast.Add(), tuple(), tuple()):
            return left + right
        case ast.Mult(), str(), int():
            if len(left) * right > _MAX_CHARS:
                raise NotPlain
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
        case (("strip" | "lstrip" | "rstrip" | "upper" | "lower"), []):
            return str(getattr(text, method)())
        case (("strip" | "lstrip" | "rstrip"), [str()]):
            return str(getattr(text, method)(*arguments))
        case "replace", [str(old), str(new)]:
            if len(text) + text.count(old) * len(new) > _MAX_CHARS:
                raise NotPlain
            return text.replace(old, new)
        case "join", [list() | tuple() as items] if all(isinstance(item, str) for item in items):
            if sum(map(len, items)) + len(text) * len(items) > _MAX_CHARS:
                raise NotPlain
            return text.join(items)
    raise NotPlain
