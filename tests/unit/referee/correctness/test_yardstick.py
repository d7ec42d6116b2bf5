"""Every honest algorithm passes and every small mistake fails."""

from __future__ import annotations

import itertools

import pytest
import torch

from harness.core.choices import PrecisionClass
from harness.core.status import Status
from tests.support.yardstick import CASES, CLASS_ARITHMETIC, calls

FP32, TF32, FP16, BF16, FP8 = map(PrecisionClass, ("fp32", "tf32", "fp16", "bf16", "fp8"))


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", CASES)
def test_every_honest_algorithm_passes_and_every_mistake_fails_in_fp32(name: str) -> None:
    case = CASES[name]
    found: dict[str, set[Status]] = {mistake: set() for mistake in case.mistakes}
    for call in calls(case):
        for algorithm, compute in case.honest.items():
            failure = call.judge(compute).failure
            assert failure is None, (algorithm, call.variant, failure)
        for mistake, compute in case.mistakes.items():
            if (failure := call.judge(compute).failure) is not None:
                found[mistake].add(failure.status)
    assert [mistake for mistake, statuses in found.items() if Status.wrong_value not in statuses] == []


@pytest.mark.parametrize("required", [TF32, FP16, BF16, FP8])
@pytest.mark.parametrize("name", CASES)
def test_arithmetic_of_a_class_passes_in_it(name: str, required: PrecisionClass) -> None:
    for call in calls(CASES[name], required):
        for arithmetic, compute in CLASS_ARITHMETIC[required].items():
            failure = call.judge(lambda *inputs: compute(CASES[name].reference, *inputs)).failure  # noqa: B023
            assert failure is None, (arithmetic, call.variant, failure)


@pytest.mark.parametrize("precision", [TF32, FP16, BF16])
@pytest.mark.parametrize(
    "name", ["matrix product", "matrix product, normal", "bias, GELU and row sum", "layer norm", "attention, normal"]
)
def test_arithmetic_of_a_coarser_class_is_low_precision(name: str, precision: PrecisionClass) -> None:
    for call in itertools.islice(calls(CASES[name]), 4):  # own inputs and those about zero
        for arithmetic, compute in CLASS_ARITHMETIC[precision].items():
            failure = call.judge(lambda *inputs: compute(CASES[name].reference, *inputs)).failure  # noqa: B023
            assert failure is not None, (arithmetic, call.variant)
            assert failure.status is Status.low_precision, (arithmetic, call.variant, failure.reason)
