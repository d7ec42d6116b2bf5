"""Inputs rounded once to a precision class, and the limits that follow from what that does to the truth."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from harness.core.choices import DeviceKind, PrecisionClass
from harness.core.problem import Problem, Workload
from harness.core.status import Status
from harness.devices.device import open_device
from harness.protocol.messages import CallClaim, OutputClaim
from harness.referee.correctness.tolerance import LIMITS, Sensitivity, limits_for
from harness.referee.correctness.value_check import AnsweredCall, CallVerdict, ValueCheck
from harness.referee.problem.answer import Answer
from harness.referee.problem.chunks import TEMPORARY_BYTES
from harness.referee.problem.rounding import LEAST_UNIT, MANTISSA_BITS, Rounding, rounded, rounds
from harness.referee.problem.truth import Reference
from harness.referee.problem.workspace import Workspace

FP32, TF32, FP16, BF16, FP8 = map(PrecisionClass, ("fp32", "tf32", "fp16", "bf16", "fp8"))
JITTERS = (Rounding.JITTER, Rounding.OTHER_JITTER)


def values(count: int = 4096) -> torch.Tensor:
    held = torch.randn(count, generator=torch.Generator().manual_seed(3)) * 2.0 ** torch.arange(-6, 10).repeat(
        count // 16
    )
    held[::7] = held[::7].round()
    return held


@pytest.mark.parametrize(("precision", "dtype"), [(FP16, torch.float16), (BF16, torch.bfloat16)])
def test_nearest_is_what_a_conversion_does(precision: PrecisionClass, dtype: torch.dtype) -> None:
    x = values()
    x[:3] = torch.tensor([1e-6, -5e-8, 0.0])  # subnormal in float16
    assert torch.equal(rounded(x, precision, Rounding.NEAREST, 0), x.to(dtype).float())


def test_cut_is_what_tensor_cores_do_with_float32() -> None:
    x = values()
    assert torch.equal(rounded(x, TF32, Rounding.CUT, 0), (x.view(torch.int32) & ~0x1FFF).view(torch.float32))


@pytest.mark.parametrize("precision", MANTISSA_BITS)
def test_every_way_stays_within_its_bound_and_leaves_what_the_class_can_hold(precision: PrecisionClass) -> None:
    x = values()
    unit = (2.0 ** (x.abs().log2().floor() - MANTISSA_BITS[precision])).clamp(min=LEAST_UNIT.get(precision, 0.0))
    held = rounded(x, precision, Rounding.NEAREST, 0)
    for way in Rounding:
        y = rounded(x, precision, way, 5)
        assert bool(((y - x).abs() <= unit * (1.0 if way is Rounding.CUT else 0.5001)).all())
        assert not torch.equal(y, x)
        assert torch.equal(rounded(held, precision, way, 5), held)
        assert torch.equal(rounded(torch.arange(-8.0, 9.0), precision, way, 5), torch.arange(-8.0, 9.0))
    first, again, other = (rounded(x, precision, way, 5) for way in (JITTERS[0], *JITTERS))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("way", Rounding)
def test_nothing_changes_its_kind(way: Rounding) -> None:
    special = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 7e4, 3e38, -3.3e38])
    for precision in (TF32, BF16, FP16):
        held = rounded(special, precision, way, 0)
        assert torch.equal(held.isfinite(), special.isfinite())
        assert torch.equal(held.isnan(), special.isnan())
        assert torch.equal(held.signbit()[:4], special.signbit()[:4])
    tiny = torch.tensor([1e-30, 1e-9, 4e-8])
    for precision in (BF16, FP16):
        assert bool((rounded(tiny, precision, way, 0) > 0).all())


@pytest.mark.parametrize("way", Rounding)
@pytest.mark.parametrize("precision", MANTISSA_BITS)
def test_nothing_leaves_the_domain_that_it_lies_in(precision: PrecisionClass, way: Rounding) -> None:
    """A probability above 1 would trip an assertion on a GPU, after which the process can use that no more."""
    x = 1 - torch.rand(4096, generator=torch.Generator().manual_seed(3)) * 2.0**-6
    for bound in (1.0, -1.0, 1.5, 64.0):
        assert float((rounded(x * bound, precision, way, 5) / bound).max()) <= 1.0
    largest = torch.tensor([torch.finfo(torch.float32).max, torch.finfo(torch.float32).min])
    assert bool(rounded(largest, precision, way, 5).isfinite().all()), "as masks are filled with"


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float16, torch.bfloat16])
def test_what_has_no_more_digits_than_the_class_is_left_alone(dtype: torch.dtype) -> None:
    x = torch.ones(4).to(dtype)
    assert rounded(x, FP16, Rounding.NEAREST, 0) is x
    assert rounded(values(), FP32, Rounding.NEAREST, 0).dtype is torch.float32


def test_all_types_and_layouts() -> None:
    x = torch.complex(values(64), values(64).flip(0))
    assert torch.equal(
        torch.view_as_real(rounded(x, TF32, Rounding.CUT, 0)), rounded(torch.view_as_real(x), TF32, Rounding.CUT, 0)
    )
    wide = values(64).view(8, 8)
    assert torch.equal(rounded(wide.T, BF16, Rounding.NEAREST, 0), rounded(wide, BF16, Rounding.NEAREST, 0).T)
    assert rounded(wide.double(), BF16, Rounding.JITTER, 0).dtype is torch.float64
    assert rounded(torch.zeros(0, 3), BF16, Rounding.NEAREST, 0).shape == (0, 3)
    assert TEMPORARY_BYTES > 0


def test_limits_follow_it_for_its_class_and_coarser_ones() -> None:
    found = Sensitivity(precision=FP16, rms=0.02, max=0.001)
    limits = limits_for(FP16, None, found)
    assert (limits.rms, limits.max) == (0.08, LIMITS[FP16].max)
    assert "four times the error from rounding inputs and weights to fp16" in limits.note
    assert limits_for(BF16, None, found).rms == 0.08
    assert limits_for(FP8, None, found) == LIMITS[FP8]
    assert limits_for(TF32, None, found) == LIMITS[TF32]


PROBLEM = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.linspace(-1, 1, 91))
    def forward(self, x):
        {body}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""
SOFTMAX = "return torch.softmax(x, dim=1)"

Solution = Callable[[torch.Tensor], torch.Tensor]


def near_tie(x: torch.Tensor, by: float = 0.35) -> torch.Tensor:
    """Two outliers of one row that are no unit of float16 apart, as `large_values` makes them now and then."""
    x = x.clone()
    x[5, 3], x[5, 70] = 480.1, 480.1 + by
    return x


def judged(
    solution: Solution,
    precision: PrecisionClass,
    *,
    body: str = SOFTMAX,
    inputs: str = "torch.rand(37, 91)",
    change: Callable[[torch.Tensor], torch.Tensor] = lambda x: x,
    variant: str = "own",
    calls: int = 1,
) -> CallVerdict:
    """What is found of a call of `solution`, whose inputs are `change`d after they were drawn, the last of so many."""
    source = PROBLEM.format(body=body, inputs=inputs)
    problem = Problem(id="level1/1", name="p", path=Path("1_p.py"), source=source, digest=source)
    workspace = Workspace(
        problem, Workload(name="full"), open_device(DeviceKind.HOST), sets_wanted=2, secret=random.Random(4)
    )
    try:
        workspace.draw(0, variant)
        (x,) = workspace.tensors(workspace.sets[0].inputs)
        x.copy_(change(x))
        workspace.amend(0)
        (slot,) = workspace.sets[0].outputs
        workspace.tensor(slot).copy_(solution(x.clone()))
        leaf = OutputClaim(type="torch.Tensor", shape=slot.shape, dtype=slot.dtype, device="cuda", address=1)
        tree = workspace.traits.tree.to_json()
        claim = CallClaim(tree=tree, leaves=(leaf,), state_missing=(), device_s=0.0, window_s=0.0)
        values = ValueCheck(workspace, precision)
        call = AnsweredCall(index=0, claim=claim, changed=(), wanted=True)
        return [values.judge(call) for _ in range(calls)][-1]
    finally:
        workspace.close()


def in_(dtype: torch.dtype) -> Solution:
    return lambda x: torch.softmax(x.to(dtype), dim=1).float()


def status(finding: CallVerdict) -> Status | None:
    return finding.failure.status if finding.failure else None


@pytest.mark.parametrize(("precision", "dtype"), [(FP16, torch.float16), (BF16, torch.bfloat16)])
def test_honest_code_of_a_class_passes_where_its_rounding_decides_which_is_larger(
    precision: PrecisionClass, dtype: torch.dtype
) -> None:
    finding = judged(in_(dtype), precision, change=near_tie)
    assert status(finding) is None
    assert finding.judgement is not None
    (output,) = finding.judgement.evidence["outputs"]
    assert output["rms_error"] > LIMITS[precision].rms
    assert f"rounding inputs and weights to {precision.value}" in output["limits"]["note"]
    assert finding.judgement.reached is precision


def cut_to(bits: int) -> Solution:
    return lambda x: torch.softmax((x.view(torch.int32) & -(1 << 23 - bits)).view(torch.float32), dim=1)


@pytest.mark.parametrize(
    "solution",
    [cut_to(10), lambda x: torch.softmax((x * 1.7).half().float() / 1.7, dim=1)],
    ids=["cut", "scaled first"],
)
def test_so_it_does_where_it_rounds_in_another_way(solution: Solution) -> None:
    assert status(judged(solution, FP16, change=near_tie)) is None


def times(x: torch.Tensor) -> torch.Tensor:
    return x[:, :211] @ x[:, 211:].T


def test_a_coarser_class_fails_wherever_inputs_do_not_magnify_its_rounding() -> None:
    for variant in ("own", "zero_mean"):
        assert status(judged(in_(torch.bfloat16), FP16, variant=variant)) is Status.low_precision, variant
    for precision in (TF32, FP16):
        product = {"body": "return x[:, :211] @ x[:, 211:].T", "inputs": "torch.randn(53, 422)"}
        half = judged(lambda x: times(x.half().float()), precision, **product)
        assert status(half) is None
        narrow = judged(lambda x: times(x.bfloat16().float()), precision, **product)
        assert status(narrow) is Status.low_precision


@pytest.mark.parametrize(
    "wrong",
    [torch.zeros_like, lambda x: torch.softmax(x, dim=0), lambda x: torch.softmax(x.flip(0), dim=1)],
    ids=["zeros", "the other dimension", "another row"],
)
def test_wrong_answers_are_wrong_beside_a_near_tie_too(wrong: Solution) -> None:
    assert status(judged(wrong, FP16, change=near_tie)) is Status.wrong_value


def test_a_few_wrong_entries_among_exact_ones_are_wrong_in_a_coarser_class_too() -> None:
    held = {"body": "return torch.topk(x, 4, dim=1).values", "inputs": "torch.randn(37, 4096)"}

    def one_a_partition(x: torch.Tensor) -> torch.Tensor:
        return torch.topk(x.view(37, 512, 8).amax(2), 4, dim=1).values

    def clustered(x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[3, 8:10] = x.amax() + torch.tensor([0.05, 0.04])
        return x

    for precision in (FP32, TF32, BF16):
        assert status(judged(one_a_partition, precision, change=clustered, **held)) is Status.wrong_value
        assert status(judged(lambda x: torch.topk(x, 4, dim=1).values, precision, change=clustered, **held)) is None
    assert status(judged(lambda x: torch.topk(x.bfloat16(), 4).values.float(), BF16, change=clustered, **held)) is None


def test_a_reference_that_is_exact_in_most_entries_only_accuses_nobody_who_does_the_same() -> None:
    """As TF32 does in a convolution of structured inputs on a GPU."""
    body = (
        "return torch.cat([x[:, :18].half().to(x.dtype) if x.dtype == torch.float32 else x[:, :18], x[:, 18:]], dim=1)"
    )

    def the_same(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[:, :18].half().float(), x[:, 18:]], dim=1)

    found = {"inputs": "torch.randn(37, 91)", "precision": TF32}
    assert status(judged(the_same, body=body, **found)) is None
    assert status(judged(the_same, body="return x.clone()", **found)) is Status.wrong_value


def test_a_product_of_a_class_to_which_a_bias_is_added_in_float32_is_no_mistake() -> None:
    """Structured inputs leave most products exact; a rounded bias would move all sums."""

    def mostly_exact(x: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.arange(91) % 8 == 0, x, x.bfloat16().float())

    def product(x: torch.Tensor) -> torch.Tensor:
        return x.bfloat16().float() + torch.linspace(-1, 1, 91)

    def other_bias(x: torch.Tensor) -> torch.Tensor:
        answer = x + torch.linspace(-1, 1, 91)
        answer[:, 90] -= 2.0**-8
        return answer

    held = {"body": "return x + self.bias", "inputs": "torch.randn(37, 91)", "change": mostly_exact}
    assert status(judged(product, BF16, **held)) is None
    assert status(judged(other_bias, BF16, **held)) is Status.wrong_value


def test_nothing_makes_zeros_right_or_half_an_answer() -> None:
    """A long product in bfloat16, whose rounding moves the truth by a third, of which four times are more than all."""
    held = {
        "body": "return torch.cumprod(x, dim=1)",
        "inputs": "1.005 + 0.1 * torch.randn(37, 1231).clamp(-3, 3)",
    }
    right = judged(lambda x: torch.cumprod(x.bfloat16().float(), dim=1), BF16, **held)
    assert status(right) is None
    assert right.judgement is not None
    (output,) = right.judgement.evidence["outputs"]
    assert output["limits"]["rms"] > 10 * LIMITS[BF16].rms

    def half(x: torch.Tensor) -> torch.Tensor:
        answer = torch.cumprod(x, dim=1)
        answer[:, 616:] = 0
        return answer

    assert status(judged(torch.zeros_like, BF16, **held)) is Status.wrong_value
    assert status(judged(half, BF16, **held)) is Status.wrong_value
    most = limits_for(BF16, None, Sensitivity(precision=BF16, rms=0.3, max=0.3))
    assert (most.rms, most.max) == (0.5, 1.2), "half of the answer missing has an RMS error of 0.7"
    assert "the largest allowed" in most.note


def test_an_overflow_of_the_class_stays_one() -> None:
    finding = judged(lambda x: torch.exp(x.half()).float(), FP16, body="return torch.exp(x)", change=lambda x: x * 12.0)
    assert status(finding) is Status.non_finite


def test_fp32_is_not_loosened_by_rounding() -> None:
    assert status(judged(in_(torch.float16), FP32, change=near_tie)) is not None


def test_only_an_answer_outside_its_limits_costs_further_truths(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[PrecisionClass] = []
    nearby = Workspace.nearby

    def noted(self: Workspace, index: int, changed: tuple[int, ...], precision: PrecisionClass):
        for found in nearby(self, index, changed, precision):
            asked.append(precision)
            yield found

    monkeypatch.setattr(Workspace, "nearby", noted)
    assert status(judged(in_(torch.float16), FP16)) is None
    assert asked == []
    assert status(judged(in_(torch.float16), FP16, change=near_tie)) is None
    assert asked == [FP16], "the first way is that of the answer"
    assert status(judged(lambda x: torch.softmax(x, dim=1) * 1.01, FP16, calls=3)) is not None
    all_asked = [FP16] * (1 + len(Rounding)) + [BF16] * 2 + [FP8] * 2
    assert asked == all_asked, "once it was wrong, and did not look rounded to a coarser class, nothing can help it"
    assert status(judged(torch.zeros_like, FP16)) is Status.wrong_value
    assert asked == all_asked, "nor is there a limit for what is wrong altogether"


def test_a_reference_that_refuses_rounded_inputs_keeps_the_table_s_limits_and_its_float64() -> None:
    body = (
        "assert float((x * 2**20).frac().abs().max()) == 0 and float((x * 512).frac().abs().max()) > 0; return x.exp()"
    )
    held = {"body": body, "inputs": "torch.randint(2**19, 2**20, (37, 91)).float() / 2**20"}
    finding = judged(lambda x: x.exp() * 1.5, FP16, **held)
    assert status(finding) is not None
    assert finding.truth == "float64 cpu"


def test_values_that_the_class_would_take_for_zero_loosen_nothing() -> None:
    tiny = "torch.where(torch.rand(37, 91) < 0.1, 1e-9, 0.1 + torch.rand(37, 91))"
    held = {"body": "return torch.log(x)", "inputs": tiny}
    assert status(judged(lambda x: torch.log(x.half()).float(), FP16, **held)) is Status.non_finite
    assert status(judged(lambda x: torch.log(x) * 1.01, FP16, **held)) is Status.wrong_value


def test_a_reference_that_draws_is_its_own_truth_on_rounded_inputs_too() -> None:
    held = {"body": "return torch.softmax(x + 0.0 * torch.rand_like(x), dim=1)"}
    finding = judged(in_(torch.float16), FP16, change=near_tie, **held)
    assert finding.truth == "float32 reference"
    assert status(finding) is None


WEIGHTED = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((7, 5), 0.1))
        self.weight.data[3, 1], self.weight.data[3, 4] = 480.1, 480.45
        self.register_buffer("calls", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("seen", torch.full((1,), 0.3))
    def forward(self, x):
        self.calls += 1
        self.seen.mul_(0.5)
        return torch.softmax(x.float() @ self.weight, dim=1){noise}
def get_inputs():
    return [torch.randint(0, 2, (3, 7))]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("noise", ["", " + 0.0 * torch.rand(1)"], ids=["float64", "float32"])
def test_weights_are_rounded_too_and_left_as_they_were(noise: str) -> None:
    source = WEIGHTED.replace("{noise}", noise).replace("x.float()", "x.to(self.weight.dtype)")
    problem = Problem(id="level1/1", name="p", path=Path("1_p.py"), source=source, digest=source)
    workspace = Workspace(
        problem, Workload(name="full"), open_device(DeviceKind.HOST), sets_wanted=2, secret=random.Random(4)
    )
    try:
        workspace.draw(0)
        (x,) = workspace.tensors(workspace.sets[0].inputs)
        x.zero_()
        x[:, 3] = 1
        workspace.amend(0)
        before = workspace.truth(0)
        weights = {name: value.clone() for name, value in workspace.oracle.model.state_dict().items()}
        (exact,) = before.answer.leaves
        off = [float((near.leaves[0] - exact).abs().max()) for _, near in workspace.nearby(0, (), FP16)]
        assert len(off) == len(Rounding)
        assert max(off) > 0.02
        assert all(torch.equal(value, weights[name]) for name, value in workspace.oracle.model.state_dict().items())
        after = workspace.truth(0)
        assert torch.equal(after.answer.leaves[0], exact)
        assert torch.equal(after.answer.state["seen"], before.answer.state["seen"])
    finally:
        workspace.close()


def test_a_chain_of_products_that_cuts_off_its_operands_is_tf32() -> None:
    """Errors of one sign add up: each product loses half a unit on the mean of either operand."""

    def cut(t: torch.Tensor) -> torch.Tensor:
        return (t.view(torch.int32) & ~0x1FFF).view(torch.float32)

    def products(x: torch.Tensor) -> torch.Tensor:
        return cut(cut(x[:, :64]) @ cut(x[:64, 64:128])) @ cut(x[:64, 128:192])

    held = {
        "body": "return x[:, :64] @ x[:64, 64:128] @ x[:64, 128:192]",
        "inputs": "1.0 + 0.9 * torch.rand(64, 192)",
        "change": lambda x: x.sub_(x % 2**-10).add_(0.99 * 2**-10),
    }
    assert status(judged(products, TF32, **held)) is None
    assert status(judged(lambda x: products(x) * (1 - 2**-8), TF32, **held)) is Status.wrong_value


@pytest.mark.parametrize("room", ["none", "for truth alone", "enough"])
def test_truths_of_rounded_inputs_come_from_the_cpu_only_where_the_truth_does(
    room: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU that lacks the memory for them: what takes it a moment takes the CPU minutes, four times over."""
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    source = PROBLEM.format(body=SOFTMAX, inputs="torch.rand(37, 91)")
    problem = Problem(id="level1/1", name="p", path=Path("1_p.py"), source=source, digest=source)
    workspace = Workspace(
        problem, Workload(name="full"), open_device(DeviceKind.HOST), sets_wanted=2, secret=random.Random(4)
    )
    exact = workspace.truth(0).answer
    tried: list[str] = []

    def truth_on(self: Reference, place: torch.device, *more: object) -> Answer:
        tried.append(place.type)
        self._double_device = place
        rounded_inputs = len(more) > 3
        if place == cuda and (room == "none" or (room == "for truth alone" and rounded_inputs)):
            raise torch.OutOfMemoryError("all of it is taken")
        return exact

    monkeypatch.setattr(Reference, "_truth_on", truth_on)
    monkeypatch.setattr(Reference, "_places", lambda self: [(cuda, False), (cuda, False), (cpu, False)])
    try:
        workspace.truth(0)
        tried.clear()
        found = len(list(workspace.nearby(0, (), FP16)))
        every = len(Rounding)
        if room == "none":
            assert (found, tried) == (every, ["cpu"] * every)
        elif room == "enough":
            assert (found, tried) == (every, ["cuda"] * every)
        else:
            assert (found, tried) == (0, ["cuda", "cuda"])
    finally:
        workspace.close()


def test_half_precision_holds_more_digits_than_bfloat16() -> None:
    assert rounds(torch.float16, BF16)
    assert not rounds(torch.bfloat16, BF16)
    assert not rounds(torch.float16, FP16)
