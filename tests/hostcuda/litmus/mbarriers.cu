/*
summary: Barriers and latches in shared memory that threads arrive at and wait for apart, by phases
inputs:
  x: normal(4, 64)
outputs:
  y: new(4, 64)
sizes: [4]
expected:
  y: x.flip(1) * 2
arch: 90
kernel: turn
macros: >
  WAY=0 COUNT=64 OTHERS=32 FIRST= WRITE=held[t]=2.0f*x[row*64+t] TOGETHER= ARRIVES=true ARRIVE=(void)full.arrive() LATE= EARLY= WAITS=true WAIT=full.wait_parity(row&1) OTHER=empty.wait_parity(row&1)
  MET= READ=value=held[63-t] FREE=(void)empty.arrive()
pairs:
  written_after_the_arrival: {broken: "WRITE= LATE=held[t]=2.0f*x[row*64+t]"}
  read_before_the_wait: {broken: "EARLY=value=held[63-t] READ="}
  not_waited_for: {broken: "WAIT="}
  waited_for_the_phase_before: {broken: "WAIT=wait_a_while(place,~row&1)"}
  fewer_are_waited_for_than_come: {broken: "COUNT=32 WAIT=wait_a_while(place,0)"}
  lanes_do_not_meet_before_the_arrival: {sound: "COUNT=2 TOGETHER=__syncwarp() ARRIVES=t%32==0", broken: "TOGETHER="}
  only_one_waits: {sound: "WAITS=t==0 MET=__syncthreads()", broken: "MET="}
  only_a_warp_meets_behind_the_wait: {sound: "WAITS=t==0 MET=__syncthreads()", broken: "MET=__syncwarp()"}
  tokens: {sound: "ARRIVE=token=full.arrive() WAIT=full.wait(std::move(token))", broken: "WAIT="}
  ptx_arrival_relaxed: {sound: "ARRIVE=arrive_release(place)", broken: "ARRIVE=arrive_relaxed(place)"}
  ptx_wait_relaxed: {sound: "WAIT=while(!wait_acquire(place,row&1)){}", broken: "WAIT=while(!wait_relaxed(place,row&1)){}"}
  filled_before_it_is_written: {sound: "WAY=1 COUNT=32", broken: "FIRST=(void)full.arrive() ARRIVE="}
  freed_before_it_is_read: {sound: "WAY=1 COUNT=32", broken: "EARLY=(void)empty.arrive() FREE="}
  freed_by_one_lane: {sound: "WAY=1 COUNT=32 OTHERS=1 FREE=__syncwarp();if(t%32==0)(void)empty.arrive()", broken: "FREE=if(t%32==0)(void)empty.arrive()"}
  filled_by_one_lane: {sound: "WAY=1 COUNT=1 ARRIVE=__syncwarp();if(t==0)(void)full.arrive()", broken: "ARRIVE=if(t==0)(void)full.arrive()"}
  one_of_two_writers_waited_for: {sound: "WAY=2 COUNT=32", broken: "OTHER="}
  one_writer_waited_for_twice: {sound: "WAY=2 COUNT=32", broken: "OTHER=full.wait_parity(row&1)"}
  latch_not_waited_for: {sound: "ARRIVE=latches[row].count_down() WAIT=latches[row].wait()", broken: "WAIT="}
  latch_counted_down_before_the_write: {sound: "ARRIVE=latches[row].count_down() WAIT=latches[row].wait()", broken: "WRITE= LATE=held[t]=2.0f*x[row*64+t]"}
*/
#include <cuda/barrier>
#include <cuda/latch>
#include <cuda_runtime.h>

#include <new>
#include <utility>
#pragma nv_diag_suppress static_var_with_dynamic_init

using Barrier = cuda::barrier<cuda::thread_scope_block>;
using Latch = cuda::latch<cuda::thread_scope_block>;
__device__ void arrive_release(unsigned place) { asm volatile("{ .reg .b64 s; mbarrier.arrive.release.cta.shared::cta.b64 s, [%0]; }" ::"r"(place) : "memory"); }
__device__ void arrive_relaxed(unsigned place) { asm volatile("{ .reg .b64 s; mbarrier.arrive.relaxed.cta.shared::cta.b64 s, [%0]; }" ::"r"(place) : "memory"); }
__device__ bool wait_acquire(unsigned place, int parity) {
    int done;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2; selp.s32 %0, 1, 0, p; }" : "=r"(done) : "r"(place), "r"(parity) : "memory");
    return done != 0;
}
__device__ bool wait_relaxed(unsigned place, int parity) {
    int done;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.relaxed.cta.shared::cta.b64 p, [%1], %2; selp.s32 %0, 1, 0, p; }" : "=r"(done) : "r"(place), "r"(parity) : "memory");
    return done != 0;
}
// Not for ever: whoever comes late waits for a phase that never ends.
__device__ void wait_a_while(unsigned place, int parity) {
    for (int i = 0; i < 1000 && !wait_acquire(place, parity); ++i) {
    }
}

__global__ void turn(const float* x, float* y, int rows) {
    __shared__ Barrier full, empty;
    __shared__ alignas(Latch) unsigned char raw[4 * sizeof(Latch)];
    __shared__ float held[64];
    Latch* const latches = reinterpret_cast<Latch*>(raw);
    const int t = threadIdx.x;
    const unsigned place = (unsigned)__cvta_generic_to_shared(&full);
    Barrier::arrival_token token;
    float value = 0.0f;
    if (t == 0) {
        init(&full, COUNT);
        init(&empty, OTHERS);
        for (int i = 0; i < 4; ++i) new (&latches[i]) Latch(64);
    }
    __syncthreads();
#if WAY == 0
    // All write, arrive, wait and read.
    for (int row = 0; row < rows; ++row) {
        WRITE;  // defect
        TOGETHER;
        if (ARRIVES) {
            ARRIVE;
        }
        LATE;   // defect
        EARLY;  // defect
        if (WAITS) {
            WAIT;
        }
        MET;
        READ;  // defect
        y[row * 64 + t] = value;
        __syncthreads();
    }
#elif WAY == 1
    // One warp fills a place and the other empties it, half a row at a time.
    for (int step = 0; step < 2 * rows; ++step) {
        if (t < 32) {
            if (step > 0) empty.wait_parity((step - 1) & 1);
            FIRST;
            held[31 - t] = 2.0f * x[step * 32 + t];  // defect
            ARRIVE;
        } else {
            full.wait_parity(step & 1);
            EARLY;
            y[step / 2 * 64 + (1 - step % 2) * 32 + t - 32] = held[t - 32];  // defect
            FREE;
        }
    }
#else
    // Two warps write, each with a barrier of its own, and two others read what both wrote.
    for (int row = 0; row < rows; ++row) {
        if (t < 64) {
            held[t] = 2.0f * x[row * 64 + t];  // defect
            if (t < 32) (void)full.arrive();
            else (void)empty.arrive();
        } else {
            WAIT;
            OTHER;
            y[row * 64 + t - 64] = held[127 - t];  // defect
        }
        __syncthreads();
    }
#endif
    if (place == 1) y[0] = value;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    turn<<<1, WAY == 2 ? 128 : 64>>>((const float*)in[0], (float*)out[0], (int)size[0]);
}
