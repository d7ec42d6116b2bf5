"""Whether two trees are built alike, and if not, the first difference in words.

Imports `trees` alone. Pure; trusted side: what is expected is compared with what a contestant said it gave.
"""

from __future__ import annotations

from typing import Any

from harness.protocol.tensor_tree import ConstantLeaf, Entries, Items, Key, Node, Opaque, TensorSlot, TreeSpec, order_of


def same_structure(expected: TreeSpec, actual: TreeSpec, root: str = "output", *, values: bool = True) -> str | None:
    """The first difference in words (`output[1]: a tensor was expected, not None`), or None if there is none.

    The order of dict entries does not count. Constants must have the same type and, floats apart, the same
    value; floats are compared by the caller, within a tolerance, through `TreeSpec.floats`. Without `values` so are
    all others (`TreeSpec.exact`), which may depend on the inputs. An opaque node equals nothing, not even one of its
    own type, since nobody has looked inside.
    """
    return _difference(expected.root, actual.root, root, (float,) if values else (object,))


def _difference(expected: Node, actual: Node, path: str, open_types: tuple[type, ...]) -> str | None:
    if isinstance(actual, Opaque) or isinstance(expected, Opaque):
        return f"{path}: {_describe(expected)} was expected, not {_describe(actual)}"
    if isinstance(expected, TensorSlot) and isinstance(actual, TensorSlot):
        return None
    if isinstance(expected, ConstantLeaf) and isinstance(actual, ConstantLeaf):
        if type(expected.value) is type(actual.value) and (
            isinstance(expected.value, open_types) or expected.value == actual.value
        ):
            return None
    elif isinstance(expected, Items) and isinstance(actual, Items) and expected.kind == actual.kind:
        if len(expected.items) != len(actual.items):
            return f"{path}: {_describe(expected)} was expected, not one of {len(actual.items)}"
        for i, (left, right) in enumerate(zip(expected.items, actual.items, strict=True)):
            if found := _difference(left, right, f"{path}[{i}]", open_types):
                return found
        return None
    elif isinstance(expected, Entries) and isinstance(actual, Entries):
        left_of, right_of = _by_key(expected), _by_key(actual)
        for order in sorted(left_of.keys() ^ right_of.keys()):
            if order in left_of:
                return f"{path}: the key {left_of[order][0]!r:.80} is missing"
            return f"{path}: the key {right_of[order][0]!r:.80} was not expected"
        for order in sorted(left_of):
            key, left = left_of[order]
            if found := _difference(left, right_of[order][1], f"{path}[{key!r:.80}]", open_types):
                return found
        return None
    return f"{path}: {_describe(expected)} was expected, not {_describe(actual)}"


def _describe(node: Node) -> str:
    match node:
        case TensorSlot():
            return "a tensor"
        case ConstantLeaf(None):
            return "None"
        case ConstantLeaf(value):
            return f"the {type(value).__name__} {value!r:.80}"
        case Items(kind, items):
            return f"a {kind} of {len(items)}"
        case Entries(entries):
            return f"a dict of {len(entries)}"
        case Opaque(type_name):
            return f"a value of type {type_name!a:.200}"


def _by_key(node: Entries) -> dict[tuple[str, Any], tuple[Key, Node]]:
    return {order_of(key): (key, item) for key, item in node.entries}
