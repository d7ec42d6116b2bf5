"""Calls that end in an exception on the host device: what the checks found before is the verdict, in real contestants.

Everything goes the whole way: built, run in a sandbox, judged, and told to its author.
"""

from __future__ import annotations

import pytest

from harness.core.record import Record
from harness.core.status import Status
from harness.report.feedback import feedback
from harness.results.reward import reward_of
from tests.support.judged_on_host import judged_on_host, marked_line

KERNELS = '''import torch
from torch.utils.cpp_extension import load_inline
CUDA = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <cassert>
__global__ void past(const float* x, float* y, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    y[i < n ? i : 0] = fmaxf(x[i < n ? i : i + (1 << 28)], 0.0f);  // PAST
}
__global__ void racing(const float* x, float* y, int64_t n) {
    __shared__ float tile[256];
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0.0f;
    if (i < n) y[i] = fmaxf(tile[(threadIdx.x + 1) % 256], 0.0f);  // RACING
}
__global__ void asserting(const float* x, float* y, int64_t n) {
    assert(n < 0);  // ASSERTING
}
__global__ void beside(const float* x, float* y, int64_t n, int64_t at) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f);
    if (i == 0 && x[at] == 0.125f) y[0] = fmaxf(x[0], 0.0f);  // BESIDE
}
__global__ void refused(const float* x, float* y, int64_t n) {
    asm volatile("wgmma.fence.sync.aligned;");  // REFUSED
}
#define RUN(kernel)                                                                       \\
    torch::Tensor run_##kernel(torch::Tensor x, bool check) {                             \\
        auto y = torch::empty_like(x);                                                    \\
        int64_t n = x.numel();                                                            \\
        kernel<<<n / 256 + 1, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);        \\
        if (check) C10_CUDA_KERNEL_LAUNCH_CHECK();                                        \\
        return y;                                                                         \\
    }
RUN(past) RUN(racing) RUN(asserting) RUN(refused)
torch::Tensor run_beside(torch::Tensor x, bool after) {
    auto y = torch::empty_like(x);
    int64_t n = x.numel();
    beside<<<n / 256 + 1, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n, after ? n : -1);
    return y;
}
"""
NAMES = ["run_past", "run_racing", "run_asserting", "run_refused", "run_beside"]
module = load_inline(
    name="findings",
    cpp_sources="\\n".join(f"torch::Tensor {name}(torch::Tensor x, bool check);" for name in NAMES),
    cuda_sources=CUDA,
    functions=NAMES,
)
'''

PLAIN = "import torch\n"
TRY_A_POOL = """try:
            torch.cuda.MemPool()
        except NotImplementedError:
            pass
        """


def model(body: str, *, head: str = KERNELS, construct: str = "pass") -> str:
    return f"""{head}
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {construct}
    def forward(self, x):
        {body}
"""


SOLUTIONS = {
    "launch_check": model("return module.run_past(x, True)"),
    "synchronize": model("y = module.run_past(x, False); torch.cuda.synchronize(); return y"),
    "asserted": model("y = module.run_asserting(x, False); torch.cuda.synchronize(); return y"),
    "one_after": model("return module.run_beside(x, True)"),
    "one_before": model("return module.run_beside(x, False)"),
    "race_and_raise": model("module.run_racing(x, True); raise ValueError('on purpose')"),
    "refused_kernel": model("return module.run_refused(x, True)"),
    "at_import": model("return x", head=KERNELS + "module.run_past(torch.zeros(512, device='cuda'), True)\n"),
    "pool": model("torch.cuda.MemPool(); return torch.relu(x)", head=PLAIN),
    "pool_constructed": model("return x", head=PLAIN, construct="self.pool = torch.cuda.MemPool()"),
    "pool_wrapped": model("return x", head=PLAIN, construct=TRY_A_POOL.replace("pass", "raise KeyError('pool')")),
    "pool_then_raise": model(TRY_A_POOL + "raise ValueError('on purpose')", head=PLAIN),
    "pool_then_right": model(TRY_A_POOL + "return torch.relu(x)", head=PLAIN),
    "backward": model(
        "with torch.enable_grad():\n            y = x.clone().requires_grad_(); torch.relu(y).sum().backward()\n"
        "        return y.grad * y",
        head=PLAIN,
    ),
    "forged": model(
        "from harness.untrusted.contestant.hostcuda import shim; shim.note_not_emulated('everything');"
        "raise ValueError('on purpose')",
        head=PLAIN,
    ),
    "own_name": model("raise type('NotEmulated', (Exception,), {})('nobody has it')", head=PLAIN),
}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    return judged_on_host(
        tmp_path_factory.mktemp("findings"),
        SOLUTIONS,
        min_samples=4,
        sets_per_burst=3,
        relative_half_width=0.9,
        budget_s=2.0,
    )


def line(name: str, mark: str) -> int:
    return marked_line(SOLUTIONS[name], mark)


@pytest.mark.parametrize("name", ["launch_check", "synchronize", "at_import"])
def test_a_bad_access_keeps_its_place_when_the_call_raises(records: dict[str, Record], name: str) -> None:
    record = records[name]
    assert record.status is Status.memory_error, record
    assert record.reason.startswith(f"past, line {line(name, 'PAST')}: ")
    assert "; it ended with " in record.reason
    assert "illegal memory access" in record.reason
    assert record.evidence["ended_as"] == "cuda_error"
    assert record.evidence["reports"][0]["line"] == line(name, "PAST")
    text = feedback(record, source=SOLUTIONS[name])
    assert f"memory error in past, line {line(name, 'PAST')} of the solution" in text


@pytest.mark.parametrize("name", ["one_after", "one_before"])
def test_a_read_beside_an_input_is_found_whatever_its_size(records: dict[str, Record], name: str) -> None:
    """The input fills whole units of the memory that all of a problem's tensors share. Its answer is right."""
    record = records[name]
    assert record.status is Status.memory_error, record
    assert record.reason.startswith(f"beside, line {line(name, 'BESIDE')}: out of bounds")


def test_an_assertion_keeps_its_place(records: dict[str, Record]) -> None:
    record = records["asserted"]
    assert record.status is Status.cuda_error
    assert record.reason.startswith(f"asserting, line {line('asserted', 'ASSERTING')}: ")


def test_a_race_is_told_beside_the_exception_that_follows_and_earns_no_more(records: dict[str, Record]) -> None:
    record = records["race_and_raise"]
    assert record.status is Status.data_race, record
    assert record.reason.endswith("it ended with ValueError: on purpose")
    plain = records["forged"]
    assert plain.status is Status.runtime_error
    assert reward_of(record) == reward_of(plain)


@pytest.mark.parametrize("name", ["pool", "pool_constructed", "pool_wrapped", "refused_kernel"])
def test_what_the_host_device_can_not_do_is_not_emulated(records: dict[str, Record], name: str) -> None:
    record = records[name]
    assert record.status is Status.not_emulated, record
    assert "; it ended with " in record.reason


def test_a_backward_pass_is_carried_out(records: dict[str, Record]) -> None:
    assert records["backward"].status is Status.passed, records["backward"]


def test_the_line_of_a_refused_kernel_is_told(records: dict[str, Record]) -> None:
    assert f"line {line('refused_kernel', 'REFUSED')}" in records["refused_kernel"].reason


@pytest.mark.parametrize("name", ["pool_then_raise", "forged", "own_name"])
def test_a_mistake_stays_one_whatever_was_not_emulated_before(records: dict[str, Record], name: str) -> None:
    assert records[name].status is Status.runtime_error, records[name]


def test_a_submission_that_notes_something_and_answers_is_unjudged(records: dict[str, Record]) -> None:
    """The limit that the guide on trust tells of."""
    assert records["pool_then_right"].status is Status.not_emulated
