/*
summary: A block hands a row to another block through global memory, with one flag or several
inputs:
  x: normal(64)
outputs:
  data: zeros(64)
  flag: zeros(1, dtype=torch.int32)
  y: new(64)
sizes: []
expected:
  y: x.flip(0) * 2
arch: 70
kernel: rows
macros: >
  FIRST= WRITTEN= TOGETHER=__syncthreads() BEHIND= SIGNALS=t==0 RELEASE=__threadfence()
  EARLY= WAITS=t==0 COUNT=1 ACQUIRE=__threadfence() MET=__syncthreads()
pairs:
  no_release_fence: {broken: "RELEASE="}
  release_of_block_scope: {broken: "RELEASE=__threadfence_block()"}
  no_barrier_before_the_signal: {broken: "TOGETHER="}
  only_a_warp_meets_before_the_signal: {broken: "TOGETHER=__syncwarp()"}
  only_a_warp_votes_before_the_signal: {sound: "TOGETHER=__syncthreads_or(t)", broken: "TOGETHER=__any_sync(~0u,t)"}
  another_thread_fences: {broken: "RELEASE= BEHIND=if(t==1)__threadfence()"}
  only_the_signaller_fences_its_own: {sound: "WRITTEN=__threadfence() RELEASE=", broken: "WRITTEN=if(t==0)__threadfence()"}
  only_a_warp_fences: {sound: "WRITTEN=__threadfence() RELEASE=", broken: "WRITTEN=if(t<32)__threadfence()"}
  all_fence_for_the_block_only: {sound: "WRITTEN=__threadfence() RELEASE=", broken: "WRITTEN=__threadfence_block()"}
  all_fence_and_do_not_meet: {sound: "WRITTEN=__threadfence() RELEASE=", broken: "TOGETHER="}
  all_fence_too_early: {sound: "WRITTEN=__threadfence() RELEASE=", broken: "FIRST=__threadfence() WRITTEN="}
  named_barrier_of_a_warp: {sound: "TOGETHER=NAMED(1,64)", broken: "TOGETHER=NAMED(1+warp,32)"}
  no_barrier_behind_the_wait: {broken: "MET="}
  only_a_warp_meets_behind_the_wait: {broken: "MET=__syncwarp()"}
  barrier_before_the_wait: {broken: "EARLY=__syncthreads() MET="}
  acquired_by_barrier: {sound: "ACQUIRE=", broken: "MET=__syncwarp()"}
  named_barrier_behind_the_wait: {sound: "MET=NAMED(1,64)", broken: "MET=NAMED(1+warp,32)"}
  every_thread_waits: {sound: "WAITS=true MET=", broken: "ACQUIRE="}
  a_lane_of_each_warp_waits: {sound: "WAITS=lane==0 MET=__syncwarp()", broken: "WAITS=t==0"}
  lanes_do_not_meet_behind_the_wait: {sound: "WAITS=lane==0 MET=__syncwarp()", broken: "MET="}
  a_lane_of_each_warp_signals: {sound: "TOGETHER=__syncwarp() SIGNALS=lane==0 COUNT=2", broken: "TOGETHER="}
  every_thread_signals: {sound: "TOGETHER= SIGNALS=true COUNT=64", broken: "RELEASE="}
  half_of_the_signallers_fence: {sound: "TOGETHER= SIGNALS=true COUNT=64", broken: "RELEASE=if(lane<16)__threadfence()"}
*/
#include <cuda_runtime.h>

#define NAMED(number, count) asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(count) : "memory")

__global__ void rows(const float* x, float* data, int* flag, float* y) {
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    if (blockIdx.x == 0) {
        FIRST;
        data[t] = 2.0f * x[t];  // defect
        WRITTEN;
        TOGETHER;
        BEHIND;
        if (SIGNALS) {
            RELEASE;
            atomicAdd(flag, 1);
        }
    } else {
        EARLY;
        if (WAITS) {
            while (atomicAdd(flag, 0) < COUNT) {
            }
            ACQUIRE;
        }
        MET;
        y[t] = data[63 - t];  // defect
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    rows<<<2, 64>>>((const float*)in[0], (float*)out[0], (int*)out[1], (float*)out[2]);
}
