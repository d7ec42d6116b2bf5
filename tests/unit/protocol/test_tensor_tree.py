"""Trees: what survives the round trip, what degrades, what is refused."""

from __future__ import annotations

import gc
import json
import math
import weakref
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.protocol.tensor_tree import MAX_DEPTH, MAX_NODES, TreeError, TreeSpec, flatten, flatten_any, unflatten
from harness.referee.problem.structure import same_structure

Pair = namedtuple("Pair", ["left", "right"])


@dataclass
class Holder:
    x: torch.Tensor
    n: int


def through_json(spec: TreeSpec) -> TreeSpec:
    return TreeSpec.from_json(json.loads(json.dumps(spec.to_json(), allow_nan=False)))


def test_a_tree_survives_json_with_its_tensors_in_place() -> None:
    a, b, c = torch.zeros(2), torch.ones(3), torch.arange(4)
    value = {"z": (a, [1, 2.5, True, None, "text"]), "a": [b, {"deep": c}], "kind": torch.bfloat16}
    leaves, spec = flatten(value)
    read = through_json(spec)
    assert read == spec
    built = unflatten(read, leaves)
    assert list(built) == ["z", "a", "kind"]
    assert built["z"][0] is a
    assert built["a"][0] is b
    assert built["a"][1]["deep"] is c
    assert built["z"][1] == [1, 2.5, True, None, "text"]
    assert isinstance(built["z"], tuple)
    assert isinstance(built["a"], list)
    assert built["z"][1][2] is True
    assert built["kind"] is torch.bfloat16


def test_dict_order_changes_neither_slots_nor_structure() -> None:
    a, b = torch.zeros(2), torch.ones(3)
    left_leaves, left = flatten({"a": a, "b": b})
    right_leaves, right = flatten({"b": b, "a": a})
    assert all(x is y for x, y in zip(left_leaves, right_leaves, strict=True))
    assert same_structure(left, right) is None
    assert list(unflatten(right, right_leaves)) == ["b", "a"]
    assert left.paths("output") == ("output['a']", "output['b']")


@pytest.mark.parametrize("value", [math.inf, -math.inf, 0.1, -0.0, 1e-320, 2**63, -(2**63), "\ud800", ""])
def test_awkward_constants_survive(value: object) -> None:
    held = unflatten(through_json(flatten([value])[1]), [])[0]
    assert held == value
    assert type(held) is type(value)
    assert math.copysign(1, held) == math.copysign(1, value) if isinstance(value, float) else True


def test_nan_survives() -> None:
    assert math.isnan(unflatten(through_json(flatten(math.nan)[1]), []))


def test_what_degrades_is_listed() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2))
    top = torch.max(torch.eye(2), dim=0)
    value = [Pair(1, 2), torch.Size([3]), OrderedDict(k=1), Holder(torch.ones(1), 4), parameter, top]
    leaves, spec = flatten(value)
    built = unflatten(spec, leaves)
    assert built[0] == (1, 2)
    assert type(built[0]) is tuple
    assert type(built[1]) is tuple
    assert type(built[2]) is dict
    assert built[3]["n"] == 4
    assert type(built[4]) is torch.Tensor
    assert built[4].data_ptr() == parameter.data_ptr()
    assert type(built[5]) is tuple
    assert [note.split(":")[0] for note in spec.degraded] == [f"$[{i}]" for i in range(6)]
    assert "torch.nn.parameter.Parameter" in spec.degraded[4]


def test_tensor_subclasses_and_strangers_are_opaque() -> None:
    class Lazy(torch.Tensor):
        pass

    leaves, spec = flatten((torch.zeros(1).as_subclass(Lazy), {1, 2}, 2**70, {(1, 2): 3}))
    assert leaves == []
    kinds = dict(through_json(spec).opaque("output"))
    assert kinds["output[0]"].endswith("Lazy")
    assert kinds["output[1]"] == "builtins.set"
    assert kinds["output[2]"] == "int beyond 64 bits"
    assert "tuple" in kinds["output[3]"]
    with pytest.raises(TreeError, match="Lazy"):
        unflatten(spec, [])
    found = same_structure(flatten(torch.zeros(1))[1], flatten(torch.zeros(1).as_subclass(Lazy))[1])
    assert found is not None
    assert "Lazy" in found


class Prying(type):
    """A metaclass that is told whenever something of its classes is looked at."""

    asked: ClassVar[list[str]] = []

    def __getattribute__(cls, name: str) -> Any:
        if name in ("__module__", "__qualname__", "__dict__", "__dataclass_fields__", "__mro__"):
            Prying.asked.append(name)
        return super().__getattribute__(name)


class LazyName(str):
    def __format__(self, spec: str) -> str:
        Prying.asked.append("format")
        return "name"

    __str__ = __repr__ = lambda self: self.__format__("")


class PryingList(list, metaclass=Prying):  # type: ignore[type-arg]
    __module__ = LazyName("somewhere")

    def __iter__(self) -> Any:
        Prying.asked.append("iter")
        return super().__iter__()


class PryingDict(dict, metaclass=Prying):  # type: ignore[type-arg]
    def items(self) -> Any:
        Prying.asked.append("items")
        return super().items()


class PryingThing(metaclass=Prying):
    pass


@dataclass
class PryingFields(metaclass=Prying):
    y: Any

    def __getattribute__(self, name: str) -> Any:
        Prying.asked.append(name)
        return super().__getattribute__(name)


@dataclass(slots=True)
class Slotted:
    y: Any


@dataclass
class Defaulted:
    y: Any
    n: int = field(default=3, init=False)
    rest: None = None
    shared: ClassVar[int] = 4


def test_a_field_that_no_instance_holds_has_its_default() -> None:
    leaves, tree = flatten(Defaulted(torch.zeros(1)))
    assert unflatten(tree, leaves) == {"y": leaves[0], "n": 3, "rest": None}


@dataclass
class LazyField:
    y: Any

    @property  # type: ignore[no-redef]
    def y(self) -> Any:
        Prying.asked.append("y")
        return torch.zeros(1)

    @y.setter
    def y(self, value: Any) -> None:
        pass


def lazy_parameter() -> torch.Tensor:
    made = torch.nn.Parameter(torch.zeros(1))
    made.detach = lambda: Prying.asked.append("detach")  # type: ignore[method-assign, assignment, return-value]
    return made


@pytest.mark.parametrize(
    ("make", "slots"),
    [
        (lambda: PryingList([torch.zeros(1)]), 1),
        (lambda: PryingDict(y=torch.zeros(1)), 1),
        (PryingThing, 0),
        (lambda: PryingFields(y=torch.zeros(1)), 1),
        (lambda: LazyField(y=torch.zeros(1)), 0),
        (lambda: Slotted(y=torch.zeros(1)), 1),
        (lazy_parameter, 1),
    ],
)
def test_nothing_of_a_value_runs_while_it_is_taken_apart(make: Callable[[], object], slots: int) -> None:
    value = make()
    Prying.asked.clear()
    leaves, tree = flatten([value])
    asked = list(Prying.asked)
    assert asked == []
    assert tree.slots == len(leaves) == slots


def test_cycles_and_floods_are_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(TreeError, match="deeper"):
        flatten(loop)
    with pytest.raises(TreeError, match="more than"):
        flatten([0] * (MAX_NODES + 1))


def test_what_may_be_anything_is_described_where_it_is_no_tree() -> None:
    loop: list[object] = []
    loop.append(loop)
    refused = ((loop, "builtins.list nested deeper than"), ([0] * (MAX_NODES + 1), "builtins.list more than"))
    for value, words in refused:
        leaves, spec = flatten_any(value)
        assert leaves == []
        assert through_json(spec).opaque("output")[0][1].startswith(words)
    leaves, spec = flatten_any([torch.zeros(1)])
    assert len(leaves) == spec.slots == 1


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_opaque() -> None:
    nested = torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)], layout=torch.strided)
    for value in (nested, torch.nn.Parameter(nested)):
        leaves, spec = flatten([value, torch.zeros(1)])
        assert len(leaves) == 1
        assert spec.opaque() == (("$[0]", "nested torch.Tensor"),)


def test_leaf_count_must_match() -> None:
    _, spec = flatten([torch.zeros(1)])
    with pytest.raises(TreeError, match="needs 1 tensors, not 0"):
        unflatten(spec, [])


def nested(depth: int) -> list[Any]:
    node: list[Any] = ["int", 1]
    for _ in range(depth):
        node = ["list", [node]]
    return node


@pytest.mark.parametrize(
    "root",
    [
        None,
        [],
        ["int"],
        ["int", 1, 2],
        ["int", True],
        ["int", 1.0],
        ["int", 2**64],
        ["float", 1],
        ["float", "NaN"],
        ["bool", 1],
        ["none", 0],
        ["str", "x" * 10_001],
        ["dtype", "load"],
        ["tensor", 0],
        ["tensor", -1],
        ["tuple", ["int", 1]],
        ["set", []],
        ["dict", [["a", ["int", 1]]]],
        ["dict", [[["str", "a"], ["int", 1]], [["str", "a"], ["int", 2]]]],
        ["dict", [[["int", 1], ["none", None]], [["bool", True], ["none", None]]]],
        ["dict", [[["float", "nan"], ["none", None]]]],
        ["list", [["none", None]] * (MAX_NODES + 1)],
        nested(MAX_DEPTH + 1),
    ],
)
def test_malformed_descriptions_are_refused(root: object) -> None:
    with pytest.raises(TreeError):
        TreeSpec.from_json({"format": 1, "slots": 0, "root": root})


def test_the_deepest_tree_is_accepted() -> None:
    value: list[Any] = []
    for _ in range(MAX_DEPTH):
        value = [value]
    assert through_json(flatten(value)[1]) == flatten(value)[1]


@pytest.mark.parametrize(
    "value",
    [
        {"format": 1, "slots": 2, "root": ["list", [["tensor", 1], ["tensor", 0]]]},
        {"format": 1, "slots": 2, "root": ["list", [["tensor", 0], ["tensor", 0]]]},
        {"format": 1, "slots": True, "root": ["tensor", 0]},
        {"format": 1, "slots": -1, "root": ["none", None]},
        {"format": 1, "slots": 10**12, "root": ["tensor", 0]},
        {"format": 1, "slots": 10**400, "root": ["tensor", 0]},
        {"format": 2, "slots": 0, "root": ["none", None]},
        {"format": True, "slots": 0, "root": ["none", None]},
        {"slots": 0, "root": ["none", None]},
        {"format": 1, "slots": 0, "root": ["none", None], "more": 1},
        {
            "format": 1,
            "slots": 2,
            "root": ["dict", [[["str", "b"], ["tensor", 0]], [["str", "a"], ["tensor", 1]]]],
        },
        [],
        "tree",
    ],
)
def test_slots_and_envelope_are_checked(value: object) -> None:
    with pytest.raises(TreeError):
        TreeSpec.from_json(value)


constants = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
trees = st.recursive(
    constants | st.builds(lambda: torch.zeros(1)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(-9, 9) | st.booleans(), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(trees)
def test_every_tree_has_its_own_structure(value: object) -> None:
    leaves, spec = flatten(value)
    read = through_json(spec)
    assert read.to_json() == spec.to_json()
    if not spec.opaque():
        assert same_structure(spec, read) is None
        again, spec_again = flatten(unflatten(read, leaves))
        assert all(x is y for x, y in zip(leaves, again, strict=True))
        assert spec_again.to_json() == spec.to_json()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["tensor", "list", "dict", "int"]),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=15,
)


@given(json_values)
def test_any_json_is_read_or_refused(root: object) -> None:
    try:
        spec = TreeSpec.from_json({"format": 1, "slots": 0, "root": root})
    except TreeError:
        return
    assert spec.to_json()["root"] == root


def test_putting_together_keeps_no_tensor_alive() -> None:
    leaf = torch.zeros(3)
    alive = weakref.ref(leaf)
    value = unflatten(flatten([leaf, {"a": 1}])[1], [leaf])
    gc.disable()
    try:
        del leaf, value
        assert alive() is None
    finally:
        gc.enable()
