"""Runs on all GPUs of this machine: each contestant sees its own, and is not the reason to give one up."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.config import resolve
from harness.core.environment import collect, machine
from harness.core.status import Status
from harness.core.visible_gpus import visible_gpus
from harness.runner.events import Event, Noted
from harness.runner.run import evaluate_run

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.rand(1024, 1024) - 0.5]
def get_init_inputs():
    return []
"""

SOLUTION = """
# {number}
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        {body}
"""

RIGHT = "assert torch.cuda.device_count() == 1 and x.device.index == 0; return torch.clamp(x, min=0)"
BREAKS = "return x[torch.full((4,), 10**6, device=x.device)]"
PROBLEMS = 4
SAMPLES = 4


@pytest.mark.gpu
def test_every_gpu_judges_and_none_is_blamed_for_a_solutions_error(tmp_path: Path) -> None:
    level, own = tmp_path / "problems" / "level1", tmp_path / "solutions" / "somebody" / "level1"
    level.mkdir(parents=True)
    own.mkdir(parents=True)
    for number in range(PROBLEMS):
        (level / f"{number + 1}_relu.py").write_text(f"{PROBLEM}# {number}\n")
        for sample in range(SAMPLES):
            text = SOLUTION.format(number=sample, body=RIGHT if sample % 2 else BREAKS)
            (own / f"{number + 1}_{'right' if sample % 2 else 'breaks'}{sample}.py").write_text(text)
    found = collect()
    options = {"paths": [tmp_path / "solutions"], "problems": tmp_path / "problems", "out": tmp_path / "results"}
    settings = {"device": "cuda", "workload": "full", "min_samples": 8, "budget_s": 2.0, "audit": "never"}
    config = resolve(machine=machine(found), run_id="run", options={**options, **settings})
    events: list[Event] = []
    summary = evaluate_run(config, environment=found, on_event=events.append)
    assert not [event.message for event in events if isinstance(event, Noted)]
    assert len(summary.records) == PROBLEMS * SAMPLES
    for record in summary.records:
        right = "right" in record.solution
        assert record.status is (Status.passed if right else Status.cuda_error), f"{record.solution}: {record.reason}"
        assert record.evidence["ran_on"]["slot"] == record.environment["gpu_uuid"]
    used = {record.environment["gpu_uuid"] for record in summary.records}
    visible = {gpu.uuid for gpu in visible_gpus(found)}
    assert used <= visible
    assert len(used) == min(len(visible), PROBLEMS), "with a problem for each GPU, each has something to do"
