"""Runs with `--gpu-memory`: as on a smaller GPU, also for other allocators.

Other workers' referees hold GiB of the GPU between their tests, which count within a limit: `limit` adds them.
"""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from harness.core.status import Status
from harness.results.writer import RunStore

pytestmark = [pytest.mark.gpu, pytest.mark.exclusive_gpu]  # a limit takes the rest of the GPU's memory

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(1000, 1000)]
def get_init_inputs():
    return []
"""

SOLUTION = """
import ctypes
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        {body}
        return torch.relu(x)
"""

BY_TORCH = "torch.empty({gib} * 2**30, dtype=torch.uint8, device=x.device)"

BY_THE_DRIVER = (
    "place, driver = ctypes.c_uint64(), ctypes.CDLL('libcuda.so.1')\n"
    "        if driver.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t({gib} * 2**30)):\n"
    "            raise torch.OutOfMemoryError('CUDA out of memory')\n"
    "        driver.cuMemFree_v2(place)"
)


def limit(gib: int) -> int:
    """Return the limit in GiB that leaves `gib` GiB beside what other processes hold."""
    free, total = torch.cuda.mem_get_info()
    return gib + math.ceil((total - free) / 2**30)


def judged(folder: Path, body: str, gib: int, problem: str = PROBLEM, *more: str) -> tuple[Status, str, object]:
    (folder / "problems/level1").mkdir(parents=True)
    (folder / "problems/level1/1_relu.py").write_text(problem)
    (folder / "solutions/me/level1").mkdir(parents=True)
    (folder / "solutions/me/level1/1_relu.py").write_text(SOLUTION.format(body=body))
    command = [sys.executable, "-m", "harness", "eval", "solutions", "--problems", "problems", "--run-id", "run"]
    done = subprocess.run(
        [*command, "--gpu-memory", f"{gib}GiB", "--timing-budget", "0.5", *more],
        cwd=folder,
        check=False,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = RunStore.open(folder / "results/run").records()
    return record.status, record.reason, record.evidence.get("precision_override")


@pytest.mark.parametrize("allocation", [BY_TORCH, BY_THE_DRIVER])
def test_an_allocation_beyond_the_limit_is_out_of_memory(tmp_path: Path, allocation: str) -> None:
    gib = limit(8)
    status, reason, conditions = judged(tmp_path, allocation.format(gib=gib + 1), gib)
    assert status is Status.out_of_memory, reason
    assert conditions == f"{gib} GiB of GPU memory"


@pytest.mark.parametrize("allocation", [BY_TORCH, BY_THE_DRIVER])
def test_an_allocation_within_the_limit_passes(tmp_path: Path, allocation: str) -> None:
    status, reason, _ = judged(tmp_path, allocation.format(gib=2), limit(8))
    assert status is Status.passed, reason


def test_a_problem_whose_inputs_and_outputs_take_half_of_the_memory_is_judged(tmp_path: Path) -> None:
    problem = PROBLEM.replace("1000, 1000", "1024, 1024, 1024")  # 4 GiB, and as much for the outputs
    status, reason, _ = judged(
        tmp_path, "pass", limit(24), problem, "--inputs", "own", "--seeds", "1", "--audit", "never"
    )
    assert status is Status.passed, reason


def test_a_limit_above_the_gpu_s_memory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "problems/level1").mkdir(parents=True)
    (tmp_path / "problems/level1/1_relu.py").write_text(PROBLEM)
    (tmp_path / "1_relu.py").write_text(SOLUTION.format(body="pass"))
    command = [sys.executable, "-m", "harness", "eval", "1_relu.py", "--problem", "level1/1", "--gpu-memory", "4000GiB"]
    done = subprocess.run(command, cwd=tmp_path, check=False, text=True, capture_output=True)
    assert done.returncode == 3
    assert "less than the 4000 GiB of --gpu-memory" in done.stderr
