/*
summary: Plain additions under a lock, by one thread per block in global memory or by one lane per warp in shared memory
inputs:
  x: integers(1, 100, 32)
outputs:
  place: zeros(4, dtype=torch.int32)
  y: zeros(1, dtype=torch.int32)
sizes: []
expected:
  y: x.sum().to(torch.int32).view(1)
arch: 70
kernel: add
macros: >
  SHARED=0 FENCE=__threadfence() TAKE=while(atomicCAS(lock,0,1)!=0){} ENTER=FENCE READ=seen=*total LEAVE=FENCE GIVE=atomicExch(lock,0) LAST=
pairs:
  no_fence_on_leaving: {broken: "LEAVE="}
  no_fence_on_entering: {broken: "ENTER="}
  fence_behind_the_unlock: {broken: "LEAVE= LAST=FENCE"}
  fences_of_block_scope: {broken: "FENCE=__threadfence_block()"}
  leaving_of_block_scope: {broken: "LEAVE=__threadfence_block()"}
  volatile_unlock: {sound: "GIVE=*(volatile_int*)lock=0", broken: "LEAVE="}
  plain_unlock: {broken: "GIVE=*lock=0"}
  lock_of_block_scope: {broken: "TAKE=while(atomicCAS_block(lock,0,1)!=0){}"}
  two_locks: {broken: "TAKE=lock+=who%2;while(atomicCAS(lock,0,1)!=0){}"}
  read_before_the_lock: {broken: "TAKE=seen=*total;while(atomicCAS(lock,0,1)!=0){} READ="}
  exchanged: {sound: "TAKE=while(atomicExch(lock,1)!=0){}", broken: "ENTER="}
  ticket_no_fence_on_leaving: {sound: "TAKE=mine=atomicAdd(lock,1);while(atomicAdd(lock+1,0)!=mine){} GIVE=atomicAdd(lock+1,1)", broken: "LEAVE="}
  ticket_no_fence_on_entering: {sound: "TAKE=mine=atomicAdd(lock,1);while(atomicAdd(lock+1,0)!=mine){} GIVE=atomicAdd(lock+1,1)", broken: "ENTER="}
  ticket_served_plainly: {sound: "TAKE=mine=atomicAdd(lock,1);while(atomicAdd(lock+1,0)!=mine){} GIVE=*(volatile_int*)(lock+1)=mine+1", broken: "GIVE=lock[1]=mine+1"}
  cuda_atomic_unlock: {sound: "ENTER= LEAVE= TAKE=while(ref(lock).exchange(1,cuda::memory_order_acquire)!=0){} GIVE=ref(lock).store(0,cuda::memory_order_release)", broken: "GIVE=ref(lock).store(0,cuda::memory_order_relaxed)"}
  cuda_atomic_lock: {sound: "ENTER= LEAVE= TAKE=while(ref(lock).exchange(1,cuda::memory_order_acquire)!=0){} GIVE=ref(lock).store(0,cuda::memory_order_release)", broken: "TAKE=while(ref(lock).exchange(1,cuda::memory_order_relaxed)!=0){}"}
  ptx_unlock: {sound: "ENTER= LEAVE= TAKE=while(take_acquire(lock)!=0){} GIVE=give_release(lock)", broken: "GIVE=give_relaxed(lock)"}
  ptx_lock: {sound: "ENTER= LEAVE= TAKE=while(take_acquire(lock)!=0){} GIVE=give_release(lock)", broken: "TAKE=while(take_relaxed(lock)!=0){}"}
  shared_no_fence_on_leaving: {sound: "SHARED=1 FENCE=__threadfence_block()", broken: "LEAVE="}
  shared_no_fence_on_entering: {sound: "SHARED=1 FENCE=__threadfence_block()", broken: "ENTER="}
  shared_volatile_unlock: {sound: "SHARED=1 FENCE=__threadfence_block()", broken: "GIVE=*(volatile_int*)lock=0"}
  shared_two_locks: {sound: "SHARED=1 FENCE=__threadfence_block()", broken: "TAKE=lock+=who%2;while(atomicCAS(lock,0,1)!=0){}"}
  shared_ticket: {sound: "SHARED=1 FENCE=__threadfence_block() TAKE=mine=atomicAdd(lock,1);while(atomicAdd(lock+1,0)!=mine){} GIVE=atomicAdd(lock+1,1)", broken: "LEAVE="}
*/
#include <cuda/atomic>
#include <cuda_runtime.h>

using volatile_int = volatile int;
__device__ cuda::atomic_ref<int, cuda::thread_scope_device> ref(int* place) { return cuda::atomic_ref<int, cuda::thread_scope_device>(*place); }
__device__ int take_acquire(int* lock) {
    int before;
    asm volatile("atom.acquire.gpu.global.cas.b32 %0, [%1], 0, 1;" : "=r"(before) : "l"(lock) : "memory");
    return before;
}
__device__ int take_relaxed(int* lock) {
    int before;
    asm volatile("atom.relaxed.gpu.global.cas.b32 %0, [%1], 0, 1;" : "=r"(before) : "l"(lock) : "memory");
    return before;
}
__device__ void give_release(int* lock) { asm volatile("st.release.gpu.global.u32 [%0], 0;" ::"l"(lock) : "memory"); }
__device__ void give_relaxed(int* lock) { asm volatile("st.relaxed.gpu.global.u32 [%0], 0;" ::"l"(lock) : "memory"); }

__global__ void add(const int* x, int* place, int* y) {
#if SHARED
    __shared__ int here[4];
    if (threadIdx.x < 4) here[threadIdx.x] = 0;
    __syncthreads();
    place = here;
    const int who = threadIdx.x / 32;
#else
    const int who = blockIdx.x;
#endif
    if (threadIdx.x % 32 != 0) return;
    int* const total = place + 3;
    int mine = 0, seen = 0;
    for (int i = 0; i < 4; ++i) {
        int* lock = place;
        TAKE;  // defect
        ENTER;
        READ;                           // defect
        *total = seen + x[who * 4 + i];  // defect
        *y = *total;                     // defect
        LEAVE;
        GIVE;  // defect
        LAST;
    }
    if (mine < 0) *y = 0;
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    add<<<SHARED ? 1 : 8, SHARED ? 256 : 32>>>((const int*)in[0], (int*)out[0], (int*)out[1]);
}
