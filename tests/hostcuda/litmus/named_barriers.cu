/*
summary: Parts of a block that meet at numbered barriers
inputs:
  x: normal(4, 64)
outputs:
  y: new(4, 64)
sizes: [4]
expected:
  y: x.flip(1) * 2
arch: 70
kernel: turn
macros: >
  WAY=0 NUMBER=1 COUNT=128 FIRST= WRITTEN=SYNC(NUMBER,COUNT) WAIT=SYNC(NUMBER,COUNT) EARLY= DONE=ARRIVE(2,128) FREED=SYNC(2,128)
pairs:
  halves_meet_apart: {broken: "COUNT=64 NUMBER=1+half"}
  writers_only_arrive: {sound: "WRITTEN=ARRIVE(1,128)", broken: "WRITTEN= FIRST=ARRIVE(1,128)"}
  readers_only_arrive: {broken: "WAIT=ARRIVE(1,128)"}
  votes: {sound: "WRITTEN=VOTE(NUMBER,COUNT) WAIT=VOTE(NUMBER,COUNT)", broken: "COUNT=64 NUMBER=3+half"}
  barriers_that_need_no_convergence: {sound: "WRITTEN=MEET(NUMBER,COUNT) WAIT=MEET(NUMBER,COUNT)", broken: "COUNT=64 NUMBER=5+half"}
  more_are_waited_for_than_come: {broken: "COUNT=160", status: barrier_error}
  each_half_waits_for_all: {broken: "NUMBER=1+half", status: barrier_error}
  overwritten_behind_a_barrier_of_half: {sound: "WAY=1", broken: "COUNT=64 NUMBER=1+half"}
  overwritten_behind_an_arrival: {sound: "WAY=1", broken: "WRITTEN=ARRIVE(1,128)"}
  freed_before_it_is_read: {sound: "WAY=2", broken: "EARLY=DONE_IF DONE="}
  filled_before_it_is_written: {sound: "WAY=2 WRITTEN=ARRIVE(1,128)", broken: "WRITTEN= FIRST=ARRIVE(1,128)"}
*/
#include <cuda_runtime.h>

#define SYNC(number, count) asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(count) : "memory")
#define ARRIVE(number, count) asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(count) : "memory")
#define MEET(number, count) asm volatile("barrier.sync %0, %1;" ::"r"(number), "r"(count) : "memory")
#define VOTE(number, threads) \
    asm volatile("{ .reg .pred p; setp.gt.s32 p, %1, 0; bar.red.popc.u32 %0, %2, %3, p; }" : "=r"(votes) : "r"(t), "r"(number), "r"(threads) : "memory")
#define DONE_IF if (row + 1 < rows) ARRIVE(2, 128)

__global__ void turn(const float* x, float* y, int rows) {
    __shared__ float held[64];
    const int half = threadIdx.x / 64, t = threadIdx.x % 64;
    int votes = 0;
#if WAY == 0
    // One half writes, the other reads.
    for (int row = 0; row < rows; ++row) {
        if (half == 0) {
            FIRST;
            held[t] = 2.0f * x[row * 64 + t];  // defect
            WRITTEN;                           // defect
        } else {
            WAIT;                              // defect
            y[row * 64 + t] = held[63 - t];    // defect
        }
        __syncthreads();
    }
#elif WAY == 1
    // All have the first row; one half overwrites it when the other has read it.
    if (half == 0) held[t] = 2.0f * x[t];
    __syncthreads();
    if (half == 1) {
        y[t] = held[63 - t];  // defect
        WAIT;
    } else {
        WRITTEN;
        held[t] = 2.0f * x[64 + t];  // defect
    }
    __syncthreads();
    if (half == 1) {
        y[64 + t] = held[63 - t];
        for (int row = 2; row < rows; ++row) y[row * 64 + t] = 2.0f * x[row * 64 + 63 - t];
    }
#else
    // One half writes row after row, the other reads them: barrier 1 when a row is there, 2 when its place is free.
    for (int row = 0; row < rows; ++row) {
        if (half == 0) {
            if (row > 0) FREED;
            FIRST;
            held[t] = 2.0f * x[row * 64 + t];  // defect
            WRITTEN;
        } else {
            WAIT;
            EARLY;
            y[row * 64 + t] = held[63 - t];  // defect
            if (row + 1 < rows) {
                DONE;
            }
        }
    }
#endif
    if (votes < 0) y[t] = 0.0f;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    turn<<<1, 128>>>((const float*)in[0], (float*)out[0], (int)size[0]);
}
