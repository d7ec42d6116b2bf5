"""Solutions to one small problem, judged on the host device: built, run in a sandbox, recorded."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.core.choices import DeviceKind
from harness.core.config import Machine, resolve
from harness.core.environment import collect
from harness.core.record import Record
from harness.runner.run import evaluate_run
from harness.toolchain import default_root

PROBLEM = """
import torch
SIZE = 64
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.rand(SIZE, SIZE) - 0.5]
def get_init_inputs():
    return []
"""


def judged_on_host(folder: Path, solutions: Mapping[str, str], **options: Any) -> dict[str, Record]:
    """Return the record of each solution by its name; `options` are settings of the run."""
    if shutil.which("g++") is None:
        pytest.skip("the host device needs g++")
    for part in ("problems/level1", "solutions/a/level1"):
        (folder / part).mkdir(parents=True)
    (folder / "problems/level1/19_relu.py").write_text(PROBLEM)
    for name, source in solutions.items():
        (folder / f"solutions/a/level1/19_{name}.py").write_text(source)
    config = resolve(
        machine=Machine(device=DeviceKind.HOST, cpu_count=2, memory_bytes=8 * 2**30),
        run_id="run",
        options={
            "paths": [folder / "solutions"],
            "problems": folder / "problems",
            "out": folder / "results",
            "workload": "full",
            "cache_dir": default_root(),
            **options,
        },
    )
    records = evaluate_run(config, environment=collect()).records
    return {Path(record.solution).stem.removeprefix("19_"): record for record in records}


def marked_line(source: str, mark: str) -> int:
    """Return the line of a source that ends with the comment `// mark`."""
    return next(n for n, text in enumerate(source.splitlines(), 1) if text.endswith(f"// {mark}"))
