/*
summary: What kernels use of libcu++, such as limits, arrays, tuples, operators, atomics with scopes, a thread's own pipeline
inputs:
  x: normal(64, 256)
outputs:
  most: new(64)
  counts: zeros(2, dtype=torch.int32)
  largest: full((1,), -100.0)
  doubled: new(64, 256)
  limits: new(4)
  copied: new(64, 256)
sizes: [64]
expected:
  most: x.max(1).values
  counts: torch.tensor([(x > 0).sum(), 64], dtype=torch.int32)
  largest: x.max().view(1)
  doubled: 2 * x
  copied: x
  limits: torch.tensor([65504.0, -3.3895313892515355e38, 3.4028234663852886e38, 6.0])
*/
#include <cooperative_groups.h>
#include <cub/block/block_reduce.cuh>
#include <cuda/atomic>
#include <cuda/functional>
#include <cuda/pipeline>
#include <cuda/std/array>
#include <cuda/std/functional>
#include <cuda/std/limits>
#include <cuda/std/tuple>
#include <cuda/std/type_traits>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

__global__ void rows(const float* x, float* most, int* counts, float* largest, float* doubled) {
    using Reduce = cub::BlockReduce<float, 128>;
    __shared__ typename Reduce::TempStorage storage;
    cuda::std::array<float, 2> own = {x[blockIdx.x * 256 + threadIdx.x], x[blockIdx.x * 256 + threadIdx.x + 128]};
    float best = -cuda::std::numeric_limits<float>::infinity();
    int positive = 0;
    for (float v : own) {
        best = cuda::maximum<>{}(best, v);
        if (cuda::std::greater<float>{}(v, 0.0f)) positive = cuda::std::plus<>{}(positive, 1);
    }
    cuda::atomic_ref<int, cuda::thread_scope_device>(counts[0]).fetch_add(positive, cuda::std::memory_order_relaxed);
    best = Reduce(storage).Reduce(best, cuda::maximum<>{});
    if (threadIdx.x == 0) {
        most[blockIdx.x] = best;
        cuda::atomic_ref<float, cuda::thread_scope_device>(largest[0]).fetch_max(best, cuda::std::memory_order_relaxed);
        cuda::atomic_ref<int, cuda::thread_scope_device> blocks(counts[1]);
        ++blocks;
    }

    __shared__ alignas(16) float tile[2][128];
    auto pipe = cuda::make_pipeline();
    for (int stage = 0; stage < 2; ++stage) {
        pipe.producer_acquire();
        cuda::memcpy_async(&tile[stage][threadIdx.x], &x[blockIdx.x * 256 + stage * 128 + threadIdx.x], cuda::aligned_size_t<4>(4), pipe);
        pipe.producer_commit();
    }
    for (int stage = 0; stage < 2; ++stage) {
        pipe.consumer_wait();
        __syncthreads();
        const int other = 127 - threadIdx.x;
        doubled[blockIdx.x * 256 + stage * 128 + other] = 2.0f * tile[stage][other];
        pipe.consumer_release();
    }
}

__global__ void together(const float* x, float* y) {
    __shared__ alignas(16) float tile[256];
    auto block = cooperative_groups::this_thread_block();
    cuda::pipeline<cuda::thread_scope_thread> pipe = cuda::make_pipeline();
    cuda::memcpy_async(block, tile, x + blockIdx.x * 256, cuda::aligned_size_t<16>(sizeof(tile)), pipe);
    pipe.producer_commit();
    cuda::pipeline_consumer_wait_prior<0>(pipe);
    block.sync();
    y[blockIdx.x * 256 + threadIdx.x] = tile[threadIdx.x];
}

__global__ void say_limits(float* limits) {
    limits[0] = __half2float(cuda::std::numeric_limits<__half>::max());
    limits[1] = __bfloat162float(cuda::std::numeric_limits<__nv_bfloat16>::lowest());
    limits[2] = cuda::std::numeric_limits<float>::max();
    cuda::std::tuple<int, float> pair = cuda::std::make_tuple(4, 2.0f);
    static_assert(cuda::std::is_same_v<cuda::std::remove_cv_t<const int>, int>, "");
    limits[3] = cuda::std::get<0>(pair) + cuda::std::get<1>(pair);
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    rows<<<(int)size[0], 128>>>((const float*)in[0], (float*)out[0], (int*)out[1], (float*)out[2], (float*)out[3]);
    say_limits<<<1, 1>>>((float*)out[4]);
    together<<<(int)size[0], 256>>>((const float*)in[0], (float*)out[5]);
}
