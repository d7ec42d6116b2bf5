"""Read, replace and evaluate a problem's sizes without executing its file.

Sizes are module-level constants.

Trusted side. A workload gives some constants other values. They are inserted as assignments after the file's own, so
that derived constants (`N = 2 * M`) follow.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from harness.core import python_ast

UNKNOWN: Final = object()
"""Value of a constant that is known only after running the file."""

_MAX_BITS = 4096
"""Integers with more bits are not sizes; this stops `9**9**9` before it is computed."""

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


class SizeError(ValueError):
    """A size, or an expression over sizes, is invalid. The message says why."""


def constants(tree: ast.Module) -> dict[str, Any]:
    """Return the names assigned at the top level with their last values.

    Values are bool, int, float, str, None, and tuples and lists of them; `UNKNOWN` if an expression is more than
    arithmetic.
    """
    found: dict[str, Any] = {}
    for statement in _statements(tree.body):
        value = getattr(statement, "value", None)
        result = UNKNOWN if isinstance(statement, ast.AugAssign) or value is None else _value(value, found)
        for target in _targets(statement):
            if isinstance(target, ast.Name):
                found[target.id] = result
            elif isinstance(target, ast.Tuple | ast.List):
                parts = result if isinstance(result, tuple | list) else ()
                names = [item.id if isinstance(item, ast.Name) else None for item in target.elts]
                for i, name in enumerate(names):
                    if name is not None:
                        found[name] = parts[i] if len(parts) == len(names) else UNKNOWN
    return found


def check_size(name: str, value: object, known: Mapping[str, Any]) -> None:
    """Check that `value` may replace the constant `name` of a file.

    Raises:
        SizeError: The file has no such constant, or the value has the wrong type.
    """
    if name not in known:
        raise SizeError(f"the file has no top-level constant {name}; it has {', '.join(sorted(known)) or 'none'}")
    if not _is_size(value):
        raise SizeError(f"{name}: a size must be a number, a boolean, a text or a list of these, not {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise SizeError(f"{name}: {value} is not finite")
    own = known[name]
    if own is UNKNOWN or own is None:
        return
    wanted, given = ("list" if isinstance(held, list | tuple) else type(held).__name__ for held in (own, value))
    if wanted != given and (wanted, given) != ("float", "int"):
        raise SizeError(f"{name}: the file has {own!r}, so the value must have type {wanted}, not {value!r}")


def apply_sizes(tree: ast.Module, sizes: Mapping[str, Any]) -> ast.Module:
    """Insert the workload's values into `tree`, in place.

    One assignment follows each assignment of a name in `sizes`.

    Lists become tuples unless the file has a list. Line numbers stay those of the file.
    """
    known = constants(tree)
    if sizes:
        _override(tree.body, dict(sizes), known)
    return tree


def evaluate(expression: str, names: Mapping[str, Any]) -> float:
    """Evaluate arithmetic over `names`, for instance `2 * M * N * K`.

    Raises:
        SizeError: The expression is not arithmetic, uses other names, or is not a positive finite number.
    """
    try:
        tree = python_ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SizeError(f"{expression!r:.80} is not an arithmetic expression") from error
    missing = sorted({n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id not in names})
    if missing:
        raise SizeError(f"{expression!r:.80} uses {', '.join(missing)}, which the file does not define")
    try:
        value = _value(tree.body, names)
    except RecursionError as error:
        raise SizeError(f"{expression!r:.80} is nested too deep") from error
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise SizeError(f"{expression!r:.80} has no numeric value")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not (math.isfinite(result) and result > 0):
        raise SizeError(f"{expression!r:.80} is {result}, not a positive number")
    return result


def _is_size(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_size(item) for item in value)
    return isinstance(value, bool | int | float | str)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run at the top level.

    Those inside `if`, `for`, `with` and `try` are included.
    """
    for statement in body:
        yield statement
        for inner in _bodies(statement):
            yield from _statements(inner)


def _bodies(statement: ast.stmt) -> list[list[ast.stmt]]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return []
    bodies = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    return bodies + [handler.body for handler in getattr(statement, "handlers", [])]


def _targets(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return statement.targets
    if isinstance(statement, ast.AugAssign) or (isinstance(statement, ast.AnnAssign) and statement.value is not None):
        return [statement.target]
    return []


def _override(body: list[ast.stmt], sizes: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    position = 0
    while position < len(body):
        statement = body[position]
        position += 1
        for inner in _bodies(statement):
            _override(inner, sizes, known)
        names = {node.id for target in _targets(statement) for node in ast.walk(target) if isinstance(node, ast.Name)}
        for name in sorted(names & sizes.keys()):
            value = python_ast.parse(repr(_as_written(sizes[name], known.get(name))), mode="eval").body
            new = ast.Assign(targets=[ast.Name(id=name, ctx=ast.Store())], value=value)
            for node in ast.walk(new):
                ast.copy_location(node, statement)
            body.insert(position, new)
            position += 1


def _as_written(value: Any, own: Any) -> Any:
    """Convert lists to tuples unless the file has a list; YAML has only lists."""
    if isinstance(value, list | tuple):
        kind = list if isinstance(own, list) else tuple
        return kind(_as_written(item, None) for item in value)
    return value


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return the value of a literal or of arithmetic; `UNKNOWN` otherwise."""
    match node:
        case ast.Constant(value) if value is None or isinstance(value, bool | int | float | str):
            return value
        case ast.Name(id=name):
            return names.get(name, UNKNOWN)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            parts = [_value(item, names) for item in items]
            if any(part is UNKNOWN for part in parts):
                return UNKNOWN
            return parts if isinstance(node, ast.List) else tuple(parts)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _value(operand, names)
            return -value if _is_number(value) else UNKNOWN
        case ast.BinOp(left=left, op=op, right=right):
            return _arithmetic(_BINARY.get(type(op)), _value(left, names), _value(right, names))
    return UNKNOWN


def _arithmetic(operation: Callable[[Any, Any], Any] | None, left: Any, right: Any) -> Any:
    if operation is None or not (_is_number(left) and _is_number(right)):
        return UNKNOWN
    if operation is operator.pow and (abs(right) > 64 or abs(left) > 2**64):
        return UNKNOWN
    try:
        result = operation(left, right)
    except (ArithmeticError, ValueError):
        return UNKNOWN
    if not _is_number(result) or (isinstance(result, int) and result.bit_length() > _MAX_BITS):
        return UNKNOWN
    return result


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
