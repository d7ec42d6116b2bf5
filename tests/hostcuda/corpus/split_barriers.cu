/*
summary: Barriers that threads arrive at and wait for separately, with producers and consumers, threads that drop out, and completions
inputs:
  x: normal(4, 1000)
outputs:
  sums: new(4)
  turned: new(256)
  steps: new(96)
sizes: [4, 1000]
expected:
  sums: x.sum(1)
  turned: x.flatten()[:256].flip(0) * 3
  steps: torch.cat([torch.full((32,), 1.0), torch.full((64,), 3.0)])
tolerance: 1.0e-5
*/
#include <cuda/barrier>
#include <cuda_runtime.h>

#include <utility>
#pragma nv_diag_suppress static_var_with_dynamic_init

using Barrier = cuda::barrier<cuda::thread_scope_block>;
constexpr int threads = 128, adders = threads - 32, tile = 192, stages = 3;

// One warp copies ahead, three add: a barrier tells what is full, another what is empty.
__global__ void sum_rows(const float* x, float* sums, int columns) {
    __shared__ float buffer[stages][tile];
    __shared__ float warps[adders / 32];
    __shared__ alignas(Barrier) unsigned char raw[2 * stages * sizeof(Barrier)];
    Barrier* full = reinterpret_cast<Barrier*>(raw);
    Barrier* empty = full + stages;
    if (threadIdx.x == 0)
        for (int s = 0; s < stages; s++) {
            init(&full[s], threads);
            init(&empty[s], threads);
        }
    __syncthreads();
    const float* row = x + blockIdx.x * columns;
    const int steps = (columns + tile - 1) / tile;
    float sum = 0.0f;
    if (threadIdx.x < 32) {
        for (int step = 0; step < steps; step++) {
            const int s = step % stages, first = step * tile;
            empty[s].arrive_and_wait();
            for (int i = threadIdx.x; i < tile && first + i < columns; i += 32)
                cuda::memcpy_async(&buffer[s][i], &row[first + i], cuda::aligned_size_t<4>(sizeof(float)), full[s]);
            (void)full[s].arrive();
        }
    } else {
        for (int s = 0; s < stages; s++) (void)empty[s].arrive();
        for (int step = 0; step < steps; step++) {
            const int s = step % stages, count = min(tile, columns - step * tile);
            full[s].wait(full[s].arrive());
            for (int i = threadIdx.x - 32; i < count; i += adders) sum += buffer[s][i];
            if (step + stages < steps) (void)empty[s].arrive();
        }
        for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32 - 1] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) sums[blockIdx.x] = warps[0] + warps[1] + warps[2];
}

// Work that depends on nobody between arriving and waiting.
__global__ void turn(const float* x, float* turned) {
    __shared__ Barrier all;
    __shared__ float held[256];
    if (threadIdx.x == 0) init(&all, blockDim.x);
    __syncthreads();
    held[threadIdx.x] = x[threadIdx.x];
    Barrier::arrival_token token = all.arrive();
    const float factor = 1.0f + 2.0f;
    all.wait(std::move(token));
    turned[threadIdx.x] = held[255 - threadIdx.x] * factor;
}

// The first warp leaves after one phase, the others have two more.
__global__ void drop(float* steps) {
    __shared__ Barrier all;
    __shared__ int phases;
    if (threadIdx.x == 0) {
        init(&all, blockDim.x);
        phases = 0;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        steps[threadIdx.x] = 1.0f;
        all.arrive_and_drop();
        return;
    }
    all.arrive_and_wait();
    for (int phase = 1; phase < 3; phase++) {
        if (threadIdx.x == 32) phases = phase;
        (void)all.arrive();
        all.wait_parity(phase & 1);
    }
    steps[threadIdx.x] = phases + 1.0f;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const float* x = static_cast<const float*>(in[0]);
    sum_rows<<<size[0], threads>>>(x, static_cast<float*>(out[0]), size[1]);
    turn<<<1, 256>>>(x, static_cast<float*>(out[1]));
    drop<<<1, 96>>>(static_cast<float*>(out[2]));
}
