"""`harness eval RUN_DIR --problems TREE` on folders in KernelBench's shape: levels 1 to 4, a generator's run folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.catalog import CatalogError, find_solutions, load_problems, unmet_need
from harness.cli import main
from harness.core.status import Status
from harness.results.writer import RunStore
from harness.toolchain import default_root

ADD = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b


SIZE = 64


def get_inputs():
    return [torch.rand(SIZE, SIZE), torch.rand(SIZE, SIZE)]


def get_init_inputs():
    return []  # nothing to construct with
"""

SCALED = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features, factor):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.factor = factor

    def forward(self, x):
        return torch.relu(self.linear(x)) * self.factor


features = 32
factor = 0.5


def get_inputs():
    return [torch.rand(16, features)]


def get_init_inputs():
    return [features, factor]
"""

PRETRAINED = """
import torch
from transformers import AutoConfig, AutoModelForCausalLM

name = "some/model"
config = AutoConfig.from_pretrained(name)


class Model(torch.nn.Module):
    def __init__(self, name, config):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(name, config=config)

    def forward(self, x):
        return self.model(x).logits


def get_inputs():
    return [torch.randint(0, config.vocab_size, (1, 16))]


def get_init_inputs():
    return [name, config]
"""

RIGHT = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, a, b):\n        return torch.add(a, b)\n"
WRONG = RIGHT.replace("torch.add(a, b)", "a")
SCALED_NEW = SCALED.partition("features = 32")[0].replace("class Model(", "class ModelNew(")
PRETRAINED_NEW = PRETRAINED.replace("class Model(", "class ModelNew(")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """As in the public repository: the problems one folder below its own name, all four levels, and other files."""
    root = tmp_path / "KernelBench" / "KernelBench"
    for name, text in (
        ("level1/1_Square_matrix_multiplication_.py", ADD),
        ("level1/100_HingeLoss.py", ADD),
        ("level2/9_Matmul_Subtract_Multiply_ReLU.py", SCALED),
        ("level3/1_MLP.py", SCALED),
        ("level4/1_EleutherAI-gpt-neo-2p7B_bs32_seq256.py", PRETRAINED),
        ("changelog/v0.1", "notes"),
        ("level1/__init__.py", ""),
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run folder as its generator leaves it, evaluated once by its own scripts."""
    folder = tmp_path / "KernelBench" / "runs" / "my_model-v1.2"
    folder.mkdir(parents=True)
    for name, text in (
        ("generation_config.yaml", "level: 1\nrun_name: my_model-v1.2\n"),
        ("level_1_problem_1_sample_0_kernel.py", RIGHT),
        ("level_1_problem_1_sample_1_kernel.py", WRONG),
        ("level_1_problem_1_sample_0_prompt.txt", "Write a kernel."),
        ("level_2_problem_9_sample_0_kernel.py", SCALED_NEW),
        ("level_4_problem_1_sample_0_kernel.py", PRETRAINED_NEW),
        ("eval_results.json", "{}"),
        ("cache/level_1_problem_1_sample_0_kernel.pyc", ""),
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_the_tree_is_read_as_it_is(tree: Path) -> None:
    catalog = load_problems(tree)
    assert list(catalog) == ["level1/1", "level1/100", "level2/9", "level3/1", "level4/1"]
    with pytest.raises(CatalogError, match=r"did you mean .*KernelBench/KernelBench"):
        load_problems(tree.parent)


def test_a_generators_run_folder_is_read_as_it_is(tree: Path, run_dir: Path) -> None:
    found = find_solutions([run_dir], load_problems(tree))
    assert [(item.problem_id, item.sample, item.author) for item in found] == [
        ("level1/1", 0, "my_model-v1.2"),
        ("level1/1", 1, "my_model-v1.2"),
        ("level2/9", 0, "my_model-v1.2"),
        ("level4/1", 0, "my_model-v1.2"),
    ]


def test_what_a_problem_needs_is_said_before_anything_is_built() -> None:
    assert unmet_need(SCALED) is None
    missing = str(unmet_need("import a_package_of_nobody.inner"))
    assert missing.startswith("the problem imports a_package_of_nobody, which is not installed: pip install it")
    weights = PRETRAINED.replace("from transformers import", "from torch import")
    assert "without a cache of weights" in str(unmet_need(weights))


def test_eval_and_back_to_their_files(tree: Path, run_dir: Path, tmp_path: Path) -> None:
    options = ["--device", "host", "--workload", "full", "--min-samples", "4", "--timing-budget", "1"]
    where = ["--out", str(tmp_path / "results"), "--run-id", "r", "--cache", str(default_root())]
    # The folder's name may be one that can't be an author's.
    odd = run_dir.rename(run_dir.with_name("my model (v1.2)"))
    assert main(["eval", str(odd), "--problems", str(tree), *options, *where]) == 2
    assert main(["eval", str(odd), "--problems", str(tree), "--author", "my_model", *options, *where]) == 0
    records = RunStore.open(tmp_path / "results" / "r").records()
    held = {(item.problem, item.sample): item for item in records}
    assert {key: item.status for key, item in held.items()} == {
        ("level1/1", 0): Status.passed,
        ("level1/1", 1): Status.wrong_value,
        ("level2/9", 0): Status.passed,
        ("level4/1", 0): Status.unsupported,
    }
    assert held["level1/1", 0].speedup is not None
    assert {item.author for item in records} == {"my_model"}
    assert "transformers" in held["level4/1", 0].reason or "weights" in held["level4/1", 0].reason

    out = tmp_path / "back"
    run = str(tmp_path / "results" / "r")
    assert main(["export", "kernelbench", run, "--out", str(out), "--level", "1", "--problems", str(tree)]) == 0
    results = json.loads((out / "eval_results.json").read_text())
    assert [(item["sample_id"], item["correctness"]) for item in results["1"]] == [(0, True), (1, False)]
    baseline = json.loads((out / "baseline_time_torch.json").read_text())
    assert list(baseline["level1"]) == ["1_Square_matrix_multiplication_.py"]


def test_sizes_that_are_not_declared_are_derived(tree: Path, run_dir: Path, tmp_path: Path) -> None:
    call = ["eval", str(run_dir), "--problems", str(tree), "--device", "host", "--out", str(tmp_path / "results")]
    main([*call, "--run-id", "r"])
    records = {item.problem: item for item in RunStore.open(tmp_path / "results" / "r").records()}
    assert {item.workload for item in records.values()} == {"small"}
    assert "derived_sizes" in records["level1/1"].evidence
    assert records["level1/1"].workload_title == "small (derived)"


def test_sizes_that_no_problem_declares_are_said_with_what_to_do(
    tree: Path, run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["eval", str(run_dir), "--problems", str(tree), "--device", "host", "--out", str(tmp_path / "results")]
    assert main([*call, "--workload", "odd"]) == 2
    assert "declares no workload 'odd'; it has full: pass one of them with --workload" in capsys.readouterr().err
