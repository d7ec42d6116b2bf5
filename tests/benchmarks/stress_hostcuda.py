"""Long launches on the host device: `python tests/benchmarks/stress_hostcuda.py`. Prints a table.

Exits with 1 if a finding is reported or a result is wrong. The kernels are free of defects, so any finding is a fault
of the host device: 2,000 blocks meet at 2,000 barriers of the grid, 1,000,000 launches run in one process, and 1,024
threads have 400 KiB of local arrays each.
"""

from __future__ import annotations

import sys
import time

import torch

from harness.untrusted.contestant.hostcuda import shim
from tests.support.hostcuda_loader import load

SOURCE = """
#include <cooperative_groups.h>
__global__ void barriers(int* y, int rounds) {
    const int blocks = gridDim.x, b = blockIdx.x;
    y[b] = b;
    for (int i = 1; i <= rounds; ++i) {
        cooperative_groups::this_grid().sync();
        y[i % 2 * blocks + b] = y[(i + 1) % 2 * blocks + (b + 1) % blocks];
    }
}
__global__ void step(int* y) { y[threadIdx.x] += 1; }
__global__ void arrays(int* y) {
    int mine[102400];
    for (int i = 0; i < 102400; i += 512) mine[i] = threadIdx.x;
    __syncthreads();
    int sum = 0;
    for (int i = 0; i < 102400; i += 512) sum += mine[i];
    y[threadIdx.x] = sum / 200;
}
void run_barriers(torch::Tensor y, int64_t blocks, int64_t rounds) {
    int* to = y.data_ptr<int>();
    int n = rounds;
    void* arguments[] = {&to, &n};
    cudaLaunchCooperativeKernel((void*)barriers, dim3(blocks), dim3(1), arguments, 0, 0);
}
void run_steps(torch::Tensor y, int64_t launches) {
    for (int64_t i = 0; i < launches; ++i) step<<<1, 32>>>(y.data_ptr<int>());
}
void run_arrays(torch::Tensor y) { arrays<<<1, 1024>>>(y.data_ptr<int>()); }
"""
DECLARATIONS = """
void run_barriers(torch::Tensor y, int64_t blocks, int64_t rounds);
void run_steps(torch::Tensor y, int64_t launches);
void run_arrays(torch::Tensor y);
"""


def main() -> int:
    module = load(SOURCE, DECLARATIONS, ["run_barriers", "run_steps", "run_arrays"])
    blocks, rounds, launches = 2000, 2000, 1_000_000
    cases = (
        ("barriers of a grid", 2 * blocks, lambda y: module.run_barriers(y, blocks, rounds), torch.arange(blocks)),
        ("launches", 32, lambda y: module.run_steps(y, launches), torch.full((32,), launches)),
        ("local arrays", 1024, module.run_arrays, torch.arange(1024)),
    )
    failed = False
    for title, items, call, expected in cases:
        for schedule in (0, 1):
            shim.clear()
            shim.set_schedule(schedule)
            y = torch.zeros(items, dtype=torch.int32).cuda()
            begin = time.perf_counter()
            call(y)
            torch.cuda.synchronize()
            seconds = time.perf_counter() - begin
            reports = shim.collect_reports()
            right = bool((y.cpu()[: expected.numel()] == expected).all())
            failed |= not right or bool(reports)
            print(f"{title:20} schedule {schedule}  {seconds:7.2f} s  right {right}  {len(reports)} findings")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
