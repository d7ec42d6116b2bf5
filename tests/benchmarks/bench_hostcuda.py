"""How fast the host device executes and builds: `python tests/benchmarks/bench_hostcuda.py`. Prints a table;
asserts nothing.

The naive product is the seeds' (one thread an element, loop over k) on 128x512 by 512x192; a flop is an addition or
a multiplication.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path
from typing import Any

import torch

from harness.hostcuda.translate import build
from harness.untrusted.contestant.hostcuda import shim
from harness.untrusted.contestant.hostcuda.shim import _need
from tests.support.hostcuda_loader import load

NAIVE = """
__global__ void naive(const float* A, const float* B, float* C, int M, int N, int K) {
    int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < M && j < N) {
        float sum = 0.0f;
        for (int k = 0; k < K; ++k) sum += A[i * K + k] * B[k * N + j];
        C[i * N + j] = sum;
    }
}
torch::Tensor naive_product(torch::Tensor A, torch::Tensor B) {
    auto C = torch::empty({A.size(0), B.size(1)}, A.options());
    int M = A.size(0), K = A.size(1), N = B.size(1);
    dim3 grid((N + 15) / 16, (M + 15) / 16), block(16, 16);
    naive<<<grid, block>>>(A.data_ptr<float>(), B.data_ptr<float>(), C.data_ptr<float>(), M, N, K);
    return C;
}
"""
TILED = """
#define T 16
__global__ void tiled(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float a[T][T], b[T][T];
    int x = threadIdx.x, y = threadIdx.y, i = blockIdx.y * T + y, j = blockIdx.x * T + x;
    float sum = 0.0f;
    for (int t = 0; t < K; t += T) {
        a[y][x] = A[i * K + t + x];
        b[y][x] = B[(t + y) * N + j];
        __syncthreads();
        for (int k = 0; k < T; ++k) sum += a[y][k] * b[k][x];
        __syncthreads();
    }
    C[i * N + j] = sum;
}
torch::Tensor tiled_product(torch::Tensor A, torch::Tensor B) {
    auto C = torch::empty({A.size(0), B.size(1)}, A.options());
    int M = A.size(0), K = A.size(1), N = B.size(1);
    tiled<<<dim3(N / T, M / T), dim3(T, T)>>>(A.data_ptr<float>(), B.data_ptr<float>(), C.data_ptr<float>(), M, N, K);
    return C;
}
"""
SHUFFLES = """
__global__ void rows(const float* x, float* y, int n) {
    float v = 0.0f;
    for (int i = threadIdx.x; i < n; i += 32) v += x[blockIdx.x * n + i];
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffffu, v, d);
    if (threadIdx.x == 0) y[blockIdx.x] = v;
}
torch::Tensor row_sums(torch::Tensor x, torch::Tensor) {
    auto y = torch::empty({x.size(0)}, x.options());
    rows<<<x.size(0), 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
"""


def children_s() -> float:
    """Processor time of the compilers so far: what a build costs where other programs hold up the clock."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def fastest(call: Any, repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=None)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    begin = time.perf_counter()
    headers = build.prepare_headers(options.cache)
    print(f"preparation {time.perf_counter() - begin:.1f} s (0 once cached)")
    shim.activate(headers)
    torch.manual_seed(0)
    a, b = torch.randn(128, 512).cuda(), torch.randn(512, 192).cuda()
    flops = 2 * 128 * 512 * 192
    cores = _need().workers()
    print(f"{cores} cores; fastest of {options.repeats}")
    for title, source, name, work in (
        ("naive product", NAIVE, "naive_product", flops),
        ("tiled product", TILED, "tiled_product", flops),
        ("row sums, shuffles", SHUFFLES, "row_sums", 128 * 512),
    ):
        for checked in (False, True):
            begin, used = time.perf_counter(), children_s()
            declaration = f"torch::Tensor {name}(torch::Tensor a, torch::Tensor b);"
            module = load(source, declaration, [name], checked=checked, cache_dir=options.cache)
            built, compiled = time.perf_counter() - begin, children_s() - used
            function = getattr(module, name)
            seconds = fastest(lambda function=function: function(a, b), options.repeats)
            mode = "checked" if checked else "unchecked"
            rate = work / seconds / 1e6 / cores
            build_time = f"build {built:5.2f} s, {compiled:5.2f} s of a processor"
            print(f"{title:20} {mode:10} {build_time}  run {seconds * 1e3:9.2f} ms  {rate:9.1f} MFLOP/s a core")


if __name__ == "__main__":
    main()
