"""Scan a solution's text for calls of `load_inline`, without executing it.

Untrusted side: `main` runs in a sandboxed process without torch, is started by name and never imported by a trusted
module, because a hostile text may crash the parser. Calls whose arguments the text does not determine are left out; the
discovery finds them. See guides/design/discovery.md.
"""

from __future__ import annotations

import ast
import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.core import python_ast
from harness.protocol.channel import Channel
from harness.toolchain.spec import ExtensionSpec
from harness.untrusted.builder.constant_eval import NotPlain, Reader
from harness.untrusted.builder.load_inline_calls import ARCH_VARIABLE, Unforeseen, bind, read_inline

FUNCTION = "load_inline"
_MODULE = "cpp_extension"

_IMMATERIAL = frozenset({"build_directory", "verbose"})
"""Arguments that do not change the built module, so their values need not be known."""


def main(channel: Channel, fds: tuple[int, ...]) -> None:
    """Answer one request.

    The request holds `source` and `parameters` (of `load_inline`: name, whether required, default). Frames sent: an
    `extension` with its `spec` for each one found, then `done`.
    """
    request = channel.receive().message
    for spec in foreseen(request["source"], request["parameters"]):
        channel.send({"type": "extension", "spec": spec.to_json()})
    channel.send({"type": "done"})


def foreseen(source: str, parameters: Sequence[Sequence[Any]]) -> Iterator[ExtensionSpec]:
    """Yield the extensions that the text determines, in order, each once."""
    function = _stand_in(parameters)
    seen: set[str] = set()
    try:
        tree = python_ast.parse(source)
        reader = Reader(tree)
        arches = _arches(reader, tree)
        names = _names(tree)
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_meant(node, names)]
        for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
            try:
                given = bind(function, *_arguments(reader, call))
                spec = replace(read_inline(given), cuda_arch_list=arches)
            except (NotPlain, Unforeseen, TypeError, ValueError):
                continue
            if all(os.path.isabs(path) for path in spec.extra_include_paths) and spec.digest not in seen:
                seen.add(spec.digest)
                yield spec
    except (NotPlain, SyntaxError, TypeError, ValueError, MemoryError, RecursionError):
        return


def _stand_in(parameters: Sequence[Sequence[Any]]) -> Any:
    """Make a function with the parameters of torch's `load_inline`."""

    def load_inline(*_: Any, **__: Any) -> None:
        raise NotImplementedError

    empty, kind = inspect.Parameter.empty, inspect.Parameter.POSITIONAL_OR_KEYWORD
    load_inline.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind, default=empty if needed else held) for name, needed, held in parameters]
    )
    return load_inline


def _names(tree: ast.Module) -> frozenset[str]:
    """Return the names of `load_inline` in the text."""
    found = {FUNCTION}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").endswith(_MODULE):
            found |= {item.asname for item in node.names if item.name == FUNCTION and item.asname}
    return frozenset(found)


def _is_meant(call: ast.Call, names: frozenset[str]) -> bool:
    match call.func:
        case ast.Name(id=name):
            return name in names
        case ast.Attribute(attr=name):
            return name == FUNCTION
    return False


def _arguments(reader: Reader, call: ast.Call) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call. Raises `NotPlain`."""
    positional = [reader.value(item) for item in call.args]
    named: dict[str, Any] = {}
    for item in call.keywords:
        if item.arg in _IMMATERIAL:
            named[item.arg] = None
        elif item.arg is not None:
            named[item.arg] = reader.value(item.value)
        else:
            more = reader.value(item.value)
            if not isinstance(more, Mapping) or not all(isinstance(name, str) for name in more):
                raise NotPlain
            named |= more
    return positional, named


def _arches(reader: Reader, tree: ast.Module) -> str | None:
    """Return the architecture list that the text sets, or None. Raises `NotPlain`."""
    given = os.environ.get(ARCH_VARIABLE)
    mentions = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value == ARCH_VARIABLE]
    if not mentions:
        return None
    if len(mentions) > 1:
        raise NotPlain
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=name)) as target], value=value):
                if name == ARCH_VARIABLE and _is_environment(target.value):
                    found = reader.value(value)
                    break
            case ast.Call(func=ast.Attribute(attr="setdefault") as function, args=[ast.Constant(value=name), value]):
                if name == ARCH_VARIABLE and _is_environment(function.value):
                    found = reader.value(value) if given is None else given
                    break
    else:
        raise NotPlain
    if not isinstance(found, str):
        raise NotPlain
    return None if found == given else found


def _is_environment(node: ast.expr) -> bool:
    return ast.unparse(node) in ("os.environ", "environ")
