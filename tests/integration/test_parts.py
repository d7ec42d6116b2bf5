"""The guide's SLURM script, its parts run for real: one is ended in the middle, queued again, and all merged."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from harness.results.writer import RunStore
from tests.integration.test_survival import EXPECTED, make_tree, wait_for
from tests.support.paths import ROOT

GUIDE = ROOT / "harness" / "guides" / "long_runs.md"
PARTS = 3


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with solutions, the guide's script for so many parts on the host device, and the command it calls."""
    make_tree(tmp_path, at_import="time.sleep(0.3)")
    (script,) = re.findall(r"```bash\n(#!/bin/bash\n#SBATCH.*?)```", GUIDE.read_text(), re.DOTALL)
    assert "--array=1-8" in script
    asked = script.replace("/8", f"/{PARTS}").replace(
        "--device cuda", "--device host --workload full --config settings.yaml"
    )
    (tmp_path / "job.sh").write_text(asked)
    command = tmp_path / "bin" / "harness"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m harness "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return tmp_path


def queued(place: Path, part: int) -> subprocess.Popen[str]:
    """One task of the job array, as SLURM starts it."""
    environment = {
        **os.environ,
        "PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(GUIDE.parent.parent.parent),
        "SLURM_ARRAY_JOB_ID": "77",
        "SLURM_ARRAY_TASK_ID": str(part),
    }
    return subprocess.Popen(
        ["bash", "job.sh"],
        cwd=place,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def done(place: Path, part: int) -> int:
    """One task of the job array, run to its end; its exit code."""
    task = queued(place, part)
    task.communicate(timeout=120)
    return task.returncode


def merged(place: Path, into: str) -> tuple[dict[str, str], str]:
    """Verdicts by solution, and what the command said."""
    runs = sorted(str(path) for path in place.glob("results/77-*"))
    made = subprocess.run(
        [place / "bin" / "harness", "merge", *runs, "--out", into],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(GUIDE.parent.parent.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    records = RunStore.open(place / into).records()
    return {Path(item.solution).stem: item.status for item in records}, made.stderr


def test_parts_that_are_queued_again_go_on_and_make_one_run(place: Path) -> None:
    second = place / "results" / "77-2" / "records.jsonl"
    ended = queued(place, 2)
    wait_for(lambda: second.exists() and second.read_text().count("\n") == 1)
    # To every process of the job, as SLURM does before it takes the node back.
    os.killpg(ended.pid, signal.SIGTERM)
    _, said = ended.communicate(timeout=60)
    assert "--resume --run-id 77-2 continues" in said
    assert done(place, 1) == 0
    verdicts, said = merged(place, "results/early")
    assert len(verdicts) == 3
    assert "only 1 of 2 solutions have a record" in said
    assert f"--shard 3/{PARTS}" in said
    assert [done(place, part) for part in (2, 3)] == [0, 0]
    assert merged(place, "results/77") == (EXPECTED, "")
    assert second.read_text().count("\n") == 2, "what was judged is not judged again"
