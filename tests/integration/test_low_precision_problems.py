"""The problems in fp8, MX, NVFP4, int8 and int4: solutions in their format pass, others do not.

For each of the 25 problems, `solutions/quantised` has an honest solution. What computes in bfloat16 instead, and what
takes the next coarser format, must fail (`tests/support/low_precision.py`). The fast tests judge them in this process
by the rule and on the inputs of solutions; the slow ones evaluate them on the host device.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.api import Harness
from harness.catalog import load_problems
from harness.core.choices import DeviceKind
from harness.core.status import Status
from harness.devices.device import Device, open_device
from harness.protocol.tensor_tree import flatten, unflatten
from harness.referee.problem.loader import load_reference
from harness.referee.problem.truth import Reference
from harness.referee.soundness.samples import ReferenceCall, SampleDrawer, make_sample
from tests.support.low_precision import SOLUTIONS, SPOILED
from tests.support.paths import ROOT

CATALOG = load_problems(ROOT / "problems")
TORCH = [label for label in SPOILED if label.endswith("_torch.py")]
WRONG = (Status.wrong_value, Status.low_precision, Status.non_finite)


def source_of(label: str) -> str:
    return (ROOT / SOLUTIONS / label).read_text(encoding="utf-8")


def problem_of(label: str) -> str:
    return label.partition("_")[0]


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield open_device(DeviceKind.HOST)
    torch.set_num_threads(before)


def calls_of(key: str, device: Device) -> Iterator[ReferenceCall]:
    problem = CATALOG[key]
    reference = load_reference(problem, problem.workloads["small"])
    oracle, drawer = Reference(reference, device, seed=7), SampleDrawer(reference, device)
    leaves, tree = drawer.inputs("own")
    oracle.try_out(unflatten(tree, [leaf.clone() for leaf in leaves]), 7)
    first = make_sample("own", leaves, tree, 7, oracle, problem.precision)
    return drawer.samples(oracle, problem, problem.precision, first)


def accepts(source: str, call: ReferenceCall) -> bool:
    space: dict[str, Any] = {}
    exec(compile(source, "solution", "exec"), space)
    with torch.no_grad():
        leaves, _ = flatten(space["ModelNew"]()(*unflatten(call.tree, list(call.inputs))))
    return not call.rejects(leaves)


def test_every_solution_is_checked_and_every_problem_has_one() -> None:
    files = {str(path.relative_to(ROOT / SOLUTIONS)) for path in (ROOT / SOLUTIONS).rglob("*.py")}
    assert files == set(SPOILED)
    assert len({problem_of(label) for label in TORCH}) == 25
    assert sum(label.endswith("_cuda.py") for label in SPOILED) >= 5


@pytest.mark.parametrize("label", TORCH)
def test_the_format_of_the_problem_is_right_and_others_are_wrong(label: str, device: Device) -> None:
    source = source_of(label)
    accepted: dict[str, list[str]] = {name: [] for name in SPOILED[label].variants(source)}
    for call in calls_of(problem_of(label), device):
        assert accepts(source, call), f"the honest solution fails on {call.variant} inputs"
        for name, spoiled in SPOILED[label].variants(source).items():
            if call.variant == "own" and accepts(spoiled, call):
                accepted[name].append(call.variant)
    assert accepted == {"bf16": [], "coarser": []}, "on the problem's own inputs, every call must show it"


@pytest.fixture(scope="module")
def harness() -> Iterator[Harness]:
    with Harness(device="host") as harness:
        yield harness


@pytest.mark.parametrize("label", SPOILED)
def test_an_evaluation_says_the_same(label: str, harness: Harness, tmp_path: Path) -> None:
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
