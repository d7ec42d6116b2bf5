"""compute-sanitizer on a real GPU: findings become the verdict, with the solution's own lines; honest code passes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.core.choices import DeviceKind
from harness.core.executables import find_nvcc
from harness.core.problem import Problem, Workload, digest_text
from harness.core.status import Status
from harness.core.task import Outcome, RefereeConfig, Task
from harness.devices.device import open_device
from harness.referee.audit.auditor import Auditor, find_sanitizer
from harness.referee.audit.sanitizer import SanitizerTool
from harness.referee.audit.timeouts import STEP_LIMIT_S
from harness.referee.referee import Referee
from harness.referee.worker import PRELOADED, PRELOADED_CUDA
from harness.runner.executors.toolchains import open_toolchain
from harness.sandbox.zygote import Zygote
from harness.toolchain import BuildCache, BuilderZygotes, BuildTools, Toolchain, build_solution, default_root
from tests.support.neighbours import labels_but_neighbours

pytestmark = pytest.mark.gpu

PROBLEM = textwrap.dedent(
    """
    import torch

    N = 262144

    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.relu(x)

    def get_inputs():
        return [torch.randn(N)]

    def get_init_inputs():
        return []
    """
)

SOLUTION = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
__global__ void relu(const float* x, float* y, const float* scratch, int n) {{
    __shared__ float tile[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x;
    {body}
}}
torch::Tensor run(torch::Tensor x) {{
    auto y = torch::empty_like(x);
    auto scratch = torch::empty({{256}}, x.options());
    int n = x.numel();
    relu<<<{blocks}, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), scratch.data_ptr<float>(), n);
    return y;
}}
"""
module = load_inline(
    name="audited_relu", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=CUDA, functions=["run"]
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.run(x)
'''
RELU = "if (i < n) y[i] = fmaxf(x[i], 0.0f);"
BLOCKS = "(n + 255) / 256"

CASES = {
    "right": (RELU, BLOCKS, Status.passed, None),
    "race": (
        "tile[t] = i < n ? x[i] : 0.0f;\n    float other = tile[(t + 64) % 256];  // here\n"
        "    if (i < n) y[i] = fmaxf(x[i], 0.0f) + 0.0f * (other > 1e30f);",
        BLOCKS,
        Status.data_race,
        "// here",
    ),
    "past the end": (
        "if (i < n) y[i] = fmaxf(x[i], 0.0f) + (x[i + 1] > 1e30f ? 1.0f : 0.0f);  // here",
        BLOCKS,
        Status.memory_error,
        "// here",
    ),
    "never written": (
        "float held = scratch[t];  // here\n"
        "    if (i < n) y[i] = fmaxf(x[i], 0.0f) + (held == 12345.678f ? 1.0f : 0.0f);",
        BLOCKS,
        Status.uninitialised_read,
        "// here",
    ),
    "divergent barrier": (
        "if (t < 100) __syncthreads();  // here\n    " + RELU,
        BLOCKS,
        Status.barrier_error,
        "// here",
    ),
    "one size only": ("y[i] = fmaxf(x[i], 0.0f);", "1024", Status.passed, None),
}


class Court:
    """A referee with an auditor, and what it needs to build."""

    def __init__(self, folder: Path, referee: Referee, builders: BuilderZygotes, toolchain: Toolchain) -> None:
        self._folder = folder
        self.referee = referee
        self._builders = builders
        self._toolchain = toolchain
        self._cache = BuildCache(default_root())

    def judge(self, name: str, source: str) -> Outcome:
        with self.task(name, source) as task:
            return self.referee.judge(task)

    @contextmanager
    def task(self, name: str, source: str) -> Iterator[Task]:
        log = self._folder / f"{name.replace(' ', '_')}.log"
        built = build_solution(
            source,
            "solution.py",
            BuildTools(zygotes=self._builders, toolchain=self._toolchain, cache=self._cache, timeout_s=300.0),
            log_path=log,
        )
        assert built.failure is None, built.failure
        task = Task(
            problem=Problem(
                id="level1/19", name="relu", path=Path("19.py"), source=PROBLEM, digest=digest_text(PROBLEM)
            ),
            workload=Workload(name="full"),
            source=source,
            filename="solution.py",
            modules=built.injected(),
            readable=built.readable,
            log_path=log,
            timed=True,
            small=Workload(name="small", sizes={"N": 1999}),
            parts=built.parts,
            kernels=built.kernel_names,
        )
        try:
            yield task
        finally:
            built.release()


@pytest.fixture(scope="module")
def court(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Court]:
    executable = find_sanitizer(find_nvcc())
    if executable is None:
        pytest.skip("compute-sanitizer is not installed")
    folder = tmp_path_factory.mktemp("audit")
    config = RefereeConfig(
        device=DeviceKind.CUDA, device_index=0, sandbox="auto", checked=True, device_policy="strict", seeds=2,
        load_timeout_s=60.0, call_timeout_s=20.0, solution_timeout_s=120.0, min_samples=8, sets_per_burst=4,
        relative_half_width=0.1, budget_s=1.0, memory_limit_bytes=16 * 2**30, sanitizer=executable,
    )  # fmt: skip
    preload = (*PRELOADED, *PRELOADED_CUDA)
    with (
        Auditor(executable, preload=preload, logs=folder, sandbox="auto", memory_limit_bytes=16 * 2**30) as auditor,
        Zygote(preload=preload, log_path=folder / "contestants.log") as contestants,
        BuilderZygotes(folder / "builders.log") as builders,
        Referee(config, contestants, device=open_device(DeviceKind.CUDA, 0), auditor=auditor) as referee,
    ):
        yield Court(folder, referee, builders, open_toolchain(DeviceKind.CUDA, default_root()))


@pytest.mark.parametrize("name", CASES)
def test_findings_become_the_verdict(court: Court, name: str) -> None:
    body, blocks, status, marker = CASES[name]
    source = SOLUTION.format(body=body, blocks=blocks)
    outcome = court.judge(name, source)
    tools = outcome.evidence["audit"]["tools"]
    assert set(tools) == {tool.value for tool in SanitizerTool}, outcome.reason
    assert not [held for held in tools.values() if "not_run" in held], tools
    told = [outcome.evidence.get(what) for what in ("audit_at_full_size", "reports")]
    assert outcome.status is status, f"{outcome.reason}\n{told}"
    if marker is None:
        assert outcome.speedup is not None
        labels = labels_but_neighbours(outcome, DeviceKind.CUDA)
        # What breaks at the small size may break under each tool, and memcheck alone says why.
        labels -= {"audit_incomplete"} if name == "one size only" else set()
        assert labels == ({"specialised_shape"} if name == "one size only" else set()), (outcome.labels, tools)
    else:
        lines = [number for number, line in enumerate(source.split("\n"), 1) if marker in line]
        found = [report for report in outcome.evidence["reports"] if report["line"] in lines]
        assert found, outcome.evidence["reports"]
        assert {report["kernel"] for report in found} == {"relu"}
        assert outcome.speedup is None


def test_a_kernel_that_never_ends_does_not_hold_up_those_before_it(court: Court) -> None:
    """Its audit starts ahead of its evaluation, and its kernel can't be stopped; the second solution meets it."""
    endless = SOLUTION.format(body="while (true) { y[i % n] += 1.0f; __threadfence(); }", blocks=BLOCKS)
    right = SOLUTION.format(body=RELU, blocks=BLOCKS)
    with court.task("endless", endless) as coming:
        for name in ("first before it", "second before it"):
            with court.task(name, right) as task:
                outcome = court.referee.judge(task, ahead=(coming,))
            assert outcome.status is Status.passed, outcome.reason
            assert outcome.evidence["defences_s"]["silence"] < STEP_LIMIT_S / 3, outcome.evidence["defences_s"]
        assert court.referee.judge(coming).status is Status.timeout
