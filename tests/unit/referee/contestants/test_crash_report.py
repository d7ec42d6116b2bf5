"""Contestants that die on the host device, whole: what the checks had found is told, and where they stood.

Everything goes the whole way: built, run in a sandbox, ended by a signal or at its time limit, judged.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest

from harness.core.record import Record
from harness.core.status import Status
from harness.referee.contestants.crash_recorder import CrashEntry, CrashRecording
from harness.referee.contestants.crash_report import stood_in
from harness.report.feedback import feedback
from harness.results.reward import reward_of
from tests.support.judged_on_host import judged_on_host, marked_line

KERNELS = '''import os, torch
from torch.utils.cpp_extension import load_inline
CUDA = r"""
#include <torch/extension.h>
#include <cstdlib>
#include <cstring>
__global__ void past(const float* x, float* y, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(y[i + 1], 0.0f);  // PAST
}
__global__ void wild(const float* x, float* y, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i != n - 1) return;
    y[0] = y[n];  // BESIDE
    size_t address = 4096 * (size_t)n;
    memcpy(y, (const void*)(address << 32), 4 * n);  // WILD
}
__global__ void spin(const float* x, float* y, int64_t n) {
    volatile int turning = 1;
    while (turning) {}  // SPIN
}
__global__ void divide(const float* x, float* y, int64_t n) {
    y[threadIdx.x] = 5 / (int)(n - 64 * 64);
}
__device__ int deeper(volatile int n) {  // DEEP
    volatile char held[512];
    held[n % 512] = n;
    return deeper(n + 1) + held[n % 512];
}  // DEEPER
__global__ void recurse(const float* x, float* y, int64_t n) { y[threadIdx.x] = deeper(0); }
__global__ void refused(const float* x, float* y, int64_t n) {
    asm volatile("wgmma.fence.sync.aligned;");  // REFUSED
}
#define RUN(kernel)                                                                       \\
    torch::Tensor run_##kernel(torch::Tensor x) {                                         \\
        auto y = torch::empty_like(x);                                                    \\
        int64_t n = x.numel();                                                            \\
        kernel<<<n / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);            \\
        return y;                                                                         \\
    }
RUN(past) RUN(wild) RUN(divide) RUN(recurse)
torch::Tensor run_spin(torch::Tensor x) {
    auto y = torch::empty_like(x);
    spin<<<1, 1>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());  // LAUNCH
    return y;
}
__global__ void spin_elsewhere(const float* x, float* y, int64_t n) {
    volatile int turning = blockIdx.x == gridDim.x - 1;
    while (turning) {}  // SPIN_ELSEWHERE
}
torch::Tensor run_host_loop(torch::Tensor x) {
    for (volatile int turning = 1; turning;) {}  // HOST
    return x;
}
RUN(spin_elsewhere)
torch::Tensor run_abort(torch::Tensor x) {
    auto y = run_past(x);
    std::abort();  // ABORT
}
torch::Tensor run_refused(torch::Tensor x) {
    auto y = torch::empty_like(x);
    refused<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    if (cudaDeviceSynchronize() != cudaSuccess) std::exit(EXIT_FAILURE);
    return y;
}
"""
NAMES = ["run_past", "run_wild", "run_spin", "run_divide", "run_recurse", "run_abort", "run_refused"]
NAMES += ["run_spin_elsewhere", "run_host_loop"]
module = load_inline(
    name="ends",
    cpp_sources="\\n".join(f"torch::Tensor {name}(torch::Tensor x);" for name in NAMES),
    cuda_sources=CUDA,
    functions=NAMES,
)
'''

OVERWRITTEN = """import ctypes
        for line in open("/proc/self/maps"):
            if "harness-recorder" in line:
                low, high = (int(end, 16) for end in line.split()[0].split("-"))
                ctypes.memset(low, 0x22, high - low)
        os.abort()"""
FORGED = """import ctypes, json
        row = json.dumps({"kind": "not_emulated", "message": "all of it", "kernel": "relu"}).encode() + b"\\n"
        for line in open("/proc/self/maps"):
            if "harness-recorder" in line:
                low = int(line.split("-")[0], 16)
                ctypes.memmove(low, len(row).to_bytes(8, "little"), 8)
                ctypes.memmove(low + 4096, row, len(row))
        while True:
            pass"""


def model(body: str, head: str = KERNELS) -> str:
    return f"{head}\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        {body}\n"


PLAIN = "import os, torch\n"
TRITON = """
import torch
import triton
@triton.jit
def stays(x, n):
    while n > 0:
        n = n + 0
class ModelNew(torch.nn.Module):
    def forward(self, x):
        stays[(1,)](x, x.numel())
"""
SOLUTIONS = {
    "wild": model("return module.run_wild(x)"),
    "spin": model("module.run_past(x); return module.run_spin(x)"),
    "spin_elsewhere": model("module.run_past(x); return module.run_spin_elsewhere(x)"),
    "deaf": model(
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGXCPU})\n"
        "        module.run_past(x); return module.run_spin(x)"
    ),
    "host_loop": model("return module.run_host_loop(x)"),
    "divide": model("return module.run_divide(x)"),
    "recurse": model("return module.run_recurse(x)"),
    "abort": model("return module.run_abort(x)"),
    "exit": model("y = module.run_past(x); os._exit(3)"),
    "refused": model("return module.run_refused(x)"),
    "at_import": model("return x", KERNELS + "module.run_abort(torch.zeros(64, device='cuda'))\n"),
    "child": model("module.run_past(x)\n        if not os.fork(): os.abort()\n        os.wait(); os.abort()"),
    "triton": TRITON,
    "no_kernel": model("os.abort()", PLAIN),
    "overwritten": model(OVERWRITTEN, PLAIN),
    "forged": model(FORGED, PLAIN),
}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    return judged_on_host(tmp_path_factory.mktemp("ends"), SOLUTIONS, call_timeout_s=6.0)


def line(name: str, mark: str) -> int:
    return marked_line(SOLUTIONS[name], mark)


def test_a_finding_outlives_the_signal_that_came_in_its_kernel(records: dict[str, Record]) -> None:
    record = records["wild"]
    assert record.status is Status.memory_error, record
    assert record.reason.startswith(f"wild, line {line('wild', 'BESIDE')}: out of bounds")
    assert "; then the process died of SIGSEGV while calling forward" in record.reason
    assert record.reason.endswith(f"it was in kernel wild, line {line('wild', 'WILD')}")
    assert record.evidence["ended_as"] == "crashed"
    assert record.evidence["stood_in"]["thread"] == [255, 0, 0]
    (report,) = record.evidence["reports"]
    assert (report["line"], report["file"]) == (line("wild", "BESIDE"), "19_wild.py")
    assert "count" not in report


def test_where_it_stood_is_told_to_its_author(records: dict[str, Record]) -> None:
    text = feedback(records["wild"], source=SOLUTIONS["wild"])
    assert f"in kernel wild, line {line('wild', 'WILD')} of the solution" in text
    assert "memcpy(y, (const void*)(address << 32), 4 * n);" in text
    assert f"memory error in wild, line {line('wild', 'BESIDE')} of the solution" in text


@pytest.mark.parametrize("name", ["spin", "spin_elsewhere"])
def test_a_kernel_that_never_ends_is_told_with_its_loop(records: dict[str, Record], name: str) -> None:
    record = records[name]
    assert record.status is Status.memory_error, record
    assert record.evidence["ended_as"] == "timeout"
    assert "; then no answer within 6 s: an endless loop" in record.reason
    assert record.reason.endswith(f"it was in kernel {name}, line {line(name, name.upper())}")
    text = feedback(record, source=SOLUTIONS[name])
    assert f"in kernel {name}, line {line(name, name.upper())} of the solution" in text


def test_a_kernel_that_does_not_let_itself_be_told_is_told_with_its_launch(records: dict[str, Record]) -> None:
    record = records["deaf"]
    assert record.evidence["ended_as"] == "timeout"
    assert record.reason.endswith(f"it was in kernel spin, launched on line {line('deaf', 'LAUNCH')}")
    assert record.evidence["stood_in"]["launch"] == 2
    text = feedback(record, source=SOLUTIONS["deaf"])
    assert f"in kernel spin, launch 2, on line {line('deaf', 'LAUNCH')} of the solution" in text


def test_host_code_that_never_ends_is_told_with_its_line(records: dict[str, Record]) -> None:
    record = records["host_loop"]
    assert record.status is Status.timeout, record
    assert record.reason.endswith(f"it was outside of kernels, line {line('host_loop', 'HOST')}")


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed; `pip install triton` makes this run"
)
def test_a_triton_kernel_that_never_ends_is_told(records: dict[str, Record]) -> None:
    assert records["triton"].status is Status.timeout, records["triton"]
    assert records["triton"].reason.endswith("; it was in kernel stays")


def test_an_abort_in_host_code_is_told_with_its_line(records: dict[str, Record]) -> None:
    record = records["abort"]
    assert record.status is Status.memory_error, record
    assert record.reason.startswith(f"past, line {line('abort', 'PAST')}: ")
    assert "; then the process died of SIGABRT while calling forward; " in record.reason
    assert record.reason.endswith(f"; it was outside of kernels, after past, line {line('abort', 'ABORT')}")


def test_a_division_by_zero_does_not_end_a_kernel(records: dict[str, Record]) -> None:
    record = records["divide"]
    assert record.status is Status.non_finite, record  # its threads write a part of the output
    assert "SIGFPE" not in record.reason


def test_a_stack_that_overflowed_is_told(records: dict[str, Record]) -> None:
    record = records["recurse"]
    assert record.status is Status.crashed, record
    assert "it was in kernel recurse, line " in record.reason
    assert line("recurse", "DEEP") <= record.evidence["stood_in"]["line"] <= line("recurse", "DEEPER")
    assert record.reason.endswith("its stack overflowed")


def test_findings_outlive_an_exit_and_an_abort_at_import(records: dict[str, Record]) -> None:
    assert records["exit"].status is Status.memory_error, records["exit"]
    assert "then the process exited with code 3" in records["exit"].reason
    assert records["exit"].evidence["stood_in"] == {"last_kernel": "past"}
    at_import = records["at_import"]
    assert at_import.status is Status.crashed or at_import.status is Status.memory_error, at_import
    assert f"line {line('at_import', 'ABORT')}" in at_import.reason


def test_code_that_ends_its_process_for_what_is_not_emulated_is_not_convicted(records: dict[str, Record]) -> None:
    record = records["refused"]
    assert record.status is Status.not_emulated, record
    assert record.reason.startswith(f"refused, line {line('refused', 'REFUSED')}: ")
    assert record.evidence["ended_as"] == "crashed"


def test_the_end_of_a_child_is_not_its_parent_s(records: dict[str, Record]) -> None:
    assert records["child"].status is Status.memory_error, records["child"]
    assert records["child"].reason.endswith(
        "died of SIGABRT while calling forward; it was outside of kernels, after past"
    )


def test_without_a_kernel_only_the_end_is_told(records: dict[str, Record]) -> None:
    record = records["no_kernel"]
    assert record.status is Status.crashed
    assert record.reason == "the process died of SIGABRT while calling forward"
    assert "stood_in" not in record.evidence
    assert "reports" not in record.evidence


def test_a_record_that_is_written_over_is_none(records: dict[str, Record]) -> None:
    record = records["overwritten"]
    assert record.status is Status.crashed, record
    assert "reports" not in record.evidence


def test_what_is_made_up_does_not_make_a_time_limit_count_for_nothing(records: dict[str, Record]) -> None:
    record = records["forged"]
    assert record.status is Status.timeout, record
    assert [report["message"] for report in record.evidence["reports"]] == ["all of it"]
    assert reward_of(record) == reward_of(records["overwritten"])


@pytest.mark.parametrize("name", ["wild", "spin", "abort", "exit"])
def test_a_finding_earns_no_more_than_the_end_alone(records: dict[str, Record], name: str) -> None:
    assert reward_of(records[name]) == reward_of(records["no_kernel"])


LAUNCH = CrashEntry(fields={"kernel": "relu", "line": 7, "launch": 3})
RUNS = CrashRecording(launch=LAUNCH, running=True)
LAUNCHED = {"kernel": "relu", "line": 7, "launch": 3}


@pytest.mark.parametrize(
    ("recording", "told"),
    [
        (CrashRecording(), None),
        (RUNS, LAUNCHED),
        (replace(RUNS, running=False), {"last_kernel": "relu"}),
        (CrashRecording(running=True), None),
        (replace(RUNS, end=CrashEntry(fields={"signal": 24})), LAUNCHED),
        (
            replace(RUNS, end=CrashEntry(fields={"signal": 24, "kernel": "relu"})),
            {"signal": 24, "kernel": "relu", "last_kernel": "relu"},
        ),
        (replace(RUNS, end=CrashEntry(fields={"signal": 11})), {"signal": 11, "last_kernel": "relu"}),
        (replace(RUNS, running=False, end=CrashEntry(fields={"signal": 24})), {"signal": 24, "last_kernel": "relu"}),
    ],
)
def test_where_it_stood(recording: CrashRecording, told: dict[str, object] | None) -> None:
    assert stood_in(recording, {}) == told
