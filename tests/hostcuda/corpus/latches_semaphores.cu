/*
summary: Latches and semaphores of libcu++ in shared and in global memory, within a block and between blocks
inputs:
  x: normal(8, 96)
outputs:
  turned: new(8, 96)
  total: zeros(8)
  bounded: zeros(3, dtype=torch.int32)
  passed: new(96)
  sums: new(8)
sizes: [96]
expected:
  turned: x.flip(1) * 2
  total: x.sum(0)[:8]
  bounded: torch.tensor([0, 1, 96]).int()
  passed: x[0].flip(0)
  sums: x.sum(1).cumsum(0)
tolerance: 1.0e-5
*/
#include <cuda/atomic>
#include <cuda/latch>
#include <cuda/semaphore>
#include <cuda/std/latch>
#include <cuda/std/semaphore>
#include <cuda_runtime.h>

#include <new>

using Latch = cuda::latch<cuda::thread_scope_block>;
constexpr int threads = 96;

// All write, all read what others wrote: nobody goes on before everybody has come, some of them twice.
__global__ void turn(const float* x, float* turned) {
    __shared__ alignas(Latch) unsigned char raw[2 * sizeof(Latch)];
    Latch* all = reinterpret_cast<Latch*>(raw);
    __shared__ float held[threads];
    if (threadIdx.x == 0) {
        new (&all[0]) Latch(threads);
        new (&all[1]) Latch(threads + 1);
    }
    __syncthreads();
    const int row = blockIdx.x * threads;
    held[threadIdx.x] = x[row + threadIdx.x];
    all[0].arrive_and_wait();
    const float other = held[threads - 1 - threadIdx.x];
    all[1].count_down(threadIdx.x == 5 ? 2 : 1);
    while (!all[1].try_wait()) {
    }
    held[threadIdx.x] = other * 2.0f;
    __syncwarp();
    turned[row + threadIdx.x] = held[threadIdx.x];
}

// One after another of all blocks adds plainly to the same numbers.
__device__ cuda::binary_semaphore<cuda::thread_scope_device> one(1);
__global__ void add(const float* x, float* total) {
    if (threadIdx.x != 0) return;
    one.acquire();
    for (int i = 0; i < 8; i++) total[i] += x[blockIdx.x * threads + i];
    one.release();
}

// At most three threads at a time are inside.
__global__ void bound(int* bounded) {
    using Semaphore = cuda::counting_semaphore<cuda::thread_scope_block, 3>;
    __shared__ alignas(Semaphore) unsigned char raw[sizeof(Semaphore)];
    Semaphore& inside = *reinterpret_cast<Semaphore*>(raw);
    __shared__ int now, too_many;
    if (threadIdx.x == 0) {
        new (&inside) Semaphore(3);
        now = too_many = 0;
    }
    __syncthreads();
    inside.acquire();
    if (atomicAdd(&now, 1) >= 3) atomicAdd(&too_many, 1);
    __nanosleep(20);
    atomicSub(&now, 1);
    inside.release();
    __syncthreads();
    atomicAdd(&bounded[2], 1);
    if (threadIdx.x != 0) return;
    bounded[0] = too_many;
    for (int i = 0; i < 3; i++) bounded[1] += inside.try_acquire();
    bounded[1] -= inside.try_acquire() ? 5 : 2;
}

// A buffer of one number passes from the first warp to the second.
__global__ void pass(const float* x, float* passed) {
    using Semaphore = cuda::std::counting_semaphore<4>;
    __shared__ alignas(Semaphore) unsigned char raw[2 * sizeof(Semaphore)];
    Semaphore* free = reinterpret_cast<Semaphore*>(raw);
    Semaphore* full = free + 1;
    __shared__ float ring[4];
    if (threadIdx.x == 0) {
        new (free) Semaphore(4);
        new (full) Semaphore(0);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 0; i < threads; i++) {
            free->acquire();
            ring[i % 4] = x[i];
            full->release();
        }
    } else if (threadIdx.x == 32) {
        for (int i = 0; i < threads; i++) {
            full->acquire();
            passed[threads - 1 - i] = ring[i % 4];
            free->release(1);
        }
    }
}

// Each block counts down the latch of its own row in global memory, and adds the rows before it.
__global__ void rows(const float* x, float* sums, cuda::std::latch* done) {
    __shared__ float own[threads];
    own[threadIdx.x] = x[blockIdx.x * threads + threadIdx.x];
    __syncthreads();
    if (threadIdx.x != 0) return;
    float sum = 0.0f;
    for (int i = 0; i < threads; i++) sum += own[i];
    if (blockIdx.x > 0) {
        done[blockIdx.x - 1].wait();
        sum += sums[blockIdx.x - 1];
    }
    sums[blockIdx.x] = sum;
    done[blockIdx.x].count_down();
}
__global__ void prepare(cuda::std::latch* done) { new (&done[threadIdx.x]) cuda::std::latch(1); }

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const float* x = static_cast<const float*>(in[0]);
    turn<<<8, threads>>>(x, static_cast<float*>(out[0]));
    add<<<8, 32>>>(x, static_cast<float*>(out[1]));
    bound<<<1, threads>>>(static_cast<int*>(out[2]));
    pass<<<1, 64>>>(x, static_cast<float*>(out[3]));
    cuda::std::latch* done;
    cudaMalloc(&done, 8 * sizeof(cuda::std::latch));
    prepare<<<1, 8>>>(done);
    rows<<<8, threads>>>(x, static_cast<float*>(out[4]), done);
    cudaFree(done);
}
