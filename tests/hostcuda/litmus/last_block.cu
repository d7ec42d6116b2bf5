/*
summary: The block that finishes last adds up what all blocks have left in global memory
inputs:
  x: integers(-50, 50, 4, 64)
outputs:
  partial: zeros(4, 64, dtype=torch.int32)
  count: zeros(1, dtype=torch.int32)
  y: new(64, dtype=torch.int32)
sizes: []
expected:
  y: 2 * x.sum(0).flip(0).to(torch.int32)
arch: 70
kernel: total
macros: >
  THREADS=64 FIRST= WRITTEN= TOGETHER=__syncthreads() RELEASE=__threadfence() TICKET=atomicAdd(count,1) ACQUIRE= MET=__syncthreads() AGAIN=
pairs:
  no_fence: {broken: "RELEASE="}
  fence_of_block_scope: {broken: "RELEASE=__threadfence_block()"}
  fence_behind_the_ticket: {broken: "RELEASE= ACQUIRE=__threadfence()"}
  fence_of_the_last_block_only: {broken: "RELEASE= AGAIN=__threadfence()"}
  no_barrier_before_the_ticket: {broken: "TOGETHER="}
  only_a_warp_meets_before_the_ticket: {broken: "TOGETHER=__syncwarp()"}
  no_barrier_behind_the_ticket: {broken: "MET="}
  only_a_warp_meets_behind_the_ticket: {broken: "MET=__syncwarp()"}
  all_fence_and_do_not_meet: {sound: "WRITTEN=__threadfence() RELEASE=", broken: "TOGETHER="}
  only_one_thread_fences_its_own: {sound: "WRITTEN=__threadfence() RELEASE=", broken: "WRITTEN=if(t==0)__threadfence()"}
  all_fence_for_the_block_only: {sound: "WRITTEN=__threadfence() RELEASE=", broken: "WRITTEN=__threadfence_block()"}
  all_fence_too_early: {sound: "WRITTEN=__threadfence() RELEASE=", broken: "FIRST=__threadfence() WRITTEN="}
  wrapping_ticket: {sound: "TICKET=(int)atomicInc((unsigned*)count,gridDim.x-1)", broken: "RELEASE="}
  plain_ticket: {broken: "TICKET=(*count)++"}
  ticket_of_block_scope: {broken: "TICKET=atomicAdd_block(count,1)"}
  cuda_atomic: {sound: "RELEASE= TICKET=ref(count).fetch_add(1,cuda::memory_order_acq_rel)", broken: "TICKET=ref(count).fetch_add(1,cuda::memory_order_relaxed)"}
  cuda_atomic_that_only_acquires: {sound: "RELEASE= TICKET=ref(count).fetch_add(1,cuda::memory_order_acq_rel)", broken: "TICKET=ref(count).fetch_add(1,cuda::memory_order_acquire)"}
  ptx: {sound: "RELEASE= TICKET=add_acq_rel(count)", broken: "TICKET=add_relaxed(count)"}
  alone_no_acquire: {sound: "THREADS=1 TOGETHER= ACQUIRE=__threadfence() MET=", broken: "ACQUIRE="}
  alone_no_release: {sound: "THREADS=1 TOGETHER= ACQUIRE=__threadfence() MET=", broken: "RELEASE="}
  alone_acquires_for_the_block_only: {sound: "THREADS=1 TOGETHER= ACQUIRE=__threadfence() MET=", broken: "ACQUIRE=__threadfence_block()"}
  alone_cuda_atomic_that_only_releases: {sound: "THREADS=1 TOGETHER= MET= RELEASE= TICKET=ref(count).fetch_add(1,cuda::memory_order_acq_rel)", broken: "TICKET=ref(count).fetch_add(1,cuda::memory_order_release)"}
  alone_ptx_that_only_releases: {sound: "THREADS=1 TOGETHER= MET= RELEASE= TICKET=add_acq_rel(count)", broken: "TICKET=add_release(count)"}
*/
#include <cuda/atomic>
#include <cuda_runtime.h>

__device__ cuda::atomic_ref<int, cuda::thread_scope_device> ref(int* place) { return cuda::atomic_ref<int, cuda::thread_scope_device>(*place); }
__device__ int add_acq_rel(int* place) {
    int before;
    asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;" : "=r"(before) : "l"(place) : "memory");
    return before;
}
__device__ int add_release(int* place) {
    int before;
    asm volatile("atom.release.gpu.global.add.s32 %0, [%1], 1;" : "=r"(before) : "l"(place) : "memory");
    return before;
}
__device__ int add_relaxed(int* place) {
    int before;
    asm volatile("atom.relaxed.gpu.global.add.s32 %0, [%1], 1;" : "=r"(before) : "l"(place) : "memory");
    return before;
}

__global__ void total(const int* x, int* partial, int* count, int* y) {
    __shared__ int last;
    const int t = threadIdx.x;
    FIRST;
    for (int i = t; i < 64; i += THREADS) partial[blockIdx.x * 64 + i] = 2 * x[blockIdx.x * 64 + i];  // defect
    WRITTEN;
    TOGETHER;
    if (t == 0) {
        RELEASE;
        last = TICKET == (int)gridDim.x - 1;  // defect
        ACQUIRE;
    }
    MET;
    if (last) {  // defect
        AGAIN;
        for (int i = t; i < 64; i += THREADS) {
            int sum = 0;
            for (int b = 0; b < (int)gridDim.x; ++b) sum += partial[b * 64 + 63 - i];  // defect
            y[i] = sum;
        }
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    total<<<4, THREADS>>>((const int*)in[0], (int*)out[0], (int*)out[1], (int*)out[2]);
}
