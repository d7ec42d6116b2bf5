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
    records = judged_files(
        folder, {"19_relu": PROBLEM}, {f"19_{name}": text for name, text in solutions.items()}, **options
    )
    return {name.removeprefix("19_"): record for name, record in records.items()}


def judged_files(
    folder: Path, problems: Mapping[str, str], solutions: Mapping[str, str], **options: Any
) -> dict[str, Record]:
    """Return the record of each solution of these problems; names are those of the files, without `.py`."""
    if shutil.which("g++") is None:
        pytest.skip("the host device needs g++")
    for part, files in (("problems/level1", problems), ("solutions/a/level1", solutions)):
        (folder / part).mkdir(parents=True)
        for name, source in files.items():
            (folder / part / f"{name}.py").write_text(source)
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
    return {Path(record.solution).stem: record for record in evaluate_run(config, environment=collect()).records}


def marked_line(source: str, mark: str) -> int:
    """Return the line of a source that ends with the comment `// mark`."""
    return next(n for n, text in enumerate(source.splitlines(), 1) if text.endswith(f"// {mark}"))
