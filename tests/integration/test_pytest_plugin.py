"""The pytest plugin in runs of pytest of its own: what passes, fails with feedback, skips, and what is not imported."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

EXAMPLES = ROOT / "solutions" / "examples"
TESTS = """
RIGHT = "import torch\\nclass ModelNew(torch.nn.Module):\\n    def forward(self, x):\\n        return x.clamp(min=0)\\n"

def test_right(assert_kernel_ok):
    result = assert_kernel_ok(RIGHT, "level1/19", minimum_speedup=1000.0)
    assert result.status == "passed"

def test_wrong(assert_kernel_ok):
    assert_kernel_ok(RIGHT.replace("min=0", "min=0.5"), "level1/19")

def test_race(assert_kernel_ok):
    assert_kernel_ok({race!r}, "level1/36")

def test_not_emulated(assert_kernel_ok):
    assert_kernel_ok(RIGHT.replace("return", "torch.cuda.MemPool(); return"), "level1/19")
"""
RACE = EXAMPLES / "broken" / "level1" / "36_missing_barrier.py"
PLUGIN = "harness.cli.pytest_plugin"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Named, so that it is there in an environment that was installed before the plugin, too.
    command = [sys.executable, "-P", "-c", CALL, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)


CALL = f"""
import importlib.metadata, sys, pytest
known = importlib.metadata.entry_points(group="pytest11")
named = [] if any(item.value == "{PLUGIN}" for item in known) else ["-p", "{PLUGIN}"]
code = pytest.main([*named, "-q", "-rs", *sys.argv[1:]])
print("imported:", sorted({{"torch", "harness.api", "harness.cli.app"}} & sys.modules.keys()))
sys.exit(code)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("plugin")
    shutil.copytree(ROOT / "problems" / "level1", made / "problems" / "level1")
    (made / "test_kernels.py").write_text(TESTS.replace("{race!r}", repr(str(RACE))))
    return made


def test_kernels_pass_fail_and_skip_like_tests(folder: Path) -> None:
    done = run(folder, "--harness")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 1 passed, 1 skipped" in done.stdout
    assert "values wrong" in done.stdout
    assert "data race" in done.stdout
    assert "not_emulated: " in done.stdout
    assert "Traceback" not in done.stdout


def test_without_the_option_they_skip_and_nothing_is_imported(folder: Path) -> None:
    done = run(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 skipped" in done.stdout
    assert "run pytest with --harness" in done.stdout
    assert done.stdout.splitlines()[-1] == "imported: []"


def test_a_wrong_problem_is_an_error_that_names_it(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "test_none.py").write_text("def test(assert_kernel_ok):\n    assert_kernel_ok('x\\n', 'level9/1')\n")
    done = run(tmp_path, "--harness", "--harness-problems", str(folder / "problems"))
    assert done.returncode == 1
    assert "level9/1" in done.stdout


@pytest.mark.gpu
def test_on_a_gpu_the_minimum_speedup_decides(folder: Path) -> None:
    done = run(folder, "--harness", "--harness-device", "cuda", "-k", "right")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "too slow: a speedup of 1000 is required" in done.stdout
