"""Words for where an output is wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

from harness.referee.correctness.error_patterns import (
    Marginals,
    describe_rearrangement,
    describe_transformation,
    moments,
)


def mask(*shape: int, spoil: Callable[[torch.Tensor], object]) -> torch.Tensor:
    held = torch.zeros(*shape, dtype=torch.bool)
    spoil(held)
    return held


def mark(*places: object) -> Callable[[torch.Tensor], None]:
    def spoil(held: torch.Tensor) -> None:
        for place in places:
            held[place] = True  # type: ignore[index]

    return spoil


ALL = slice(None)
HALF_WARPS = "elements 16 to 31 of every 32 in memory order"
LAST_TILE = "the last 116 elements in memory order (the last partial tile of 256)"


def upper(size: int, above: int) -> torch.Tensor:
    return torch.ones(size, size, dtype=torch.bool).triu(above)


def chance(share: float, *shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)) < share


def pattern_of(held: torch.Tensor) -> str:
    """What is said of a mask that is taken in at once."""
    marginals = Marginals(held.shape)
    marginals.add(held.contiguous().view(-1), 0)
    return marginals.describe()


@pytest.mark.parametrize(
    ("shape", "spoil", "words"),
    [
        ((10, 10), mark(), ""),
        ((10, 10), mark(ALL), "everything"),
        ((10, 10), mark((2, 3)), ""),
        ((10, 100), mark((ALL, slice(0, None, 33))), "every 33rd column"),
        ((10, 100), mark((ALL, slice(5, None, 11))), "every 11th column, from column 5"),
        ((10, 100), mark((ALL, slice(0, 50, 2))), "every 2nd column to 48"),
        ((100, 10), mark(-1), "the last row"),
        ((100, 10), mark(0), "row 0"),
        ((100, 10), mark(slice(96, None)), "the last 4 rows (the last partial tile of 32)"),
        ((100, 10), mark(slice(0, 40)), "the first 40 rows"),
        ((100, 10), mark(slice(32, 64)), "rows 32 to 63"),
        ((100, 10), mark([3, 17, 80]), "rows 3, 17, 80"),
        (
            (100, 50),
            mark((slice(96, None), slice(48, None))),
            "the last 2 columns (the last partial tile of 16) of the last 4 rows (the last partial tile of 32)",
        ),
        (
            (100, 50),
            mark(slice(96, None), (ALL, slice(48, None))),
            "the last 4 rows (the last partial tile of 32) and the last 2 columns (the last partial tile of 16)",
        ),
        ((7, 10, 10), mark(slice(4, 6)), "dimension-0 slices 4 to 5"),
        ((1000,), mark(slice(992, None)), "the last 8 elements (the last partial tile of 32)"),
        ((1000,), mark(slice(0, None, 4)), "every 4th element"),
        ((64, 64), lambda held: held.fill_diagonal_(True), "the diagonal"),
        ((64, 64), lambda held: held.view(-1)[3::65].fill_(True), "a diagonal"),
        ((64, 64), lambda held: held.logical_or_(upper(64, 1)), "above the diagonal"),
        ((64, 64), lambda held: held.logical_or_(upper(64, 0)), "on and above the diagonal"),
        ((3, 64, 64), lambda held: held.logical_or_(upper(64, 1).T), "below the diagonal"),
        ((128, 128), lambda held: held.logical_or_(upper(128, 1) & chance(0.4, 128, 128)), "above the diagonal"),
        ((37, 100), lambda held: held.view(-1)[3584:].fill_(True), LAST_TILE),
        ((37, 100), lambda held: held.view(-1)[3:250].fill_(True), "one unbroken run"),
        (
            (37, 100),
            lambda held: held.view(-1)[3:3001:7].fill_(True),
            "every 7th element in memory order, from element 3",
        ),
        ((67, 61), lambda held: held.view(-1)[16:].unfold(0, 16, 32).logical_or_(torch.tensor(True)), HALF_WARPS),
        (
            (67, 61),
            lambda held: held.view(-1)[:4064].view(-1, 32)[:, 16:].logical_or_(chance(0.5, 127, 16)),
            HALF_WARPS,
        ),
        (
            (67, 61),
            lambda held: held.view(-1)[5::64].logical_or_(chance(0.7, 64)),
            "element 5 of every 64 in memory order",
        ),
        ((1024,), lambda held: held.view(-1, 32)[:, 16:].fill_(True), "16 elements in every 32, from element 16"),
        ((8, 256), lambda held: held.view(8, 4, 64)[:, :, 60:].fill_(True), "4 columns in every 64, from column 60"),
        ((8, 30), mark((ALL, slice(0, 13)), (ALL, slice(14, 27)), (ALL, slice(28, 30))), "13 columns in every 14"),
        ((8, 26), mark((ALL, slice(0, 13)), (ALL, slice(14, 26))), "scattered over 96 % of the places"),
        ((8, 250), mark((ALL, slice(0, 10)), (ALL, slice(64, 74))), "20 of 250 columns"),
        ((64, 300), lambda held: held[:, 40:].logical_or_(chance(0.2, 64, 260)), "the last 260 columns"),
    ],
)
def test_patterns(shape: tuple[int, ...], spoil: Callable[[torch.Tensor], object], words: str) -> None:
    found = pattern_of(mask(*shape, spoil=spoil))
    assert found == words


@pytest.mark.parametrize(("part", "shares"), [(0.1, ("9.9", "10")), (0.998, ("99.7", "99.8", "99.9"))])
def test_scattered_places_say_how_many(part: float, shares: tuple[str, ...]) -> None:
    held = chance(part, 200, 200)
    assert pattern_of(held) in {f"scattered over {share} % of the places" for share in shares}


@pytest.mark.parametrize("share", [0.0003, 0.001, 0.003, 0.01, 0.03])
def test_rows_and_columns_that_chance_hit_are_no_pattern(share: float) -> None:
    assert pattern_of(chance(share, 300, 500)).startswith("scattered over ")


def test_chunks_add_up_to_the_whole() -> None:
    held = mask(64, 33, spoil=mark((ALL, slice(0, None, 4)), 60))
    marginals = Marginals(held.shape)
    flat = held.view(-1)
    for start in range(0, flat.numel(), 100):
        marginals.add(flat[start : start + 100], start)
    assert marginals.describe() == pattern_of(held)
    assert marginals.wrong == int(held.sum())
    assert (marginals.first, marginals.last) == (0, 63 * 33 + 32)


def test_a_step_is_the_same_in_chunks_and_an_odd_place_in_one_of_them_breaks_it() -> None:
    def described(flat: torch.Tensor) -> str:
        marginals = Marginals((50, 50))
        for start in range(0, 2500, 170):
            marginals.add(flat[start : start + 170], start)
        return marginals.describe()

    flat = torch.zeros(2500, dtype=torch.bool)
    flat[::51] = True
    assert described(flat) == "the diagonal"
    flat[1200] = True
    assert described(flat).startswith("scattered")


@pytest.mark.parametrize("shape", [(3, 40, 50), (40, 50), (2000,)])
def test_values_in_other_places(shape: tuple[int, ...]) -> None:
    truth = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    flat = truth.view(-1)

    def described(answer: torch.Tensor) -> str:
        return describe_rearrangement(answer.contiguous().view(shape).float(), truth, 1.0)

    assert described(torch.randn(shape, generator=torch.Generator().manual_seed(6))) == ""
    assert described(flat.roll(1)) == "shifted by one element"
    assert described(flat.roll(-1)) == "shifted back by one element"
    assert described(flat.flip(0)) == "in reverse order"
    if len(shape) > 1:
        assert described(truth.mT) == "transposed"


def test_a_wrong_answer_imports_nothing_of_torch_that_no_other_does() -> None:
    """A referee's first wrong answer would cost seconds: symbolic shapes, and sympy with them."""
    code = """
import sys, torch
from harness.referee.correctness.compare import compare
truth = torch.randn(64, 64, dtype=torch.float64)
before = set(sys.modules)
compare(truth.float() + 1.0, truth), compare(torch.randn(64, 64), truth), compare(truth.float().T.clone(), truth)
print(len([name for name in set(sys.modules) - before if name.split(".")[0] in ("torch", "sympy", "mpmath")]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0"]


def test_multiples_and_shifts_of_values_with_an_offset_are_recognised() -> None:
    truth = torch.arange(1.0, 101.0, dtype=torch.float64)
    for answer, words in (
        (2 * truth, "a constant factor: everything is 2 times"),
        (truth + 3, "a constant offset: everything is off by 3"),
        (truth.flip(0), ""),
    ):
        sums = moments(answer, truth).tolist()
        assert describe_transformation(sums, truth.numel()).startswith(words)
        assert bool(describe_transformation(sums, truth.numel())) is bool(words)


def test_values_that_are_all_alike_are_no_multiple_of_others() -> None:
    truth = torch.full((100,), 3.0, dtype=torch.float64)
    truth[0] += 1e-4
    assert (
        describe_transformation(moments(2 * truth, truth).tolist(), 100) == "a constant offset: everything is off by 3"
    )
