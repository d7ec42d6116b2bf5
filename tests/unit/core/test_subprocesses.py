"""What lies in the folder that somebody works in is no part of the harness: none of its processes imports it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core.config import cache_root
from harness.core.subprocesses import PACKAGE_PARENT, python, search_path
from tests.support.paths import ROOT

EVALUATE = """
from harness import Harness
PROBLEM = '''
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(32, 32)]
def get_init_inputs():
    return []
'''
SOLUTION = '''
import torch
from torch.utils.cpp_extension import load_inline
code = "torch::Tensor relu(torch::Tensor x) { return x.clamp_min(0); }"
module = load_inline(name="in_a_hostile_folder", cpp_sources=code, functions=["relu"])
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.relu(x)
'''
with Harness(device="host") as h:
    result = h.evaluate(PROBLEM, SOLUTION)
print(result.status, result.reason)
"""


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder with modules of many names, each of which leaves a trace where it is imported."""
    folder = tmp_path / "hostile"
    trap = f"open({str(tmp_path / 'imported')!r}, 'a').write(__name__ + chr(10))\nraise SystemExit(7)\n"
    for name in ("harness/__init__.py", "torch.py", "numpy.py", "json.py", "yaml.py", "pynvml.py", "random.py"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(trap)
    return folder


def test_an_evaluation_in_a_hostile_folder_imports_nothing_of_it(hostile: Path, tmp_path: Path) -> None:
    # Where headers are prepared already; what is built here has a name of its own.
    environment = {**os.environ, **search_path({}), "HARNESS_CACHE": str(cache_root())}
    done = subprocess.run(
        python("-c", EVALUATE), cwd=hostile, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert not (tmp_path / "imported").exists(), (tmp_path / "imported").read_text()
    assert done.stdout.startswith("passed"), done.stdout + done.stderr


def test_the_trap_would_show(hostile: Path, tmp_path: Path) -> None:
    """Without the option Python does look there, so that the test above can fail."""
    done = subprocess.run([sys.executable, "-c", "import harness"], cwd=hostile, capture_output=True, check=False)
    assert done.returncode == 7
    assert (tmp_path / "imported").read_text() == "harness\n"


def test_the_other_python_finds_this_package_first_and_never_the_current_folder() -> None:
    assert search_path({})["PYTHONPATH"] == PACKAGE_PARENT == str(ROOT)
    relative = os.pathsep.join(["/a", "", ".", "..", "solutions", "/b"])
    assert search_path({"PYTHONPATH": relative})["PYTHONPATH"].split(os.pathsep) == [
        PACKAGE_PARENT,
        "/a",
        "/b",
    ]


def test_no_module_starts_a_python_that_looks_in_the_current_folder() -> None:
    """`sys.executable` with `-m` or `-c` has to have `-P`; scripts named by their path look beside themselves."""
    wrong = []
    for path in sorted((ROOT / "harness").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.List | ast.Tuple):
                continue
            words = [item.value if isinstance(item, ast.Constant) else ast.unparse(item) for item in node.elts]
            if "sys.executable" in words and {"-m", "-c"} & set(words) and "-P" not in words:
                wrong.append(f"{path.relative_to(ROOT)}, line {node.lineno}")
    assert not wrong
