// How much does reading ahead beside the cache flush gain, and what does a flush that fills every SM leave of it?
//
//     nvcc -std=c++17 -O2 -arch=sm_90 read_ahead.cu -o read_ahead && ./read_ahead        (results/read-ahead-h200.md)
//
// A call on one stream is timed by events behind a flush of 640 MB, as `CudaDevice.time_cold` does it. Before, a kernel on a
// second stream begins to read the call's inputs or weights with evict-last prefetches, until the call says that it runs, or
// for a while.
#include <cuda_runtime.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>
#define OK(e) do { cudaError_t r = (e); if (r != cudaSuccess) { printf("%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(r)); exit(1); } } while (0)
typedef unsigned long long u64;
__device__ u64 now() { u64 t; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)); return t; }

__global__ void keep(const char* p, size_t n, volatile int* flag, int number, u64 limit_ns) {
    const u64 begin = now();
    const size_t step = (size_t)gridDim.x * blockDim.x * 128;
    do {
        for (size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 128; at < n; at += step) {
            asm volatile("prefetch.global.L2::evict_last [%0];" ::"l"(p + at));
        }
    } while (*flag != number && now() - begin < limit_ns);
}
__global__ void twice(const float4* x, float4* y, size_t n, volatile int* flag, int number) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *flag = number;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        float4 v = x[i];
        v.x *= 2, v.y *= 2, v.z *= 2, v.w *= 2;
        y[i] = v;
    }
}
__global__ void product(const float4* w, float* y, int columns, volatile int* flag, int number) {  // a block a row
    if (blockIdx.x == 0 && threadIdx.x == 0) *flag = number;
    float sum = 0;
    for (int i = threadIdx.x; i < columns / 4; i += blockDim.x) {
        const float4 v = w[(size_t)blockIdx.x * (columns / 4) + i];
        sum += v.x + v.y + v.z + v.w;
    }
    for (int o = 16; o; o /= 2) sum += __shfl_down_sync(~0u, sum, o);
    if (threadIdx.x % 32 == 0) atomicAdd(y + blockIdx.x, sum);
}
__global__ void nothing(volatile int* flag, int number) {}

// One block for each SM with all of its shared memory: nothing else runs anywhere from when all have begun until the first ends.
__global__ void __launch_bounds__(1024, 1) alone(float4* p, size_t n, unsigned* arrived, unsigned blocks, int late) {
    extern __shared__ char all_of_it[];
    __shared__ unsigned target;
    auto barrier = [&]() {
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            const unsigned mine = atomicAdd(arrived, 1);
            target = mine / blocks * blocks + blocks;
            while ((int)(*(volatile unsigned*)arrived - target) < 0) {}
            __threadfence();
        }
        __syncthreads();
    };
    barrier();
    const size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) p[i] = make_float4(0, 0, 0, 0);
    if (late) barrier();
}

int main() {
    cudaDeviceProp prop;
    OK(cudaGetDeviceProperties(&prop, 0));
    const size_t flush_bytes = (size_t)640 << 20;
    const int sms = prop.multiProcessorCount, smem = (int)prop.sharedMemPerBlockOptin;
    OK(cudaFuncSetAttribute(alone, cudaFuncAttributeMaxDynamicSharedMemorySize, smem - 16));
    char *flush, *x, *y, *w;
    int* flag;
    unsigned* arrived;
    const size_t xb = 1536 << 10, wb = 16 << 20;
    OK(cudaMalloc(&flush, flush_bytes)); OK(cudaMalloc(&x, xb)); OK(cudaMalloc(&y, 64 << 20)); OK(cudaMalloc(&w, wb)); OK(cudaMalloc(&flag, 4)); OK(cudaMalloc(&arrived, 4));
    OK(cudaMemset(flag, 0, 4)); OK(cudaMemset(arrived, 0, 4)); OK(cudaMemset(x, 0, xb)); OK(cudaMemset(w, 0, wb));
    cudaStream_t main_stream, side;
    OK(cudaStreamCreateWithFlags(&main_stream, cudaStreamNonBlocking)); OK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    cudaEvent_t a, b;
    OK(cudaEventCreate(&a)); OK(cudaEventCreate(&b));
    int number = 0;
    const char* works[] = {"nothing", "1.5 MB inputs", "16 MB weights"};
    const char* flushes[] = {"memset x2 (now)", "memset, alone", "memset, alone, both ends", "alone, memset"};
    const char* cheats[] = {"honest", "until the call", "for 2 ms", "before the flush", "for 0.6 ms"};
    printf("%s: median (10 %% quantile) us of 60 calls\n", prop.name);
    for (int work = 0; work < 3; ++work)
        for (int kind = 0; kind < 4; ++kind)
            for (int cheat = 0; cheat < 5; ++cheat) {
                if (work == 0 && cheat) continue;
                std::vector<float> times;
                for (int i = 0; i < 64; ++i) {
                    ++number;
                    OK(cudaDeviceSynchronize());
                    cudaCtxResetPersistingL2Cache();
                    const char* target = work == 1 ? x : w;
                    const size_t bytes = work == 1 ? xb : wb;
                    auto start_keep = [&](u64 ns) { keep<<<32, 256, 0, side>>>(target, bytes, flag, number, ns); };
                    if (cheat == 3) { start_keep(20000); OK(cudaDeviceSynchronize()); }
                    if (i % 2) OK(cudaMemsetAsync(flush, 0, 1, main_stream));
                    auto alone_ = [&](int late) { alone<<<sms, 1024, smem - 16, main_stream>>>((float4*)flush, flush_bytes / 16, arrived, sms, late); };
                    if (kind == 0) { for (int f = 0; f < 2; ++f) OK(cudaMemsetAsync(flush, 0, flush_bytes, main_stream)); }
                    else if (kind == 3) { alone_(0); OK(cudaMemsetAsync(flush, 0, flush_bytes, main_stream)); }
                    else { OK(cudaMemsetAsync(flush, 0, flush_bytes, main_stream)); alone_(kind == 2); }
                    OK(cudaMemsetAsync(y, 1, 4, main_stream));  // as the withheld words
                    if (cheat == 1) start_keep(5000000);
                    if (cheat == 2) start_keep(2000000);
                    if (cheat == 4) start_keep(600000);
                    OK(cudaEventRecord(a, main_stream));
                    if (work == 0) nothing<<<1, 32, 0, main_stream>>>(flag, number);
                    if (work == 1) twice<<<96, 1024, 0, main_stream>>>((float4*)x, (float4*)y, xb / 16, flag, number);
                    if (work == 2) product<<<2048, 256, 0, main_stream>>>((float4*)w, (float*)y, 2048, flag, number);
                    OK(cudaEventRecord(b, main_stream));
                    OK(cudaDeviceSynchronize());
                    float ms;
                    OK(cudaEventElapsedTime(&ms, a, b));
                    if (i >= 4) times.push_back(ms * 1e3f);
                }
                std::sort(times.begin(), times.end());
                printf("%-14s %-26s %-18s %7.2f (%.2f)\n", works[work], flushes[kind], cheats[cheat], times[times.size() / 2], times[times.size() / 10]);
            }
    return 0;
}
