/*
summary: The warp that finishes last adds up what all warps of its block have left in shared memory
inputs:
  x: integers(-50, 50, 4, 32)
outputs:
  y: zeros(32, dtype=torch.int32)
sizes: []
expected:
  y: x.sum(0).flip(0).to(torch.int32)
arch: 70
kernel: total
macros: >
  TOGETHER=__syncwarp() RELEASE=__threadfence_block() TICKET=atomicAdd(&count,1) ACQUIRE=__threadfence_block() MET=__syncwarp()
pairs:
  no_fence: {broken: "RELEASE="}
  lanes_do_not_meet_before_the_ticket: {broken: "TOGETHER="}
  plain_ticket: {broken: "TICKET=count++"}
  volatile_ticket: {broken: "TICKET=(*(volatile_int*)&count)++"}
  ticket_of_block_scope: {sound: "TICKET=atomicAdd_block(&count,1)", broken: "RELEASE="}
  cuda_atomic: {sound: "RELEASE= TICKET=ref(count).fetch_add(1,cuda::memory_order_acq_rel)", broken: "TICKET=ref(count).fetch_add(1,cuda::memory_order_relaxed)"}
  cuda_atomic_that_only_acquires: {sound: "RELEASE= TICKET=ref(count).fetch_add(1,cuda::memory_order_acq_rel)", broken: "TICKET=ref(count).fetch_add(1,cuda::memory_order_acquire)"}
*/
#include <cuda/atomic>
#include <cuda_runtime.h>

using volatile_int = volatile int;
__device__ cuda::atomic_ref<int, cuda::thread_scope_block> ref(int& place) { return cuda::atomic_ref<int, cuda::thread_scope_block>(place); }

__global__ void total(const int* x, int* y) {
    __shared__ int partial[4][32];
    __shared__ int count;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    partial[warp][lane] = x[warp * 32 + lane];  // defect
    TOGETHER;
    int ticket = 0;
    if (lane == 0) {
        RELEASE;
        ticket = TICKET;  // defect
        ACQUIRE;
    }
    ticket = __shfl_sync(~0u, ticket, 0);
    MET;
    if (ticket == 3) {
        int sum = 0;
        for (int w = 0; w < 4; ++w) sum += partial[w][31 - lane];  // defect
        y[lane] = sum;
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    total<<<1, 128>>>((const int*)in[0], (int*)out[0]);
}
