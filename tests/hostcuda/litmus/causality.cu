/*
summary: A block learns of a number and tells a third block, which has never heard of the first
inputs:
  x: normal(2)
outputs:
  data: zeros(2)
  flags: zeros(2, dtype=torch.int32)
  y: new(1)
sizes: []
expected:
  y: x[:1] * 2
arch: 70
kernel: chain
macros: >
  RELEASE=__threadfence() FIRST=atomicExch(flags,1) POLL=atomicAdd(flags,0) LEARNS=t==0 BETWEEN=__threadfence() MET= TELLS=t==0 AGAIN= OWN=
  SECOND=atomicExch(flags+1,1) ASK=atomicAdd(flags+1,0) ENOUGH=1 ACQUIRE=__threadfence()
pairs:
  first_does_not_release: {broken: "RELEASE="}
  middle_has_no_fence: {broken: "BETWEEN="}
  middle_of_block_scope: {broken: "BETWEEN=__threadfence_block()"}
  last_does_not_acquire: {broken: "ACQUIRE="}
  middle_does_not_acquire: {sound: "BETWEEN= POLL=load(flags,cuda::memory_order_acquire) SECOND=store(flags+1,cuda::memory_order_release)", broken: "POLL=load(flags,cuda::memory_order_relaxed)"}
  middle_does_not_release: {sound: "BETWEEN= POLL=load(flags,cuda::memory_order_acquire) SECOND=store(flags+1,cuda::memory_order_release)", broken: "SECOND=store(flags+1,cuda::memory_order_relaxed)"}
  another_thread_of_the_middle_tells: {sound: "BETWEEN= MET=__syncthreads() TELLS=t==32 AGAIN=__threadfence()", broken: "MET="}
  another_thread_of_the_middle_does_not_fence: {sound: "BETWEEN= MET=__syncthreads() TELLS=t==32 AGAIN=__threadfence()", broken: "AGAIN="}
  middle_meets_as_warps_only: {sound: "BETWEEN= MET=__syncthreads() TELLS=t==32 AGAIN=__threadfence()", broken: "MET=__syncwarp()"}
  middle_only_counts: {sound: "BETWEEN= SECOND=atomicAdd(flags,1) ASK=atomicAdd(flags,0) ENOUGH=2", broken: "OWN=+data[1]"}
*/
#include <cuda/atomic>
#include <cuda_runtime.h>

__device__ int load(int* place, cuda::memory_order order) { return cuda::atomic_ref<int, cuda::thread_scope_device>(*place).load(order); }
__device__ void store(int* place, cuda::memory_order order) { cuda::atomic_ref<int, cuda::thread_scope_device>(*place).store(1, order); }

__global__ void chain(const float* x, float* data, int* flags, float* y) {
    const int t = threadIdx.x;
    if (blockIdx.x == 0) {
        if (t != 0) return;
        data[0] = 2.0f * x[0];  // defect
        RELEASE;
        FIRST;
    } else if (blockIdx.x == 1) {
        if (t == 0) data[1] = x[1];  // defect
        if (LEARNS) {
            while (POLL == 0) {
            }
            BETWEEN;
        }
        MET;
        if (TELLS) {
            AGAIN;
            SECOND;
        }
    } else {
        if (t != 0) return;
        while (ASK < ENOUGH) {
        }
        ACQUIRE;
        y[0] = data[0] OWN;  // defect
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    chain<<<3, 64>>>((const float*)in[0], (float*)out[0], (int*)out[1], (float*)out[2]);
}
