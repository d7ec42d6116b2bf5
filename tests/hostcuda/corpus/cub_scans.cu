/*
summary: CUB's block scan over long rows (several items a thread, a prefix callback that carries on) and its warp scan
inputs:
  x: normal(3, 1000)
  k: torch.arange(96, dtype=torch.int32) % 7
outputs:
  single: new(3, 1000)
  several: new(3, 1000)
  exclusive: new(3, 1000)
  largest: new(3, 128)
  ranks: new(96, dtype=torch.int32)
  totals: new(96, dtype=torch.int32)
sizes: [3, 1000]
expected:
  single: x.double().cumsum(1)
  several: x.double().cumsum(1)
  exclusive: x.double().cumsum(1) - x
  largest: x[:, :128].cummax(1).values
  ranks: k.view(3, 32).cumsum(1).view(96) - k
  totals: k.view(3, 32).sum(1).repeat_interleave(32)
tolerance: 1.0e-4
*/
#include <cuda_runtime.h>
#include <cub/cub.cuh>

struct Running {
    float total;
    __device__ explicit Running(float start) : total(start) {}
    __device__ float operator()(float block) {
        float before = total;
        total += block;
        return before;
    }
};
struct Larger {
    __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

constexpr int THREADS = 128, ITEMS = 4;

__global__ void scan_rows(const float* x, float* single, float* several, float* exclusive, float* largest, int n) {
    using Scan = cub::BlockScan<float, THREADS, cub::BLOCK_SCAN_WARP_SCANS>;
    __shared__ typename Scan::TempStorage storage;
    const float* row = x + blockIdx.x * n;
    Running first(0.0f), second(0.0f);
    for (int base = 0; base < n; base += THREADS) {
        int i = base + threadIdx.x;
        float v = i < n ? row[i] : 0.0f, sum, before;
        Scan(storage).InclusiveSum(v, sum, first);
        __syncthreads();
        Scan(storage).ExclusiveSum(v, before, second);
        __syncthreads();
        if (i < n) single[blockIdx.x * n + i] = sum, exclusive[blockIdx.x * n + i] = before;
    }
    float carry = 0.0f;
    for (int base = 0; base < n; base += THREADS * ITEMS) {
        float items[ITEMS], total;
        int at = base + threadIdx.x * ITEMS;
        for (int j = 0; j < ITEMS; ++j) items[j] = at + j < n ? row[at + j] : 0.0f;
        Scan(storage).InclusiveSum(items, items, total);
        __syncthreads();
        for (int j = 0; j < ITEMS; ++j)
            if (at + j < n) several[blockIdx.x * n + at + j] = carry + items[j];
        carry += total;
    }
    float most;
    Scan(storage).InclusiveScan(row[threadIdx.x], most, Larger());
    largest[blockIdx.x * THREADS + threadIdx.x] = most;
}

__global__ void scan_warps(const int* k, int* ranks, int* totals) {
    typedef cub::WarpScan<int> Scan;
    __shared__ Scan::TempStorage storage[3];
    int rank, total;
    Scan(storage[threadIdx.x / 32]).ExclusiveSum(k[threadIdx.x], rank, total);
    ranks[threadIdx.x] = rank;
    totals[threadIdx.x] = total;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    scan_rows<<<(int)size[0], THREADS>>>(
        (const float*)in[0], (float*)out[0], (float*)out[1], (float*)out[2], (float*)out[3], (int)size[1]);
    scan_warps<<<1, 96>>>((const int*)in[1], (int*)out[4], (int*)out[5]);
}
