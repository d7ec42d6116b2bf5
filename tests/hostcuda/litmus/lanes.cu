/*
summary: Lanes of a warp that exchange numbers, row after row, by __syncwarp or by flags
inputs:
  x: normal(4, 64)
outputs:
  data: zeros(64)
  y: new(4, 64)
sizes: [4]
expected:
  y: x.flip(1) * 2
arch: 70
kernel: turn
macros: >
  PLACE=held K=31 MET=__syncwarp() NEXT=__syncwarp() RELEASE=__threadfence_block() SIGNAL=atomicExch(flags+t,row+1) POLL=atomicAdd(flags+WATCHED,0) WATCHED=(t^K) ACQUIRE=__threadfence_block()
pairs:
  lanes_do_not_meet: {broken: "MET="}
  halves_meet_apart: {broken: "MET=__syncwarp(t%32<16?0xffffu:0xffff0000u)"}
  quarters_meet_apart: {sound: "K=15 MET=__syncwarp(t%32<16?0xffffu:0xffff0000u)", broken: "MET=__syncwarp(0xffu<<(t%32/8*8))"}
  halves_read_from_each_other: {sound: "K=15 MET=__syncwarp(t%32<16?0xffffu:0xffff0000u)", broken: "K=16"}
  ptx_halves_meet_apart: {sound: "MET=meet(~0u)", broken: "MET=meet(t%32<16?0xffffu:0xffff0000u)"}
  overwritten_before_it_is_read: {broken: "NEXT="}
  overwritten_behind_a_barrier_of_halves: {broken: "NEXT=__syncwarp(t%32<16?0xffffu:0xffff0000u)"}
  global_lanes_do_not_meet: {sound: "PLACE=data", broken: "MET="}
  global_overwritten_before_it_is_read: {sound: "PLACE=data", broken: "NEXT="}
  flags_without_a_release: {sound: "MET=HAND_OVER", broken: "RELEASE="}
  flags_without_an_acquire: {sound: "MET=HAND_OVER", broken: "ACQUIRE="}
  flags_of_other_lanes: {sound: "MET=HAND_OVER", broken: "WATCHED=(t^K^1)"}
  flags_by_volatile: {sound: "MET=HAND_OVER", broken: "SIGNAL=*(volatile_int*)(flags+t)=row+1"}
*/
#include <cuda_runtime.h>

using volatile_int = volatile int;
__device__ void meet(unsigned lanes) { asm volatile("bar.warp.sync %0;" ::"r"(lanes) : "memory"); }
#define HAND_OVER \
    RELEASE; \
    SIGNAL; \
    while (POLL <= row) { \
    } \
    ACQUIRE

__global__ void turn(const float* x, float* data, float* y, int rows) {
    __shared__ float held[64];
    __shared__ int flags[64];
    const int t = threadIdx.x;
    flags[t] = 0;
    held[t] = 0.0f;
    __syncthreads();
    for (int row = 0; row < rows; ++row) {
        PLACE[t] = 2.0f * x[row * 64 + 63 - (t ^ K)];  // defect
        MET;                                           // defect
        y[row * 64 + t] = PLACE[t ^ K];                // defect
        NEXT;
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    turn<<<1, 64>>>((const float*)in[0], (float*)out[0], (float*)out[1], (int)size[0]);
}
