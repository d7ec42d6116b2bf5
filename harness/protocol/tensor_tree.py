"""Split nested inputs and outputs into tensors and a JSON description.

Both sides: the contestant flattens outputs of `forward`; the referee reads the description with `TreeSpec.from_json`,
which validates everything.

A tree is a tuple, list or dict of trees, a tensor, or a constant (None, bool, int, float, str, `torch.dtype`). Any
other value becomes an *opaque* node with the name of its type, which `unflatten` can't rebuild. Also opaque are
subclasses of `torch.Tensor`, whose bytes may differ from the values that they show, and nested tensors, which have no
shape.

Some types are replaced by simpler ones; `TreeSpec.degraded` lists the places:

* subclasses of tuple (`torch.Size`, named tuples, `torch.return_types.*`): tuple
* subclasses of list: list
* subclasses of dict (`OrderedDict`): dict
* dataclass instances: dict of their fields
* subclasses of int, float and str: the base class
* `torch.nn.Parameter`: the plain tensor that shares its memory

Flattening runs no code of the value: no property, no method of an instance or metaclass. The outputs are flattened
after the clock stops, so such code could do the timed work then.

Tensors are numbered in one canonical order, with dicts in the order of sorted keys. So dicts with the same keys in
another order have the same slots, and `unflatten` restores the order of insertion. A tensor that occurs twice has two
slots.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, TypeAlias

import torch

TREE_FORMAT = 1
"""Version of the JSON form."""

MAX_DEPTH = 16
"""Deepest nesting; deeper (also cyclic) trees are refused. One level takes up to three levels of JSON."""

MAX_NODES = 20_000
"""Most nodes of one tree, without dict keys."""

MAX_TEXT_CHARS = 10_000
"""Longest string constant or type name, in characters."""

_INT_RANGE = range(-(2**63), 2**64)
"""Integers that fit into 64 bits, signed or unsigned; others are opaque."""

_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

_DTYPES = {str(held).removeprefix("torch."): held for held in vars(torch).values() if isinstance(held, torch.dtype)}

Constant: TypeAlias = "bool | int | float | str | torch.dtype | None"
Key: TypeAlias = "bool | int | float | str | None"


class TreeError(ValueError):
    """A value or description is not a valid tree.

    It is too deep, too large, malformed, or can't be rebuilt.
    """


@dataclass(frozen=True, slots=True)
class TensorSlot:
    """Place of tensor number `index`."""

    index: int


@dataclass(frozen=True, slots=True)
class ConstantLeaf:
    """A constant; the description contains its value."""

    value: Constant


@dataclass(frozen=True, slots=True)
class Opaque:
    """Any other value; only the name of its type is known."""

    type_name: str


@dataclass(frozen=True, slots=True)
class Items:
    """A tuple or a list."""

    kind: str
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Entries:
    """A dict, in order of insertion."""

    entries: tuple[tuple[Key, Node], ...]


Node: TypeAlias = "TensorSlot | ConstantLeaf | Opaque | Items | Entries"


@dataclass(frozen=True, slots=True)
class TreeSpec:
    """Structure of a tree without its tensors.

    It is hashable, comparable and convertible to JSON.

    Attributes:
        root: The outermost node.
        slots: Number of tensors.
        degraded: Types that were replaced by simpler ones, as `path: type`. JSON does not contain it.
    """

    root: Node
    slots: int
    degraded: tuple[str, ...] = field(default=(), compare=False)

    def paths(self, root: str = "$") -> tuple[str, ...]:
        """Return the path of each tensor in slot order, such as `$[0]['mask']`.

        `root` replaces `$`.
        """
        return tuple(path for path, node in _walk(self.root, root) if isinstance(node, TensorSlot))

    def floats(self, root: str = "$") -> tuple[tuple[str, float], ...]:
        """Return path and value of each float constant, in canonical order."""
        return tuple(
            (path, node.value)
            for path, node in _walk(self.root, root)
            if isinstance(node, ConstantLeaf) and isinstance(node.value, float)
        )

    def exact(self, root: str = "$") -> tuple[tuple[str, Constant], ...]:
        """Return path and value of each constant that is not a float, in canonical order."""
        return tuple(
            (path, node.value)
            for path, node in _walk(self.root, root)
            if isinstance(node, ConstantLeaf) and not isinstance(node.value, float)
        )

    def opaque(self, root: str = "$") -> tuple[tuple[str, str], ...]:
        """Return path and type name of each opaque node."""
        return tuple((path, node.type_name) for path, node in _walk(self.root, root) if isinstance(node, Opaque))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object that `json.dumps(..., allow_nan=False)` accepts."""
        return {"format": TREE_FORMAT, "slots": self.slots, "root": _node_to_json(self.root)}

    @classmethod
    def from_json(cls, value: object) -> TreeSpec:
        """Parse a description from an untrusted source.

        Raises:
            TreeError: `to_json` can't have written the value.
        """
        if type(value) is not dict or set(value) != {"format", "slots", "root"}:
            raise TreeError("a tree must be an object with format, slots and root")
        if type(value["format"]) is not int or value["format"] != TREE_FORMAT:
            raise TreeError(f"tree format {value['format']!r:.40}; this harness reads {TREE_FORMAT}")
        reader = _TreeReader()
        root = reader.node(value["root"], 0)
        slots = [node.index for _, node in _walk(root, "") if isinstance(node, TensorSlot)]
        # Never build a range of the claimed length: a number of ten digits would take all memory.
        if type(value["slots"]) is not int or value["slots"] != len(slots) or slots != list(range(len(slots))):
            raise TreeError("the tensors of a tree must be numbered from 0 in canonical order")
        return cls(root=root, slots=len(slots))


def flatten(value: object) -> tuple[list[torch.Tensor], TreeSpec]:
    """Split a value into its tensors and the description of its structure.

    Args:
        value: Any value.

    Returns:
        The tensors in slot order (not copies), and the description.

    Raises:
        TreeError: The value nests deeper than `MAX_DEPTH` (also by a cycle) or has more than `MAX_NODES` nodes.
    """
    writer = _TreeWriter()
    root = writer.node(value, 0, "$")
    return writer.leaves, TreeSpec(root=root, slots=len(writer.leaves), degraded=tuple(writer.degraded))


def flatten_any(value: object) -> tuple[list[torch.Tensor], TreeSpec]:
    """Flatten like `flatten`, but never raise.

    Instead of `TreeError`, the result is one opaque node with the reason.
    """
    try:
        return flatten(value)
    except TreeError as error:
        return [], TreeSpec(root=Opaque(f"{_type_name(type(value))} {error}"[:MAX_TEXT_CHARS]), slots=0)


def unflatten(spec: TreeSpec, leaves: Sequence[torch.Tensor]) -> Any:
    """Rebuild the tree of `spec` with `leaves` in its slots.

    Args:
        spec: The description.
        leaves: The tensors in slot order.

    Returns:
        The tree.

    Raises:
        TreeError: The number of tensors is wrong, or the description has an opaque node.
    """
    if len(leaves) != spec.slots:
        raise TreeError(f"the tree needs {spec.slots} tensors, not {len(leaves)}")

    return _build(spec.root, leaves)


def _build(node: Node, leaves: Sequence[torch.Tensor]) -> Any:
    # Not a closure inside `unflatten`: a closure that calls itself is a reference cycle, which would keep the tensors
    # (gigabytes for a large problem) alive until the next garbage collection.
    match node:
        case TensorSlot(index):
            return leaves[index]
        case ConstantLeaf(constant):
            return constant
        case Items(kind, items):
            built = [_build(item, leaves) for item in items]
            return tuple(built) if kind == "tuple" else built
        case Entries(entries):
            return {key: _build(item, leaves) for key, item in entries}
        case Opaque(type_name):
            raise TreeError(f"a value of type {type_name} can't be rebuilt")


def order_of(key: Key) -> tuple[str, bool | int | float | str]:
    """Return the sort key of a dict's entry: type first, because types may differ."""
    return (type(key).__name__, 0 if key is None else key)


def _walk(node: Node, path: str) -> Iterator[tuple[str, Node]]:
    """Yield each node with its path, in canonical order."""
    yield path, node
    if isinstance(node, Items):
        for i, item in enumerate(node.items):
            yield from _walk(item, f"{path}[{i}]")
    elif isinstance(node, Entries):
        for key, item in sorted(node.entries, key=lambda entry: order_of(entry[0])):
            yield from _walk(item, f"{path}[{key!r:.80}]")


_OF_TYPE = vars(type)
_DICT: Callable[[type], Mapping[str, Any]] = _OF_TYPE["__dict__"].__get__
_MRO: Callable[[type], tuple[type, ...]] = _OF_TYPE["__mro__"].__get__
_QUALNAME: Callable[[type], str] = _OF_TYPE["__qualname__"].__get__
_MODULE: Callable[[type], object] = _OF_TYPE["__module__"].__get__
_DETACH: Callable[[torch.Tensor], torch.Tensor] = torch._C.TensorBase.detach
_IS_NESTED: Callable[[torch.Tensor], bool] = vars(torch._C.TensorBase)["is_nested"].__get__
"""Descriptors of `type` and torch, which a metaclass or an instance can't override."""


def _type_name(kind: type) -> str:
    module = _MODULE(kind)
    return ".".join((module if type(module) is str else "?", str.__str__(_QUALNAME(kind))))[:MAX_TEXT_CHARS]


_NOTHING = object()


def _in_class(kind: type, name: str) -> object:
    """Return a class's or base class's attribute without running code of the class."""
    return next((held[name] for held in map(_DICT, _MRO(kind)) if name in held), _NOTHING)


def _fields(value: object) -> tuple[tuple[str, Any], ...] | None:
    """Return the stored fields of a dataclass instance.

    The result is None for other values, and if code of the class provides a field (a property, for example).
    """
    kind = type(value)
    declared = _in_class(kind, "__dataclass_fields__")
    if type(declared) is not dict:
        return None
    where = _in_class(kind, "__dict__")
    stored = where.__get__(value) if type(where) is GetSetDescriptorType else {}
    found = []
    for item in declared.values():
        if type(item) is not dataclasses.Field or type(item.name) is not str:
            return None
        if item._field_type is not dataclasses._FIELD:  # type: ignore[attr-defined]  # of the class, or for __init__
            continue
        slot = _in_class(kind, item.name)
        if type(slot) is MemberDescriptorType:
            try:
                found.append((item.name, slot.__get__(value)))
            except AttributeError:
                return None
        elif dict.__contains__(stored, item.name):
            found.append((item.name, dict.__getitem__(stored, item.name)))
        elif slot is not _NOTHING and _in_class(type(slot), "__get__") is _NOTHING:
            found.append((item.name, slot))  # a default that the instance does not override
        else:
            return None
    return tuple(found)


class _TreeWriter:
    """State of one `flatten`."""

    def __init__(self) -> None:
        self.leaves: list[torch.Tensor] = []
        self.degraded: list[str] = []
        self.nodes = 0

    def node(self, value: Any, depth: int, path: str) -> Node:
        if depth > MAX_DEPTH:
            raise TreeError(f"nested deeper than {MAX_DEPTH} levels at {path[:80]}")
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise TreeError(f"more than {MAX_NODES} values")
        kind = type(value)
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            # A nested tensor has no shape.
            return Opaque("nested torch.Tensor") if _IS_NESTED(value) else self.tensor(value, path)
        if issubclass(kind, torch.Tensor):
            return Opaque(_type_name(kind))
        if value is None or kind is bool or kind is torch.dtype:
            return ConstantLeaf(value)
        for base, convert in _SCALARS:
            if issubclass(kind, base):
                if kind is not base:
                    self.note(path, kind)
                return _constant(convert(value))
        if issubclass(kind, tuple | list):
            base = tuple if issubclass(kind, tuple) else list
            if kind is not base:
                self.note(path, kind)
            items = tuple(base.__iter__(value))
            return Items(
                base.__name__,
                tuple(self.node(item, depth + 1, f"{path}[{i}]") for i, item in enumerate(items)),
            )
        if issubclass(kind, dict):
            if kind is not dict:
                self.note(path, kind)
            return self.entries(tuple(dict.items(value)), depth, path)
        if (held := _fields(value)) is not None:
            self.note(path, kind)
            return self.entries(held, depth, path)
        return Opaque(_type_name(kind))

    def tensor(self, value: Any, path: str) -> TensorSlot:
        if type(value) is not torch.Tensor:
            self.note(path, type(value))
            value = _DETACH(value)
        self.leaves.append(value)
        return TensorSlot(len(self.leaves) - 1)

    def entries(self, held: tuple[tuple[Any, Any], ...], depth: int, path: str) -> Node:
        for key, _ in held:
            if type(key) not in (bool, int, float, str, type(None)) or isinstance(_constant(key), Opaque):
                return Opaque(f"dict with a key of type {_type_name(type(key))}")
            if isinstance(key, float) and not math.isfinite(key):
                return Opaque(f"dict with the key {key}")
        nodes: dict[Any, Node] = {}
        for key, item in sorted(held, key=lambda entry: order_of(entry[0])):
            nodes[key] = self.node(item, depth + 1, f"{path}[{key!r:.80}]")
        return Entries(tuple((key, nodes[key]) for key, _ in held))

    def note(self, path: str, kind: type) -> None:
        self.degraded.append(f"{path}: {_type_name(kind)}")


_SCALARS: tuple[tuple[type, Callable[[Any], Constant]], ...] = (
    (int, int.__int__),
    (float, float.__float__),
    (str, str.__str__),
)


def _constant(value: Constant) -> ConstantLeaf | Opaque:
    if type(value) is int and value not in _INT_RANGE:
        return Opaque("int beyond 64 bits")
    if type(value) is str and len(value) > MAX_TEXT_CHARS:
        return Opaque(f"str of {len(value)} characters")
    return ConstantLeaf(value)


def _node_to_json(node: Node) -> list[Any]:
    match node:
        case TensorSlot(index):
            return ["tensor", index]
        case ConstantLeaf(value):
            return _constant_to_json(value)
        case Items(kind, items):
            return [kind, [_node_to_json(item) for item in items]]
        case Entries(entries):
            return ["dict", [[_constant_to_json(key), _node_to_json(item)] for key, item in entries]]
        case Opaque(type_name):
            return ["other", type_name]


def _constant_to_json(value: Constant) -> list[Any]:
    if value is None:
        return ["none", None]
    if isinstance(value, torch.dtype):
        return ["dtype", str(value).removeprefix("torch.")]
    if isinstance(value, float) and not math.isfinite(value):
        return ["float", str(value)]
    return [type(value).__name__, value]


class _TreeReader:
    """State of one `from_json`."""

    def __init__(self) -> None:
        self.nodes = 0

    def node(self, value: object, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise TreeError(f"nested deeper than {MAX_DEPTH} levels")
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise TreeError(f"more than {MAX_NODES} values")
        kind, held = _pair(value)
        if kind == "tensor" and type(held) is int:
            return TensorSlot(held)
        if kind == "other":
            return Opaque(_text(held))
        if kind in ("tuple", "list") and type(held) is list:
            return Items(kind, tuple(self.node(item, depth + 1) for item in held))
        if kind == "dict" and type(held) is list:
            return self.entries(held, depth)
        return ConstantLeaf(_constant_from_json(kind, held))

    def entries(self, held: list[object], depth: int) -> Entries:
        entries: list[tuple[Key, Node]] = []
        seen: set[Key] = set()
        for entry in held:
            if type(entry) is not list or len(entry) != 2:
                raise TreeError("an entry of a dict must be a key and a value")
            key = _constant_from_json(*_pair(entry[0]))
            if isinstance(key, torch.dtype) or (isinstance(key, float) and not math.isfinite(key)):
                raise TreeError("a key of a dict must be None, a bool, an int, a finite float or a string")
            if key in seen:
                raise TreeError(f"the key {key!r:.80} occurs twice")
            seen.add(key)
            entries.append((key, self.node(entry[1], depth + 1)))
        return Entries(tuple(entries))


def _pair(value: object) -> tuple[str, object]:
    if type(value) is not list or len(value) != 2 or type(value[0]) is not str:
        raise TreeError("a node of a tree must be a kind and its content")
    return value[0], value[1]


def _text(value: object) -> str:
    if type(value) is not str or len(value) > MAX_TEXT_CHARS:
        raise TreeError(f"a text of a tree must be a string of at most {MAX_TEXT_CHARS} characters")
    return value


def _constant_from_json(kind: str, held: object) -> Constant:
    if kind == "none" and held is None:
        return None
    if kind == "bool" and type(held) is bool:
        return held
    if kind == "int" and type(held) is int and held in _INT_RANGE:
        return held
    if kind == "float" and type(held) is float and math.isfinite(held):
        return held
    if kind == "float" and type(held) is str and held in _NON_FINITE:
        return _NON_FINITE[held]
    if kind == "str":
        return _text(held)
    if kind == "dtype" and type(held) is str and held in _DTYPES:
        return _DTYPES[held]
    raise TreeError(f"not a node of a tree: {kind!r:.40}")
