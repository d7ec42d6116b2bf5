"""Rounded outputs: a code is right if the value before rounding lies within half a step of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from harness.core.choices import PrecisionClass
from harness.referee.correctness.compare import compare
from harness.referee.correctness.precision import UNLIMITED
from harness.referee.correctness.tolerance import judge, of_kinds
from harness.referee.problem.choices import Choices
from harness.referee.problem.codes import CodeChoice, OutputKind

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def recorded(forward: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> CodeChoice | None:
    with torch.no_grad(), Choices() as choices:
        out = forward(x)
    found = choices.of([out]).get(0)
    assert found is None or isinstance(found, CodeChoice)
    return found


def drawn(count: int = 20_000) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 8


def int8(x: torch.Tensor) -> torch.Tensor:
    return torch.round(x).clamp(-127, 127).to(torch.int8)


ROUNDINGS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "e4m3": lambda x: x.clamp(-448, 448).to(E4M3),
    "e5m2": lambda x: x.to(E5M2),
    "int8": int8,
    "clamped first": lambda x: x.clamp(-7, 7).round().to(torch.int8),
    "reshaped": lambda x: x.to(E4M3).view(100, -1),
    "transposed": lambda x: x.view(100, -1).T.to(E4M3).T,
    "transposed and copied": lambda x: x.view(100, -1).T.to(E4M3).flatten(),
    "part of it": lambda x: int8(x.view(100, -1))[3:, ::2],
}


@pytest.mark.parametrize("name", ROUNDINGS)
def test_what_the_reference_rounds_is_right_and_its_neighbours_are_not(name: str) -> None:
    x = drawn()
    found = recorded(ROUNDINGS[name], x)
    assert found is not None
    codes = found.index
    assert float((found.pointed(codes) - found.chosen).abs().max()) <= 1e-12
    integers = not codes.is_floating_point()
    others = codes + 1 if integers else (codes.view(torch.uint8) ^ 1).view(codes.dtype)
    wrong = compare(found.pointed(others), found.chosen, limits=UNLIMITED)
    assert wrong.rms_error is not None
    assert wrong.rms_error > 5e-3


def test_either_side_of_a_border_is_right_within_the_arithmetic_s_error() -> None:
    border = torch.tensor([1.0625, 1.0625 * (1 + 1e-7), 1.0625 * (1 - 1e-7), 2.5])
    found = recorded(lambda x: x.to(E4M3), border.double())
    assert found is not None
    for low in (1.0, 1.125):
        off = (found.pointed(torch.tensor([low, low, low, 2.5]).to(E4M3)) - found.chosen).abs()
        assert float(off.max()) < 2e-7
    assert float((found.pointed(torch.full((4,), 1.25).to(E4M3)) - found.chosen).abs()[0]) == pytest.approx(0.125)


@pytest.mark.parametrize(
    ("worse", "x"),
    [
        (lambda x: x.to(torch.bfloat16).to(E4M3), drawn()),
        (lambda x: x.to(E5M2).double().to(E4M3), drawn()),
        (lambda x: (x * (1 + 2.0**-12)).to(E4M3), drawn()),
    ],
    ids=["rounded to bf16 before", "rounded to e5m2 before", "a scale that is slightly off"],
)
def test_arithmetic_of_a_coarser_class_fails(worse: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> None:
    found = recorded(lambda v: v.to(E4M3), x)
    assert found is not None
    judged = [compare(found.pointed(worse(x)), found.chosen)]
    verdict = judge(of_kinds(judged, {0: found.kind}), PrecisionClass.FP32)
    assert verdict.failure is not None
    assert "beyond half a step of float8_e4m3fn" in verdict.failure.reason
    assert verdict.evidence["outputs"][0]["dtype"] == "float8_e4m3fn"
    assert verdict.evidence["outputs"][0]["code"] is True
    honest = (x.float() * 3 / 3).to(E4M3)
    assert judge([compare(found.pointed(honest), found.chosen)], PrecisionClass.FP32).failure is None


def test_values_beyond_the_largest_number_may_saturate() -> None:
    x = torch.tensor([1e4, -1e4, torch.nan, 3.0], dtype=torch.float64)
    found = recorded(lambda v: v.to(E4M3), x)
    assert found is not None
    nan = torch.nan
    for codes in ([448.0, -448.0, nan, 3.0], [nan, nan, nan, 3.0]):
        near = compare(found.pointed(torch.tensor(codes).to(E4M3)), found.chosen)
        assert (near.non_finite_mismatches, near.wrong) == (0, 0)
    for codes in ([448.0, 448.0, nan, 3.0], [448.0, -448.0, 0.0, 3.0], [448.0, -448.0, nan, nan]):
        far = compare(found.pointed(torch.tensor(codes).to(E4M3)), found.chosen)
        assert far.non_finite_mismatches or far.wrong


def test_only_results_of_rounding_are_codes() -> None:
    x = drawn(64)
    assert recorded(lambda v: v.to(torch.int8), x) is None, "conversions to integers cut"
    assert recorded(lambda v: v.to(torch.bfloat16), x) is None
    assert recorded(lambda v: int8(v) + 1, x) is None
    assert recorded(lambda v: v.to(E4M3).view(torch.uint8), x) is None
    assert recorded(lambda v: v.to(E4M3)[:0], x) is None
    assert recorded(lambda v: v.to(E4M3).to(E5M2), x) is None
    assert recorded(lambda v: int8(v).add_(1), x) is None, "written to since"
    kind = recorded(int8, x)
    assert kind is not None
    assert kind.kind == OutputKind(dtype="int8")
    assert kind.faults(kind.index) == ""
