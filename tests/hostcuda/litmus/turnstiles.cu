/*
summary: Blocks add their shares of a tile to the output one after another, in the order of their numbers
inputs:
  x: integers(-50, 50, 6, 64)
outputs:
  y: zeros(64, dtype=torch.int32)
  turn: zeros(2, dtype=torch.int32)
sizes: []
expected:
  y: x.sum(0).to(torch.int32)
arch: 70
kernel: add
macros: >
  ACQUIRE=__threadfence() MET=__syncthreads() FIX=y[63-t]+=share TOGETHER=__syncthreads() RELEASE=__threadfence() POLL=atomicAdd(turn,0) PASS=atomicExch(turn,b+1)
pairs:
  no_release_fence: {broken: "RELEASE="}
  no_barrier_before_the_turn_passes: {broken: "TOGETHER="}
  no_barrier_behind_the_turn: {broken: "MET="}
  release_of_block_scope: {broken: "RELEASE=__threadfence_block()"}
  volatile_turn: {sound: "POLL=*(volatile_int*)turn PASS=*(volatile_int*)turn=b+1", broken: "RELEASE="}
  plain_turn: {broken: "PASS=*turn=b+1"}
  cuda_atomic: {sound: "RELEASE= ACQUIRE= POLL=ref(turn).load(cuda::memory_order_acquire) PASS=ref(turn).store(b+1,cuda::memory_order_release)", broken: "PASS=ref(turn).store(b+1,cuda::memory_order_relaxed)"}
  in_any_order: {sound: "POLL=b FIX=atomicAdd(&y[63-t],share)", broken: "FIX=y[63-t]+=share"}
  in_any_order_for_the_block_only: {sound: "POLL=b FIX=atomicAdd(&y[63-t],share)", broken: "FIX=atomicAdd_block(&y[63-t],share)"}
*/
#include <cuda/atomic>
#include <cuda_runtime.h>

using volatile_int = volatile int;
__device__ cuda::atomic_ref<int, cuda::thread_scope_device> ref(int* place) { return cuda::atomic_ref<int, cuda::thread_scope_device>(*place); }

__global__ void add(const int* x, int* y, int* turn) {
    const int t = threadIdx.x, b = blockIdx.x, share = x[b * 64 + 63 - t];
    if (t == 0) {
        while (POLL != b) {
        }
        ACQUIRE;
    }
    MET;
    FIX;  // defect
    TOGETHER;
    if (t == 0) {
        RELEASE;
        PASS;
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    add<<<6, 64>>>((const int*)in[0], (int*)out[0], (int*)out[1]);
}
