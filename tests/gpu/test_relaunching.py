"""The GPU work of a call is launched by another process, and its time there counts if it is longer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.core.record import Record
from harness.core.status import Status
from harness.referee.timing.relaunching import NOT_RELAUNCHED, SLOWER_RELAUNCHED
from harness.results.writer import RunStore

pytestmark = pytest.mark.gpu

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(2048))
    def forward(self, x):
        return x * self.weight * 3.0
def get_inputs():
    return [torch.randn(1024, 2048)]
def get_init_inputs():
    return []
"""

MODEL = """
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(2048))
    def forward(self, x):
        {body}
"""

KERNELS = '''
from torch.utils.cpp_extension import load_inline
CUDA = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
__constant__ float factor;
__global__ void scale(const float* x, const float* w, float* y, long n, int width) {
    extern __shared__ float row[];
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    row[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (i < n) y[i] = row[threadIdx.x] * w[i % width] * factor;
}
void prepare() { float three = 3.0f; cudaMemcpyToSymbol(factor, &three, sizeof three); }
torch::Tensor run(torch::Tensor x, torch::Tensor w) {
    static cudaStream_t side = nullptr;
    static cudaEvent_t begun, done;
    if (side == nullptr) {
        cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
        cudaEventCreateWithFlags(&begun, cudaEventDisableTiming);
        cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
        cudaFuncSetAttribute(scale, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 * 1024);
    }
    cudaStream_t own = c10::cuda::getCurrentCUDAStream();
    auto y = torch::empty_like(x);
    float* scratch;
    cudaMalloc(&scratch, x.nbytes());
    cudaEventRecord(begun, own);
    cudaStreamWaitEvent(side, begun, 0);
    cudaMemcpyAsync(scratch, x.data_ptr<float>(), x.nbytes(), cudaMemcpyDeviceToDevice, side);
    cudaEventRecord(done, side);
    cudaStreamWaitEvent(own, done, 0);
    scale<<<(x.numel() + 255) / 256, 256, 64 * 1024, own>>>(
        scratch, w.data_ptr<float>(), y.data_ptr<float>(), x.numel(), (int)x.size(1));
    cudaFree(scratch);
    return y;
}
"""
SIGNATURES = "torch::Tensor run(torch::Tensor x, torch::Tensor w); void prepare();"
module = load_inline(name="relaunched", cpp_sources=SIGNATURES, cuda_sources=CUDA, functions=["run", "prepare"])
module.prepare()
'''

LIES = """
elapsed_time = getattr(torch.cuda.Event, "elapsed_time", None)  # a build imports the file without a GPU
torch.cuda.Event.elapsed_time = lambda begin, end: 0.9 * elapsed_time(begin, end)
"""


def judged(folder: Path, source: str) -> Record:
    (folder / "problems/level1").mkdir(parents=True)
    (folder / "problems/level1/1_scale.py").write_text(PROBLEM)
    (folder / "solutions/me/level1").mkdir(parents=True)
    (folder / "solutions/me/level1/1_scale.py").write_text("import torch\n" + source)
    command = [sys.executable, "-m", "harness", "eval", "solutions", "--problems", "problems", "--run-id", "run"]
    done = subprocess.run(
        [*command, "--timing-budget", "0.5", "--audit", "never"],
        cwd=folder,
        check=False,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = RunStore.open(folder / "results/run").records()
    assert record.status is Status.passed, record.reason
    assert record.timing is not None
    return record


def relaunched(record: Record) -> dict[str, object]:
    assert record.timing is not None
    return dict(record.timing["relaunched"])


def test_torchs_kernels_are_launched_by_another_process(tmp_path: Path) -> None:
    record = judged(tmp_path, MODEL.format(body="return x * self.weight * 3.0"))
    assert "lack" not in relaunched(record)
    assert not {NOT_RELAUNCHED, SLOWER_RELAUNCHED} & set(record.labels)


def test_streams_scratch_constants_and_much_shared_memory_are_taken_along(tmp_path: Path) -> None:
    record = judged(tmp_path, KERNELS + MODEL.format(body="return module.run(x, self.weight)"))
    assert "lack" not in relaunched(record), relaunched(record)


def test_the_longer_time_counts_for_a_false_claim(tmp_path: Path) -> None:
    record = judged(tmp_path, LIES + MODEL.format(body="return x * self.weight * 3.0"))
    assert SLOWER_RELAUNCHED in record.labels
    assert record.speedup is not None
    assert record.speedup < 1.15
    assert "if another process launches it" in record.reason
    assert record.timing is not None
    assert "claimed_samples_s" in record.timing["solution"]


def test_host_code_between_launches_keeps_its_own_time_with_a_label(tmp_path: Path) -> None:
    body = "y = x * self.weight\n        return y * (3.0 if float(y[0, 0]) == float(y[0, 0]) else 0.0)"
    record = judged(tmp_path, MODEL.format(body=body))
    assert NOT_RELAUNCHED in record.labels
    assert "cuMemcpyDtoH" in str(relaunched(record)["lack"])
