"""Which names nvcc and g++ find behind which headers: `python -m tests.support.nvcc_names > tests/hostcuda/names.tsv`.

Each unit is a set of headers, as `load_inline` compiles `cuda.cu` (nvcc) or `main.cpp` (g++); each probe is a function
on a line of its own that uses one name. The compiler's errors, by line, say which probes it refuses. Needs nvcc and
torch's headers; `harness/hostcuda/library_types` replaces the headers of CUDA's libraries that a toolkit may lack.
tests/unit/hostcuda/test_names.py compares the host device with the table.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.core.executables import find_nvcc
from harness.toolchain.nvcc_toolchain import cuda_home
from tests.support.paths import ROOT

TABLE = ROOT / "tests" / "hostcuda" / "names.tsv"

HOST = """
stream              (void)at::cuda::getCurrentCUDAStream();
c10_stream          (void)c10::cuda::getCurrentCUDAStream();
default_stream      (void)at::cuda::getDefaultCUDAStream();
pool_stream         (void)c10::cuda::getStreamFromPool();
stream_type         (void)sizeof(at::cuda::CUDAStream);
guard               at::cuda::CUDAGuard guard(0);
c10_guard           c10::cuda::CUDAGuard guard(0);
optional_guard      at::cuda::OptionalCUDAGuard guard;
stream_guard        (void)sizeof(c10::cuda::CUDAStreamGuard);
event               (void)sizeof(at::cuda::CUDAEvent);
cuda_check          C10_CUDA_CHECK(cudaSuccess);
launch_check        C10_CUDA_KERNEL_LAUNCH_CHECK();
at_cuda_check       AT_CUDA_CHECK(cudaSuccess);
blas_check          TORCH_CUDABLAS_CHECK(cublasStatus_t{});
properties          (void)at::cuda::getCurrentDeviceProperties();
warp_size           (void)at::cuda::warp_size();
device_count        (void)c10::cuda::device_count();
current_device      (void)at::cuda::current_device();
blas_handle         (void)at::cuda::getCurrentCUDABlasHandle();
device_allocator    (void)at::cuda::getCUDADeviceAllocator();
raw_alloc           (void)c10::cuda::CUDACachingAllocator::raw_alloc(4);
cublas              cublasHandle_t handle;
cusparse            cusparseHandle_t handle;
curand_host         curandGenerator_t generator;
cudart_stream       cudaStream_t stream;
cudart_call         (void)cudaDeviceSynchronize();
cudart_attribute    cudaDeviceProp properties; (void)cudaGetDeviceProperties(&properties, 0);
dim3                dim3 grid(1, 2);
data_type           cudaDataType_t type = CUDA_R_16F;
driver_call         CUdevice device;
profiler            (void)cudaProfilerStart();
nvtx                (void)nvtxRangePop();
torch_tensor        torch::Tensor x;
torch_empty         (void)torch::empty({2});
torch_options       (void)torch::TensorOptions().dtype(torch::kFloat32);
at_tensor           at::Tensor x;
at_empty            (void)at::empty({2});
torch_check         TORCH_CHECK(true, "no");
c10_half            c10::Half x;
dispatch            at::Tensor x; AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "f", [] {});
irange              for (auto i : c10::irange(2)) (void)i;
vector              std::vector<int> x;
string              std::string x;
map                 std::map<int, int> x;
optional            std::optional<int> x;
queue               std::queue<int> x;
stack               std::stack<int> x;
random              std::mt19937 x;
thread              std::thread x;
cout                std::cout << 1;
chrono              (void)std::chrono::steady_clock::now();
py_object           PyObject* x = nullptr; (void)x;
sort                int x[2]; std::sort(x, x + 2);
numeric_limits      (void)std::numeric_limits<float>::max();
thrust_vector       thrust::device_vector<float> x(2);
thrust_sort         int x[2]; thrust::sort(x, x + 2);
"""
"""Bodies of host functions: for both kinds of units."""

DEVICE = """
block               auto block = cooperative_groups::this_thread_block(); block.sync();
grid                cooperative_groups::this_grid().sync();
tile                auto tile = cooperative_groups::tiled_partition<32>(cooperative_groups::this_thread_block());
cg_reduce           namespace cg = cooperative_groups; (void)cg::reduce(cg::coalesced_threads(), 1, cg::plus<int>());
half                __half x; (void)sizeof(x);
half_call           float x = __half2float(__float2half(1.0f)); (void)x;
half2               half2 x = __floats2half2_rn(1.0f, 2.0f); (void)x;
bfloat16            __nv_bfloat16 x = __float2bfloat16(1.0f); (void)x;
bfloat162           __nv_bfloat162 x; (void)sizeof(x);
fp8                 __nv_fp8_e4m3 x; (void)sizeof(x);
wmma                nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> x;
infinity            float x = CUDART_INF_F; (void)x;
pi                  double x = CUDART_PI; (void)x;
curand              curandState state;
complex             cuFloatComplex x; (void)sizeof(x);
thrust_complex      thrust::complex<float> x(1.0f, 2.0f); (void)sizeof(x);
cub_block           typedef cub::BlockReduce<float, 128> Reduce; (void)sizeof(typename Reduce::TempStorage);
cub_warp            typedef cub::WarpReduce<float> Reduce; (void)sizeof(typename Reduce::TempStorage);
cuda_limits         (void)cuda::std::numeric_limits<float>::max();
cuda_atomic         int x = 0; cuda::atomic_ref<int> held(x); held.fetch_add(1);
cuda_barrier        (void)sizeof(cuda::barrier<cuda::thread_scope_block>);
pipeline            __pipeline_commit();
gpu_atomic          float x = 0; gpuAtomicAdd(&x, 1.0f);
warp_shfl           (void)WARP_SHFL(1.0f, 0);
kernel_loop         CUDA_KERNEL_LOOP(i, 4) { (void)i; }
launch_bounds       (void)sizeof(at::RestrictPtrTraits<float>);
float4              float4 x = make_float4(1, 2, 3, 4); (void)x;
shuffle             (void)__shfl_down_sync(0xffffffffu, 1.0f, 1);
ldg                 const float x = 1; (void)__ldg(&x);
atomic              int x = 0; atomicAdd(&x, 1);
fast_math           (void)__expf(1.0f);
barrier             __syncthreads();
printf              printf("%d", 1);
assertion           assert(true);
rsqrt               (void)rsqrtf(2.0f);
infinity_macro      float x = INFINITY; (void)x;
"""
"""Bodies of kernels: for CUDA units."""

PYTHON = """
pybind              pybind11::object x;
"""
"""Bodies of host functions with names of pybind11, which the host device decides by the includes."""

TORCH = ("torch/types.h", "cuda.h", "cuda_runtime.h")
"""The headers that `load_inline` adds to `cuda.cu`; `torch/extension.h` is the one of `main.cpp`."""

CUDA_UNITS = (
    (),
    ("cuda_runtime.h",),
    ("cuda_fp16.h",),
    ("cuda_bf16.h",),
    ("cooperative_groups.h",),
    ("mma.h",),
    ("math_constants.h",),
    TORCH,
    (*TORCH, "torch/extension.h"),
    (*TORCH, "c10/cuda/CUDAException.h"),
    (*TORCH, "c10/cuda/CUDAStream.h"),
    (*TORCH, "c10/cuda/CUDACachingAllocator.h"),
    (*TORCH, "c10/cuda/CUDAGuard.h"),
    (*TORCH, "ATen/cuda/CUDAContextLight.h"),
    (*TORCH, "ATen/cuda/CUDAContext.h"),
    (*TORCH, "ATen/cuda/Exceptions.h"),
    (*TORCH, "ATen/cuda/CUDAEvent.h"),
    (*TORCH, "ATen/cuda/Atomic.cuh", "ATen/cuda/detail/KernelUtils.h"),
    (*TORCH, "ATen/cuda/DeviceUtils.cuh"),
    (*TORCH, "cooperative_groups.h"),
    (*TORCH, "cooperative_groups/reduce.h"),
    (*TORCH, "mma.h"),
    (*TORCH, "cuda_fp8.h", "math_constants.h", "cuComplex.h"),
    (*TORCH, "cuda_pipeline.h", "cuda_profiler_api.h", "nvtx3/nvToolsExt.h"),
)
CPP_UNITS = (
    ("torch/extension.h",),
    ("torch/extension.h", "cuda_runtime.h"),
    ("torch/extension.h", "c10/cuda/CUDAGuard.h"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A set of headers and the probes behind them, one a line."""

    file: str
    headers: tuple[str, ...]

    @property
    def name(self) -> str:
        own = [name for name in self.headers if name not in TORCH] if self.headers[: len(TORCH)] == TORCH else None
        shown = list(self.headers) if own is None else ["torch", *own]
        return f"{self.file} " + (" ".join(shown) or "-")

    @property
    def head(self) -> str:
        return "".join(f"#include <{name}>\n" for name in self.headers)

    @property
    def probes(self) -> dict[str, str]:
        """Name and text of each probe."""
        found = {f"host {name}": f"void h_{name}() {{ {body} }}\n" for name, body in _read(HOST)}
        if self.file == "cuda.cu":
            found |= {f"device {name}": f"__global__ void d_{name}() {{ {body} }}\n" for name, body in _read(DEVICE)}
        return found | self.python

    @property
    def python(self) -> dict[str, str]:
        """Those of `probes` with names of pybind11."""
        return {name: f"void p_{name}() {{ {body} }}\n" for name, body in _read(PYTHON)}

    @property
    def text(self) -> str:
        return self.head + "".join(self.probes.values())

    def at(self, line: int) -> str | None:
        """The probe on a line of `text`, or None."""
        names = list(self.probes)
        index = line - 1 - len(self.headers)
        return names[index] if 0 <= index < len(names) else None


def units() -> list[Unit]:
    return [
        *(Unit(file="cuda.cu", headers=headers) for headers in CUDA_UNITS),
        *(Unit(file="main.cpp", headers=headers) for headers in CPP_UNITS),
    ]


def table() -> dict[tuple[str, str], bool]:
    """The committed table: whether the compiler takes a probe, by unit and probe."""
    rows = [line.split("\t") for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    return {(unit, probe): verdict == "accepted" for unit, probe, verdict in rows}


def _read(texts: str) -> Iterator[tuple[str, str]]:
    for line in texts.strip().splitlines():
        name, _, body = line.partition(" ")
        yield name, body.strip()


_ERROR = re.compile(r"^(?P<file>[^\s(:]+)(?:\((?P<edg>\d+)\)|:(?P<gcc>\d+):\d+): (?:fatal |catastrophic )?error", re.M)


def refused(log: str, unit: Unit) -> set[str]:
    """The probes that a log of nvcc or g++ has errors for.

    Raises:
        AssertionError: An error is not on the line of a probe.
    """
    found = set()
    for match in _ERROR.finditer(log):
        probe = unit.at(int(match["edg"] or match["gcc"])) if match["file"] == unit.file else None
        assert probe is not None, f"{unit.name}: {log[match.start() : match.start() + 400]}"
        found.add(probe)
    return found


def _ask(unit: Unit, folder: Path) -> set[str]:
    import torch
    from torch.utils import cpp_extension

    (folder / unit.file).write_text(unit.text)
    folders = (*cpp_extension.include_paths(), sysconfig.get_paths()["include"])
    includes = [word for path in folders for word in ("-isystem", path)]
    options = [
        *includes,
        f"-isystem{ROOT / 'harness/hostcuda/library_types'}",
        "-std=c++20",
        "-DTORCH_EXTENSION_NAME=m",
    ]
    options += ["-DTORCH_API_INCLUDE_EXTENSION_H", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
    if unit.file == "cuda.cu":
        flags = cpp_extension.COMMON_NVCC_FLAGS
        command = ["nvcc", *options, *flags, "-arch=sm_90", "-Xcudafe", "--error_limit=9999", "-ptx", "-o", os.devnull]
    else:
        nvcc = find_nvcc()
        assert nvcc is not None
        command = ["g++", *options, f"-isystem{cuda_home(nvcc) / 'include'}", "-fsyntax-only"]
    done = subprocess.run([*command, unit.file], cwd=folder, capture_output=True, text=True, check=False)
    found = refused(done.stdout + done.stderr, unit)
    assert bool(found) == (done.returncode != 0), done.stderr[-2000:]
    return found


def main() -> None:
    import torch

    version = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    gxx = subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True, check=True).stdout.strip()
    release = re.search(r"V([\d.]+)", version)
    assert release is not None
    sys.stdout.write(f"# nvcc {release[1]}, g++ {gxx}, torch {torch.__version__}: python -m tests.support.nvcc_names\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for unit in units():
            wrong = _ask(unit, folder)
            for probe in unit.probes:
                sys.stdout.write(f"{unit.name}\t{probe}\t{'refused' if probe in wrong else 'accepted'}\n")
            sys.stdout.flush()
            sys.stderr.write(f"{unit.name}\n")


if __name__ == "__main__":
    main()
