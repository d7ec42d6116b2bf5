"""What the host device says it does not have: CUDA's and torch's own headers, names and symbols, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.hostcuda.translate.lacking import (
    MissingConstruct,
    among_includes,
    among_symbols,
    in_log,
    launching_headers,
)
from tests.support.paths import ROOT

INCLUDE = ROOT / "harness" / "hostcuda" / "include"


def lacking_in(log: str, source: str = "#include <cub/cub.cuh>\n") -> list[MissingConstruct]:
    return list(in_log(log, INCLUDE, [source]))


@pytest.mark.parametrize(
    ("header", "family"),
    [
        ("cublasLt.h", "cuBLAS"),
        ("cublas.h", "cuBLAS"),
        ("cudnn.h", "cuDNN"),
        ("cusparse.h", "cuSPARSE"),
        ("curand_mtgp32_kernel.h", "cuRAND"),
        ("thrust/universal_vector.h", "Thrust"),
        ("cub/device/device_histogram.cuh", "CUB"),
        ("cutlass/gemm/device/gemm.h", "CUTLASS"),
        ("cuda/annotated_ptr", "libcu++"),
        ("nvToolsExt.h", "NVTX"),
        ("nvtx3/nvtx3.hpp", "NVTX"),
        ("cuda_fp6.h", "this CUDA header"),
        ("ATen/cuda/CUDABlas.h", "this torch header"),
        ("torch/csrc/cuda/Stream.h", "this torch header"),
    ],
)
def test_headers_of_cuda_and_torch_that_are_not_there(header: str, family: str) -> None:
    found = list(among_includes("cuda.cu", f"\n#include <{header}>\n", INCLUDE))
    assert found == [MissingConstruct(file="cuda.cu", line=2, construct=f"{family} (#include <{header}>)")]
    log = f"cuda.cu:2:10: fatal error: {header}: No such file or directory\n"
    assert lacking_in(log) == found


@pytest.mark.parametrize("header", ["helper_cuda.h", "cuda_utils.cuh", "device_utils.h", "my/kernel.cuh", "vector"])
def test_headers_that_no_gpu_build_would_find_are_errors(header: str) -> None:
    assert list(among_includes("cuda.cu", f"#include <{header}>\n", INCLUDE)) == []
    assert lacking_in(f"cuda.cu:1:10: fatal error: {header}: No such file or directory\n") == []


@pytest.mark.parametrize(
    "header",
    [
        "cuda_runtime.h",
        "cublas_v2.h",
        "library_types.h",
        "cooperative_groups.h",
        "cub/cub.cuh",
        "cub/block/block_radix_sort.cuh",
        "cuda/std/limits",
        "thrust/device_vector.h",
        "thrust/set_operations.h",
        "thrust/iterator/zip_iterator.h",
        "cuda/atomic",
        "cuda/std/latch",
        "curand_kernel.h",
        "c10/cuda/CUDAGuard.h",
        "ATen/cuda/CUDAApplyUtils.cuh",
        "ATen/cuda/DeviceUtils.cuh",
        "sm_60_atomic_functions.h",
        "nvfunctional",
        "nvtx3/nvToolsExt.h",
    ],
)
def test_headers_that_are_there_are_not_missed(header: str) -> None:
    assert list(among_includes("cuda.cu", f"#include <{header}>\n", INCLUDE)) == []


@pytest.mark.parametrize(
    ("message", "construct"),
    [
        ("'cublasCgemm' was not declared in this scope; did you mean 'x'?", "cuBLAS (cublasCgemm)"),
        ("'cublasSgemm_64' was not declared in this scope; did you mean 'x'?", "cuBLAS (cublasSgemm_64)"),
        (
            "'CUBLAS_COMPUTE_32F_EMULATED_16BFX9' was not declared in this scope",
            "cuBLAS (CUBLAS_COMPUTE_32F_EMULATED_16BFX9)",
        ),
        ("‘cudaGraphAddKernelNode’ was not declared in this scope", "CUDA graphs (cudaGraphAddKernelNode)"),
        ("'cudaTextureObject_t' has not been declared", "textures (cudaTextureObject_t)"),
        ("'curandStateSobol32_t' has not been declared", "cuRAND (curandStateSobol32_t)"),
        ("'curandGenerateUniform' was not declared in this scope", "cuRAND (curandGenerateUniform)"),
        ("'BlockRunLengthDecode' is not a member of 'cub'", "CUB (cub::BlockRunLengthDecode)"),
        ("‘WarpMergeSort’ in namespace ‘cub’ does not name a template type", "CUB (cub::WarpMergeSort)"),
        ("‘SegmentedSum’ is not a member of ‘cub::DeviceReduce’", "CUB (cub::SegmentedSum)"),
        (
            "no matching function for call to ‘cub::BlockReduce<float, 256>::Reduce(float&, int&)’",
            "CUB (cub::BlockReduce::Reduce with these arguments)",
        ),
        (
            "‘using W = class cub::WarpReduce<int>’ {aka ‘class cub::WarpReduce<int>’} has no member named ‘TailSum’",
            "CUB (cub::WarpReduce::TailSum with these arguments)",
        ),
        ("‘taus88’ is not a member of ‘thrust’; did you mean ‘tuple’?", "Thrust (thrust::taus88)"),
        (
            "‘class thrust::device_vector<float>’ has no member named ‘emplace’",
            "Thrust (thrust::device_vector::emplace with these arguments)",
        ),
        ("'pipeline_shared_state' is not a member of 'cuda'", "libcu++ (cuda::pipeline_shared_state)"),
        ("'sort' is not a member of 'cuda::std'", "libcu++ (cuda::sort)"),
        (
            "'__cluster_map_shared_multicast' was not declared in this scope",
            "this device function (__cluster_map_shared_multicast)",
        ),
        (
            "'cudaLaunchAttributeProgrammaticEvent' was not declared in this scope",
            "this part of the CUDA runtime (cudaLaunchAttributeProgrammaticEvent)",
        ),
        (
            "‘cudaStreamSetAttribute’ was not declared in this scope",
            "this part of the CUDA runtime (cudaStreamSetAttribute)",
        ),
        (
            "‘cudaDevAttrMaxPersistingL2CacheSize’ was not declared in this scope",
            "this part of the CUDA runtime (cudaDevAttrMaxPersistingL2CacheSize)",
        ),
        ("'CUtensorMap' does not name a type", "the driver API (CUtensorMap)"),
        (
            "‘CUDA_tensor_apply2’ is not a member of ‘at::cuda’",
            "this part of torch (at::cuda::CUDA_tensor_apply2)",
        ),
        (
            "‘CUDAMultiStreamGuard’ is not a member of ‘c10::cuda’; did you mean ‘CUDAStreamGuard’?",
            "this part of torch (c10::cuda::CUDAMultiStreamGuard)",
        ),
        ("‘getNumGPUs’ is not a member of ‘at::cuda’", "this part of torch (at::cuda::getNumGPUs)"),
        (
            "‘getDeviceStats’ is not a member of ‘c10::cuda::CUDACachingAllocator’",
            "this part of torch (c10::cuda::CUDACachingAllocator::getDeviceStats)",
        ),
        (
            "‘struct c10::cuda::CUDACachingAllocator::CUDAAllocator’ has no member named ‘snapshot’",
            "this part of torch (c10::cuda::CUDACachingAllocator::get()->snapshot)",
        ),
    ],
)
def test_names_of_cuda_that_are_not_there(message: str, construct: str) -> None:
    log = f"cuda.cu:12:5: error: {message}\n"
    assert lacking_in(log) == [MissingConstruct(file="cuda.cu", line=12, construct=construct)]


def test_an_algorithm_of_thrusts_with_arguments_that_it_does_not_take_here_is_not_the_sources_error() -> None:
    call = "cuda.cu:9:17: error: no matching function for call to ‘sort(const thrust::detail::Execution&, float*)’\n"
    shown = "    9 |     thrust::sort(thrust::device, p, 3);\n      |     ~~~~~~~~~~~~^~~\n"
    ours = "/cache/include/thrust/sort.h:99:1: note: candidate: ‘template<class In> auto thrust::sort(…)’\n"
    own = "cuda.cu:3:6: note: candidate: ‘void sort(int*)’\n"
    lack = MissingConstruct(file="cuda.cu", line=9, construct="Thrust (thrust::sort with these arguments)")
    assert lacking_in(call + shown + ours) == [lack]
    assert lacking_in(call + shown + own) == []
    assert lacking_in(call + shown + own + "cuda.cu:12:1: error: expected ‘;’\n" + ours) == []


def test_what_a_header_of_ours_refuses_is_named_and_what_the_source_asserts_is_its_own() -> None:
    refusal = "error: static assertion failed: pipelines that threads share are not emulated\n"
    log = f"cuda.cu:12:46:   required from here\n/cache/include/cuda/pipeline:19:25: {refusal}"
    assert lacking_in(log) == [
        MissingConstruct(file="cuda.cu", line=12, construct="libcu++ (pipelines that threads share)")
    ]
    assert lacking_in(f"cuda.cu:12:46:   required from here\ncuda.cu:3:25: {refusal}") == []


@pytest.mark.parametrize(
    "message",
    [
        "'cudaMallok' was not declared in this scope; did you mean 'cudaMalloc'?",
        "'undeclared' was not declared in this scope",
        "'cublasSgemm' was not declared in this scope",
        "'cublasHandle_t' was not declared in this scope",
        "'thrust' has not been declared",
        "'cooperative_groups' has not been declared",
        "‘getCurrentCUDAStream’ is not a member of ‘at::cuda’",
        "‘OptionalCUDAGuard’ in namespace ‘at::cuda’ does not name a type",
        "'CUBLAS_OP_T' was not declared in this scope",
        "'curandState' was not declared in this scope",
        "'curand_log_normal2_double' was not declared in this scope",
        "'curl' was not declared in this scope",
        "'__shfl_down' was not declared in this scope",
        "'cudaGraphLunch' was not declared in this scope; did you mean 'cudaGraphLaunch'?",
        "'CUtensorMaps' does not name a type",
        "expected ';' before 'cublasSgemm'",
        "‘Pair’ in namespace ‘mine’ does not name a type",
        "‘struct Pair’ has no member named ‘third’",
        "no matching function for call to ‘Pair::sum(int)’",
        "‘getCurentCUDAStream’ is not a member of ‘at::cuda’; did you mean ‘getCurrentCUDAStream’?",
        "‘getStream’ is not a member of ‘c10::cuda’",
        "‘name’ is not a member of ‘at::cuda’",
        "‘getNumGPUs’ is not a member of ‘mine::cuda’",
        "‘struct c10::cuda::CUDAStream’ has no member named ‘sync’",
        "‘struct c10::cuda::CUDACachingAllocator::CUDAAllocator’ has no member named ‘malloc’",
    ],
)
def test_names_that_cuda_does_not_have_are_errors(message: str) -> None:
    assert lacking_in(f"cuda.cu:12:5: error: {message}\n") == []


def test_a_part_of_thrust_that_a_source_without_its_headers_uses_is_an_error() -> None:
    """torch's own headers declare the namespace."""
    log = "cuda.cu:12:5: error: ‘device_vector’ is not a member of ‘thrust’\n"
    assert lacking_in(log, "#include <torch/extension.h>\n") == []
    assert lacking_in(log, "#include <thrust/sort.h>\n") != []


def test_symbols_of_torchs_cuda_build_are_found_in_the_source() -> None:
    source = "// first\nvoid f() { auto h = at::cuda::getCurrentCUDABlasLtHandle(); }\n"
    symbols = [
        "_ZN2at4cuda26getCurrentCUDABlasLtHandleEv",
        "cublasSgemm_v2",
        "_ZN2at5emptyEv",
        "current_time",
        "malloc",
    ]
    assert list(among_symbols(symbols, [("main.cpp", ""), ("cuda.cu", source)])) == [
        MissingConstruct(file="cuda.cu", line=2, construct="cuBLAS (getCurrentCUDABlasLtHandle)"),
        MissingConstruct(file="cuda.cu", line=1, construct="cuBLAS (cublasSgemm_v2)"),
    ]


def test_what_the_header_of_cublas_declares_is_not_said_to_lack_and_what_it_does_not_is() -> None:
    """The names are kept twice: in the header, and where a missing one is told from one that was not included."""
    text = (INCLUDE / "cublas_v2.h").read_text()
    real = text[text.index("#define HOSTCUDA_BLAS_REAL") : text.index("HOSTCUDA_BLAS_REAL(S, s, float)")]
    text = text.replace(real, "".join(real.replace("##S##", s).replace("##s##", s.lower()) for s in "SD"))
    declared = set(re.findall(r"\b(?:cublas[A-Z]\w+|CUBLAS_[A-Z0-9_]+)\b", text)) - {"cublasContext"}
    assert {"cublasSgemm", "cublasDgeam", "cublasIdamin", "cublasGemmEx", "CUBLAS_OP_T", "cublasHandle_t"} <= declared
    said = {name for name in declared if lacking_in(f"cuda.cu:3:4: error: '{name}' was not declared in this scope")}
    assert said == set()
    for name in ("cublasCgemm", "cublasSgemm_64", "cublasSsymm", "cublasStbsv", "cublasSetSmCountTarget"):
        assert name not in declared
        assert lacking_in(f"cuda.cu:3:4: error: '{name}' was not declared in this scope")


def test_headers_that_launch_kernels_are_known_by_what_they_include(tmp_path: Path) -> None:
    ours, torchs = tmp_path / "ours", tmp_path / "torch"
    for folder, name, text in (
        (torchs, "ATen/native/cuda/Loops.cuh", "#include <ATen/native/cuda/CUDALoops.cuh>\n"),
        (torchs, "ATen/native/cuda/CUDALoops.cuh", "#include <ATen/native/cuda/Loops.cuh>\nk<<<1, 2>>>();\n"),
        (torchs, "ATen/cuda/Plain.cuh", "#include <ATen/cuda/Ours.h>\n"),
        (torchs, "ATen/cuda/Ours.h", "k<<<1, 2>>>();\n"),
        (ours, "ATen/cuda/Ours.h", ""),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    found = [
        launching_headers(f"#include <{name}>\n", ours, torchs)
        for name in ("ATen/native/cuda/Loops.cuh", "ATen/cuda/Plain.cuh", "ATen/cuda/Ours.h", "ATen/cuda/nowhere.h")
    ]
    assert found == [True, False, False, False]
