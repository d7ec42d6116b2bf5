"""Variants: what each changes, what it leaves alone, and which tensors are recognised as restricted."""

from __future__ import annotations

import pytest
import torch

from harness.catalog.problems import VARIANTS
from harness.referee.problem.stress_variants import restrictions, transform

ALL = ("zero_mean", "large_values", "structured")
SQUARE = torch.rand(40, 40)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(7)


def test_the_catalog_knows_the_same_variants() -> None:
    assert set(VARIANTS) == set(ALL)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_zero_mean_keeps_the_spread(dtype: torch.dtype) -> None:
    x = torch.rand(300, 200).to(dtype)
    spread = x.double().std()
    assert transform("zero_mean", [("x", x)], 0) == ["x: shifted to mean zero"]
    assert abs(float(x.double().mean())) < 1e-3
    assert float(x.double().std()) == pytest.approx(float(spread), rel=0.02)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_large_values_are_rare_finite_and_keep_their_sign(dtype: torch.dtype) -> None:
    x = (torch.rand(500, 400) - 0.5).to(dtype)
    before = x.clone()
    transform("large_values", [("x", x)], 0)
    changed = x != before
    assert 10 <= int(changed.sum()) <= 20
    assert torch.equal(x.sign(), before.sign())
    usual = before[changed].double().abs().clamp(min=0.025)
    ratio = x[changed].double().abs() / usual
    assert bool((ratio > 95).all())
    assert bool((ratio < 1050).all())
    assert bool(torch.isfinite(x).all())


def test_large_values_lie_beyond_all_others_so_that_none_equals_one_of_them() -> None:
    """A thousandth times a thousand would else be a value like any other, and of equals either comes first."""
    for seed in range(20):
        torch.manual_seed(seed)
        x = torch.floor(torch.randn(100, 400) * 8) / 8 + torch.randperm(400) / 2**12
        before = x.clone()
        transform("large_values", [("x", x)], seed)
        changed = (x != before) & (before != 0)
        assert float(x[changed].abs().min()) > 4 * float(before.abs().max())
        assert int((x.sort(dim=1).values.diff(dim=1) == 0).sum()) == 0


def test_even_a_small_tensor_gets_a_large_value() -> None:
    x = torch.rand(3, 7)
    before = x.clone()
    transform("large_values", [("x", x)], 0)
    assert int((x != before).sum()) == 1


def test_structured_makes_one_tensor_one_hot_and_the_others_ramps() -> None:
    for seed in range(4):
        a, b = torch.rand(12, 50), torch.rand(50, 9)
        labels = transform("structured", [("a", a), ("b", b)], seed)
        hot, ramp = (a, b) if seed % 2 == 0 else (b, a)
        along = hot.shape.index(50)
        lines = hot.movedim(along, -1)
        assert bool(((lines == lines.max()).sum(-1) == 1).all())
        assert float(hot.min()) == 0.0
        assert bool((lines[:, -1].max() > 0) & (lines[:, 0].max() > 0)), "first and last place are hot somewhere"
        assert ramp.unique().numel() == ramp.numel()
        assert 0.0 <= float(ramp.min()) <= float(ramp.max()) <= 1.0
        assert any("one-hot along dimension" in label for label in labels)


def test_structured_products_copy_single_values() -> None:
    a, b = torch.rand(12, 50), torch.rand(50, 9)
    transform("structured", [("a", a), ("b", b)], 0)
    product = a @ b
    rows = a.argmax(1)
    assert torch.equal(product, b[rows] * a.max())
    assert len(set(rows.tolist())) > 8
    shifted = a @ b.roll(1, 0)
    assert float((product - shifted).abs().mean()) > 0.1


def test_a_lone_tensor_is_a_ramp_or_one_hot() -> None:
    kinds = set()
    for seed in range(2):
        x = torch.rand(6, 40)
        (label,) = transform("structured", [("x", x)], seed)
        kinds.add(label.split(":")[1].split()[0])
    assert kinds == {"one-hot", "coordinate"}


def test_positive_values_stay_positive() -> None:
    for variant in ("large_values", "structured"):
        for seed in range(2):
            x = torch.rand(50, 60) + 0.5
            transform(variant, [("x", x)], seed)
            assert float(x.min()) >= 0.5


@pytest.mark.parametrize("variant", ALL)
def test_integers_truth_values_and_scalars_are_left_alone(variant: str) -> None:
    tensors = [torch.arange(20), torch.rand(20) > 0.5, torch.rand(()), torch.rand(0, 3), torch.rand(9).to(torch.cfloat)]
    before = [tensor.clone() for tensor in tensors]
    assert transform(variant, [(str(i), tensor) for i, tensor in enumerate(tensors)], 1) == []
    assert all(torch.equal(a, b) for a, b in zip(before, tensors, strict=True))


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (torch.rand(40, 40).tril(), "zero"),
        (torch.diag(torch.rand(40)), "zero"),
        (SQUARE + SQUARE.T, "symmetric"),
        (torch.randint(0, 2, (64, 64)).float() * 2 - 1, "few distinct"),
        (torch.ones(50), "few distinct"),
        (torch.rand(30, 50).softmax(-1), "sum to one"),
        (torch.rand(50).log_().mul_(float("inf")), "not finite"),
    ],
)
def test_restricted_tensors_are_left_as_drawn(tensor: torch.Tensor, said: str) -> None:
    for variant in ALL:
        held = tensor.clone()
        (label,) = transform(variant, [("x", held)], 1)
        assert "left as drawn" in label
        assert said in label
        assert torch.equal(held, tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.rand(300, 300),
        torch.randn(64, 64),
        torch.rand(5, 7, 7),
        torch.rand(200, 100).to(torch.bfloat16),
        torch.rand(3, 3),
        torch.rand(1, 50).softmax(-1) * 2,
        torch.relu(torch.rand(50, 50) - 0.01),
    ],
)
def test_ordinary_tensors_are_free(tensor: torch.Tensor) -> None:
    assert restrictions([tensor, torch.zeros(8, 8), tensor]) == [None, "more than a tenth of it is zero", None]


def test_the_seed_repeats_a_variant() -> None:
    for variant in ALL:
        first, second = torch.rand(90, 80), torch.empty(90, 80)
        second.copy_(first)
        for x in (first, second):
            torch.manual_seed(3)
            transform(variant, [("x", x)], 5)
        assert torch.equal(first, second)


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown input variant 'odd'; use one of own, zero_mean"):
        transform("odd", [], 0)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("variant", ["zero_mean", "large_values", "structured"])
def test_eight_bit_floats_are_changed_as_well(dtype: torch.dtype, variant: str) -> None:
    drawn = (torch.randn(96, 131, generator=torch.Generator().manual_seed(1)) + 1).to(dtype)
    held = drawn.clone()
    labels = transform(variant, [("inputs[0]", held.T)], seed=2)  # strides stay as well
    assert not any("left as drawn" in label for label in labels)
    values, before = held.float(), drawn.float()
    assert bool(values.isfinite().all())
    assert not torch.equal(values, before)
    if variant == "zero_mean":
        assert abs(float(values.mean())) < 0.02
    elif variant == "large_values":
        assert float(values.abs().max()) == torch.finfo(dtype).max if dtype is torch.float8_e4m3fn else True
        assert int((values != before).sum()) >= 10
    else:
        assert int((values != 0).sum()) == 96, "one a line along the longest dimension"


def test_eight_bit_floats_of_few_values_stay_as_drawn() -> None:
    signs = (torch.randint(0, 2, (64, 64)) * 2 - 1).to(torch.float8_e4m3fn)
    assert "few distinct" in transform("zero_mean", [("inputs[0]", signs)], seed=0)[0]
