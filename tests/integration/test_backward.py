"""Solutions of problems with a backward, on the host device: what passes, what fails and how, mutants of gradients."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from harness.cli import main
from harness.core.choices import DeviceKind
from harness.core.config import Machine, resolve
from harness.core.environment import collect
from harness.core.record import Record
from harness.core.status import Status
from harness.report.feedback import feedback
from harness.runner.run import evaluate_run
from harness.toolchain import default_root
from tests.gradients import MUTANTS, OWN, TORCH, judged, mutants
from tests.gradients.__main__ import astray, evaluate, table

PROBLEM = """
import torch
ROWS, COLUMNS = 37, 45
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(COLUMNS) + 0.5)
    def forward(self, x):
        return torch.sin(x) * self.weight
def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]
def get_init_inputs():
    return []
"""

MODEL = """
import torch
{before}
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(45) + 0.5)
    def forward(self, x):
        return {result}
"""

OPERATOR = """
@torch.library.custom_op("mine::scaled_sine", mutates_args=())
def scaled_sine(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * weight

def keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs)

def backward(ctx, grad):
    x, weight = ctx.saved_tensors
    return grad * weight * torch.cos(x), (grad * torch.sin(x)).sum(0)

scaled_sine.register_autograd(backward, setup_context=keep)
"""

FUNCTION = """
class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return torch.sin(x) * weight
    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        {backward}
        return grad * weight * torch.cos(x), {of_weight}
"""

CUDA = '''
from torch.utils.cpp_extension import load_inline
SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
__global__ void kernel(const float* x, const float* w, const float* g, float* of_x, float* of_w, int rows,
                       int columns) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    float sum = 0.0f;
    for (int row = 0; row < rows; ++row) {
        const int i = row * columns + column;
        of_x[i] = g[i] * w[column] * cosf(x[i]);
        sum += g[i] * sinf(x[i]);
    }
    of_w[column] = sum;
}
std::vector<torch::Tensor> backward(torch::Tensor x, torch::Tensor w, torch::Tensor g) {
    auto of_x = torch::empty_like(x), of_w = torch::empty_like(w);
    const int columns = x.size(1);
    kernel<<<(columns + 31) / 32, 32, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), w.data_ptr<float>(),
        g.data_ptr<float>(), of_x.data_ptr<float>(), of_w.data_ptr<float>(), x.size(0), columns);
    return {of_x, of_w};
}
"""
DECLARED = """#include <vector>
std::vector<torch::Tensor> backward(torch::Tensor x, torch::Tensor w, torch::Tensor g);"""
module = load_inline(name="sine_backward", cpp_sources=DECLARED, cuda_sources=SOURCE, functions=["backward"])
class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return torch.sin(x) * weight
    @staticmethod
    def backward(ctx, grad):
        return tuple(module.backward(*ctx.saved_tensors, grad.contiguous()))
'''


def own(backward: str = "pass", of_weight: str = "(grad * torch.sin(x)).sum(0)") -> str:
    before = FUNCTION.format(backward=backward, of_weight=of_weight)
    return MODEL.format(before=before, result="Function.apply(x, self.weight)")


def plain(result: str, before: str = "") -> str:
    return MODEL.format(before=before, result=result)


SOLUTIONS = {
    "plain_autograd": plain("torch.sin(x) * self.weight"),
    "function": own(),
    "operator": plain("scaled_sine(x, self.weight)", OPERATOR),
    "kernels": plain("Function.apply(x, self.weight)", CUDA),
    "detached": plain("torch.sin(x.detach()) * self.weight"),
    "buffer": plain("torch.sin(x) * self.weight").replace("torch.nn.Parameter(torch.rand(45) + 0.5)", "None")
    .replace("self.weight = None", 'self.register_buffer("weight", torch.rand(45) + 0.5)'),
    "no_grad": plain("torch.no_grad()(lambda: torch.sin(x) * self.weight)()"),
    "wrong_sum": own(of_weight="(grad * torch.sin(x)).mean(0)"),
    "wrong_shape": own(of_weight="(grad * torch.sin(x)).sum(0)[:-1]"),
    "writes_incoming": own(backward="grad.mul_(2)"),
    "other_forward": plain("(torch.sin(x) * self.weight)[:-1]"),
    "raises": own(backward="raise ValueError('no such backward')"),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("backward")


@pytest.fixture(scope="module")
def records(folder: Path) -> dict[str, Record]:
    if shutil.which("g++") is None:
        pytest.skip("the host device needs g++")
    for path in (folder / "problems" / "level1", folder / "solutions" / "a" / "level1"):
        path.mkdir(parents=True)
    (folder / "problems/level1/7_sine.py").write_text(PROBLEM)
    (folder / "problems/level1/workloads.yaml").write_text(
        "format: 1\nproblems:\n  7: {backward: [inputs, parameters], workloads: {full: {}, small: {}}}\n"
    )
    for name, source in SOLUTIONS.items():
        (folder / f"solutions/a/level1/7_{name}.py").write_text(source)
    config = resolve(
        machine=Machine(device=DeviceKind.HOST, cpu_count=2, memory_bytes=8 * 2**30),
        run_id="run",
        options={
            "paths": [folder / "solutions"],
            "problems": folder / "problems",
            "out": folder / "results",
            "cache_dir": default_root(),
        },
    )
    found = evaluate_run(config, environment=collect()).records
    return {Path(record.solution).stem.removeprefix("7_"): record for record in found}


@pytest.mark.parametrize("name", ["plain_autograd", "function", "operator", "kernels"])
def test_autograd_functions_operators_and_kernels_pass(records: dict[str, Record], name: str) -> None:
    record = records[name]
    assert (record.status, record.reason) == (Status.passed, record.reason)
    held = record.evidence["backward"]["held_bytes"]
    assert held["reference"] == 2 * 37 * 45 * 4  # the sine and the output
    assert held["solution"] == (2 if name == "plain_autograd" else 1) * 37 * 45 * 4
    assert "Held between forward and backward" in feedback(record)


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("detached", Status.wrong_structure, "grad of input 0 is None: autograd finds no way to it"),
        ("buffer", Status.wrong_structure, "grad of weight is None: autograd finds no way to it"),
        ("no_grad", Status.wrong_structure, "grad of input 0 is None"),
        ("wrong_sum", Status.wrong_value, "grad of weight: 45 of 45 values wrong"),
        ("wrong_shape", Status.runtime_error, "invalid gradient"),
        ("writes_incoming", Status.mutated_input, "the call changed its input inputs[1]['grad of output']"),
        ("other_forward", Status.wrong_shape, "output has shape [36, 45], expected [37, 45]"),
        ("raises", Status.runtime_error, "no such backward"),
    ],
)
def test_a_wrong_gradient_fails_with_its_name(
    records: dict[str, Record], name: str, status: Status, reason: str
) -> None:
    assert records[name].status is status, records[name].reason
    assert reason in records[name].reason


@pytest.mark.usefixtures("records")
def test_the_leaderboard_has_the_memory(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["leaderboard", str(folder / "results" / "run"), "--by", "solution", "--json"]) == 0
    rows = {row["solution"]: row for row in json.loads(capsys.readouterr().out)}
    row = rows["a/level1/7_function.py"]
    assert (row["held_bytes"], row["reference_held_bytes"]) == (37 * 45 * 4, 2 * 37 * 45 * 4)
    assert row["backward_s"] is None
    assert rows["a/level1/7_raises.py"]["held_bytes"] is None


def test_mutants_of_one_problem_die_and_right_solutions_pass(tmp_path: Path) -> None:
    found = evaluate(tmp_path, frozenset({"15_linear"}))
    assert len(found) == 2 + 4
    assert astray(found) == []
    assert "| backward/15 | passed | passed | 4 | wrong_value 3, wrong_structure 1 |" in table(found)


def test_every_problem_has_a_backward_of_its_own_and_mutants_of_it() -> None:
    found = list(judged())
    names = {author: {name for held, name, _ in found if held == author} for author in (TORCH, OWN, MUTANTS)}
    assert len(names[TORCH]) == 30
    assert names[OWN] == names[TORCH]
    assert len(names[MUTANTS]) >= 100
    for _, name, source in (held for held in found if held[0] == OWN):
        kinds = [kind for kind, _ in mutants(source)]
        assert len(kinds) >= 2, name
        assert len(kinds) == source.count("# mutant, ")


def test_all_mutants_of_gradients_die_and_all_right_solutions_pass(tmp_path: Path) -> None:
    found = evaluate(tmp_path)
    assert len(found) == len(list(judged()))
    assert astray(found) == []
