"""CUDA that fails on a real GPU: each way has its status, and neither the GPU nor the next solution is harmed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.choices import DeviceKind
from harness.core.problem import Problem, Workload, digest_text
from harness.core.status import Status
from harness.referee.referee import Outcome, Referee, RefereeConfig, Task
from harness.referee.worker import PRELOADED, PRELOADED_CUDA
from harness.runner.executors.toolchains import open_toolchain
from harness.sandbox.zygote import Zygote
from harness.toolchain import BuildCache, BuilderZygotes, BuildTools, Toolchain, build_solution, default_root

pytestmark = pytest.mark.gpu

PROBLEM = textwrap.dedent(
    """
    import torch

    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.relu(x)

    def get_inputs():
        return [torch.rand(1000, 1000)]

    def get_init_inputs():
        return []
    """
)

SOLUTION = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cassert>
__global__ void relu(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    {body}
    y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}}
torch::Tensor run(torch::Tensor x) {{
    auto y = torch::empty_like(x);
    int n = x.numel();
    relu<<<(n + 255) / 256, {threads}>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}}
"""
module = load_inline(
    name="failing_relu", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=CUDA, functions=["run"]
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        {python}
        return module.run(x)
'''

CASES = {
    "right": ("", 256, "", {Status.passed}),
    "endless kernel": ("while (x[0] >= 0.0f || true) { y[i] += 1.0f; __threadfence(); }", 256, "", {Status.timeout}),
    "illegal access": ("y[(1LL << 40) + i] = 1.0f;", 256, "", {Status.cuda_error}),
    "null pointer": ("*(volatile float*)nullptr = 1.0f;", 256, "", {Status.cuda_error}),
    "device assert": ("assert(x[i] > 2.0f);", 256, "", {Status.cuda_error}),
    "trap": ("__trap();", 256, "", {Status.cuda_error}),
    "too many threads": ("", 2048, "", {Status.non_finite, Status.wrong_value, Status.cuda_error}),
    "out of GPU memory": (
        "",
        256,
        "held = [torch.empty(2**34, dtype=torch.uint8, device='cuda') for _ in range(64)]",
        {Status.out_of_memory},
    ),
}
ALONE = {"endless kernel", "out of GPU memory"}
"""What would slow others down for seconds, or leave them no memory."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BuilderZygotes, Toolchain, BuildCache, Referee]]:
    logs = tmp_path_factory.mktemp("logs")
    config = RefereeConfig(
        device=DeviceKind.CUDA,
        device_index=0,
        sandbox="auto",
        checked=True,
        device_policy="strict",
        seeds=2,
        load_timeout_s=60.0,
        call_timeout_s=5.0,
        solution_timeout_s=120.0,
        min_samples=8,
        sets_per_burst=4,
        relative_half_width=0.5,
        budget_s=10.0,
        memory_limit_bytes=32 * 2**30,
    )
    with (
        BuilderZygotes(logs / "builders") as builders,
        Zygote(preload=(*PRELOADED, *PRELOADED_CUDA), log_path=logs / "contestants") as contestants,
        Referee(config, contestants) as referee,
    ):
        yield builders, open_toolchain(DeviceKind.CUDA, default_root()), BuildCache(default_root()), referee


def evaluate(
    stage: tuple[BuilderZygotes, Toolchain, BuildCache, Referee], tmp_path: Path, body: str, threads: int, python: str
) -> Outcome:
    builders, toolchain, cache, referee = stage
    source = SOLUTION.format(body=body, threads=threads, python=python or "pass")
    built = build_solution(
        source,
        "19_relu.py",
        BuildTools(zygotes=builders, toolchain=toolchain, cache=cache, timeout_s=200.0),
        log_path=tmp_path / "build",
    )
    assert built.failure is None, built
    try:
        return referee.judge(
            Task(
                problem=Problem(
                    id="level1/19", name="relu", path=Path("19.py"), source=PROBLEM, digest=digest_text(PROBLEM)
                ),
                workload=Workload(name="full"),
                source=source,
                filename="19_relu.py",
                modules=built.injected(),
                readable=built.readable,
                log_path=tmp_path / "run",
                timed=True,
            )
        )
    finally:
        built.release()


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.exclusive_gpu) if name in ALONE else name for name in CASES],
)
def test_a_failing_kernel_has_its_status_and_harms_nobody(
    stage: tuple[BuilderZygotes, Toolchain, BuildCache, Referee], tmp_path: Path, name: str
) -> None:
    body, threads, python, statuses = CASES[name]
    outcome = evaluate(stage, tmp_path, body, threads, python)
    assert outcome.status in statuses, outcome
    after = evaluate(stage, tmp_path, *CASES["right"][:3])
    assert after.status is Status.passed, after
    assert after.speedup is not None
