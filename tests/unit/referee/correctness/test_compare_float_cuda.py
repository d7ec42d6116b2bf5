"""The kernels of a comparison on a GPU against the same passes in torch's operations on the CPU."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from harness.referee.correctness import compare_float, compare_float_cuda
from harness.referee.correctness.tolerance import compare, kernelbench_rule
from tests.support.paths import ROOT

gpu = pytest.mark.gpu

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def pair(count: int, dtype: torch.dtype, noise: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randn(count, generator=generator, dtype=torch.float64) * 3 + 0.5
    return (truth + noise * torch.randn(count, generator=generator, dtype=torch.float64)).to(dtype), truth


def both(actual: torch.Tensor, truth: torch.Tensor) -> tuple[dict[str, object], dict[str, object]]:
    assert compare_float_cuda.fits(actual.cuda(), truth.cuda())
    return compare(actual.cuda(), truth.cuda()).to_json(), compare(actual, truth).to_json()


def assert_alike(mine: dict[str, object], theirs: dict[str, object]) -> None:
    assert mine.keys() == theirs.keys()
    for key, value in theirs.items():
        if isinstance(value, float):
            assert math.isclose(float(mine[key]), value, rel_tol=1e-9, abs_tol=1e-300), key  # type: ignore[arg-type]
        elif key != "worst":  # among equals another place may be named
            assert mine[key] == value, key


@gpu
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("count", [1, 31, 257, 100_003, 5_000_000])
@pytest.mark.parametrize("noise", [0.0, 1e-6, 0.3])
def test_errors_are_those_of_torchs_operations(dtype: torch.dtype, count: int, noise: float) -> None:
    assert_alike(*both(*pair(count, dtype, noise)))


@gpu
@pytest.mark.parametrize("dtype", TYPES)
def test_one_wrong_value_is_found_at_its_place(dtype: torch.dtype) -> None:
    actual, truth = pair(1_000_003, dtype, 0.0)
    actual[777_777] += 8
    found = compare(actual.cuda(), truth.cuda())
    assert found.wrong == 1
    assert found.worst is not None
    assert found.worst.index == (777_777,)


@gpu
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("in_truth", [False, True])
def test_values_that_are_not_finite_get_the_careful_arithmetic(value: float, in_truth: bool) -> None:
    actual, truth = pair(10_000, torch.float32, 0.0)
    (truth if in_truth else actual)[123] = value
    mine, theirs = both(actual, truth)
    assert_alike(mine, theirs)
    assert mine["non_finite_mismatches"] == 1


@gpu
def test_a_truth_beyond_the_types_range_gets_it_too() -> None:
    actual, truth = pair(10_000, torch.float16, 0.0)
    truth[5], actual[5] = 1e6, math.inf
    assert_alike(*both(actual, truth))


@gpu
def test_a_truth_in_float32_is_read_as_such() -> None:
    actual, truth = pair(70_000, torch.float32, 1e-4)
    assert_alike(*both(actual, truth.float()))


@gpu
@pytest.mark.parametrize("off", [0.0, 0.9e-4, 1.2e-4, 1.0, math.nan, math.inf])
@pytest.mark.parametrize("base", [0.0, 1.0, -1e4, math.inf])
def test_kernelbenchs_rule_is_torchs_allclose(off: float, base: float) -> None:
    reference = torch.full((100_001,), base)
    actual = reference.clone()
    actual[55_555] += off
    assert kernelbench_rule(actual.cuda(), reference.cuda()) is kernelbench_rule(actual, reference)


@gpu
@pytest.mark.parametrize("dtype", TYPES)
def test_other_layouts_and_odd_addresses_are_measured_by_the_kernels_too(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    actual, truth = pair(301 * 77 + 1, dtype, 1e-6)
    device, exact = actual.cuda(), truth.cuda()
    layouts = {
        "transposed": lambda flat: flat[1:].view(301, 77).T,
        "shifted": lambda flat: flat[1:],
        "every second": lambda flat: flat[::2],
        "negated": lambda flat: torch._neg_view(flat),
    }
    for name, turned in layouts.items():
        assert compare_float.enqueue(turned(device), turned(exact)) is not None, name
        assert_alike(compare(turned(device), turned(exact)).to_json(), compare(turned(actual), turned(truth)).to_json())
    monkeypatch.setattr(compare_float_cuda, "TEMPORARY_BYTES", 1000)
    assert compare_float.enqueue(device[1:], exact[1:]) is None, "copies would take too much"
    assert_alike(compare(device[1:], exact[1:]).to_json(), compare(actual[1:], truth[1:]).to_json())


@gpu
def test_what_the_kernels_are_not_made_for_goes_without_them() -> None:
    plain = torch.ones(64, 64, device="cuda")
    assert not compare_float_cuda.fits(plain.to(torch.float8_e4m3fn), plain.double())
    assert not compare_float_cuda.fits(plain.cpu(), plain.cpu().double())
    assert compare_float_cuda.far_apart(plain.half(), plain.half(), 1e-2) is None


RUN_IT = """
import json, sys, torch
from pathlib import Path
from harness.referee.correctness import compare, compare_float, compare_float_cuda
from tests.support.comparison_on_cpu import install
generator = torch.Generator().manual_seed(1)
truth = torch.randn(30_011, generator=generator, dtype=torch.float64) * 3 + 0.5
actual = (truth + 1e-6 * torch.randn(30_011, generator=generator, dtype=torch.float64)).float()
right = actual.clone()
actual[12_345] += 8
broken = actual.clone()
broken[[7, 30_010]] = torch.tensor([float("nan"), float("inf")])
zero = torch.zeros(1_000)
equals = torch.full((9_001,), 2.0)
equals[[4_321, 8_765]] = 3.0
pairs = [(actual, truth), (broken, truth), (actual[:3].clone(), truth[:3].clone()), (right, truth)]
table = (right[:30_000].view(100, 300), truth[:30_000].view(100, 300))
pairs += [tuple(t.T for t in table), tuple(t[:, 1:] for t in table)]
pairs += [(zero, zero.double()), (zero + 1e-7, zero.double()), (equals, torch.full((9_001,), 2.0).double())]
expected = [compare.compare(*pair).to_json() for pair in pairs]
install(Path(sys.argv[1]), blocks=7)
rows = [compare_float.enqueue(*pair).tolist() for pair in pairs]
read = [compare_float_cuda.MeasuredErrors.of(row) for row in rows]
scales = [(row[4], held.norm / pair[0].numel() ** 0.5) for row, held, pair in zip(rows, read, pairs)]
print(json.dumps([[compare.compare(*pair).to_json() for pair in pairs], expected, scales]))
"""


def test_the_kernels_executed_on_the_cpu_find_what_torchs_operations_find(tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", RUN_IT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr[-3000:]
    found, expected, scales = json.loads(done.stdout.splitlines()[-1])
    for mine, theirs in zip(found, expected, strict=True):
        assert_alike(mine, theirs)
        assert mine["worst"] == theirs["worst"]
    assert found[0]["worst"]["index"] == [12_345]
    assert found[1]["non_finite_mismatches"] == 2
    assert found[3]["wrong"] == 0
    assert found[8]["worst"]["index"] == [4_321], "of two equal errors the first"
    for number, (used, rms) in enumerate(scales):
        if number not in (1, 6, 7):
            assert used == rms, "the scale on the device is the one that is written down, to the last digit"
    assert scales[6][0] == scales[7][0] == 2.0**-5, "of a truth that is zero"
