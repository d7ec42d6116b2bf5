"""A wheel, installed into an empty environment, holds the problems and the examples, but shows them to no solution."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests.support.wheel import PIP, build_wheel

PEEKING = """
import importlib.util, os, torch

folder = os.path.dirname(importlib.util.find_spec("harness").origin)
seen = [name for _, _, names in os.walk(f"{folder}/catalog/shipped") for name in names]


class ModelNew(torch.nn.Module):
    def forward(self, x):
        assert os.path.isdir(f"{folder}/untrusted")
        assert not seen, seen
        return torch.relu(x)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the wheel and, of the rest, what these tests run with."""
    pytest.importorskip("setuptools")
    folder = tmp_path_factory.mktemp("wheel")
    wheel = build_wheel(folder)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True, timeout=300)
    python = folder / "venv" / "bin" / "python"
    subprocess.run([*PIP, "--python", python, "install", "--no-deps", "--no-index", wheel], check=True, timeout=300)
    return python


def records(python: Path, folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """Evaluate by the installed command, in a folder without anything of the checkout."""
    environment = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")}
    command = [python.parent / "harness", "eval", *arguments, "--device", "host", "--json"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["records"]
    return found


def test_an_example_is_evaluated_in_any_folder(installed: Path, tmp_path: Path) -> None:
    place = subprocess.run(
        [installed, "-c", "import harness; print(harness.__file__)"],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
    )
    assert place.stdout.startswith(str(installed.parent.parent)), place
    (record,) = records(installed, tmp_path, "solutions/examples/naive/level1/17_library_call.py")
    assert (record["problem"], record["status"]) == ("level1/17", "passed"), record["reason"]


def test_no_solution_sees_the_installed_problems_and_examples(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "peeking.py").write_text(PEEKING)
    (record,) = records(installed, tmp_path, "peeking.py", "--problem", "level1/19")
    assert record["status"] == "passed", record["reason"]


def test_new_files_run_as_they_are(installed: Path, tmp_path: Path) -> None:
    for arguments in (("problem", "mine"), ("solution", "mine.py"), ("solution", "level2/103", "--out", "second.py")):
        subprocess.run(
            [installed.parent / "harness", "new", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")},
            check=True,
            timeout=300,
        )
    for file, problem in (("mine_solution.py", "mine.py"), ("second.py", "level2/103")):
        (record,) = records(installed, tmp_path, file, "--problem", problem)
        assert record["status"] == "passed", record["reason"]
