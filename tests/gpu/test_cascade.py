"""What the CPU convicts takes no GPU, and what passed there is not audited again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.core.status import Status
from harness.results.writer import RunStore
from tests.support.paths import ROOT

pytestmark = pytest.mark.gpu

SOLUTIONS = (
    "broken/level1/1_missing_barrier.py",
    "broken/level1/16_does_not_compile.py",
    "naive/level1/47_thread_per_column.py",
)


def test_a_cascade_takes_the_gpu_for_what_the_cpu_does_not_convict(tmp_path: Path) -> None:
    paths = [str(ROOT / "solutions" / "examples" / name) for name in SOLUTIONS]
    command = [sys.executable, "-m", "harness", "eval", *paths, "--cascade", "--out", str(tmp_path), "--run-id", "run"]
    subprocess.run(command, check=False, cwd=ROOT)
    records = {record.solution: record for record in RunStore.open(tmp_path / "run").records()}
    race, unbuilt, right = (records[name] for name in SOLUTIONS)
    assert (race.status, race.workload) == (Status.data_race, "full")
    assert "ran_on" not in race.evidence or race.evidence["ran_on"]["slot"].startswith("host")
    assert unbuilt.status is Status.compile_error
    assert right.status is Status.passed
    assert right.speedup is not None
    assert right.evidence["cascade"]["status"] == "passed"
    assert "audit" not in right.evidence
    assert "audit_incomplete" not in right.labels
