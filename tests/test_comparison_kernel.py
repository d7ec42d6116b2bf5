"""The kernels of a comparison on a GPU against the same passes in torch's operations on the CPU."""

from __future__ import annotations

import math

import pytest
import torch

from harness import comparison_kernel
from harness.numerics import compare, kernelbench_rule

pytestmark = pytest.mark.gpu

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def pair(count: int, dtype: torch.dtype, noise: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randn(count, generator=generator, dtype=torch.float64) * 3 + 0.5
    return (truth + noise * torch.randn(count, generator=generator, dtype=torch.float64)).to(dtype), truth


def both(actual: torch.Tensor, truth: torch.Tensor) -> tuple[dict[str, object], dict[str, object]]:
    assert comparison_kernel.passes(actual.cuda(), truth.cuda()) is not None
    return compare(actual.cuda(), truth.cuda()).to_json(), compare(actual, truth).to_json()


def assert_alike(mine: dict[str, object], theirs: dict[str, object]) -> None:
    assert mine.keys() == theirs.keys()
    for key, value in theirs.items():
        if isinstance(value, float):
            assert math.isclose(float(mine[key]), value, rel_tol=1e-9, abs_tol=1e-300), key  # type: ignore[arg-type]
        elif key != "worst":  # among equals another place may be named
            assert mine[key] == value, key


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("count", [1, 31, 257, 100_003, 5_000_000])
@pytest.mark.parametrize("noise", [0.0, 1e-6, 0.3])
def test_errors_are_those_of_torchs_operations(dtype: torch.dtype, count: int, noise: float) -> None:
    assert_alike(*both(*pair(count, dtype, noise)))


@pytest.mark.parametrize("dtype", TYPES)
def test_one_wrong_value_is_found_at_its_place(dtype: torch.dtype) -> None:
    actual, truth = pair(1_000_003, dtype, 0.0)
    actual[777_777] += 8
    found = compare(actual.cuda(), truth.cuda())
    assert found.wrong == 1
    assert found.worst is not None
    assert found.worst.index == (777_777,)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("in_truth", [False, True])
def test_values_that_are_not_finite_get_the_careful_arithmetic(value: float, in_truth: bool) -> None:
    actual, truth = pair(10_000, torch.float32, 0.0)
    (truth if in_truth else actual)[123] = value
    mine, theirs = both(actual, truth)
    assert_alike(mine, theirs)
    assert mine["non_finite_mismatches"] == 1


def test_a_truth_beyond_the_types_range_gets_it_too() -> None:
    actual, truth = pair(10_000, torch.float16, 0.0)
    truth[5], actual[5] = 1e6, math.inf
    assert_alike(*both(actual, truth))


def test_a_truth_in_float32_is_read_as_such() -> None:
    actual, truth = pair(70_000, torch.float32, 1e-4)
    assert_alike(*both(actual, truth.float()))


@pytest.mark.parametrize("off", [0.0, 0.9e-4, 1.2e-4, 1.0, math.nan, math.inf])
@pytest.mark.parametrize("base", [0.0, 1.0, -1e4, math.inf])
def test_kernelbenchs_rule_is_torchs_allclose(off: float, base: float) -> None:
    reference = torch.full((100_001,), base)
    actual = reference.clone()
    actual[55_555] += off
    assert kernelbench_rule(actual.cuda(), reference.cuda()) is kernelbench_rule(actual, reference)


def test_what_the_kernels_are_not_made_for_goes_without_them() -> None:
    plain = torch.ones(64, 64, device="cuda")
    assert comparison_kernel.passes(plain.T[:, 1:], plain.double()[:, 1:]) is None
    assert comparison_kernel.passes(plain.to(torch.float8_e4m3fn), plain.double()) is None
    assert comparison_kernel.passes(plain.cpu(), plain.cpu().double()) is None
    assert comparison_kernel.all_close(plain.half(), plain.half(), 1e-2) is None
