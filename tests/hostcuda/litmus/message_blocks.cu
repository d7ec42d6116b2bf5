/*
summary: One thread hands a number to a thread of another block through global memory, by CUDA's own fences and atomics
inputs:
  x: integers(1, 1000, 1)
outputs:
  data: zeros(1, dtype=torch.int32)
  flag: zeros(1, dtype=torch.int32)
  y: new(1, dtype=torch.int32)
sizes: []
expected:
  y: x
kernel: message
macros: FIRST= RELEASE=__threadfence() SIGNAL=atomicExch(flag,1) LAST= EARLY= POLL=atomicAdd(flag,0) ACQUIRE=__threadfence()
pairs:
  no_release_fence: {broken: "RELEASE="}
  fence_behind_the_flag: {broken: "RELEASE= LAST=__threadfence()"}
  fence_before_the_data: {broken: "FIRST=__threadfence() RELEASE="}
  release_of_block_scope: {broken: "RELEASE=__threadfence_block()"}
  release_of_system_scope: {sound: "RELEASE=__threadfence_system()", broken: "RELEASE="}
  no_acquire_fence: {broken: "ACQUIRE="}
  acquire_before_the_wait: {broken: "EARLY=__threadfence() ACQUIRE="}
  acquire_of_block_scope: {broken: "ACQUIRE=__threadfence_block()"}
  data_behind_the_flag: {sound: "LATE=0", broken: "LATE=1"}
  added: {sound: "SIGNAL=atomicAdd(flag,1)", broken: "RELEASE="}
  joined: {sound: "SIGNAL=atomicOr(flag,4) POLL=atomicOr(flag,0)", broken: "ACQUIRE="}
  swapped: {sound: "SIGNAL=atomicCAS(flag,0,1) POLL=atomicCAS(flag,1,1)", broken: "RELEASE="}
  counted_down: {sound: "SIGNAL=atomicSub(flag,1) POLL=atomicMax(flag,-5)", broken: "ACQUIRE="}
  volatile_no_release: {sound: "SIGNAL=put_volatile(flag,1) POLL=get_volatile(flag)", broken: "RELEASE="}
  volatile_no_acquire: {sound: "SIGNAL=put_volatile(flag,1) POLL=get_volatile(flag)", broken: "ACQUIRE="}
  volatile_of_block_scope: {sound: "SIGNAL=put_volatile(flag,1) POLL=get_volatile(flag)", broken: "RELEASE=__threadfence_block()"}
  plain_signal: {broken: "SIGNAL=*flag=1"}
  signal_of_block_scope: {broken: "SIGNAL=atomicExch_block(flag,1)"}
  signal_of_system_scope: {sound: "SIGNAL=atomicExch_system(flag,1) POLL=atomicAdd_system(flag,0)", broken: "RELEASE="}
*/
#include <cuda_runtime.h>

__device__ void put_volatile(int* place, int value) { *(volatile int*)place = value; }
__device__ int get_volatile(const int* place) { return *(const volatile int*)place; }

__global__ void message(const int* x, int* data, int* flag, int* y) {
    if (blockIdx.x == 0) {
        FIRST;
#if !LATE
        *data = *x;  // defect
#endif
        RELEASE;
        SIGNAL;  // defect
        LAST;
#if LATE
        *data = *x;  // defect
#endif
    } else {
        EARLY;
        while (POLL == 0) {
        }
        ACQUIRE;
        *y = *data;  // defect
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    message<<<2, 1>>>((const int*)in[0], (int*)out[0], (int*)out[1], (int*)out[2]);
}
