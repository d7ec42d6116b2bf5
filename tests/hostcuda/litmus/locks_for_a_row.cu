/*
summary: A whole warp or block adds to a row under a lock that one of its threads takes
inputs:
  x: integers(1, 100, 6, 64)
outputs:
  lock: zeros(1, dtype=torch.int32)
  row: zeros(64, dtype=torch.int32)
sizes: []
expected:
  row: x.sum(0).to(torch.int32)
arch: 70
kernel: add
macros: THREADS=64 TAKES=t==0 ENTER=__threadfence() MET=__syncthreads() WRITTEN= TOGETHER=__syncthreads() GIVES=t==0 LEAVE=__threadfence()
pairs:
  no_barrier_behind_the_lock: {broken: "MET="}
  only_a_warp_meets_behind_the_lock: {broken: "MET=__syncwarp()"}
  no_barrier_before_the_unlock: {broken: "TOGETHER="}
  only_a_warp_meets_before_the_unlock: {broken: "TOGETHER=__syncwarp()"}
  no_fence_before_the_unlock: {broken: "LEAVE="}
  entered_by_barrier: {sound: "ENTER=", broken: "MET=__syncwarp()"}
  all_fence: {sound: "WRITTEN=__threadfence() LEAVE=", broken: "WRITTEN=if(t<32)__threadfence()"}
  another_thread_unlocks: {sound: "GIVES=t==40", broken: "TOGETHER=__syncwarp()"}
  warps_do_not_meet_behind_the_lock: {sound: "THREADS=32 MET=__syncwarp() TOGETHER=__syncwarp()", broken: "MET="}
  warps_do_not_meet_before_the_unlock: {sound: "THREADS=32 MET=__syncwarp() TOGETHER=__syncwarp()", broken: "TOGETHER="}
*/
#include <cuda_runtime.h>

__global__ void add(const int* x, int* lock, int* row) {
    const int t = threadIdx.x;
    if (TAKES) {
        while (atomicCAS(lock, 0, 1) != 0) {
        }
        ENTER;
    }
    MET;
    for (int i = t; i < 64; i += THREADS) row[63 - i] += x[blockIdx.x * 64 + 63 - i];  // defect
    WRITTEN;
    TOGETHER;
    if (GIVES) {
        LEAVE;
        atomicExch(lock, 0);
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    add<<<6, THREADS>>>((const int*)in[0], (int*)out[0], (int*)out[1]);
}
