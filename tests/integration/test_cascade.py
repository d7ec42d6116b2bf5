"""The CPU's part of a cascade, with real kernels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.choices import DeviceKind
from harness.core.config import Machine, RunConfig, resolve
from harness.core.environment import collect
from harness.core.record import Record
from harness.core.status import Status
from harness.runner.cascade import Cascade, host_config
from harness.runner.executors.local import LocalExecutor
from harness.runner.plan import PendingSolution, plan

MODEL = '''import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
__global__ void relu_kernel(const float* x, float* y, int64_t n) {{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}}
torch::Tensor forward(torch::Tensor x) {{
    auto y = torch::empty_like(x);
    relu_kernel<<<{blocks}, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}}
"""
module = load_inline(
    name="relu", cpp_sources="torch::Tensor forward(torch::Tensor x);", cuda_sources=CUDA, functions=["forward"]
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.forward(x)
'''

CEIL = "(x.numel() + 255) / 256"
CHECKED = "if (i < n) y[i] = fmaxf(x[i], 0.0f);"
SOLUTIONS = {
    "right": (CHECKED, CEIL),
    "wrong": ("if (i < n) y[i] = fminf(x[i], 0.0f);", CEIL),
    "without_a_check": ("y[i] = fmaxf(x[i], 0.0f);", "x.numel() / 256"),
    "beyond_the_end": ("y[i] = fmaxf(x[i + 1], 0.0f);", CEIL),
    "for_one_size": (CHECKED.replace("i < n", "i < (int64_t)4096 * 393216"), "4096 * 1536"),
}
"""Solutions to level1/19 (4096 rows of 393216 values): the body of the kernel and the number of blocks."""


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[PendingSolution, Record | None]]:
    folder = tmp_path_factory.mktemp("cascade")
    place = folder / "solutions" / "me" / "level1"
    place.mkdir(parents=True)
    for name, (body, blocks) in SOLUTIONS.items():
        (place / f"19_{name}.py").write_text(MODEL.format(body=body, blocks=blocks))
    found = {}
    for work, cascade, config in _works(folder):
        found[work.job.solution.path.stem[3:]] = (work, cascade.convicts(work, {}, lambda event: None))
        assert config.device is DeviceKind.CUDA
    return found


def _works(folder: Path) -> Iterator[tuple[PendingSolution, Cascade, RunConfig]]:
    machine = Machine(device=DeviceKind.CUDA, cpu_count=2, memory_bytes=2**34)
    config = resolve(
        machine=machine, run_id="run", options={"paths": [folder / "solutions"], "cascade": True, "jobs": 1}
    )
    here = collect()
    cascade = Cascade(LocalExecutor(host_config(config), here, folder), config, here)
    try:
        for number, job in enumerate(plan(config)):
            yield PendingSolution(job=job, log_path=folder / f"{number}.log"), cascade, config
    finally:
        cascade.end()


@pytest.mark.parametrize(
    ("name", "status", "convicted"),
    [
        ("right", Status.passed, False),
        ("wrong", Status.wrong_value, True),
        ("without_a_check", Status.non_finite, False),
        ("beyond_the_end", Status.memory_error, True),
        ("for_one_size", Status.memory_error, False),
    ],
)
def test_the_cpu_convicts_what_is_wrong_at_all_sizes(
    decided: dict[str, tuple[PendingSolution, Record | None]], name: str, status: Status, convicted: bool
) -> None:
    work, record = decided[name]
    assert work.job.on_host is not None
    assert work.job.on_host["status"] == status, work.job.on_host
    assert (record is not None) is convicted, work.job.on_host
    assert work.job.on_host["kernels_checked"] is (status is Status.passed)
    if record is not None:
        assert record.status is status
        assert record.build is not None
