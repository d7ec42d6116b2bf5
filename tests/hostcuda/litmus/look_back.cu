/*
summary: Each block adds what all blocks before it hold, by looking back at what they have published (decoupled look-back)
inputs:
  x: integers(-50, 50, 8, 32)
outputs:
  totals: zeros(2, 8, dtype=torch.int32)
  states: zeros(8, dtype=torch.int32)
  words: zeros(8, dtype=torch.int64)
  y: new(8, 32, dtype=torch.int32)
sizes: []
helpers: |
  def scanned(x):
      totals = x.sum(1)
      return (x + (totals.cumsum(0) - totals).view(8, 1)).to(torch.int32)
expected:
  y: scanned(x)
arch: 70
kernel: scan
macros: >
  NEEDED=1 WHOLE=1 WAY=0 WATCHED=p VALUE=aggregate[b]=total LATE= RELEASE=__threadfence() TELL=atomicExch(states+b,1)
  POLL=atomicAdd(states+(WATCHED),0) ACQUIRE=__threadfence() LAST_VALUE=inclusive[b]=before+total LAST_LATE= LAST_RELEASE=__threadfence() LAST_TELL=atomicExch(states+b,2) MET=__syncwarp()
  PUT_WORD=atomicExch(words+b,word) GET_WORD=atomicAdd(words+p,0ull)
pairs:
  aggregate_without_a_fence: {sound: "WHOLE=0 LAST_VALUE= LAST_RELEASE= LAST_TELL=", broken: "RELEASE="}
  aggregate_behind_its_state: {sound: "WHOLE=0 LAST_VALUE= LAST_RELEASE= LAST_TELL=", broken: "VALUE= LATE=aggregate[b]=total"}
  aggregate_of_block_scope: {sound: "WHOLE=0 LAST_VALUE= LAST_RELEASE= LAST_TELL=", broken: "RELEASE=__threadfence_block()"}
  aggregate_without_an_acquire: {sound: "WHOLE=0 LAST_VALUE= LAST_RELEASE= LAST_TELL=", broken: "ACQUIRE="}
  inclusive_without_a_fence: {sound: "NEEDED=2", broken: "LAST_RELEASE="}
  inclusive_behind_its_state: {sound: "NEEDED=2", broken: "LAST_VALUE= LAST_LATE=inclusive[b]=before+total"}
  inclusive_of_block_scope: {sound: "NEEDED=2", broken: "LAST_RELEASE=__threadfence_block()"}
  inclusive_without_an_acquire: {sound: "NEEDED=2", broken: "ACQUIRE="}
  inclusive_by_volatile_states: {sound: "NEEDED=2 LAST_TELL=put_volatile(states+b,2) POLL=get_volatile(states+p)", broken: "LAST_RELEASE="}
  inclusive_by_ptx: {sound: "NEEDED=2 LAST_RELEASE= ACQUIRE= LAST_TELL=put_release(states+b,2) POLL=get_acquire(states+p)", broken: "LAST_TELL=put_relaxed(states+b,2)"}
  inclusive_by_ptx_polled_relaxed: {sound: "NEEDED=2 LAST_RELEASE= ACQUIRE= LAST_TELL=put_release(states+b,2) POLL=get_acquire(states+p)", broken: "POLL=get_relaxed(states+p)"}
  lanes_do_not_meet_behind_the_look: {broken: "MET="}
  one_word_for_state_and_value: {sound: "WAY=1", broken: "PUT_WORD=words[b]=word"}
  one_volatile_word: {sound: "WAY=1 PUT_WORD=*(volatile_word*)(words+b)=word GET_WORD=*(volatile_word*)(words+p)", broken: "PUT_WORD=words[b]=word"}
  one_word_of_block_scope: {sound: "WAY=1", broken: "PUT_WORD=atomicExch_block(words+b,word)"}
  warp_without_an_acquire: {sound: "WAY=2", broken: "ACQUIRE="}
  warp_without_a_fence: {sound: "WAY=2", broken: "RELEASE="}
  warp_watches_the_wrong_block: {sound: "WAY=2", broken: "WATCHED=p+1"}
*/
#include <cuda_runtime.h>

using volatile_word = volatile unsigned long long;
__device__ void put_volatile(int* place, int value) { *(volatile int*)place = value; }
__device__ int get_volatile(const int* place) { return *(const volatile int*)place; }
__device__ void put_release(int* place, int value) { asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(place), "r"(value) : "memory"); }
__device__ void put_relaxed(int* place, int value) { asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(place), "r"(value) : "memory"); }
__device__ int get_acquire(const int* place) {
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(place) : "memory");
    return value;
}
__device__ int get_relaxed(const int* place) {
    int value;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(place) : "memory");
    return value;
}

__global__ void scan(const int* x, int* totals, int* states, unsigned long long* words, int* y) {
    __shared__ int shown;
    int* const aggregate = totals;
    int* const inclusive = totals + 8;
    const int lane = threadIdx.x, b = blockIdx.x;
    int total = 0, before = 0;
    for (int i = 0; i < 32; ++i) total += x[b * 32 + i];
    if (lane == 0) {
#if WAY == 1
        // The upper half of a word is its state, 1 for an aggregate and 2 for all up to here.
        unsigned long long word = 1ull << 32 | (unsigned)total;
        PUT_WORD;  // defect
        for (int p = b - 1; p >= 0; --p) {
            unsigned long long found = 0;
            while (found >> 32 == 0) found = GET_WORD;  // defect
            before += (int)(unsigned)found;
            if (found >> 32 == 2) break;
        }
        word = 2ull << 32 | (unsigned)(before + total);
        PUT_WORD;  // defect
#else
        VALUE;  // defect
        RELEASE;
        TELL;
        LATE;  // defect
#endif
#if WAY == 0
        for (int p = b - 1; p >= 0; --p) {
            int state = 0;
            while (state < NEEDED) state = POLL;
            ACQUIRE;
            if (WHOLE && state == 2) {
                before += inclusive[p];  // defect
                break;
            }
            before += aggregate[p];  // defect
        }
        LAST_VALUE;  // defect
        LAST_RELEASE;
        LAST_TELL;
        LAST_LATE;  // defect
#endif
        shown = before;  // defect
    }
#if WAY == 2
    // Each lane looks at another block.
    const int p = b - 1 - lane;
    if (p >= 0) {
        while (POLL == 0) {
        }
        ACQUIRE;
        before = aggregate[p];  // defect
    }
    for (int step = 16; step > 0; step /= 2) before += __shfl_xor_sync(~0u, before, step);
    y[b * 32 + lane] = x[b * 32 + lane] + before;
#else
    MET;
    y[b * 32 + lane] = x[b * 32 + lane] + shown;  // defect
#endif
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    scan<<<8, 32>>>((const int*)in[0], (int*)out[0], (int*)out[1], (unsigned long long*)out[2], (int*)out[3]);
}
