"""Which trees are built alike, and how a difference is named."""

from __future__ import annotations

import math

import pytest
import torch

from harness.protocol.tensor_tree import flatten
from harness.referee.problem.structure import same_structure


def test_opaque_equals_nothing() -> None:
    spec = flatten({1, 2})[1]
    assert same_structure(spec, spec) is not None


@pytest.mark.parametrize(
    ("expected", "actual", "said"),
    [
        (torch.zeros(1), None, "output: expected a tensor, got None"),
        ((1, 2), [1, 2], "output: expected a tuple of 2, got a list of 2"),
        ((1, 2), (1, 2, 3), "output: expected a tuple of 2, got one of 3"),
        ([0, (1, 2)], [0, (1, 3)], "output[1][1]: expected the int 2, got the int 3"),
        ([1], [True], "output[0]: expected the int 1, got the bool True"),
        ([1], [1.0], "output[0]: expected the int 1, got the float 1.0"),
        ({"a": 1}, {}, "output: missing key 'a'"),
        ({}, {"b": 1}, "output: unexpected key 'b'"),
        ({"a": torch.zeros(1)}, {"a": "no"}, "output['a']: expected a tensor, got the str 'no'"),
        ((torch.zeros(1),), torch.zeros(1), "output: expected a tuple of 1, got a tensor"),
    ],
)
def test_the_first_difference_is_named(expected: object, actual: object, said: str) -> None:
    assert same_structure(flatten(expected)[1], flatten(actual)[1]) == said


def test_floats_are_left_to_a_tolerance() -> None:
    left, right = flatten([1.0, {"a": 2.0}])[1], flatten([1.5, {"a": math.nan}])[1]
    assert same_structure(left, right) is None
    assert left.floats() == (("$[0]", 1.0), ("$[1]['a']", 2.0))
    assert [path for path, _ in right.floats()] == [path for path, _ in left.floats()]


def test_constants_may_be_left_to_whoever_knows_the_inputs() -> None:
    left, right = flatten([1, {"a": "yes"}, torch.float32, 1.0])[1], flatten([2, {"a": "no"}, torch.float64, 2.0])[1]
    assert same_structure(left, right, values=False) is None
    assert left.exact() == (("$[0]", 1), ("$[1]['a']", "yes"), ("$[2]", torch.float32))
    assert same_structure(left, flatten([True, {"a": "no"}, torch.float64, 2.0])[1], values=False) == (
        "output[0]: expected the int 1, got the bool True"
    )
