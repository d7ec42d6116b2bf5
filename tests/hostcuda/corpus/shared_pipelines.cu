/*
summary: Pipelines that a block shares, with all threads on both ends, with some that copy and some that add, and by roles
inputs:
  x: normal(3, 1024)
outputs:
  together: new(3)
  counted: new(3)
  by_role: new(3)
sizes: [3, 1024]
expected:
  together: x.sum(1)
  counted: x.sum(1)
  by_role: x.sum(1)
tolerance: 1.0e-5
*/
#include <cooperative_groups.h>
#include <cuda/pipeline>
#include <cuda_runtime.h>
#pragma nv_diag_suppress static_var_with_dynamic_init

namespace cg = cooperative_groups;
constexpr int threads = 64, stages = 2;

__device__ void add_up(float sum, float* held, float* to) {
    held[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 1; i < threads; i++) sum += held[i];
    *to = sum;
}

// The next stage is under way while one is added up.
__global__ void together(const float* x, float* sums, int columns) {
    __shared__ float buffer[stages][threads], held[threads];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    const float* row = x + blockIdx.x * columns;
    const int steps = columns / threads;
    float sum = 0.0f;
    for (int step = 0, fetched = 0; step < steps; step++) {
        for (; fetched < steps && fetched < step + stages; fetched++) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, buffer[fetched % stages], row + fetched * threads, sizeof(float) * threads, pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        sum += buffer[step % stages][threads - 1 - threadIdx.x];
        pipe.consumer_release();
    }
    add_up(sum, held, &sums[blockIdx.x]);
}

template <class Pipeline> __device__ float apart(Pipeline& pipe, float (&buffer)[stages][threads], const float* row, int steps, bool copies) {
    float sum = 0.0f;
    for (int step = 0; step < steps; step++)
        if (copies) {
            pipe.producer_acquire();
            for (int i = threadIdx.x; i < threads; i += 32)
                cuda::memcpy_async(&buffer[step % stages][i], &row[step * threads + i], sizeof(float), pipe);
            pipe.producer_commit();
        } else {
            pipe.consumer_wait();
            for (int i = threadIdx.x - 32; i < threads; i += 32) sum += buffer[step % stages][i];
            pipe.consumer_release();
        }
    return sum;
}

__global__ void counted(const float* x, float* sums, int columns) {
    __shared__ float buffer[stages][threads], held[threads];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
    auto pipe = cuda::make_pipeline(cg::this_thread_block(), &state, 32);
    add_up(apart(pipe, buffer, x + blockIdx.x * columns, columns / threads, threadIdx.x < 32), held, &sums[blockIdx.x]);
}

__global__ void by_role(const float* x, float* sums, int columns) {
    __shared__ float buffer[stages][threads], held[threads];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
    const auto role = threadIdx.x < 32 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
    auto pipe = cuda::make_pipeline(cg::this_thread_block(), &state, role);
    add_up(apart(pipe, buffer, x + blockIdx.x * columns, columns / threads, threadIdx.x < 32), held, &sums[blockIdx.x]);
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const float* x = static_cast<const float*>(in[0]);
    together<<<size[0], threads>>>(x, static_cast<float*>(out[0]), size[1]);
    counted<<<size[0], threads>>>(x, static_cast<float*>(out[1]), size[1]);
    by_role<<<size[0], threads>>>(x, static_cast<float*>(out[2]), size[1]);
}
