/*
summary: Blocks take rows from a queue, and put what they keep into places that a counter hands out
inputs:
  x: integers(-9, 10, 12, 64)
outputs:
  counters: zeros(3, dtype=torch.int32)
  y: zeros(12, 64, dtype=torch.int32)
  kept: full((772,), -100, dtype=torch.int32)
sizes: [12]
expected:
  y: x + 1
  kept: torch.cat([torch.where(x.flatten() > 0, x.flatten(), -100), torch.arange(1000, 1004)]).to(torch.int32)
sorted: [kept]
arch: 70
kernel: work
macros: >
  TICKET=atomicAdd(next,1) FIRST=__syncthreads() SECOND=__syncthreads() PLACE=atomicAdd(count,1)
pairs:
  no_barrier_behind_the_ticket: {broken: "FIRST="}
  only_a_warp_meets_behind_the_ticket: {broken: "FIRST=__syncwarp()"}
  no_barrier_before_the_next_ticket: {broken: "SECOND="}
  only_a_warp_meets_before_the_next_ticket: {broken: "SECOND=__syncwarp()"}
  plain_ticket: {broken: "TICKET=(*next)++"}
  volatile_ticket: {broken: "TICKET=*(volatile_int*)next;*next=item+1"}
  ticket_of_block_scope: {broken: "TICKET=atomicAdd_block(next,1)"}
  plain_place: {broken: "PLACE=(*count)++"}
  place_of_block_scope: {broken: "PLACE=atomicAdd_block(count,1)"}
  cuda_atomic_place_of_block_scope: {sound: "PLACE=Device(*count).fetch_add(1,cuda::memory_order_relaxed)", broken: "PLACE=Block(*count).fetch_add(1,cuda::memory_order_relaxed)"}
  ptx_place_of_block_scope: {sound: "PLACE=add_gpu(count)", broken: "PLACE=add_cta(count)"}
  places_of_two_scopes: {sound: "PLACE=t<32?atomicAdd(count,1):atomicAdd_system(count,1)", broken: "PLACE=t<32?atomicAdd(count,1):atomicAdd_block(count,1)"}
*/
#include <cuda/atomic>
#include <cuda_runtime.h>

using volatile_int = volatile int;
using Device = cuda::atomic_ref<int, cuda::thread_scope_device>;
using Block = cuda::atomic_ref<int, cuda::thread_scope_block>;
__device__ int add_gpu(int* place) {
    int before;
    asm volatile("atom.relaxed.gpu.global.add.s32 %0, [%1], 1;" : "=r"(before) : "l"(place) : "memory");
    return before;
}
__device__ int add_cta(int* place) {
    int before;
    asm volatile("atom.relaxed.cta.global.add.s32 %0, [%1], 1;" : "=r"(before) : "l"(place) : "memory");  // defect
    return before;
}

__global__ void work(const int* x, int* counters, int* y, int* kept, int rows) {
    __shared__ int item;
    int* const next = counters;
    int* const count = counters + 1;
    const int t = threadIdx.x;
    if (t == 0) item = rows;
    __syncthreads();
    for (;;) {
        if (t == 0) {
            item = TICKET;  // defect
        }
        FIRST;
        const int row = item;  // defect
        SECOND;
        if (row >= rows) break;
        const int value = x[row * 64 + t];
        y[row * 64 + t] = value + 1;
        if (value > 0) {
            const int place = PLACE;  // defect
            kept[place] = value;      // defect
        }
    }
    if (t == 63) {
        const int place = PLACE;          // defect
        kept[place] = 1000 + blockIdx.x;  // defect
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    work<<<4, 64>>>((const int*)in[0], (int*)out[0], (int*)out[1], (int*)out[2], (int)size[0]);
}
