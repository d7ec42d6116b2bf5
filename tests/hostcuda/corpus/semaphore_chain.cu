/*
summary: Blocks wait for those before them in a chain of semaphores, asked between barriers, with loads that acquire and stores that release
inputs:
  x: normal(6, 200)
outputs:
  y: zeros(200)
  sem: zeros(2, dtype=torch.int32)
sizes: [200]
expected:
  y: x.sum(0)
tolerance: 1.0e-5
*/
#include <cuda_runtime.h>
struct Semaphore {
    int* lock; bool wait_thread; int state;
    __device__ Semaphore(int* l, int t) : lock(l), wait_thread(t < 0 || t == 0), state(-1) {}
    __device__ void fetch() { if (wait_thread) asm volatile("ld.global.acquire.gpu.b32 %0, [%1];\n" : "=r"(state) : "l"(lock)); }
    __device__ void wait(int status) { while (__syncthreads_and(state != status)) fetch(); __syncthreads(); }
    __device__ void release(int status) { __syncthreads(); if (wait_thread) asm volatile("st.global.release.gpu.b32 [%0], %1;\n" : : "l"(lock), "r"(status)); }
};
struct Barrier {
    static __device__ int ld_acquire(int* p) { int s = 0; asm volatile("ld.global.acquire.gpu.b32 %0, [%1];\n" : "=r"(s) : "l"(p)); return s; }
    static __device__ void red_release(int* p, int v) { __threadfence(); asm volatile("red.relaxed.gpu.global.add.s32 [%0], %1;\n" : : "l"(p), "r"(v)); }
    static __device__ void wait_eq(int* p, int t, int v) { if (t == 0) { while (ld_acquire(p) != v) { } } __syncthreads(); }
    static __device__ void arrive_inc(int* p, int t) { __syncthreads(); if (t == 0) red_release(p, 1); }
};
__global__ void k(const float* x, float* y, int* sem, int n) {
    const int col = blockIdx.x * blockDim.x + threadIdx.x, k = blockIdx.y;
    Semaphore s(sem + blockIdx.x, threadIdx.x);
    s.fetch();
    s.wait(k);
    if (col < n) y[col] += x[k * n + col];
    s.release(k + 1);
}
__global__ void k2(const float* x, float* y, int* sem, int n) {
    const int col = blockIdx.x * blockDim.x + threadIdx.x, k = blockIdx.y + 3;
    Barrier::wait_eq(sem + blockIdx.x, threadIdx.x, k);
    if (col < n) y[col] += x[k * n + col];
    Barrier::arrive_inc(sem + blockIdx.x, threadIdx.x);
}
extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    k<<<dim3(2, 3), 128>>>((const float*)in[0], (float*)out[0], (int*)out[1], (int)size[0]);
    k2<<<dim3(2, 3), 128>>>((const float*)in[0], (float*)out[0], (int*)out[1], (int)size[0]);
}
