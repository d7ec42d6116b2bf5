"""The second schedule on real sandboxed contestants: values that go with the order of blocks and threads, rounding of
atomics, memory that calls leave behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from harness.core.choices import DeviceKind, PrecisionClass
from harness.core.problem import InputRules, Problem, Workload, digest_text
from harness.core.status import Status
from harness.hostcuda.toolchain import HostToolchain
from harness.hostcuda.translate.build import default_cache, prepare_headers
from harness.referee.correctness.second_schedule import UNSET_SHARED, VARIES, difference_of, uses_atomics
from harness.referee.referee import Outcome, Referee, RefereeConfig, Task
from harness.sandbox.zygote import Zygote
from harness.toolchain import BuildCache, BuilderZygotes, BuildTools, build_solution

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return 2 * x

def get_inputs():
    return [torch.rand(8, 32) + 1]

def get_init_inputs():
    return []
"""

ATOMICS = """
__global__ void next_free(const float* x, float* y, int* next) {
    y[atomicAdd(next, 1)] = 2.0f * x[blockIdx.x * blockDim.x + threadIdx.x];
}
torch::Tensor slots(torch::Tensor x) {
    auto y = torch::empty_like(x), next = torch::zeros({1}, x.options().dtype(torch::kInt32));
    next_free<<<8, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), next.data_ptr<int>());
    return y;
}

__global__ void add_parts(const float* x, float* y) {
    const float parts[3] = {0.3f, 0.7f, 1.0f};
    atomicAdd(&y[blockIdx.x], parts[threadIdx.x] * x[blockIdx.x]);
}
torch::Tensor sums(torch::Tensor x) {
    auto y = torch::zeros_like(x);
    add_parts<<<256, 3>>>(x.data_ptr<float>(), y.data_ptr<float>());
    return y;
}
"""

SOURCE = '''
import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>

// Which block comes first is nobody's to know. The flag is volatile, as hand-shakes have it, so no race is reported.
__global__ void first_comes(const float* x, float* y, volatile int* flag, float others) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (flag[0] == 0) flag[0] = blockIdx.x + 1;
    y[i] = flag[0] == 1 ? 2.0f * x[i] : others * x[i];
}
torch::Tensor first(torch::Tensor x, double others) {
    auto y = torch::empty_like(x), flag = torch::zeros({1}, x.options().dtype(torch::kInt32));
    first_comes<<<8, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), flag.data_ptr<int>(), (float)others);
    return y;
}

ATOMICS__global__ void twice(const float* x, float* work, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    work[i] = x[i];
    y[i] = work[i] + x[i];
}
torch::Tensor leaks(torch::Tensor x, bool once) {
    static float* kept = nullptr;
    float* work = kept;
    if (work == nullptr) cudaMalloc(&work, x.numel() * sizeof(float));
    if (once) kept = work;
    auto y = torch::empty_like(x);
    twice<<<8, 32>>>(x.data_ptr<float>(), work, y.data_ptr<float>());
    return y;
}

__global__ void beside(const float* x, float* y, int used) {
    __shared__ float part[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = 2.0f * x[i];
    const float own = part[threadIdx.x], other = part[32 + threadIdx.x];  // which nobody wrote
    const float all[4] = {own, fmaxf(own, other), fminf(own, other), own + 0.0f * other};
    y[i] = all[used];
}
torch::Tensor unset(torch::Tensor x, int64_t used) {
    auto y = torch::empty_like(x);
    beside<<<8, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), (int)used);
    return y;
}
"""
declarations = """
torch::Tensor unset(torch::Tensor x, int64_t used);
torch::Tensor first(torch::Tensor x, double others);
torch::Tensor leaks(torch::Tensor x, bool once);
DECLARED"""
ext = load_inline("orders", declarations, source, functions=["first", "leaks", "unset"NAMED])

class ModelNew(torch.nn.Module):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return RESULT
'''


@pytest.fixture(scope="module")
def referee(contestant_zygote: Callable[[DeviceKind], Zygote]) -> Iterator[Referee]:
    config = RefereeConfig(
        device=DeviceKind.HOST,
        device_index=0,
        sandbox="auto",
        checked=True,
        device_policy="strict",
        seeds=2,
        load_timeout_s=120.0,
        call_timeout_s=60.0,
        solution_timeout_s=300.0,
        min_samples=8,
        sets_per_burst=4,
        relative_half_width=0.5,
        budget_s=4.0,
        memory_limit_bytes=4 * 2**30,
        host_runtime=str(prepare_headers().folder),
    )
    with Referee(config, contestant_zygote(DeviceKind.HOST)) as held:
        yield held


def solution(result: str) -> str:
    """A solution that returns `result`; atomics are in its text only where it uses them."""
    names = ("slots", "sums") if "slots" in result or "sums" in result else ()
    parts = {
        "ATOMICS": ATOMICS if names else "",
        "DECLARED": "".join(f"torch::Tensor {name}(torch::Tensor x);\n" for name in names),
        "NAMED": "".join(f', "{name}"' for name in names),
        "RESULT": result,
    }
    text = SOURCE
    for place, part in parts.items():
        text = text.replace(place, part)
    return text


class Judge:
    """Builds (once, the sources are the same) and judges a solution whose forward returns `result`."""

    def __init__(self, referee: Referee, builders: BuilderZygotes, folder: Path) -> None:
        self.referee = referee
        self.builders = builders
        self.folder = folder
        self.toolchain = HostToolchain(default_cache(), checked=True)
        self.cache = BuildCache(folder / "cache")

    def __call__(self, result: str) -> Outcome:
        source = solution(result)
        built = build_solution(
            source,
            "solution.py",
            BuildTools(zygotes=self.builders, toolchain=self.toolchain, cache=self.cache, timeout_s=300),
            log_path=self.folder / "build.log",
        )
        assert built.failure is None, built.failure
        problem = Problem(
            id="level1/1",
            name="double",
            path=Path("1_double.py"),
            source=PROBLEM,
            digest=digest_text(PROBLEM),
            precision=PrecisionClass.FP32,
            rules=InputRules(variants=()),
        )
        return self.referee.judge(
            Task(
                problem=problem,
                workload=Workload(name="full"),
                source=source,
                filename="solution.py",
                modules=built.injected(),
                readable=built.readable,
                log_path=self.folder / "run.log",
                timed=False,
            )
        )


@pytest.fixture(scope="module")
def judge(referee: Referee, zygotes: BuilderZygotes, tmp_path_factory: pytest.TempPathFactory) -> Judge:
    return Judge(referee, zygotes, tmp_path_factory.mktemp("judge"))


@pytest.mark.parametrize("result", ["ext.first(x, 3.0)", "ext.slots(x)"])
def test_values_that_are_right_in_one_order_only_are_a_race(judge: Judge, result: str) -> None:
    outcome = judge(result)
    assert outcome.status is Status.data_race
    assert outcome.reason.startswith("right in one order of blocks and threads, wrong in another: ")
    assert outcome.evidence["second_schedule"]["first_order"] == "right again"


def test_values_that_go_with_the_order_are_a_race_even_where_all_are_right(judge: Judge) -> None:
    outcome = judge("ext.first(x, 2.000001)")
    assert outcome.status is Status.data_race
    assert "values depend on the order of blocks and threads" in outcome.reason
    assert "of 256 values of output differ, first at [0, 0]" in outcome.reason


def test_atomics_may_round_as_the_order_has_it(judge: Judge) -> None:
    outcome = judge("ext.sums(x)")
    assert outcome.status is Status.passed
    held = outcome.evidence["second_schedule"]
    assert (held["atomics"], held["equal"]) == (True, False)
    assert "values of output differ" in held["difference"]


def test_a_difference_that_does_not_go_with_the_order_is_a_label(judge: Judge) -> None:
    outcome = judge("ext.leaks(x, True) * (1 + self.calls * 1.2e-7)")
    assert outcome.status is Status.passed
    assert outcome.labels == (VARIES,)
    assert outcome.evidence["second_schedule"]["first_order"] == "different again"


def test_memory_that_every_call_leaves_behind_is_a_label_with_its_line(judge: Judge) -> None:
    outcome = judge("ext.leaks(x, False)")
    assert outcome.status is Status.passed
    assert "leaks_memory" in outcome.labels
    report = next(report for report in outcome.evidence["reports"] if report["kind"] == "leak")
    lines = SOURCE.split('r"""', 1)[1].split("\n")
    assert lines[report["line"] - 1].strip().startswith("if (work == nullptr) cudaMalloc")
    assert report["count"] >= 2


def test_memory_that_is_kept_for_the_next_call_is_none(judge: Judge) -> None:
    outcome = judge("ext.leaks(x, True)")
    assert (outcome.status, outcome.labels) == (Status.passed, ())
    assert outcome.evidence["second_schedule"]["equal"]


def test_shared_memory_that_nobody_wrote_and_nobody_uses_is_a_label(judge: Judge) -> None:
    outcome = judge("ext.unset(x, 0)")
    assert (outcome.status, outcome.labels) == (Status.passed, (UNSET_SHARED,)), outcome


@pytest.mark.parametrize("used", [1, 2, 3], ids=["in a maximum", "in a minimum", "in a sum"])
def test_what_an_answer_depends_on_has_to_be_written(judge: Judge, used: int) -> None:
    """A maximum passes over NaN, and a minimum over large numbers too: each is tried."""
    outcome = judge(f"ext.unset(x, {used})")
    assert outcome.status is Status.uninitialised_read, outcome
    assert "this memory was never written (shared part[32]" in outcome.reason


def test_what_differs_between_two_tensors() -> None:
    first = torch.tensor([[1.0, float("nan")], [0.0, 2.0]])
    second = torch.tensor([[1.0, float("nan")], [-0.0, 2.5]])
    assert difference_of("output", first, first.clone()) is None
    found = difference_of("output", first, second)
    assert found is not None
    assert (found.count, found.of, found.place, found.values) == (1, 4, (1, 1), (2.0, 2.5))
    nan = difference_of("output", first, torch.full((2, 2), float("nan")))
    assert nan is not None
    assert nan.count == 3
    assert difference_of("output", torch.tensor([1, 2]), torch.tensor([1, 3])) is not None
    low = torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn)
    assert difference_of("output", low, low.clone()) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("atomicAdd(&y[i], v);", True),
        ('asm volatile("red.global.add.f32 [%0], %1;"', True),
        ("cub::DeviceReduce::Sum(", True),
        ("y[i] = subatomic + preatomicity;", False),
    ],
)
def test_atomics_are_found_in_the_text(text: str, expected: bool) -> None:
    assert uses_atomics(text) is expected
