"""Errors, precision classes and verdicts, on arithmetic that is really carried out in each precision."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest
import torch

from harness.core.choices import PrecisionClass
from harness.core.problem import InputRules
from harness.core.status import Failure, Status
from harness.referee.correctness import compare_float
from harness.referee.correctness.rounding_evidence import rounded_to
from harness.referee.correctness.tolerance import (
    LIMITS,
    NO_LONG_SUM,
    ErrorLimits,
    LongSum,
    TensorComparison,
    compare,
    judge,
    kernelbench_rule,
    limits_for,
    reached_class,
)
from harness.referee.problem import chunks
from harness.referee.problem.stress_variants import transform

FP32, TF32, FP16, BF16, FP8 = map(PrecisionClass, ("fp32", "tf32", "fp16", "bf16", "fp8"))


def failure_of(
    comparisons: list[TensorComparison],
    required: PrecisionClass,
    references: list[TensorComparison] | None = None,
    longest: LongSum = NO_LONG_SUM,
) -> Failure | None:
    """The verdict on one call; None is a pass."""
    return judge(comparisons, required, references=references, longest=longest).failure


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def uniform(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def tf32(x: torch.Tensor, *, cut: bool = False) -> torch.Tensor:
    """float32 with ten bits of mantissa kept, rounded to nearest or cut off."""
    bits = x.view(torch.int32)
    if not cut:
        bits = bits + 0x0FFF + ((bits >> 13) & 1)
    return (bits & ~0x1FFF).view(torch.float32)


def through(dtype: torch.dtype):
    return lambda x: x.to(dtype).to(torch.float32)


def dots(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Row-wise dot products in float64."""
    return (a.double() * b.double()).sum(dim=1)


def one_accumulator(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Row-wise dot products with a single float32 accumulator, term after term."""
    return torch.from_numpy(np.cumsum((a * b).numpy(), axis=1, dtype=np.float32)[:, -1].copy())


ARITHMETIC = {
    "one_accumulator": (one_accumulator, FP32),
    "tf32": (lambda a, b: dots(tf32(a), tf32(b)).float(), TF32),
    "tf32_cut": (lambda a, b: dots(tf32(a, cut=True), tf32(b, cut=True)).float(), TF32),
    "fp16_inputs": (lambda a, b: dots(*map(through(torch.float16), (a, b))).float(), TF32),
    "fp16_result": (lambda a, b: through(torch.float16)(dots(a, b)), TF32),
    "bf16_inputs": (lambda a, b: dots(*map(through(torch.bfloat16), (a, b))).float(), BF16),
    "bf16_result": (lambda a, b: through(torch.bfloat16)(dots(a, b)), BF16),
    "bf16_both": (lambda a, b: through(torch.bfloat16)(dots(*map(through(torch.bfloat16), (a, b)))), BF16),
    "e4m3_inputs": (lambda a, b: dots(*map(through(torch.float8_e4m3fn), (a, b))).float(), PrecisionClass.FP8_E4M3),
    "e5m2_inputs": (lambda a, b: dots(*map(through(torch.float8_e5m2), (a, b))).float(), PrecisionClass.FP8_E5M2),
}


@pytest.mark.parametrize("terms", [64, 1024, 32768])
@pytest.mark.parametrize("name", ARITHMETIC)
def test_zero_mean_inputs_separate_the_classes(name: str, terms: int) -> None:
    compute, expected = ARITHMETIC[name]
    a, b = normal(256, terms, seed=terms), normal(256, terms, seed=terms + 1)
    found, longest = compare(compute(a, b), dots(a, b)), LongSum(terms=terms)
    assert reached_class([found], longest=longest) is expected
    # Margins: not within a fifth of the limit above or below.
    assert found.rms_error is not None
    assert found.rms_error < limits_for(expected, longest=longest).rms / 1.2
    finer = list(PrecisionClass)[list(PrecisionClass).index(expected) - 1] if expected is not FP32 else None
    if finer is not None:
        assert found.rms_error > LIMITS[finer].rms * 1.1


@pytest.mark.parametrize("terms", [524_288, 1_048_576])
@pytest.mark.parametrize("draw", [normal, uniform])
def test_one_float32_accumulator_over_long_sums_is_fp32(draw, terms: int) -> None:
    a, b = draw(8, terms, seed=1), draw(8, terms, seed=2)
    truth = dots(a, b)
    reference = compare((a * b).sum(dim=1), truth)
    longest = LongSum(terms=terms)
    limits = limits_for(FP32, reference, longest=longest)
    found = compare(one_accumulator(a, b), truth, limits=limits)
    assert failure_of([found], FP32, [reference], longest) is None
    assert found.rms_error is not None
    assert found.rms_error < limits.rms / 1.5


@pytest.mark.parametrize("variant", ["own", *InputRules().variants])
def test_plain_float32_code_passes_on_every_variant_and_tf32_fails_where_it_shows(variant: str) -> None:
    """One accumulator a row: the dot product, the sums of softmax and layer norm, the running sum."""
    a, b = uniform(64, 16384, seed=1), uniform(64, 16384, seed=2)
    transform(variant, [("a", a), ("b", b)], seed=3)
    ones = torch.ones_like(a)
    exponentials = torch.exp(a - a.amax(dim=1, keepdim=True))
    centred = a - (one_accumulator(a, ones) / a.shape[1])[:, None]
    variance = one_accumulator(centred * centred, ones) / a.shape[1]
    cases = {
        "dot": (one_accumulator(a, b), (a * b).sum(dim=1), dots(a, b)),
        "softmax": (
            exponentials / one_accumulator(exponentials, ones)[:, None],
            torch.softmax(a, dim=1),
            torch.softmax(a.double(), dim=1),
        ),
        "layer_norm": (
            centred * torch.rsqrt(variance + 1e-5)[:, None],
            torch.layer_norm(a, a.shape[1:]),
            torch.layer_norm(a.double(), a.shape[1:]),
        ),
        "cumsum": (
            torch.from_numpy(np.cumsum(a.numpy(), axis=1, dtype=np.float32)),
            a.cumsum(dim=1),
            a.double().cumsum(dim=1),
        ),
    }
    longest = LongSum(terms=16384, alike=variant in ("large_values", "structured"))
    for name, (mine, own, truth) in cases.items():
        reference = compare(own, truth)
        limits = limits_for(FP32, reference, longest=longest)
        found = compare(mine, truth, limits=limits)
        assert failure_of([found], FP32, [reference], longest) is None, name
    reference = compare(cases["dot"][1], cases["dot"][2])
    narrow = failure_of([compare(dots(tf32(a), tf32(b)).float(), cases["dot"][2])], FP32, [reference], longest)
    assert narrow is not None or variant != "zero_mean"


def test_one_accumulator_over_equal_terms_is_fp32() -> None:
    """It rounds all terms the same way, so its error grows with their number."""
    for value in torch.rand(30, generator=torch.Generator().manual_seed(5)).tolist():
        terms = torch.full((1, 4096), value)
        truth = terms.double().sum(dim=1)
        reference, longest = compare(terms.sum(dim=1), truth), LongSum(terms=4096, alike=True)
        found = compare(one_accumulator(terms, torch.ones_like(terms)), truth)
        assert failure_of([found], FP32, [reference], longest) is None, value


def test_a_constant_is_wrong_however_long_the_sums() -> None:
    a, b = uniform(16, 1_048_576, seed=1), uniform(16, 1_048_576, seed=2)
    truth = dots(a, b)
    reference, longest = compare((a * b).sum(dim=1), truth), LongSum(terms=1_048_576)
    constant = torch.full_like(truth, float(truth.mean())).float()
    found = compare(constant, truth, limits=limits_for(FP32, reference, longest=longest))
    failure = failure_of([found], FP32, [reference], longest)
    assert failure is not None
    assert "same value everywhere" in failure.evidence["outputs"][0]["pattern"]


def test_a_truth_that_spreads_keeps_the_table_s_limits() -> None:
    truth = normal(1000).double()
    assert limits_for(FP32, compare(truth.float(), truth)) == LIMITS[FP32]


def test_fp32_allows_64_units_of_roundoff_or_one_for_128_terms() -> None:
    truth = torch.tensor([1.0, -1.0] * 500, dtype=torch.float64)
    reference = compare(truth.float(), truth)
    for longest, units in (
        (LongSum(), 64),
        (LongSum(terms=4096), 64),
        (LongSum(terms=65536), 512),
        (LongSum(terms=2**24), 4096),
        (LongSum(terms=3000, alike=True), 1000),
        (LongSum(terms=2**24, alike=True), 8192),
    ):
        limits = limits_for(FP32, reference, longest=longest)
        assert limits.rms == units * 2.0**-24
        for share, passes in ((0.95, True), (1.05, False)):
            found = compare(truth * (1 + share * limits.rms), truth, limits=limits)
            assert (failure_of([found], FP32, [reference], longest) is None) == passes, (units, share)


def test_a_single_entry_may_be_off_by_a_thousandth_of_the_rms() -> None:
    truth = torch.tensor([1.0, -1.0] * 500_000, dtype=torch.float64)
    for error, passes in ((0.9e-3, True), (1.2e-3, False)):
        one = truth.clone()
        one[17] += error
        assert (failure_of([compare(one.float(), truth)], FP32) is None) == passes, error


def test_limits_of_coarser_classes_follow_the_spread_down_to_one_rounding_of_the_result() -> None:
    signs = torch.tensor([1.0, -1.0] * 500, dtype=torch.float64)
    for required, spread, rms in ((BF16, 1.0, 1.2e-2), (BF16, 0.5, 6e-3), (BF16, 0.01, 2.0**-8), (TF32, 0.01, 1.1e-3)):
        truth = math.sqrt(1 - spread**2) + spread * signs
        assert limits_for(required, compare(truth, truth)).rms == pytest.approx(rms, rel=0.01), (required, spread)
    truth = 1 + 0.01 * signs
    reference = compare(truth.float(), truth)
    assert failure_of([compare(through(torch.bfloat16)(truth), truth)], BF16, [reference]) is None
    assert failure_of([compare((1 + 0.5 * (truth - 1)).float(), truth)], BF16, [reference]) is not None, "half a spread"


def test_the_reference_s_own_error_counts_four_times() -> None:
    truth = torch.tensor([1.0, -1.0] * 500, dtype=torch.float64)
    limits = limits_for(FP32, compare((truth * (1 + 1e-3)).float(), truth))
    assert (limits.rms, limits.max) == (pytest.approx(4e-3, rel=1e-3), pytest.approx(4e-3, rel=1e-3))


def test_errors_are_those_of_the_definition() -> None:
    truth = torch.tensor([3.0, -4.0, 0.0, 100.0], dtype=torch.float64)
    actual = torch.tensor([3.0, -4.0, 1.0, 110.0])
    rms = math.sqrt((9 + 16 + 10000) / 4)
    found = compare(actual, truth)
    assert found.truth_rms == pytest.approx(rms)
    assert found.rms_error == pytest.approx(math.sqrt(101 / 4) / rms)
    assert found.max_error == pytest.approx(10 / 100)
    assert found.worst is not None
    assert (found.worst.index, found.worst.got, found.worst.expected) == ((3,), 110.0, 100.0)
    assert found.truth_spread == pytest.approx(float(truth.std(unbiased=False)))


def test_one_wrong_value_among_many_fails_by_a_fraction_of_the_spread() -> None:
    truth = normal(1024, 1024).double()
    for off, passes in ((0.5e-3, True), (2e-3, False), (0.3, False)):
        actual = truth.float()
        actual[700, 33] = truth[700, 33] + off
        found = compare(actual, truth)
        failure = failure_of([found], FP32)
        assert (failure is None) is passes
        if failure is not None:
            assert found.wrong == 1
            assert found.first is not None
            assert found.first.index == (700, 33)


def test_the_reason_names_count_place_and_size_but_not_the_expected_digits() -> None:
    truth = torch.full((1024, 1024), 0.5, dtype=torch.float64)
    truth[::2] = 1.0
    truth[0, 33] = 0.98214
    actual = truth.float()
    actual[0, 33] = 1.25
    actual[5, 5] = actual[7, 7] = 3.0
    failure = failure_of([compare(actual, truth)], FP32)
    assert failure is not None
    assert failure.status is Status.wrong_value
    assert failure.reason.startswith(
        "3 of 1048576 values wrong, first at [0, 33]: got 1.25, expected about 0.98; "
        "largest error 320 % of the output's RMS"
    )
    assert "0.982" not in failure.reason


def test_what_turns_nan_between_two_passes_is_wrong_and_can_be_written_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a kernel can do it that still runs: the first pass has seen finite entries alone."""
    truth = torch.linspace(-1, 1, 64, dtype=torch.float64)
    row = torch.tensor([float(truth.square().sum()), 0.0, 1.0, 1.0, 0.6, math.nan, 0.0, 0.0], dtype=torch.float64)
    monkeypatch.setattr(compare_float, "enqueue", lambda actual, truth: row)
    judgement = judge([compare(truth.float(), truth)], PrecisionClass.FP32)
    assert judgement.failure is not None
    assert judgement.reached is None
    json.dumps(judgement.evidence, allow_nan=False)


def test_low_precision_is_told_from_wrong_values() -> None:
    truth = normal(512, 512).double()
    rounded = through(torch.bfloat16)(truth)
    assert rounded_to(0, rounded, truth, FP32, lambda _: ()) is BF16
    failure = judge([compare(rounded, truth)], FP32, rounding=[BF16]).failure
    assert failure is not None
    assert failure.status is Status.low_precision
    assert "too inexact for fp32, within the limits of bf16: typical error " in failure.reason
    assert failure_of([compare(rounded, truth)], BF16) is None
    rounded[3, 4] += 5.0
    assert rounded_to(0, rounded, truth, FP32, lambda _: ()) is None
    failure = failure_of([compare(truth.float() + (rounded - truth.float()) * (rounded > 4), truth)], FP32)
    assert failure is not None
    assert failure.status is Status.wrong_value


def test_an_error_that_could_be_either_says_so() -> None:
    truth = normal(512, 512).double()
    noisy = (truth * (1 + 1e-3 * normal(512, 512, seed=1).double())).float()
    assert rounded_to(0, noisy, truth, FP32, lambda _: ()) is None
    failure = failure_of([compare(noisy, truth)], FP32)
    assert failure is not None
    assert failure.status is Status.wrong_value
    assert failure.reason.endswith("; a mistake in the formula, or low precision on the way")


def test_what_is_wrong_everywhere_is_counted_everywhere() -> None:
    truth = torch.linspace(1.0, 1.1, 64, dtype=torch.float64)
    failure = failure_of([compare((truth + 5e-4 * torch.linspace(1.0, 2.0, 64)).float(), truth)], FP32)
    assert failure is not None
    assert failure.reason.startswith("64 of 64 values wrong, first at [0]")
    assert "of the output's RMS, typical 0.073 % (limit 0.00038 %)" in failure.reason


def test_few_gross_errors_are_no_low_precision_even_where_they_would_fit_the_coarsest_class() -> None:
    truth = normal(100_000).double()
    actual = truth.float()
    actual[[5, 9, 77]] += 0.5
    assert reached_class([compare(actual, truth)]) is PrecisionClass.FP8_E5M2
    failure = failure_of([compare(actual, truth)], FP32)
    assert failure is not None
    assert failure.status is Status.wrong_value
    assert failure.reason.startswith("3 of 100000 values wrong, first at [5]")


def test_zeros_noise_and_the_previous_answer_are_wrong_at_every_class() -> None:
    truth = normal(300, 300).double()
    for actual in (torch.zeros(300, 300), normal(300, 300, seed=9), -truth.float()):
        for required in PrecisionClass:
            failure = failure_of([compare(actual, truth)], required)
            assert failure is not None
            assert failure.status is Status.wrong_value


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda t: t.fill_(0.0), "all zero"),
        (lambda t: t.mul_(2.0), "a constant factor: everything is 2 times"),
        (lambda t: t.add_(1.5), "a constant offset: everything is off by 1.5"),
        (lambda t: t.copy_(t.clone().T.reshape(t.shape)), "transposed"),
        (lambda t: t.copy_(t.view(-1).roll(1).view(t.shape)), "shifted by one element"),
        (lambda t: t.copy_(t.view(-1).flip(0).view(t.shape)), "in reverse order"),
        (lambda t: t[:, ::33].add_(1.0), "every 33rd column"),
        (lambda t: t[:, 32:].zero_(), "the last 28 columns (the last partial tile of 32)"),
        (lambda t: t[-1].zero_(), "the last row"),
    ],
)
def test_patterns_are_named(spoil, text: str) -> None:
    shape = (70, 60) if "33" not in text else (70, 200)
    truth = normal(*shape).double()
    actual = truth.float()
    spoil(actual)
    assert compare(actual, truth).pattern.startswith(text)


def test_a_square_transpose_is_seen_in_a_batch() -> None:
    truth = normal(3, 16, 16).double()
    assert compare(truth.float().mT.contiguous(), truth).pattern == "transposed"


def test_poison_left_behind_is_counted_as_never_written() -> None:
    truth = normal(64, 64).double()
    actual = truth.float()
    actual[60:].view(torch.uint8).fill_(0xFF)
    found = compare(actual, truth, poison_byte=0xFF)
    assert found.unwritten == 4 * 64
    failure = failure_of([found], FP32)
    assert failure is not None
    assert failure.status is Status.non_finite
    assert "256 of 4096 values are NaN or infinite" in failure.reason
    assert "256 were never written" in failure.reason
    assert "the last 4 rows" in failure.reason


class TestNonFinite:
    truth = torch.tensor([1.0, math.inf, -math.inf, math.nan, -2.0, 3.0], dtype=torch.float64)

    def test_the_same_places_and_kinds_pass(self) -> None:
        found = compare(self.truth.float(), self.truth)
        assert found.within(LIMITS[FP32])
        assert found.compared == 3
        assert found.truth_rms == pytest.approx(math.sqrt(14 / 3))

    @pytest.mark.parametrize(
        ("place", "value"), [(0, math.nan), (0, math.inf), (1, -math.inf), (1, 7.0), (3, math.inf)]
    )
    def test_another_kind_fails(self, place: int, value: float) -> None:
        actual = self.truth.float()
        actual[place] = value
        found = compare(actual, self.truth)
        assert found.non_finite_mismatches == 1
        assert found.first is not None
        assert found.first.index == (place,)
        failure = failure_of([found], FP8)
        assert failure is not None
        assert failure.status is Status.non_finite
        json.dumps(failure.to_json(), allow_nan=False)

    def test_finite_errors_beside_them_still_count(self) -> None:
        actual = self.truth.float()
        actual[4] = 2.0
        found = compare(actual, self.truth)
        assert found.non_finite_mismatches == 0
        assert found.max_error == pytest.approx(4 / math.sqrt(14 / 3), rel=1e-6)

    def test_float32_overflow_rounds_the_truth_to_infinity(self) -> None:
        truth = torch.tensor([1e39, 1.0], dtype=torch.float64)
        assert compare(torch.tensor([math.inf, 1.0]), truth).within(LIMITS[FP32])
        assert not compare(torch.tensor([3.4e38, 1.0]), truth).within(LIMITS[FP32])

    def test_a_reference_that_overflows_on_the_way_may_be_matched(self) -> None:
        truth = torch.tensor([0.5, 1.0], dtype=torch.float64)
        actual = torch.tensor([math.nan, 1.0])
        assert not compare(actual, truth).within(LIMITS[FP32])
        found = compare(actual, truth, reference=torch.tensor([math.nan, 1.0]))
        assert found.within(LIMITS[FP32])
        assert found.borrowed == 1
        # but a NaN in the reference does not excuse another one, nor anything else
        assert not compare(torch.tensor([math.nan, math.nan]), truth, reference=actual).within(LIMITS[FP32])
        assert not compare(torch.tensor([math.inf, 1.0]), truth, reference=actual).within(LIMITS[FP32])
        assert compare(torch.tensor([0.5, 1.0]), truth, reference=actual).within(LIMITS[FP32])
        assert not compare(torch.tensor([5.0, 1.0]), truth, reference=actual).within(LIMITS[FP32])

    def test_where_only_float64_is_not_finite_the_reference_stands_in(self) -> None:
        truth = torch.tensor([math.nan, 1.0], dtype=torch.float64)
        reference = torch.tensor([4.0, 1.0])
        assert compare(torch.tensor([4.0, 1.0]), truth, reference=reference).within(LIMITS[FP32])
        assert not compare(torch.tensor([5.0, 1.0]), truth, reference=reference).within(LIMITS[FP32])

    def test_everything_nan_is_not_a_comparison(self) -> None:
        truth = torch.full((4,), math.nan, dtype=torch.float64)
        assert compare(truth.float(), truth).compared == 0
        assert not compare(torch.zeros(4), truth).within(LIMITS[FP8])


class TestZeroTruth:
    truth = torch.zeros(1000, dtype=torch.float64)

    def test_exact_zero_passes(self) -> None:
        assert compare(torch.zeros(1000), self.truth).within(LIMITS[FP32])

    def test_cancellation_noise_passes_and_more_does_not(self) -> None:
        assert compare(torch.full((1000,), 5e-8), self.truth).within(LIMITS[FP32])
        assert not compare(torch.full((1000,), 1e-5), self.truth).within(LIMITS[FP32])

    def test_the_reference_s_own_noise_is_allowed(self) -> None:
        reference = compare(torch.full((1000,), 1e-5), self.truth)
        assert failure_of([compare(torch.full((1000,), -2e-5), self.truth)], FP32, [reference]) is None
        assert failure_of([compare(torch.full((1000,), 1e-3), self.truth)], FP32, [reference]) is not None


class TestOutputDtypes:
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
    def test_a_correctly_rounded_answer_has_no_error(self, dtype: torch.dtype) -> None:
        truth = normal(4096).double() * 0.3
        truth[:100] *= 1e-6  # subnormal or zero in the narrow types
        found = compare(truth.to(dtype), truth)
        assert found.rms_error == 0.0
        assert found.max_error == 0.0

    def test_what_the_arithmetic_lost_before_rounding_remains(self) -> None:
        truth = normal(4096).double()
        coarse = through(torch.bfloat16)(truth)
        found = compare(coarse.to(torch.float16), truth)
        assert reached_class([found]) is BF16

    def test_fp16_overflow_may_fall_on_either_side_of_the_edge_only(self) -> None:
        truth = torch.tensor([65_515.0, 70_000.0, 60_000.0], dtype=torch.float64)
        assert compare(torch.tensor([65504.0, math.inf, 60_000.0], dtype=torch.float16), truth).within(LIMITS[FP16])
        assert compare(torch.tensor([math.inf, math.inf, 60_000.0], dtype=torch.float16), truth).within(LIMITS[FP16])
        assert not compare(torch.tensor([65504.0, math.inf, math.inf], dtype=torch.float16), truth).within(LIMITS[FP16])
        assert not compare(torch.tensor([65504.0, 65504.0, 6e4], dtype=torch.float16), truth).within(LIMITS[FP16])

    @pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
    def test_float8_may_saturate(self, dtype: torch.dtype) -> None:
        top = torch.finfo(dtype).max
        truth = torch.tensor([1e6, -1e6, 1.0, 8.0], dtype=torch.float64)
        saturated = torch.tensor([top, -top, 1.0, 8.0]).to(dtype)
        assert compare(saturated, truth).within(LIMITS[FP8])
        assert not compare(torch.tensor([top, top, 1.0, 8.0]).to(dtype), truth).within(LIMITS[FP8])
        assert not compare(torch.tensor([1.0, -top, 1.0, 8.0]).to(dtype), truth).within(LIMITS[FP8])

    def test_float64_outputs_are_left_as_they_are(self) -> None:
        truth = normal(100).double()
        actual = truth + 1e-9
        kept = actual.clone()
        found = compare(actual, truth)
        assert torch.equal(actual, kept)
        assert found.rms_error == pytest.approx(1e-9 / found.truth_rms, rel=1e-3)

    def test_a_truth_beyond_squaring_is_refused_not_passed(self) -> None:
        truth = torch.full((3,), 1e200, dtype=torch.float64)
        with pytest.raises(ValueError, match="too large"):
            compare(torch.zeros(3, dtype=torch.float64), truth)

    def test_complex_numbers_are_pairs(self) -> None:
        truth = torch.complex(normal(50).double(), normal(50, seed=1).double())
        actual = truth.to(torch.complex64)
        assert compare(actual, truth).within(LIMITS[FP32])
        assert compare(actual.conj().conj(), truth).within(LIMITS[FP32])
        actual[7] = actual[7].conj()
        found = compare(actual, truth)
        assert found.first is not None
        assert found.first.index == (7, 1)
        assert found.wrong == 1


class TestExact:
    def test_integers_agree_entry_by_entry(self) -> None:
        truth = torch.arange(100).reshape(10, 10)
        assert compare(truth.clone(), truth).within(LIMITS[FP32])
        actual = truth.clone()
        actual[2, 3] = 2**40
        found = compare(actual, truth)
        failure = failure_of([found], FP8)
        assert failure is not None
        assert failure.status is Status.wrong_value
        assert "1 of 100 values wrong, first at [2, 3]: got 1099511627776, expected 23" in failure.reason
        assert reached_class([found]) is None

    @pytest.mark.parametrize(
        ("expected", "told"), [(7, "7"), (-99, "-99"), (1234, "about 1200"), (-(2**40), "about -1")]
    )
    def test_of_an_expected_integer_two_digits_are_told(self, expected: int, told: str) -> None:
        truth = torch.full((4,), expected)
        failure = failure_of([compare(truth + 1, truth)], FP8)
        assert failure is not None
        assert f"got {expected + 1}, expected {told}" in failure.reason
        assert abs(expected) < 100 or str(abs(expected)) not in failure.reason.replace(str(expected + 1), "")

    @pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int16, torch.uint32, torch.int64])
    def test_every_integer_type(self, dtype: torch.dtype) -> None:
        truth = torch.tensor([0, 1, 1, 0]).to(dtype)
        assert compare(truth.clone(), truth).within(LIMITS[FP32])
        assert not compare(torch.tensor([0, 1, 0, 0]).to(dtype), truth).within(LIMITS[FP32])

    def test_a_tie_may_be_broken_as_the_float32_reference_does(self) -> None:
        truth = torch.tensor([3, 5, 7])
        reference = torch.tensor([3, 6, 7])
        found = compare(torch.tensor([3, 6, 7]), truth, reference=reference)
        assert found.within(LIMITS[FP32])
        assert found.borrowed == 1
        assert compare(torch.tensor([3, 5, 7]), truth, reference=reference).within(LIMITS[FP32])
        assert not compare(torch.tensor([3, 4, 7]), truth, reference=reference).within(LIMITS[FP32])


class TestShapesAndSlices:
    def test_any_slicing_gives_the_same_result(self, monkeypatch: pytest.MonkeyPatch) -> None:
        truth = normal(37, 11, 5).double()
        actual = truth.float()
        actual[20, 3] += 1.0
        actual[36, 10, 4] = math.nan
        whole = compare(actual, truth)
        for layout in (lambda t: t, lambda t: t.permute(2, 0, 1).contiguous().permute(1, 2, 0)):
            for entries in (1, 7, 64, 10_000):
                monkeypatch.setattr(compare_float, "TEMPORARY_BYTES", 32 * entries)
                found = compare(layout(actual), layout(truth))
                assert (found.wrong, found.first, found.pattern) == (whole.wrong, whole.first, whole.pattern)
                assert found.rms_error == pytest.approx(whole.rms_error, rel=1e-12)
                assert found.max_error == pytest.approx(whole.max_error, rel=1e-12)

    def test_views_expanded_and_strided(self) -> None:
        row = normal(1, 50).double()
        truth = row.expand(40, 50)
        assert compare(row.float().expand(40, 50), truth).within(LIMITS[FP32])
        wide = torch.zeros(40, 100)
        wide[:, ::2] = truth.float()
        assert compare(wide[:, ::2], truth).within(LIMITS[FP32])

    @pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
    def test_empty_and_scalar(self, dtype: torch.dtype) -> None:
        truth_dtype = torch.float64 if dtype.is_floating_point else dtype
        assert compare(torch.empty(0, 3, dtype=dtype), torch.empty(0, 3, dtype=truth_dtype)).within(LIMITS[FP32])
        assert compare(torch.tensor(2, dtype=dtype), torch.tensor(2, dtype=truth_dtype)).within(LIMITS[FP32])
        found = compare(torch.tensor(2, dtype=dtype), torch.tensor(3, dtype=truth_dtype))
        assert found.first is not None
        assert found.first.index == ()

    def test_what_can_not_be_compared_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="shape"):
            compare(torch.zeros(3), torch.zeros(3, 1, dtype=torch.float64))
        with pytest.raises(ValueError, match="int64"):
            compare(torch.zeros(3), torch.zeros(3, dtype=torch.int64))
        with pytest.raises(ValueError, match="complex"):
            compare(torch.zeros(3), torch.zeros(3, dtype=torch.complex64))


class TestVerdict:
    def test_every_output_counts_and_the_worst_status_speaks(self) -> None:
        truth = normal(1000).double()
        right, low = compare(truth.float(), truth), compare(through(torch.bfloat16)(truth), truth)
        spoiled = truth.float()
        spoiled[3] = math.nan
        broken = compare(spoiled, truth)
        verdict = judge([right, low, broken], FP32, names=["output.a", "output.b", "output.c"])
        assert verdict.failure is not None
        assert verdict.failure.status is Status.non_finite
        assert verdict.failure.reason.startswith("output.c: 1 of 1000 values is NaN or infinite")
        assert verdict.reached is None
        assert judge([right, low], FP32).reached is BF16
        assert judge([right], FP32).reached is FP32
        json.dumps(verdict.evidence, allow_nan=False)

    def test_an_ill_conditioned_reference_raises_the_limit_and_the_evidence_says_so(self) -> None:
        truth = normal(10_000).double()
        noisy = (truth + 5e-3 * normal(10_000, seed=3).double()).float()
        reference = compare(noisy, truth)
        alike = (truth + 5e-3 * normal(10_000, seed=4).double()).float()
        limits = limits_for(FP32, reference)
        assert limits.rms == pytest.approx(4 * reference.rms_error)
        verdict = judge([compare(alike, truth, limits=limits)], FP32, references=[reference])
        assert verdict.failure is None
        assert "four times the float32 reference's own error" in verdict.evidence["outputs"][0]["limits"]["note"]
        assert failure_of([compare(alike, truth)], FP32) is not None

    def test_a_comparison_survives_json(self) -> None:
        truth = normal(8, 8).double()
        actual = truth.float()
        actual[1, 1] = math.inf
        value = json.loads(json.dumps(compare(actual, truth).to_json(), allow_nan=False))
        assert value["first"]["got"] == "inf"
        assert value["non_finite_mismatches"] == 1

    def test_nothing_measured_is_no_pass(self) -> None:
        unmeasured = TensorComparison(dtype="float32", shape=(2,), count=2, compared=2, exact=False)
        assert not unmeasured.within(LIMITS[FP8])


class TestKernelBenchRule:
    def test_its_tolerance_is_relative_to_magnitude(self) -> None:
        reference = torch.full((10,), 1000.0)
        assert kernelbench_rule(reference + 0.09, reference)
        assert not kernelbench_rule(reference + 0.2, reference)
        assert kernelbench_rule((reference + 8).half(), reference.half())
        assert kernelbench_rule(reference + 8, reference, torch.bfloat16)

    def test_nan_shape_and_dtype(self) -> None:
        nan = torch.tensor([math.nan])
        assert not kernelbench_rule(nan, nan)
        assert not kernelbench_rule(torch.zeros(3), torch.zeros(3, 1))
        assert not kernelbench_rule(torch.zeros(3), torch.zeros(3).double())
        for dtype in (torch.int64, torch.bool, torch.uint8, torch.float8_e5m2, torch.complex64):
            assert kernelbench_rule(torch.ones(3).to(dtype), torch.ones(3).to(dtype))
            assert not kernelbench_rule(torch.zeros(3).to(dtype), torch.ones(3).to(dtype))


@pytest.mark.gpu
def test_the_gpu_gives_the_same_comparison() -> None:
    truth = normal(2048, 1500).double()
    actual = truth.float()
    actual[:, ::33] += 0.5
    here, there = compare(actual, truth), compare(actual.cuda(), truth.cuda())
    across = compare(actual.cuda(), truth)
    # Sums are made in any order, and of entries equally wrong up to rounding either may be found to be the worst.
    few_ulp = 64 * sys.float_info.epsilon
    for found in (there, across):
        assert (found.wrong, found.first, found.pattern) == (here.wrong, here.first, here.pattern)
        assert found.rms_error == pytest.approx(here.rms_error, rel=few_ulp)
        assert found.max_error == pytest.approx(here.max_error, rel=few_ulp)
        assert found.worst is not None
        row, column = found.worst.index
        assert found.worst.got == float(actual[row, column])
        assert found.worst.expected == float(truth[row, column])
        off = abs(found.worst.got - found.worst.expected)
        assert off / max(found.truth_rms, abs(found.worst.expected)) == pytest.approx(found.max_error, rel=few_ulp)


@pytest.mark.gpu
def test_a_right_answer_costs_two_synchronisations_and_bounded_memory() -> None:
    truth = torch.randn(2**28, device="cuda", dtype=torch.float64)
    actual = truth.float()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    assert compare(actual, truth).within(LIMITS[FP32])
    assert torch.cuda.max_memory_allocated() - before <= chunks.TEMPORARY_BYTES * 1.1


def test_typical_and_largest_error_must_both_be_admitted() -> None:
    limits = ErrorLimits(rms=1.0, max=10.0)
    assert limits.admits(1.0, 10.0)
    assert not limits.admits(1.0, 10.5)
    assert not limits.admits(1.5, 10.0)


def test_what_is_left_of_the_error_without_the_wrong_entries_is_told_in_shares_of_the_rms() -> None:
    truth = torch.linspace(-1e4, 1e4, 10_000, dtype=torch.float64)
    answer = truth + 1e-4
    answer[17] = 0.0
    found = compare(answer.float(), truth)
    assert found.wrong == 1
    assert found.rest_rms_error == pytest.approx(0.0, abs=1e-7)
    assert found.rest_rms_error is not None
    assert found.rest_rms_error > 1e-9


def test_the_limits_of_each_class_are_those_of_the_guide() -> None:
    limits = {precision.value: (held.rms, held.max) for precision, held in LIMITS.items()}
    assert limits == {
        "fp32": (64 * 2.0**-24, 1e-3),
        "tf32": (1.1e-3, pytest.approx(1.1e-2)),
        "fp16": (1.3e-3, pytest.approx(1.3e-2)),
        "bf16": (1.2e-2, pytest.approx(0.12)),
        "int8": (0.02, pytest.approx(0.1)),
        "fp8_e4m3": (0.057, pytest.approx(0.285)),
        "mxfp8": (0.06, pytest.approx(0.3)),
        "fp8_e5m2": (0.105, pytest.approx(0.525)),
        "fp8": (0.15, pytest.approx(0.75)),
        "nvfp4": (0.15, pytest.approx(0.9)),
        "int4": (0.21, pytest.approx(0.945)),
        "mxfp4": (0.21, pytest.approx(0.945)),
    }
