"""Labels by whose kernels ran, and policies on them: whole runs, on the host device and on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.core.choices import DeviceKind
from harness.core.config import resolve
from harness.core.environment import collect, machine
from harness.core.labels import FALLS_BACK, LIBRARY_ONLY, NO_CUSTOM_KERNEL, TORCH_ONLY
from harness.core.record import Record
from harness.core.status import Status
from harness.runner.run import evaluate_run
from harness.toolchain import default_root

PROBLEM = """
import torch
N = {size}
class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)
def get_inputs():
    return [torch.rand(N, N), torch.rand(N, N)]
def get_init_inputs():
    return []
"""

KERNEL = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
__global__ void product(const float* a, const float* b, float* c, int n) {{
    int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || column >= n) return;
    float sum = 0.0f;
    for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}}
torch::Tensor run(torch::Tensor a, torch::Tensor b) {{
    int n = a.size(0);
    {before}
    auto c = torch::empty_like(a);
    dim3 block(16, 16), grid((n + 15) / 16, (n + 15) / 16);
    product<<<grid, block>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), n);
    return c;
}}
"""
module = load_inline(
    name="{name}", cpp_sources="torch::Tensor run(torch::Tensor a, torch::Tensor b);", cuda_sources=CUDA,
    functions=["run"],
)

class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return module.run(a, b)
'''

LIBRARY = """
import torch
from torch.utils.cpp_extension import load_inline

CPP = "#include <torch/extension.h>\\ntorch::Tensor run(torch::Tensor a, torch::Tensor b) { return at::matmul(a, b); }"
module = load_inline(name="only_a_library", cpp_sources=CPP, functions=["run"])

class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return module.run(a, b)
"""

TORCH = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return a @ b
"""

SOLUTIONS = {
    "1_own": KERNEL.format(name="own_product", before=""),
    "1_falls_back": KERNEL.format(name="falls_back", before="if (n >= 32) return at::matmul(a, b);"),
    "1_library": LIBRARY,
    "1_torch": TORCH,
}

ON_HOST: dict[str, tuple[str, ...]] = {
    "1_own": (),
    "1_falls_back": (NO_CUSTOM_KERNEL, FALLS_BACK),
    "1_library": (),  # nobody counts what a library does on the CPU, and a C++ extension needs no kernel there
    "1_torch": (TORCH_ONLY, NO_CUSTOM_KERNEL),
}
ON_GPU: dict[str, tuple[str, ...]] = {
    "1_own": (),
    "1_falls_back": (NO_CUSTOM_KERNEL, LIBRARY_ONLY, FALLS_BACK),
    "1_library": (NO_CUSTOM_KERNEL, LIBRARY_ONLY),
    "1_torch": (TORCH_ONLY, NO_CUSTOM_KERNEL, LIBRARY_ONLY),
}


def evaluated(folder: Path, device: DeviceKind, size: int, **options: Any) -> dict[str, Record]:
    level = folder / "problems" / "level1"
    level.mkdir(parents=True)
    (level / "1_product.py").write_text(PROBLEM.format(size=size))
    place = folder / "solutions" / "somebody" / "level1"
    place.mkdir(parents=True)
    for name, text in SOLUTIONS.items():
        (place / f"{name}.py").write_text(text)
    settings = {
        "paths": [folder / "solutions"], "problems": folder / "problems", "out": folder / "results",
        "device": device.value, "workload": "full", "cache_dir": default_root(), "audit": "never", "seeds": 1,
        "min_samples": 4, "sets_per_burst": 3, "relative_half_width": 0.9, "budget_s": 2.0, "allow_degenerate": True,
    }  # fmt: skip
    environment = collect()
    config = resolve(machine=machine(environment), run_id="run", options={**settings, **options})
    return {Path(record.solution).stem: record for record in evaluate_run(config, environment=environment).records}


def not_passed(found: dict[str, Record]) -> dict[str, tuple[Status, str]]:
    """Statuses and reasons of the rest."""
    rest = {name: record for name, record in found.items() if record.status is not Status.passed}
    return {name: (record.status, record.reason) for name, record in rest.items()}


def labels_of(record: Record) -> tuple[str, ...]:
    """The labels that a census makes."""
    return tuple(label for label in record.labels if label in {TORCH_ONLY, NO_CUSTOM_KERNEL, LIBRARY_ONLY, FALLS_BACK})


def test_on_the_host_device(tmp_path: Path) -> None:
    found = evaluated(tmp_path / "free", DeviceKind.HOST, 40)
    assert not_passed(found) == {}
    assert set(found) == set(SOLUTIONS)
    assert {name: labels_of(record) for name, record in found.items()} == ON_HOST
    (kernel,) = found["1_own"].evidence["census"]["kernels"]
    assert (kernel["name"], kernel["owner"], kernel["block"]) == ("product", "own", [16, 16, 1])
    assert kernel["calls"] == 1, "one call launches it once"

    policy = {"require_custom_kernel": True, "refuse_labels": ["leaks_memory"]}
    held = evaluated(tmp_path / "held", DeviceKind.HOST, 40, policy=policy)
    refused = {"1_falls_back", "1_torch"}
    assert {name for name, record in held.items() if record.status is Status.disqualified} == refused
    assert {name for name, record in held.items() if record.status is Status.passed} == set(SOLUTIONS) - refused
    record = held["1_torch"]
    assert "policy require_custom_kernel" in record.reason
    assert record.speedup is None
    assert record.evidence["policy"]["status_without"] == "passed"
    assert record.evidence["policy"]["speedup_without"] > 0


@pytest.mark.gpu
@pytest.mark.exclusive_gpu  # a time is held against another that was taken a moment before
def test_on_a_gpu(tmp_path: Path) -> None:
    found = evaluated(tmp_path, DeviceKind.CUDA, 1024)
    assert not_passed(found) == {}
    assert set(found) == set(SOLUTIONS)
    assert {name: labels_of(record) for name, record in found.items()} == ON_GPU
    own = found["1_own"].evidence["census"]
    (kernel,) = [row for row in own["kernels"] if row["owner"] == "own"]
    assert kernel["name"].startswith("product(")
    assert (kernel["grid"], kernel["block"], kernel["calls"]) == ([64, 64, 1], [16, 16, 1], 1)
    assert kernel["registers"] > 0
    assert kernel["spill_stores_bytes"] == 0
    assert 0.0 < kernel["occupancy"]["share"] <= 1.0
    assert own["own_share"] > 0.95
    # The call that is looked at is one like those that were timed.
    assert found["1_own"].timing is not None
    median_s = found["1_own"].timing["solution"]["device"]["median_s"]
    assert own["device_s"] == pytest.approx(median_s, rel=0.3)
    assert found["1_library"].evidence["census"]["library_share"] == pytest.approx(1.0, abs=0.01)
    assert {row["library"] for row in found["1_torch"].evidence["census"]["kernels"]} <= {"cublas", "torch"}
