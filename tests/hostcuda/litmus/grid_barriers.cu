/*
summary: Barriers of the whole grid that a kernel makes of counters
inputs:
  x: normal(4, 64)
outputs:
  data: zeros(4, 64)
  count: zeros(3, dtype=torch.int32)
  y: new(4, 64)
  z: new(4, 64)
sizes: []
expected:
  y: x.roll(-1, 0).flip(1) * 2
  z: x.roll(1, 0) * 3
arch: 70
kernel: steps
macros: >
  TOGETHER=__syncthreads() RELEASE=__threadfence() ARRIVE=atomicAdd(count,1) POLL=atomicAdd(count,0) ACQUIRE=__threadfence() MET=__syncthreads() SECOND=meet(count+1,blocks)
pairs:
  no_release_fence: {broken: "RELEASE="}
  fence_behind_the_arrival: {sound: "POLL=*(volatile_int*)count", broken: "RELEASE= ARRIVE=atomicAdd(count,1),__threadfence()"}
  release_of_block_scope: {broken: "RELEASE=__threadfence_block()"}
  no_barrier_before_the_arrival: {broken: "TOGETHER="}
  only_a_warp_meets_before_the_arrival: {broken: "TOGETHER=__syncwarp()"}
  no_barrier_behind_the_wait: {broken: "MET="}
  only_a_warp_meets_behind_the_wait: {broken: "MET=__syncwarp()"}
  left_by_barrier: {sound: "ACQUIRE=", broken: "RELEASE="}
  volatile_poll: {sound: "POLL=*(volatile_int*)count", broken: "RELEASE="}
  arrival_of_block_scope: {broken: "ARRIVE=atomicAdd_block(count,1)"}
  cuda_atomic_arrival: {sound: "RELEASE= ACQUIRE= ARRIVE=ref(count).fetch_add(1,cuda::memory_order_release) POLL=ref(count).load(cuda::memory_order_acquire)", broken: "ARRIVE=ref(count).fetch_add(1,cuda::memory_order_relaxed)"}
  ptx_arrival: {sound: "RELEASE= ACQUIRE= ARRIVE=add_release(count) POLL=load_acquire(count)", broken: "ARRIVE=add_relaxed(count)"}
  overwritten_without_a_second_barrier: {broken: "SECOND="}
  overwritten_behind_a_barrier_of_the_block: {broken: "SECOND=__syncthreads()"}
*/
#include <cuda/atomic>
#include <cuda_runtime.h>

using volatile_int = volatile int;
__device__ cuda::atomic_ref<int, cuda::thread_scope_device> ref(int* place) { return cuda::atomic_ref<int, cuda::thread_scope_device>(*place); }
__device__ void add_release(int* place) { asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(place) : "memory"); }
__device__ void add_relaxed(int* place) { asm volatile("red.relaxed.gpu.global.add.s32 [%0], 1;" ::"l"(place) : "memory"); }
__device__ int load_acquire(const int* place) {
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(place) : "memory");
    return value;
}

__device__ void meet(int* count, int all) {
    TOGETHER;
    if (threadIdx.x == 0) {
        RELEASE;
        ARRIVE;  // defect
        while (POLL < all) {  // defect
        }
        ACQUIRE;
    }
    MET;
}

__global__ void steps(const float* x, float* data, int* count, float* y, float* z) {
    const int t = threadIdx.x, b = blockIdx.x, blocks = gridDim.x;
    data[b * 64 + t] = 2.0f * x[b * 64 + t];  // defect
    meet(count, blocks);
    y[b * 64 + t] = data[(b + 1) % blocks * 64 + 63 - t];  // defect
    SECOND;
    data[b * 64 + t] = 3.0f * x[b * 64 + t];  // defect
    meet(count + 2, blocks);
    z[b * 64 + t] = data[(b + 3) % blocks * 64 + t];  // defect
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    steps<<<4, 64>>>((const float*)in[0], (float*)out[0], (int*)out[1], (float*)out[2], (float*)out[3]);
}
