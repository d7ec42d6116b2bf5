/*
summary: A warp hands a row to another warp of its block through shared memory, with a flag in shared memory
inputs:
  x: normal(32)
outputs:
  y: new(32)
sizes: []
expected:
  y: x.flip(0) * 2
arch: 70
kernel: rows
macros: >
  FIRST= TOGETHER=__syncwarp() RELEASE=__threadfence_block() SIGNAL=atomicExch(&flag,1) LAST=
  WAITS=lane==0 POLL=atomicAdd(&flag,0) ACQUIRE=__threadfence_block() MET=__syncwarp()
pairs:
  no_release_fence: {broken: "RELEASE="}
  fence_behind_the_flag: {broken: "RELEASE= LAST=__threadfence_block()"}
  fence_before_the_data: {broken: "FIRST=__threadfence_block() RELEASE="}
  lanes_do_not_meet_before_the_signal: {broken: "TOGETHER="}
  wider_fence: {sound: "RELEASE=__threadfence() ACQUIRE=__threadfence()", broken: "RELEASE="}
  all_fence_and_do_not_meet: {sound: "TOGETHER=__threadfence_block(),__syncwarp() RELEASE=", broken: "TOGETHER=__threadfence_block()"}
  no_acquire: {sound: "WAITS=true MET=", broken: "ACQUIRE="}
  lanes_do_not_meet_behind_the_wait: {broken: "MET="}
  acquired_by_the_warp: {sound: "ACQUIRE=", broken: "MET="}
  volatile_signal: {broken: "SIGNAL=put_volatile(&flag,1)"}
  volatile_flag: {broken: "SIGNAL=put_volatile(&flag,1) POLL=get_volatile(&flag)"}
  plain_signal: {broken: "SIGNAL=flag=1"}
  block_scope: {sound: "SIGNAL=atomicExch_block(&flag,1) POLL=atomicOr_block(&flag,0)", broken: "RELEASE="}
  swapped: {sound: "SIGNAL=atomicCAS(&flag,0,1) POLL=atomicCAS(&flag,1,1)", broken: "RELEASE="}
  cuda_atomic_store: {sound: "RELEASE= SIGNAL=ref(flag).store(1,cuda::memory_order_release)", broken: "SIGNAL=ref(flag).store(1,cuda::memory_order_relaxed)"}
  cuda_atomic_load: {sound: "WAITS=true MET= POLL=ref(flag).load(cuda::memory_order_acquire) ACQUIRE=", broken: "POLL=ref(flag).load(cuda::memory_order_relaxed)"}
  ptx_store: {sound: "RELEASE= SIGNAL=store_release(&flag,1)", broken: "SIGNAL=store_relaxed(&flag,1)"}
  ptx_load: {sound: "WAITS=true MET= POLL=load_acquire(&flag) ACQUIRE=", broken: "POLL=load_relaxed(&flag)"}
*/
#include <cuda/atomic>
#include <cuda_runtime.h>

__device__ cuda::atomic_ref<int, cuda::thread_scope_block> ref(int& place) { return cuda::atomic_ref<int, cuda::thread_scope_block>(place); }
__device__ unsigned at(const int* place) { return (unsigned)__cvta_generic_to_shared(place); }
__device__ void put_volatile(int* place, int value) { *(volatile int*)place = value; }  // defect
__device__ int get_volatile(const int* place) { return *(const volatile int*)place; }   // defect
__device__ void store_release(int* place, int value) { asm volatile("st.release.cta.shared::cta.u32 [%0], %1;" ::"r"(at(place)), "r"(value) : "memory"); }
__device__ void store_relaxed(int* place, int value) { asm volatile("st.relaxed.cta.shared::cta.u32 [%0], %1;" ::"r"(at(place)), "r"(value) : "memory"); }
__device__ int load_acquire(const int* place) {
    int value;
    asm volatile("ld.acquire.cta.shared::cta.u32 %0, [%1];" : "=r"(value) : "r"(at(place)) : "memory");
    return value;
}
__device__ int load_relaxed(const int* place) {
    int value;
    asm volatile("ld.relaxed.cta.shared::cta.u32 %0, [%1];" : "=r"(value) : "r"(at(place)) : "memory");
    return value;
}

__global__ void rows(const float* x, float* y) {
    __shared__ float data[32];
    __shared__ int flag;
    const int lane = threadIdx.x % 32;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        FIRST;
        data[lane] = 2.0f * x[lane];  // defect
        TOGETHER;
        if (lane == 0) {
            RELEASE;
            SIGNAL;  // defect
            LAST;
        }
    } else {
        if (WAITS) {
            while (POLL == 0) {  // defect
            }
            ACQUIRE;
        }
        MET;
        y[lane] = data[31 - lane];  // defect
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    rows<<<1, 64>>>((const float*)in[0], (float*)out[0]);
}
