/*
summary: Barriers in shared memory by PTX, by libcu++'s names and by C names, with cp.async and bulk copies bound to them
inputs:
  x: normal(8, 256)
outputs:
  rows: new(8, 256)
  named: new(8, 256)
  device: new(8, 256)
  bound: new(2, 256)
  counts: new(4)
sizes: [8]
arch: 90
expected:
  rows: x.flip(1) + 1
  named: x.flip(1) * 3
  device: x * 2 + 1
  bound: x[:2].flip(1)
  counts: torch.tensor([64.0, 63.0, 0.0, 1.0])
*/
#include <cuda/barrier>
#include <cuda/ptx>
#include <cuda_awbarrier_primitives.h>
#include <cuda_pipeline_primitives.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <utility>
#pragma nv_diag_suppress static_var_with_dynamic_init

namespace ptx = cuda::ptx;
constexpr int columns = 256;

__device__ uint32_t place(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// Two rows under way; a producer warp's first lane fetches, three consumer warps turn the row round and store it in bulk.
__global__ void by_ptx(const float* x, float* y, int rows) {
    __shared__ alignas(128) float in[2][columns], out[columns];
    __shared__ uint64_t full[2], empty[2];
    if (threadIdx.x == 0) {
        for (int s = 0; s < 2; ++s) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(place(&full[s])) : "memory");
            asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(place(&empty[s])), "r"(96) : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int row = 0; row < rows; ++row) {
            const int s = row & 1;
            if (row >= 2) {
                const uint32_t parity = ((row >> 1) - 1) & 1;
                asm volatile(
                    "{\n.reg .pred done;\nagain:\n mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1, 1000;\n @!done bra again;\n}\n" ::"r"(place(&empty[s])),
                    "r"(parity)
                    : "memory");
            }
            asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(place(&full[s])), "n"(columns * 4) : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(place(in[s])), "l"(x + row * columns),
                         "r"(columns * 4), "r"(place(&full[s]))
                         : "memory");
        }
    } else if (threadIdx.x >= 32) {
        for (int row = 0; row < rows; ++row) {
            const int s = row & 1;
            uint32_t ready = 0;
            while (!ready)
                asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(ready) : "r"(place(&full[s])), "r"((row >> 1) & 1) : "memory");
            for (int i = threadIdx.x - 32; i < columns; i += 96) out[i] = in[s][columns - 1 - i] + 1.0f;
            uint64_t state;
            asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(place(&empty[s])) : "memory");
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            asm volatile("bar.sync 1, 96;" ::: "memory");
            if (threadIdx.x == 32) {
                asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(y + row * columns), "r"(place(out)), "r"(columns * 4) : "memory");
                asm volatile("cp.async.bulk.commit_group;" ::: "memory");
                asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
            }
            asm volatile("bar.sync 1, 96;" ::: "memory");
        }
    }
}

// A row a block, with the names of <cuda/ptx>.
__global__ void by_name(const float* x, float* y) {
    __shared__ alignas(16) float held[columns];
    __shared__ uint64_t bar;
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(&bar, blockDim.x);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    __syncthreads();
    uint64_t token;
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, held, x + blockIdx.x * columns, sizeof(held), &bar);
        token = ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &bar, sizeof(held));
    } else {
        token = ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &bar);
    }
    const uint32_t nanoseconds = 1000;
    while (!ptx::mbarrier_try_wait(&bar, token, nanoseconds)) {}
    for (int i = threadIdx.x; i < columns; i += blockDim.x) y[blockIdx.x * columns + i] = 3.0f * held[columns - 1 - i];
}

// The same by libcu++'s barrier, and back in bulk.
__global__ void by_barrier(const float* x, float* y) {
    __shared__ alignas(16) float held[columns];
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    if (threadIdx.x == 0) {
        init(&bar, blockDim.x);
        ptx::fence_proxy_async(ptx::space_shared);
    }
    __syncthreads();
    cuda::barrier<cuda::thread_scope_block>::arrival_token token;
    if (threadIdx.x == 0) {
        cuda::device::memcpy_async_tx(held, x + blockIdx.x * columns, cuda::aligned_size_t<16>(sizeof(held)), bar);
        token = cuda::device::barrier_arrive_tx(bar, 1, sizeof(held));
    } else {
        token = bar.arrive(1);
    }
    bar.wait(std::move(token));
    for (int i = threadIdx.x; i < columns; i += blockDim.x) held[i] = 2.0f * held[i] + 1.0f;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, y + blockIdx.x * columns, held, sizeof(held));
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
    }
}

// What each thread copies by cp.async is bound to the barrier in both ways that PTX has, or by the C names.
__global__ void bound(const float* x, float* y) {
    __shared__ alignas(16) float held[2][columns];
    __shared__ uint64_t bar[2];
    const int t = threadIdx.x;
    if (t < 2) __mbarrier_init(&bar[t], t == 0 ? blockDim.x : 2 * blockDim.x);
    __syncthreads();
    for (int k = 0; k < 2; ++k) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place(&held[k][4 * t])), "l"(x + k * columns + 4 * t) : "memory");
        if (k == 0) __pipeline_arrive_on(&bar[0]);
        else asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(place(&bar[1])) : "memory");
        const __mbarrier_token_t token = __mbarrier_arrive(&bar[k]);
        while (!__mbarrier_test_wait(&bar[k], token)) {}
        for (int i = t; i < columns; i += blockDim.x) y[k * columns + i] = held[k][columns - 1 - i];
    }
}

__global__ void counts(float* y) {
    __shared__ uint64_t bar;
    if (threadIdx.x == 0) __mbarrier_init(&bar, 64);
    __syncthreads();
    if (threadIdx.x != 0) return;
    const __mbarrier_token_t first = __mbarrier_arrive(&bar);
    uint64_t second;
    uint32_t left;
    asm volatile("mbarrier.arrive.noComplete.shared::cta.b64 %0, [%1], 62;" : "=l"(second) : "r"(place(&bar)) : "memory");
    asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(left) : "l"(second));
    y[0] = static_cast<float>(__mbarrier_token_pending_count(first));
    y[1] = static_cast<float>(left);
    y[2] = __mbarrier_test_wait(&bar, first);
    asm volatile("{ .reg .b64 t; mbarrier.arrive_drop.shared::cta.b64 t, [%0]; }" ::"r"(place(&bar)) : "memory");
    y[3] = __mbarrier_test_wait(&bar, first);
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const float* x = static_cast<const float*>(in[0]);
    by_ptx<<<1, 128>>>(x, static_cast<float*>(out[0]), static_cast<int>(size[0]));
    by_name<<<size[0], 64>>>(x, static_cast<float*>(out[1]));
    by_barrier<<<size[0], 64>>>(x, static_cast<float*>(out[2]));
    bound<<<1, columns / 4>>>(x, static_cast<float*>(out[3]));
    counts<<<1, 64>>>(static_cast<float*>(out[4]));
}
