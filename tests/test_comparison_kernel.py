"""The kernels of a comparison on a GPU against the same passes in torch's operations on the CPU."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from harness import comparison_kernel
from harness.numerics import compare, kernelbench_rule

gpu = pytest.mark.gpu

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
def test_what_the_kernels_are_not_made_for_goes_without_them() -> None:
    plain = torch.ones(64, 64, device="cuda")
    assert comparison_kernel.passes(plain.T[:, 1:], plain.double()[:, 1:]) is None
    assert comparison_kernel.passes(plain.to(torch.float8_e4m3fn), plain.double()) is None
    assert comparison_kernel.passes(plain.cpu(), plain.cpu().double()) is None
    assert comparison_kernel.all_close(plain.half(), plain.half(), 1e-2) is None


LAUNCHERS = """
template <typename T> T *address_of(int64_t address) { return reinterpret_cast<T *>(address); }
void run_moments(int64_t actual, int64_t truth, int64_t count, int64_t found, int64_t blocks) {
    const actual_t *a = address_of<const actual_t>(actual);
    const truth_t *t = address_of<const truth_t>(truth);
    double *to = address_of<double>(found);
    moments<<<blocks, 256>>>(a, t, count, to);
}
void run_errors(int64_t actual, int64_t truth, int64_t count, double scale, double half_unit, double least_slack,
                int64_t found, int64_t blocks) {
    const actual_t *a = address_of<const actual_t>(actual);
    const truth_t *t = address_of<const truth_t>(truth);
    double *to = address_of<double>(found);
    errors<<<blocks, 256>>>(a, t, count, scale, half_unit, least_slack, to);
}
"""

RUN_IT = """
import json, sys, torch
from pathlib import Path
from harness import comparison, comparison_kernel
from harness.hostcuda.loader import load
source, folder = sys.argv[1:]
declared = "void run_moments(int64_t, int64_t, int64_t, int64_t, int64_t); "
declared += "void run_errors(int64_t, int64_t, int64_t, double, double, double, int64_t, int64_t);"
names = ["run_moments", "run_errors"]
module = load(source, declared, names, checked=False, folder=Path(folder))
launchers = [
    lambda blocks, threads, arguments, run=getattr(module, name): run(*(value for value, _ in arguments), blocks[0])
    for name in names
]
generator = torch.Generator().manual_seed(1)
truth = torch.randn(30_011, generator=generator, dtype=torch.float64) * 3 + 0.5
actual = (truth + 1e-6 * torch.randn(30_011, generator=generator, dtype=torch.float64)).float()
actual[12_345] += 8
broken = actual.clone()
broken[[7, 30_010]] = torch.tensor([float("nan"), float("inf")])
pairs = [(actual, truth), (broken, truth), (actual[:3].clone(), truth[:3].clone())]
expected = [comparison.compare(*pair).to_json() for pair in pairs]
comparison_kernel._kernels = lambda actual, truth: launchers
comparison_kernel._blocks = lambda tensor: 7
comparison_kernel.passes = lambda actual, truth: comparison_kernel.PlainPasses(actual=actual, truth=truth)
print(json.dumps([[comparison.compare(*pair).to_json() for pair in pairs], expected]))
"""


def test_the_kernels_executed_on_the_cpu_find_what_torchs_operations_find(tmp_path: Path) -> None:
    head = "#include <torch/extension.h>\n#define ACTUAL 0\n#define TRUTH 1\n"
    command = [sys.executable, "-c", RUN_IT, head + comparison_kernel._SOURCE + LAUNCHERS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found, expected = json.loads(done.stdout.splitlines()[-1])
    for mine, theirs in zip(found, expected, strict=True):
        assert_alike(mine, theirs)
    assert found[0]["worst"] == expected[0]["worst"]
    assert found[0]["worst"]["index"] == [12_345]
    assert found[1]["non_finite_mismatches"] == 2
