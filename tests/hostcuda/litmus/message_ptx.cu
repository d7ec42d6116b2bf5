/*
summary: One thread hands a number to a thread of another block through global memory, by PTX with orders and scopes
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
macros: RELEASE= SIGNAL=store_release_gpu(flag) LAST= POLL=seen=load_acquire_gpu(flag) ACQUIRE=
pairs:
  store_relaxed: {broken: "SIGNAL=store_relaxed_gpu(flag)"}
  store_volatile: {broken: "SIGNAL=store_volatile(flag)"}
  store_weak: {broken: "SIGNAL=store_weak(flag)"}
  store_of_block_scope: {broken: "SIGNAL=store_release_cta(flag)"}
  store_of_system_scope: {sound: "SIGNAL=store_release_sys(flag)", broken: "SIGNAL=store_relaxed_sys(flag)"}
  load_relaxed: {broken: "POLL=seen=load_relaxed_gpu(flag)"}
  load_volatile: {broken: "POLL=seen=load_volatile(flag)"}
  load_of_block_scope: {broken: "POLL=seen=load_acquire_cta(flag)"}
  load_of_system_scope: {sound: "POLL=seen=load_acquire_sys(flag)", broken: "POLL=seen=load_relaxed_sys(flag)"}
  red_relaxed: {sound: "SIGNAL=red_release_gpu(flag)", broken: "SIGNAL=red_relaxed_gpu(flag)"}
  red_of_block_scope: {sound: "SIGNAL=red_release_gpu(flag)", broken: "SIGNAL=red_release_cta(flag)"}
  atom_relaxed: {sound: "SIGNAL=seen=atom_acq_rel_gpu(flag,1)", broken: "SIGNAL=seen=atom_relaxed_gpu(flag,1)"}
  atom_that_only_acquires: {sound: "SIGNAL=seen=atom_release_gpu(flag,1)", broken: "SIGNAL=seen=atom_acquire_gpu(flag,1)"}
  poll_by_atom: {sound: "POLL=seen=atom_acquire_gpu(flag,0)", broken: "POLL=seen=atom_relaxed_gpu(flag,0)"}
  poll_that_only_releases: {sound: "POLL=seen=atom_acq_rel_gpu(flag,0)", broken: "POLL=seen=atom_release_gpu(flag,0)"}
  fence_of_block_scope: {sound: "SIGNAL=store_relaxed_gpu(flag) RELEASE=fence_acq_rel_gpu()", broken: "RELEASE=fence_acq_rel_cta()"}
  fence_behind_the_flag: {sound: "SIGNAL=store_relaxed_gpu(flag) RELEASE=fence_acq_rel_gpu()", broken: "RELEASE= LAST=fence_acq_rel_gpu()"}
  strongest_fence: {sound: "SIGNAL=red_relaxed_gpu(flag) RELEASE=fence_sc_gpu()", broken: "RELEASE="}
  old_fence_of_block_scope: {sound: "SIGNAL=store_volatile(flag) RELEASE=membar_gl()", broken: "RELEASE=membar_cta()"}
  acquiring_fence: {sound: "POLL=seen=load_relaxed_gpu(flag) ACQUIRE=fence_acq_rel_gpu()", broken: "ACQUIRE=fence_acq_rel_cta()"}
  acquiring_old_fence: {sound: "POLL=seen=load_volatile(flag) ACQUIRE=membar_gl()", broken: "ACQUIRE="}
*/
#include <cuda_runtime.h>

__device__ int atom_acq_rel_gpu(int* flag, int value) {
    int seen;
    asm volatile("atom.acq_rel.gpu.global.or.b32 %0, [%1], %2;" : "=r"(seen) : "l"(flag), "r"(value) : "memory");
    return seen;
}
__device__ int atom_acquire_gpu(int* flag, int value) {
    int seen;
    asm volatile("atom.acquire.gpu.global.or.b32 %0, [%1], %2;" : "=r"(seen) : "l"(flag), "r"(value) : "memory");
    return seen;
}
__device__ int atom_relaxed_gpu(int* flag, int value) {
    int seen;
    asm volatile("atom.relaxed.gpu.global.or.b32 %0, [%1], %2;" : "=r"(seen) : "l"(flag), "r"(value) : "memory");
    return seen;
}
__device__ int atom_release_gpu(int* flag, int value) {
    int seen;
    asm volatile("atom.release.gpu.global.or.b32 %0, [%1], %2;" : "=r"(seen) : "l"(flag), "r"(value) : "memory");
    return seen;
}
__device__ void fence_acq_rel_cta() { asm volatile("fence.acq_rel.cta;" ::: "memory"); }
__device__ void fence_acq_rel_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
__device__ void fence_sc_gpu() { asm volatile("fence.sc.gpu;" ::: "memory"); }
__device__ int load_acquire_cta(const int* flag) {
    int seen;
    asm volatile("ld.acquire.cta.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
    return seen;
}
__device__ int load_acquire_gpu(const int* flag) {
    int seen;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
    return seen;
}
__device__ int load_acquire_sys(const int* flag) {
    int seen;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
    return seen;
}
__device__ int load_relaxed_gpu(const int* flag) {
    int seen;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
    return seen;
}
__device__ int load_relaxed_sys(const int* flag) {
    int seen;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
    return seen;
}
__device__ int load_volatile(const int* flag) {
    int seen;
    asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
    return seen;
}
__device__ void membar_cta() { asm volatile("membar.cta;" ::: "memory"); }
__device__ void membar_gl() { asm volatile("membar.gl;" ::: "memory"); }
__device__ void red_relaxed_gpu(int* flag) { asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(flag), "r"(1) : "memory"); }
__device__ void red_release_cta(int* flag) { asm volatile("red.release.cta.global.add.u32 [%0], %1;" ::"l"(flag), "r"(1) : "memory"); }
__device__ void red_release_gpu(int* flag) { asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(flag), "r"(1) : "memory"); }
__device__ void store_relaxed_gpu(int* flag) { asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(1) : "memory"); }
__device__ void store_relaxed_sys(int* flag) { asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(1) : "memory"); }
__device__ void store_release_cta(int* flag) { asm volatile("st.release.cta.global.u32 [%0], %1;" ::"l"(flag), "r"(1) : "memory"); }
__device__ void store_release_gpu(int* flag) { asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(1) : "memory"); }
__device__ void store_release_sys(int* flag) { asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(1) : "memory"); }
__device__ void store_volatile(int* flag) { asm volatile("st.volatile.global.u32 [%0], %1;" ::"l"(flag), "r"(1) : "memory"); }
__device__ void store_weak(int* flag) { asm volatile("st.weak.global.u32 [%0], %1;" ::"l"(flag), "r"(1) : "memory"); }  // defect

__global__ void message(const int* x, int* data, int* flag, int* y) {
    int seen = 0;
    if (blockIdx.x == 0) {
        *data = *x;  // defect
        RELEASE;
        SIGNAL;  // defect
        LAST;
    } else {
        while (seen == 0) {
            POLL;
        }
        ACQUIRE;
        *y = *data;  // defect
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    message<<<2, 1>>>((const int*)in[0], (int*)out[0], (int*)out[1], (int*)out[2]);
}
