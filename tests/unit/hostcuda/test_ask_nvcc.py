"""`--syntax nvcc`: an installed nvcc decides whether CUDA sources are valid, before the host device's compiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.executables import find_nvcc
from harness.core.status import Status
from harness.hostcuda.toolchain import HostToolchain
from harness.hostcuda.translate.ask_nvcc import missing_of_toolkit
from harness.hostcuda.translate.build import default_cache
from harness.toolchain import BuildCache, BuilderZygotes, BuildOutcome, BuildTools, build_solution

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="no nvcc on this machine")

SOLUTION = '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline
kernel = """
{include}
__global__ void twice(float* x) {{ x[threadIdx.x] *= 2; }}
void run(torch::Tensor x) {{
  twice<<<1, 32, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>());
{more}
}}
"""
ext = load_inline("asked", "void run(torch::Tensor x);", kernel, functions=["run"])

class ModelNew(nn.Module):
    def forward(self, x):
        ext.run(x)
        return x
'''
CONTEXT = "#include <ATen/cuda/CUDAContext.h>"


def build(zygotes: BuilderZygotes, folder: Path, text: str) -> tuple[BuildOutcome, str]:
    toolchain = HostToolchain(default_cache(), syntax="nvcc")
    tools = BuildTools(zygotes=zygotes, toolchain=toolchain, cache=BuildCache(folder / "cache"), timeout_s=600)
    outcome = build_solution(text, "solution.py", tools, log_path=folder / "log")
    toolchain.close()
    return outcome, (folder / "log").read_text()


@needs_nvcc
def test_a_source_that_nvcc_accepts_is_built_for_the_cpu(zygotes: BuilderZygotes, tmp_path: Path) -> None:
    outcome, log = build(zygotes, tmp_path, SOLUTION.format(include=CONTEXT, more=""))
    assert outcome.failure is None, log
    assert "no verdict" not in log
    assert outcome.modules[0].report.headers == {"cuda.cu": "emulated"}


@needs_nvcc
def test_a_refusal_of_nvcc_is_a_compile_error_in_its_words(zygotes: BuilderZygotes, tmp_path: Path) -> None:
    outcome, log = build(zygotes, tmp_path, SOLUTION.format(include="", more=""))
    assert outcome.failure is not None, log
    assert outcome.failure.status is Status.compile_error
    said = 'cuda source 1, line 5 (line 9 of the solution): namespace "at::cuda" has no member "getCurrentCUDAStream"'
    assert said in outcome.failure.reason
    assert "cuda.cu: In function" not in log, "the host device's compiler ran"


@needs_nvcc
@pytest.mark.skipif(Path("/usr/local/cuda/include/cublas_v2.h").exists(), reason="the toolkit has cuBLAS")
def test_a_toolkit_without_cublas_has_no_verdict_on_its_calls(zygotes: BuilderZygotes, tmp_path: Path) -> None:
    more = "cublasHandle_t handle; cublasCreate(&handle);"
    outcome, log = build(zygotes, tmp_path, SOLUTION.format(include=CONTEXT + "\n#include <cublas_v2.h>", more=more))
    assert "nvcc has no verdict: the CUDA toolkit does not contain cublas_v2.h" in log
    assert outcome.failure is None, log


@pytest.mark.parametrize(
    ("log", "missing"),
    [
        ("cuda.cu:5:10: fatal error: curand_kernel.h: No such file or directory\n", "curand_kernel.h"),
        ("cuda.cu:5:10: fatal error: missing.h: No such file or directory\n", None),
        ("cuda.cu:5:10: fatal error: cuda_fp16.h: No such file or directory\n", None),
        ("/torch/include/ATen/cudnn/Types.h:3:10: fatal error: cudnn.h: No such file or directory\n", "cudnn.h"),
        ('cuda.cu(9): error: identifier "cublasCreate" is undefined\n', "cublas_v2.h"),
        ('cuda.cu(9): error: identifier "cudaCreate" is undefined\n', None),
        ('cuda.cu(9): warning: variable "cublas" was declared\ncuda.cu(9): error: expected a ";"\n', None),
    ],
)
def test_an_incomplete_toolkit_is_no_fault_of_a_source(log: str, missing: str | None, tmp_path: Path) -> None:
    include, types, toolkit = tmp_path / "include", tmp_path / "types", tmp_path / "toolkit"
    for folder, names in {
        include: ("curand_kernel.h", "cuda_fp16.h"),
        types: ("cublas_v2.h",),
        toolkit: ("cuda_fp16.h",),
    }.items():
        folder.mkdir()
        for name in names:
            (folder / name).touch()
    assert missing_of_toolkit(log, include, types, toolkit) == missing
    (toolkit / "cublas_v2.h").touch()
    if missing == "cublas_v2.h":
        assert missing_of_toolkit(log, include, types, toolkit) is None
