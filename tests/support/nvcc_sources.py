"""Whether nvcc accepts small sources: `python -m tests.support.nvcc_sources > tests/hostcuda/sources.tsv`.

Each source is one statement in one kind of function, without any header but those that nvcc includes by itself, and
nvcc compiles each alone. tests/unit/hostcuda/test_sources.py compares the host device with the table.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.paths import ROOT

TABLE = ROOT / "tests" / "hostcuda" / "sources.tsv"

FUNCTIONS = {
    "kernel": "__global__ void f(float* x, int n) {{\n  {}\n}}\n",
    "both": "__host__ __device__ void f(float* x, int n) {{\n  {}\n}}\n"
    "__global__ void k(float* x, int n) {{ f(x, n); }}\nvoid h(float* x, int n) {{ f(x, n); }}\n",
    "host": "void f(float* x, int n) {{\n  {}\n}}\n",
}
"""Kinds of functions around a statement."""

BEFORE = """
float host_function(float v) { return v; }
__device__ float device_function(float v) { return v; }
__host__ __device__ float shared_function(float v) { return v; }
constexpr float constant_function(float v) { return v; }
__global__ void other(float* x) { x[0] = 1; }
__constant__ float table[4];
__device__ float counter;
float host_variable = 1;
const float host_constant = 2;
const int host_array[2] = {1, 2};
constexpr float literal = 3;
#define MACRO(v) ((v) * 2)
struct Host { float operator()(float v) const { return v; } };
struct Device { __device__ float operator()(float v) const { return v; } };
enum Color { RED, GREEN };
template <class V> __device__ V square(V v) { return v * v; }
template <class V, class O> __host__ __device__ V applied(V v, O o) { return o(v); }
"""
"""Declarations before each function."""

STATEMENTS = """
index              x[threadIdx.x] = blockIdx.x * blockDim.x;
barrier            __syncthreads();
warp_barrier       __syncwarp();
shuffle            x[0] = __shfl_down_sync(0xffffffffu, x[0], 1);
shuffle_no_mask    x[0] = __shfl_down(x[0], 1);
ballot             n = __ballot_sync(0xffffffffu, n > 0);
atomic_add         atomicAdd(x, 1.0f);
atomic_max_int     atomicMax(&n, 1);
atomic_max_float   atomicMax(x, 1.0f);
atomic_long        unsigned long long v = 0; atomicAdd(&v, 1ull);
atomic_double      double v = 0; atomicAdd(&v, 1.0);
atomic_mixed       atomicAdd(x, 1.0);
fence              __threadfence();
ldg                x[0] = __ldg(x + 1);
fast_exp           x[0] = __expf(x[1]);
fast_division      x[0] = __fdividef(x[1], x[2]);
rsqrt              x[0] = rsqrtf(x[1]);
expf               x[0] = expf(x[1]);
exp_std            x[0] = std::exp(x[1]);
max_plain          x[0] = max(x[1], x[2]);
max_mixed          n = max(n, 1u);
max_std            x[0] = std::max(x[1], x[2]);
fmaxf              x[0] = fmaxf(x[1], x[2]);
min_mixed_types    x[0] = min(x[1], n);
clamp              x[0] = clamp(x[1], 0.0f, 1.0f);
saturate           x[0] = __saturatef(x[1]);
half               __half v = __float2half(1.0f);
infinity           x[0] = INFINITY;
float_max          x[0] = FLT_MAX;
cuda_infinity      x[0] = CUDART_INF_F;
limits             x[0] = std::numeric_limits<float>::max();
pi                 x[0] = M_PI;
float4             float4 v = make_float4(1, 2, 3, 4); x[0] = v.x;
float4_add         float4 v = make_float4(1, 2, 3, 4); v = v + v;
float4_read        float4 v = reinterpret_cast<float4*>(x)[0]; x[0] = v.w;
float5             float5 v;
dim3               dim3 v(1, 2); n = v.z;
shared             __shared__ float s[32]; s[0] = x[0]; x[1] = s[0];
shared_variable    __shared__ float s[n]; s[0] = x[0];
shared_extern      extern __shared__ float s[]; s[0] = x[0];
shared_value       __shared__ float s = 0; x[0] = s;
shared_too_large   __shared__ float s[16384]; s[0] = x[0]; x[1] = s[n];
local_variable     float s[n]; s[0] = x[0];
local_array        float s[4]; s[n] = x[0]; x[1] = s[0];
local_static       static int s = 0; n = s;
new_delete         float* s = new float[4]; delete[] s;
vector             std::vector<float> s(4);
string             std::string s;
printf             printf("%d", n);
cout               std::cout << n;
assertion          assert(n > 0);
throws             if (n < 0) throw 1;
tries              try { x[0] = 1; } catch (...) {}
call_host          x[0] = host_function(x[1]);
call_device        x[0] = device_function(x[1]);
call_both          x[0] = shared_function(x[1]);
call_constexpr     x[0] = constant_function(x[1]);
call_template      x[0] = square(x[1]);
call_kernel        other(x);
launch             other<<<1, 1>>>(x);
launch_no_grid     other<<<>>>(x);
launch_wrong       other<<<1, 1>>>(n);
functor_host       x[0] = applied(x[1], Host());
functor_device     x[0] = applied(x[1], Device());
lambda             auto g = [](float v) { return v + 1; }; x[0] = g(x[1]);
lambda_device      auto g = [] __device__(float v) { return v + 1; }; x[0] = g(x[1]);
read_constant      x[0] = table[1];
write_constant     table[1] = x[0];
read_counter       x[0] = counter;
read_variable      x[0] = host_variable;
read_const         x[0] = host_constant;
read_const_array   n = host_array[n];
read_literal       x[0] = literal;
macro              x[0] = MACRO(x[1]);
enumerator         n = RED;
enumerator_int     Color c = 1;
undeclared         x[0] = missing;
undeclared_call    x[0] = missing(x[1]);
no_semicolon       x[0] = 1
wrong_member       x.y = 1;
wrong_arguments    x[0] = device_function(x[1], n);
pointer_to_value   float v = x;
value_to_pointer   float* p = n;
const_store        const float v = 1; v = 2;
narrowing          int v[1] = {x[0]};
redefinition       int v = 1; int v = 2;
shadowed           float n = 1;
returned           return 1;
goto_over          goto end; int v = 1; end: n = v;
unroll             _Pragma("unroll") for (int i = 0; i < 4; ++i) x[i] = 0;
restrict           float* __restrict__ p = x; p[0] = 1;
if_constexpr       if constexpr (sizeof(int) == 4) x[0] = 1; else x[0] = missing;
structured         auto [a, b] = make_float2(1, 2); x[0] = a + b;
clock              long long v = clock64(); n = v;
warp_size          n = warpSize;
nan                x[0] = nanf("");
is_nan             n = isnan(x[0]);
is_nan_std         n = std::isnan(x[0]);
int_types          int64_t v = n; uint32_t w = v; n = w;
size               size_t v = sizeof(x); n = v;
swap               std::swap(x[0], x[1]);
popcount           n = __popc(n);
leading_zeros      n = __clz(n);
dot                n = __dp4a(n, n, n);
bits               n = __float_as_int(x[0]);
asm                asm volatile("mov.u32 %0, %%laneid;" : "=r"(n));
memcpy_plain       memcpy(x, x + 4, 16);
malloc_plain       float* p = (float*)malloc(16); free(p);
runtime_call       cudaDeviceSynchronize();
runtime_malloc     float* p; cudaMalloc(&p, 16);
cooperative        auto g = cooperative_groups::this_grid(); g.sync();
stream             at::cuda::getCurrentCUDAStream();
launch_check       C10_CUDA_KERNEL_LAUNCH_CHECK();
tensor             torch::Tensor t;
"""
"""Name and text of each statement."""


def sources() -> dict[tuple[str, str], str]:
    """The text of each source, by function and statement."""
    found = {}
    for line in STATEMENTS.strip().splitlines():
        name, _, statement = line.partition(" ")
        for function, text in FUNCTIONS.items():
            found[function, name] = BEFORE + text.format(statement.strip())
    return found


def table() -> dict[tuple[str, str], bool]:
    """The committed table: whether nvcc accepts a source, by function and statement."""
    rows = [line.split("\t") for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    return {(function, name): verdict == "accepted" for function, name, verdict in rows}


def _accepts(text: str) -> bool:
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "cuda.cu"
        source.write_text(text)
        flags = ["-std=c++20", "--expt-relaxed-constexpr", "-arch=sm_90", "-c", "-o", str(source.with_suffix(".o"))]
        done = subprocess.run(["nvcc", *flags, str(source)], capture_output=True, text=True, check=False)
    if done.returncode != 0 and "error" not in (done.stdout + done.stderr).lower():
        raise AssertionError(done.stderr[-2000:])
    return done.returncode == 0


def main() -> None:
    version = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    release = re.search(r"V([\d.]+)", version)
    assert release is not None
    sys.stdout.write(f"# nvcc {release[1]}: python -m tests.support.nvcc_sources\n")
    found = sources()
    with ThreadPoolExecutor(3) as pool:
        for (function, name), accepted in zip(found, pool.map(_accepts, found.values()), strict=True):
            sys.stdout.write(f"{function}\t{name}\t{'accepted' if accepted else 'refused'}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
