/*
summary: A slot that a producer fills and a consumer empties in turns, between blocks through global memory and between warps through shared memory
inputs:
  x: normal(6)
outputs:
  slot: zeros(1)
  flags: zeros(2, dtype=torch.int32)
  y: new(6)
sizes: [6]
expected:
  y: x * 2
arch: 70
kernel: trips
macros: >
  SHARED=0 FENCE=__threadfence() EMPTY=while(atomicAdd(empty,0)<round){} ACQUIRE_EMPTY=FENCE RELEASE_FULL=FENCE FULL=atomicExch(full,round+1)
  ACQUIRE_FULL=FENCE EARLY= RELEASE_EMPTY=FENCE EMPTIED=atomicExch(empty,round+1)
pairs:
  producer_does_not_acquire: {broken: "ACQUIRE_EMPTY="}
  producer_does_not_release: {broken: "RELEASE_FULL="}
  consumer_does_not_acquire: {broken: "ACQUIRE_FULL="}
  consumer_does_not_release: {broken: "RELEASE_EMPTY="}
  consumer_fences_before_it_reads: {broken: "RELEASE_EMPTY= EARLY=FENCE"}
  emptied_before_the_read: {broken: "EARLY=FENCE;atomicExch(empty,round+1) RELEASE_EMPTY= EMPTIED="}
  fences_of_block_scope: {broken: "FENCE=__threadfence_block()"}
  shared_no_wait_for_the_empty_slot: {sound: "SHARED=1 FENCE=__threadfence_block()", broken: "EMPTY="}
  shared_producer_does_not_acquire: {sound: "SHARED=1 FENCE=__threadfence_block()", broken: "ACQUIRE_EMPTY="}
  shared_producer_does_not_release: {sound: "SHARED=1 FENCE=__threadfence_block()", broken: "RELEASE_FULL="}
  shared_consumer_does_not_acquire: {sound: "SHARED=1 FENCE=__threadfence_block()", broken: "ACQUIRE_FULL="}
  shared_consumer_does_not_release: {sound: "SHARED=1 FENCE=__threadfence_block()", broken: "RELEASE_EMPTY="}
  shared_emptied_before_the_read: {sound: "SHARED=1 FENCE=__threadfence_block()", broken: "EARLY=FENCE;atomicExch(empty,round+1) RELEASE_EMPTY= EMPTIED="}
  shared_volatile_flag: {sound: "SHARED=1 FENCE=__threadfence_block()", broken: "FULL=*(volatile_int*)full=round+1"}
*/
#include <cuda_runtime.h>

using volatile_int = volatile int;

__global__ void trips(const float* x, float* slot, int* flags, float* y, int rounds) {
#if SHARED
    __shared__ float here;
    __shared__ int words[2];
    slot = &here, flags = words;
    if (threadIdx.x < 2) words[threadIdx.x] = 0;
    __syncthreads();
    const bool produces = threadIdx.x < 32;
#else
    const bool produces = blockIdx.x == 0;
#endif
    int* const full = flags;
    int* const empty = flags + 1;
    if (threadIdx.x % 32 != 0) return;
    for (int round = 0; round < rounds; ++round) {
        if (produces) {
            EMPTY;
            ACQUIRE_EMPTY;
            *slot = 2.0f * x[round];  // defect
            RELEASE_FULL;
            FULL;  // defect
            for (int i = 0; i < 8; ++i) __nanosleep(100);
        } else {
            while (atomicAdd(full, 0) <= round) {  // defect
            }
            ACQUIRE_FULL;
            EARLY;
            y[round] = *slot;  // defect
            RELEASE_EMPTY;
            EMPTIED;
        }
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    trips<<<SHARED ? 1 : 2, SHARED ? 64 : 32>>>((const float*)in[0], (float*)out[0], (int*)out[1], (float*)out[2], (int)size[0]);
}
