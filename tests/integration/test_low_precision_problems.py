"""The problems in fp8, MX, NVFP4, int8 and int4: solutions in their format pass, others do not.

For each of the 25 problems, `solutions/quantised` has an honest solution. What computes in bfloat16 instead, and what
takes the next coarser format, must fail (`tests/support/low_precision.py`). The fast tests judge them in this process
by the rule for solutions, on the problem's own inputs; the slow ones evaluate them on the host device.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from harness.api import Harness
from harness.core.choices import DeviceKind, PrecisionClass
from harness.core.status import Status
from harness.devices.device import Device, open_device
from harness.referee.soundness.samples import OWN_DRAWS
from tests.support.low_precision import SOLUTIONS, SPOILED, TORCH, calls_of, outputs_of, problem_of, source_of
from tests.support.paths import ROOT

WRONG = (Status.wrong_value, Status.low_precision, Status.non_finite)


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield open_device(DeviceKind.HOST)
    torch.set_num_threads(before)


def test_every_solution_is_checked_and_every_problem_has_one() -> None:
    files = {str(path.relative_to(ROOT / SOLUTIONS)) for path in (ROOT / SOLUTIONS).rglob("*.py")}
    assert files == set(SPOILED)
    assert len({problem_of(label) for label in TORCH}) == 25
    assert sum(label.endswith("_cuda.py") for label in SPOILED) >= 5


@pytest.mark.parametrize("label", TORCH)
def test_the_format_of_the_problem_is_right_and_others_are_wrong(label: str, device: Device) -> None:
    source = source_of(label)
    spoiled = SPOILED[label].variants(source)
    for call in itertools.islice(calls_of(problem_of(label), device), OWN_DRAWS):
        assert not call.rejects(outputs_of(source, call)), "honest"
        for name, text in spoiled.items():
            assert call.rejects(outputs_of(text, call)), name


PRODUCT = """
import torch

def blocked(x, size):
    missing = -x.shape[1] % size
    return torch.nn.functional.pad(x, (0, missing)).view(x.shape[0], -1, size)

def e4m3(x):
    scale = x.abs().amax(1, keepdim=True) / 448
    return (x / scale).to(torch.float8_e4m3fn).float() * scale

def e5m2(x):
    scale = x.abs().amax(1, keepdim=True) / 57344
    return (x / scale).to(torch.float8_e5m2).float() * scale

def mxfp8(x):
    blocks = blocked(x, 32)
    scale = torch.exp2(torch.log2(blocks.abs().amax(2, keepdim=True).clamp(min=1e-30)).floor() - 8)
    return ((blocks / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale).flatten(1)[:, : x.shape[1]]

def e2m1(v):
    size = v.abs()
    step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
    return torch.copysign(((size / step).round() * step).clamp(max=6), v)

def mxfp4(x):
    blocks = blocked(x, 32)
    scale = torch.exp2(torch.log2(blocks.abs().amax(2, keepdim=True).clamp(min=1e-30)).floor() - 2)
    return (e2m1(blocks / scale) * scale).flatten(1)[:, : x.shape[1]]

def nvfp4(x):
    blocks, tensor = blocked(x, 16), x.abs().max() / (6 * 448)
    scale = (blocks.abs().amax(2, keepdim=True) / 6 / tensor).to(torch.float8_e4m3fn).float() * tensor
    return (e2m1(blocks / scale.clamp(min=1e-30)) * scale).flatten(1)[:, : x.shape[1]]

def whole(x, top):
    blocks = blocked(x, 128)
    scale = blocks.abs().amax(2, keepdim=True).clamp(min=1e-30) / top
    return ((blocks / scale).round() * scale).flatten(1)[:, : x.shape[1]]

def int8(x):
    return whole(x, 127)

def int4(x):
    return whole(x, 7)

def two_bits(x):
    return whole(x, 1)

class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return FORMAT(a) @ FORMAT(b).T
"""

CLASSES = [
    ("int8", "int8", "e4m3"),
    ("fp8_e4m3", "e4m3", "e5m2"),
    ("mxfp8", "mxfp8", "e5m2"),
    ("fp8_e5m2", "e5m2", "nvfp4"),
    ("nvfp4", "nvfp4", "mxfp4"),
    ("int4", "int4", "two_bits"),
    ("mxfp4", "mxfp4", "two_bits"),
]
"""A precision class, a format that reaches it, and the next coarser one."""


@pytest.mark.parametrize(("precision", "own", "coarser"), CLASSES)
def test_a_product_in_the_format_of_a_class_passes_and_a_coarser_one_does_not(
    precision: str, own: str, coarser: str, device: Device
) -> None:
    rejected = []
    for call in calls_of("level1/17", device, PrecisionClass(precision)):
        assert not call.rejects(outputs_of(PRODUCT.replace("FORMAT", own), call)), call.variant
        rejected.append(call.rejects(outputs_of(PRODUCT.replace("FORMAT", coarser), call)))
    assert sum(rejected) > len(rejected) / 2, rejected


@pytest.fixture(scope="module")
def harness() -> Iterator[Harness]:
    with Harness(device="host") as harness:
        yield harness


@pytest.fixture(scope="module")
def gpu_harness() -> Iterator[Harness]:
    with Harness(device="cuda") as harness:
        yield harness


def evaluate(label: str, harness: Harness, tmp_path: Path) -> None:
    source = source_of(label)
    sources = {"honest": source, **SPOILED[label].variants(source)}
    files = {name: tmp_path / f"{name}.py" for name in sources}
    for name, text in sources.items():
        files[name].write_text(text, encoding="utf-8")
    given = {name: harness.submit(problem_of(label), path) for name, path in files.items()}
    results = {name: future.result(600) for name, future in given.items()}
    assert results["honest"].status is Status.passed, results["honest"].reason
    for name in ("bf16", "coarser"):
        assert results[name].status in WRONG, (name, results[name].status, results[name].reason)


@pytest.mark.parametrize("label", SPOILED)
def test_an_evaluation_says_the_same(label: str, harness: Harness, tmp_path: Path) -> None:
    evaluate(label, harness, tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("label", SPOILED)
def test_so_does_one_on_a_gpu_at_full_size(label: str, gpu_harness: Harness, tmp_path: Path) -> None:
    evaluate(label, gpu_harness, tmp_path)
