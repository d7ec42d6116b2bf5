"""Backward passes on a GPU: times of both passes, memory between them, graphs, compiled references, audits."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from harness.api import Harness
from harness.catalog import load_problems
from harness.core.choices import Baseline, DeviceKind
from harness.core.status import Status
from harness.devices.device import open_device
from harness.protocol.messages import LaunchMode
from harness.referee.baselines.measuring import measure
from harness.referee.problem.workspace import Workspace
from harness.referee.timing.rounds import ReferenceRunner
from tests.support.paths import ROOT

pytestmark = pytest.mark.gpu

CATALOG = load_problems(ROOT / "problems")


@pytest.fixture
def workspace() -> Workspace:
    problem = CATALOG["backward/10"]
    return Workspace(
        problem, problem.workloads["small"], open_device(DeviceKind.CUDA), sets_wanted=4, secret=random.Random(1)
    )


def test_a_marked_call_has_a_time_before_the_mark() -> None:
    device = open_device(DeviceKind.CUDA)
    x = torch.randn(4096, 4096, device=device.torch_device)

    def call() -> torch.Tensor:
        torch.mm(x, x)
        device.mark()
        return torch.mm(torch.mm(x, x), x)

    for timer in (device.time_cold, device.time_latency):
        timer(call, lambda _: None)
        times = timer(call, lambda _: None)
        assert times.forward_s is not None
        assert 0.2 < times.forward_s / times.device_s < 0.5
        assert timer(lambda: torch.mm(x, x), lambda _: None).forward_s is None


@pytest.mark.parametrize("launch_mode", [LaunchMode.LAUNCHED, LaunchMode.QUEUED, LaunchMode.GRAPH])
def test_a_backward_runs_in_every_launch_mode(workspace: Workspace, launch_mode: LaunchMode) -> None:
    runner = ReferenceRunner(workspace)
    for index in range(2):
        workspace.draw(index)
    runner.hold_back(range(2))
    for index in range(2):
        workspace.complete(index)
    assert runner.back_to_back([0, 1], launch_mode).device_s > 0.0


def test_truth_of_gradients_is_float64_on_the_gpu(workspace: Workspace) -> None:
    assert workspace.truth_source == "float64 cuda"
    assert set(workspace.judged(0)) == {"output", "grad of input 0", "grad of norm.weight", "grad of norm.bias"}


def test_a_compiled_reference_makes_its_backward(workspace: Workspace) -> None:
    (entry,) = measure(workspace, [Baseline.COMPILE], secret=random.Random(2), budget_s=1.0)
    assert entry.outcome.value == "measured", entry.reason


@pytest.mark.exclusive_gpu
def test_both_passes_of_a_solution_are_timed_and_audited() -> None:
    path: Path = ROOT / "solutions/tuned/backward/11_columns_stay.py"
    with Harness(device="cuda") as harness:
        result = harness.submit("backward/11", path).result(600)
    assert result.status is Status.passed, result.reason
    backward = result.record.evidence["backward"]
    for side in ("reference", "solution"):
        both_s = result.record.timing[side]["device"]["median_s"]  # type: ignore[index]
        passes_s = backward["forward_s"][side] + backward["backward_s"][side]
        assert 0.9 < passes_s / both_s < 1.1
    assert backward["held_bytes"]["solution"] < backward["held_bytes"]["reference"]
