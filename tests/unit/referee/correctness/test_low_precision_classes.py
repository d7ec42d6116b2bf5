"""Classes of eight bits and less: their formats, and limits between each class's errors and the next coarser one's."""

from __future__ import annotations

import pytest
import torch

from harness.core.choices import PrecisionClass
from harness.referee.correctness.compare import compare
from harness.referee.correctness.precision import UNLIMITED, Sensitivity, TensorComparison
from harness.referee.correctness.tolerance import limits_for
from harness.referee.problem.rounding import Rounding, rounded, rounds

NEAREST = Rounding.NEAREST
INT8, E4M3, MXFP8, E5M2 = map(PrecisionClass, ("int8", "fp8_e4m3", "mxfp8", "fp8_e5m2"))
NVFP4, INT4, MXFP4 = map(PrecisionClass, ("nvfp4", "int4", "mxfp4"))
COARSER = {INT8: E4M3, E4M3: E5M2, MXFP8: E5M2, E5M2: NVFP4, NVFP4: MXFP4}
"""The next format whose errors are larger; int4 and mxfp4 are the coarsest."""

DRAWS = {
    "normal": torch.randn,
    "uniform": lambda *shape, generator: torch.rand(*shape, generator=generator) - 0.5,
    "heavy tails": lambda *shape, generator: (
        torch.randn(*shape, generator=generator) * (0.5 + torch.rand(*shape, generator=generator)).log().exp2()
    ),
}


def product_of(precision: PrecisionClass, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return rounded(a, precision, NEAREST, 1).double() @ rounded(b, precision, NEAREST, 1).double().T


def errors(precision: PrecisionClass, terms: int, draw: str = "normal") -> TensorComparison:
    generator = torch.Generator().manual_seed(terms)
    a, b = (DRAWS[draw](96, terms, generator=generator) for _ in range(2))
    return compare(product_of(precision, a, b), a.double() @ b.double().T, limits=UNLIMITED)


def rounding_error(precision: PrecisionClass, terms: int, draw: str) -> Sensitivity:
    found = errors(precision, terms, draw)
    assert found.rms_error is not None
    assert found.max_error is not None
    return Sensitivity(precision=precision, rms=found.rms_error, max=found.max_error)


@pytest.mark.parametrize("terms", [64, 1024, 8192])
@pytest.mark.parametrize("precision", [INT8, E4M3, MXFP8, E5M2, NVFP4, INT4, MXFP4])
def test_operands_of_a_class_reach_it(precision: PrecisionClass, terms: int) -> None:
    assert errors(precision, terms).within(limits_for(precision))


@pytest.mark.parametrize(
    ("precision", "draw"),
    # The largest values of a block saturate in MX: of uniform ones, mxfp8 errs as much as e5m2.
    [(precision, draw) for precision in COARSER for draw in DRAWS if (precision, draw) != (MXFP8, "uniform")],
)
def test_operands_of_the_next_coarser_class_fail(precision: PrecisionClass, draw: str) -> None:
    """Also if the limits are raised by what rounding to the class itself costs."""
    limits = limits_for(precision, None, rounding_error(precision, 512, draw))
    assert errors(precision, 512, draw).within(limits)
    assert not errors(COARSER[precision], 512, draw).within(limits)


@pytest.mark.parametrize("precision", [INT4, MXFP4])
def test_numbers_of_two_bits_fail_in_the_coarsest_classes(precision: PrecisionClass) -> None:
    a, b = (torch.randn(96, 512, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    ternary = [x.sign() * (x.abs() > 0.6) for x in (a, b)]
    scale = [float((x * y).sum() / (y * y).sum()) for x, y in zip((a, b), ternary, strict=True)]
    found = compare(
        (ternary[0] * scale[0]).double() @ (ternary[1] * scale[1]).double().T,
        a.double() @ b.double().T,
        limits=UNLIMITED,
    )
    assert not found.within(limits_for(precision, None, rounding_error(precision, 512, "normal")))


def test_e4m3_and_e5m2_are_those_of_torch() -> None:
    x = torch.randn(4096, generator=torch.Generator().manual_seed(3)) * 4
    for precision, dtype in ((E4M3, torch.float8_e4m3fn), (E5M2, torch.float8_e5m2)):
        normal = x[x.abs() > torch.finfo(dtype).smallest_normal]
        assert torch.equal(rounded(normal, precision, NEAREST, 0), normal.to(dtype).float())


E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def test_four_bit_floats_are_multiples_of_e2m1() -> None:
    x = torch.randn(7, 75, generator=torch.Generator().manual_seed(4))  # the last block of a row is short
    held = rounded(x, MXFP4, NEAREST, 0)
    for row, into in zip(x, held, strict=True):
        for block, of in zip(row.split(32), into.split(32), strict=True):
            scale = 2.0 ** (block.abs().max().log2().floor() - 2)
            numbers = torch.cat((-E2M1, E2M1)) * scale
            nearest = (block[:, None].double() - numbers).abs().amin(dim=1)
            assert bool(torch.isin(of, numbers).all())
            assert torch.allclose((of - block).double().abs(), nearest, rtol=1e-6, atol=1e-9)


def test_nvfp4_has_a_scale_in_e4m3_for_sixteen_values() -> None:
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(5)) * torch.logspace(-2, 2, 64)
    of_tensor = x.abs().max().double() / (6 * 448)
    held = rounded(x, NVFP4, NEAREST, 0).double()
    scale = (x.view(5, 4, 16).abs().amax(2, keepdim=True).double() / 6 / of_tensor).to(torch.float8_e4m3fn).double()
    codes = held.view(5, 4, 16) / (scale * of_tensor)
    assert bool(((codes.abs()[..., None] - E2M1).abs().amin(-1) < 1e-6).all())


@pytest.mark.parametrize(("precision", "top"), [(INT8, 127), (INT4, 7)])
def test_groups_of_whole_numbers(precision: PrecisionClass, top: int) -> None:
    x = torch.randn(3, 256, generator=torch.Generator().manual_seed(6)).double()
    scale = x.view(3, 2, 128).abs().amax(2, keepdim=True) / top
    codes = rounded(x, precision, NEAREST, 0).view(3, 2, 128) / scale
    assert torch.allclose(codes, (x.view(3, 2, 128) / scale).round(), atol=1e-9)


@pytest.mark.parametrize("precision", [INT8, MXFP8, NVFP4, INT4, MXFP4])
def test_blocks_keep_what_is_no_number_and_what_was_quantised(precision: PrecisionClass) -> None:
    x = torch.randn(2, 300, generator=torch.Generator().manual_seed(7))
    x[0, 0], x[1] = torch.nan, 0.0
    for way in Rounding:
        held = rounded(x, precision, way, 3)
        assert bool(held[0, 0].isnan())
        assert not held[1].any()
        assert torch.equal(rounded(x.T, precision, way, 3).isnan(), x.T.isnan())
    assert not rounds(torch.float8_e4m3fn, precision)
    assert not rounds(torch.uint8, precision)
    assert rounded(torch.tensor(3.0), precision, NEAREST, 0).shape == ()
    assert rounded(torch.zeros(0, 3), precision, NEAREST, 0).shape == (0, 3)
