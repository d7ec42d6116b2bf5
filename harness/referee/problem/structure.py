"""Compare the structure of two output trees.

Trusted side: compares the expected output with what a contestant reports.
"""

from __future__ import annotations

from typing import Any

from harness.protocol.tensor_tree import ConstantLeaf, Entries, Items, Key, Node, Opaque, TensorSlot, TreeSpec, order_of


def same_structure(expected: TreeSpec, actual: TreeSpec, root: str = "output", *, values: bool = True) -> str | None:
    """Return the first difference between two trees in words.

    The order of dict entries does not count. Constants must have the same type and value; the caller compares floats,
    with a tolerance (`TreeSpec.floats`). An opaque node equals nothing, since its content is unknown.

    Args:
        expected: The reference's tree.
        actual: The solution's tree.
        root: Name of the root in the text.
        values: If False, the caller compares all constants (`TreeSpec.exact`), which may depend on the inputs.

    Returns:
        The difference, such as `output[1]: expected a tensor, got None`; None if there is none.
    """
    return _difference(expected.root, actual.root, root, (float,) if values else (object,))


def _difference(expected: Node, actual: Node, path: str, open_types: tuple[type, ...]) -> str | None:
    if isinstance(actual, Opaque) or isinstance(expected, Opaque):
        return f"{path}: expected {_describe(expected)}, got {_describe(actual)}"
    if isinstance(expected, TensorSlot) and isinstance(actual, TensorSlot):
        return None
    if isinstance(expected, ConstantLeaf) and isinstance(actual, ConstantLeaf):
        if type(expected.value) is type(actual.value) and (
            isinstance(expected.value, open_types) or expected.value == actual.value
        ):
            return None
    elif isinstance(expected, Items) and isinstance(actual, Items) and expected.kind == actual.kind:
        if len(expected.items) != len(actual.items):
            return f"{path}: expected {_describe(expected)}, got one of {len(actual.items)}"
        for i, (left, right) in enumerate(zip(expected.items, actual.items, strict=True)):
            if found := _difference(left, right, f"{path}[{i}]", open_types):
                return found
        return None
    elif isinstance(expected, Entries) and isinstance(actual, Entries):
        left_of, right_of = _by_key(expected), _by_key(actual)
        for order in sorted(left_of.keys() ^ right_of.keys()):
            if order in left_of:
                return f"{path}: missing key {left_of[order][0]!r:.80}"
            return f"{path}: unexpected key {right_of[order][0]!r:.80}"
        for order in sorted(left_of):
            key, left = left_of[order]
            if found := _difference(left, right_of[order][1], f"{path}[{key!r:.80}]", open_types):
                return found
        return None
    return f"{path}: expected {_describe(expected)}, got {_describe(actual)}"


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
