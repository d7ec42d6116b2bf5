"""A neighbour that works on the GPU beside a measurement is noticed, rounds are made again, and the record says so."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.build import default_root
from harness.config import resolve
from harness.disturbance import DISTURBED
from harness.environment import collect, machine
from harness.model import DeviceKind, Record
from harness.pipeline import evaluate_run

pytestmark = [pytest.mark.gpu, pytest.mark.exclusive_gpu]

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.rand(4096, 4096) - 0.5]
def get_init_inputs():
    return []
"""
SOLUTION = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=0)
"""
NEIGHBOUR = """
import torch
a = torch.randn(4096, 4096, device="cuda")
print("up", flush=True)
while True:
    for _ in range(50):
        a @ a
    torch.cuda.synchronize()
"""


@pytest.fixture
def neighbour() -> Iterator[None]:
    """A process that is none of the harness's, busy until the test ends."""
    process = subprocess.Popen([sys.executable, "-c", NEIGHBOUR], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    try:
        yield
    finally:
        process.kill()
        process.communicate()


def evaluated(folder: Path) -> Record:
    level = folder / "problems" / "level1"
    level.mkdir(parents=True)
    (level / "19_relu.py").write_text(PROBLEM)
    place = folder / "solutions" / "somebody" / "level1"
    place.mkdir(parents=True)
    (place / "19_clamp.py").write_text(SOLUTION)
    environment = collect()
    config = resolve(
        machine=machine(environment),
        run_id="run",
        options={
            "paths": [folder / "solutions"], "problems": folder / "problems", "out": folder / "results",
            "device": DeviceKind.CUDA.value, "workload": "full", "cache_dir": default_root(), "audit": "never",
            "seeds": 1, "budget_s": 3.0,
        },
    )  # fmt: skip
    (record,) = evaluate_run(config, environment=environment).records
    assert record.timing is not None, record.reason
    return record


def test_alone_nothing_is_noticed(tmp_path: Path) -> None:
    record = evaluated(tmp_path)
    assert record.timing is not None
    seen = record.timing["disturbed"]
    assert (seen["rounds_repeated"], seen["seen"]) == (0, []), seen
    assert DISTURBED not in record.labels
    # The contestant's process, which is on the GPU too, is no other process.
    assert {state["other_processes"] for state in record.timing["gpu_after_rounds"]} <= {0, None}


def test_a_working_neighbour_is_noticed(tmp_path: Path, neighbour: None) -> None:
    record = evaluated(tmp_path)
    assert record.timing is not None
    seen = record.timing["disturbed"]
    if seen["other_processes"]["busy"] is None:
        pytest.skip("the driver does not say here which processes work on the GPU")
    assert seen["rounds_repeated"] > 0, seen
    assert "had kernels running" in seen["seen"][0]
    assert DISTURBED in record.labels
