/*
summary: One thread hands a number to a thread of another block through global memory, by libcu++ with orders and scopes
inputs:
  x: integers(1, 1000, 1)
outputs:
  data: zeros(1, dtype=torch.int32)
  flag: zeros(1, dtype=torch.int32)
  y: new(1, dtype=torch.int32)
sizes: []
expected:
  y: x
arch: 70
kernel: message
macros: >
  SCOPE=cuda::thread_scope_device WAITS=SCOPE RELEASE= SIGNAL=set.store(1,cuda::memory_order_release) LAST=
  EARLY= POLL=seen.load(cuda::memory_order_acquire) ACQUIRE=
pairs:
  store_relaxed: {broken: "SIGNAL=set.store(1,cuda::memory_order_relaxed)"}
  load_relaxed: {broken: "POLL=seen.load(cuda::memory_order_relaxed)"}
  store_of_block_scope: {broken: "SCOPE=cuda::thread_scope_block WAITS=cuda::thread_scope_device"}
  load_of_block_scope: {broken: "WAITS=cuda::thread_scope_block"}
  system_scope: {sound: "SCOPE=cuda::thread_scope_system", broken: "SIGNAL=set.store(1,cuda::memory_order_relaxed)"}
  strongest_order: {sound: "SIGNAL=set.store(1) POLL=seen.load()", broken: "SIGNAL=set.store(1,cuda::std::memory_order_relaxed)"}
  strongest_order_for_readers: {sound: "SIGNAL=set=1 POLL=seen.load()", broken: "POLL=seen.load(cuda::std::memory_order_relaxed)"}
  added: {sound: "SIGNAL=set.fetch_add(1,cuda::memory_order_release)", broken: "SIGNAL=set.fetch_add(1,cuda::memory_order_relaxed)"}
  added_that_only_acquires: {sound: "SIGNAL=set.fetch_add(1,cuda::memory_order_acq_rel)", broken: "SIGNAL=set.fetch_add(1,cuda::memory_order_acquire)"}
  exchanged: {sound: "SIGNAL=set.exchange(1,cuda::memory_order_release)", broken: "SIGNAL=set.exchange(1,cuda::memory_order_relaxed)"}
  poll_that_only_releases: {sound: "POLL=seen.fetch_or(0,cuda::memory_order_acq_rel)", broken: "POLL=seen.fetch_or(0,cuda::memory_order_release)"}
  waited_for_relaxed: {sound: "EARLY=seen.wait(0,cuda::memory_order_acquire) POLL=1", broken: "EARLY=seen.wait(0,cuda::memory_order_relaxed)"}
  releasing_fence: {sound: "RELEASE=fence(cuda::memory_order_release,SCOPE) SIGNAL=set.store(1,cuda::memory_order_relaxed)", broken: "RELEASE="}
  releasing_fence_of_block_scope: {sound: "RELEASE=fence(cuda::memory_order_release,SCOPE) SIGNAL=set.store(1,cuda::memory_order_relaxed)", broken: "RELEASE=fence(cuda::memory_order_release,cuda::thread_scope_block)"}
  releasing_fence_behind_the_flag: {sound: "RELEASE=fence(cuda::memory_order_acq_rel,SCOPE) SIGNAL=set.store(1,cuda::memory_order_relaxed)", broken: "RELEASE= LAST=fence(cuda::memory_order_acq_rel,SCOPE)"}
  acquiring_fence: {sound: "POLL=seen.load(cuda::memory_order_relaxed) ACQUIRE=fence(cuda::memory_order_acquire,SCOPE)", broken: "ACQUIRE="}
  acquiring_fence_before_the_wait: {sound: "POLL=seen.load(cuda::memory_order_relaxed) ACQUIRE=fence(cuda::memory_order_seq_cst,SCOPE)", broken: "ACQUIRE= EARLY=fence(cuda::memory_order_seq_cst,SCOPE)"}
  acquiring_fence_of_block_scope: {sound: "POLL=seen.load(cuda::memory_order_relaxed) ACQUIRE=fence(cuda::memory_order_acquire,SCOPE)", broken: "ACQUIRE=fence(cuda::memory_order_acquire,cuda::thread_scope_block)"}
*/
#include <cuda/atomic>
#include <cuda_runtime.h>

__device__ void fence(cuda::memory_order order, cuda::thread_scope scope) { cuda::atomic_thread_fence(order, scope); }

__global__ void message(const int* x, int* data, int* flag, int* y) {
    cuda::atomic_ref<int, SCOPE> set(*flag);
    cuda::atomic_ref<int, WAITS> seen(*flag);
    if (blockIdx.x == 0) {
        *data = *x;  // defect
        RELEASE;
        SIGNAL;  // defect
        LAST;
    } else {
        EARLY;
        while (POLL == 0) {
        }
        ACQUIRE;
        *y = *data;  // defect
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    message<<<2, 1>>>((const int*)in[0], (int*)out[0], (int*)out[1], (int*)out[2]);
}
