#include <torch/extension.h>
#include <cooperative_groups.h>
#include <cub/cub.cuh>
#include <cuda_runtime.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <ATen/cuda/Atomic.cuh>
#include <ATen/cuda/CUDAApplyUtils.cuh>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/DeviceUtils.cuh>
#include <torch/cuda.h>
#include <c10/cuda/CUDAMathCompat.h>
namespace cg = cooperative_groups;

// The numbered lines below are named by the tests: "line N" is counted by them from the marks.
__global__ void missing_barrier_kernel(const float* x, float* y) {
    __shared__ float s[2][32];
    int t = threadIdx.x;
    s[t / 32][t % 32] = x[t];      // MARK race write
    y[t] = s[1 - t / 32][t % 32];  // MARK race read
}
torch::Tensor missing_barrier(torch::Tensor x) {
    auto y = torch::empty_like(x);
    missing_barrier_kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>());
    return y;
}

__global__ void past_the_end_kernel(float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) out[i] = 1.0f;  // MARK past the end
}
void past_the_end(torch::Tensor x) { past_the_end_kernel<<<4, 32>>>(x.data_ptr<float>(), x.numel()); }

__global__ void past_shared_kernel(float* x) {
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[threadIdx.x + 1];  // MARK past shared
}
void past_shared(torch::Tensor x) { past_shared_kernel<<<1, 64>>>(x.data_ptr<float>()); }

#define ROW(name, count) __shared__ float name##_row[count]
__global__ void past_macro_kernel(float* x) {
    ROW(mine, 64);
    mine_row[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = mine_row[threadIdx.x + 1];  // MARK past macro
}
void past_macro(torch::Tensor x) { past_macro_kernel<<<1, 64>>>(x.data_ptr<float>()); }

__global__ void past_local_kernel(float* x, int at) {
    float local[8];
    for (int i = 0; i < 8; ++i) local[i] = x[i] + i;
    x[threadIdx.x] = local[(threadIdx.x & 1) + at - 1];  // MARK past local
}
void past_local(torch::Tensor x, int64_t at) { past_local_kernel<<<1, 32>>>(x.data_ptr<float>(), at); }

__global__ void never_written_kernel(const float* fresh, float* x) { x[threadIdx.x] = fresh[threadIdx.x]; }  // MARK never written
void never_written(torch::Tensor x) {
    auto fresh = torch::empty_like(x);
    never_written_kernel<<<1, 32>>>(fresh.data_ptr<float>(), x.data_ptr<float>());
}

__global__ void misaligned_kernel(float* x) {
    float4 v = *reinterpret_cast<float4*>(x + 1);  // MARK misaligned
    x[0] = v.x + v.w;
}
void misaligned(torch::Tensor x) { misaligned_kernel<<<1, 1>>>(x.data_ptr<float>()); }

__global__ void divergent_kernel(float* x) {
    if (threadIdx.x < 32) {
        __syncthreads();  // MARK barrier one
        x[threadIdx.x] += 1.0f;
    } else {
        __syncthreads();  // MARK barrier two
    }
}
void divergent(torch::Tensor x) { divergent_kernel<<<1, 64>>>(x.data_ptr<float>()); }

__global__ void stuck_warp_kernel(float* x) {
    if (threadIdx.x < 16) x[threadIdx.x] = __shfl_down_sync(0xffffffffu, x[threadIdx.x], 1);  // MARK stuck shuffle
    else __syncthreads();
}
void stuck_warp(torch::Tensor x) { stuck_warp_kernel<<<1, 32>>>(x.data_ptr<float>()); }

__global__ void asserting_kernel(float* x) { assert(x[threadIdx.x] > 0.0f); }  // MARK assert
void asserting(torch::Tensor x) { asserting_kernel<<<1, 4>>>(x.data_ptr<float>()); }

__global__ void unknown_ptx_kernel(float* x) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); x[0] = 1.0f; }
void unknown_ptx(torch::Tensor x) { unknown_ptx_kernel<<<1, 1>>>(x.data_ptr<float>()); }

__global__ void nested_kernel(float* x) { if (threadIdx.x == 0) asserting_kernel<<<1, 4>>>(x); }  // MARK nested
void nested(torch::Tensor x) { nested_kernel<<<1, 4>>>(x.data_ptr<float>()); }

__global__ void __launch_bounds__(256) bounded(float* x) { x[0] = 1.0f; }
__global__ void unbounded(float* x) { if (threadIdx.x == 0) x[0] = 1.0f; }
void launch_of(torch::Tensor x, int64_t blocks, int64_t threads, int64_t shared, bool asks) {
    if (threads == 300) bounded<<<blocks, threads, shared>>>(x.data_ptr<float>());
    else unbounded<<<blocks, threads, shared>>>(x.data_ptr<float>());
    if (asks) C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void leaking(int64_t n) {
    float *kept, *freed;
    cudaMalloc(&kept, n * sizeof(float));
    cudaMalloc(&freed, n * sizeof(float));
    cudaFree(freed);
}

__global__ void order_kernel(int* next, int* out) {
    if (threadIdx.x % 2 == 0) out[atomicAdd(next, 1)] = blockIdx.x * 4 + threadIdx.x;
}
torch::Tensor order(torch::Tensor x) {
    auto next = torch::zeros({1}, x.options());
    order_kernel<<<2, 4>>>(next.data_ptr<int>(), x.data_ptr<int>());
    return x.slice(0, 0, 4);
}

__global__ void atomics_kernel(const int* x, int n, int* sums, float* total, unsigned long long* wide) {
    __shared__ int bins[4];
    if (threadIdx.x < 4) bins[threadIdx.x] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&bins[x[i] % 4], 1);
    __syncthreads();
    if (threadIdx.x < 4) sums[threadIdx.x] = bins[threadIdx.x];
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        atomicAdd(total, 0.5f);
        atomicMax(wide, (unsigned long long)x[i]);
    }
}
std::vector<torch::Tensor> atomics(torch::Tensor x) {
    auto sums = torch::empty({4}, x.options()), total = torch::zeros({1}, x.options().dtype(torch::kFloat32));
    auto wide = torch::zeros({1}, x.options().dtype(torch::kInt64));
    atomics_kernel<<<1, 96>>>(x.data_ptr<int>(), x.numel(), sums.data_ptr<int>(), total.data_ptr<float>(),
                              reinterpret_cast<unsigned long long*>(wide.data_ptr<int64_t>()));
    return {sums, total, wide};
}

template <typename T> __global__ void scale(const T* x, T* y, T s, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * s;
}
#define SCALE(T, ...) \
    scale<T><<<(n + 3) / 4, \
               4>>>(__VA_ARGS__)
template <typename F> __global__ void apply(float* x, int n, F f) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = f(x[i]);
}
std::tuple<torch::Tensor, torch::Tensor> overloads(torch::Tensor x, double s) {
    auto y = torch::empty_like(x), z = x.to(torch::kFloat32).clone();
    int n = x.numel();
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "scale", [&] {
        SCALE(scalar_t, x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), static_cast<scalar_t>(s), n);
    });
    float shift = 1.0f;
    apply<<<1, 3>>>(z.data_ptr<float>(), n, [=] __device__(float v) { return v + shift; });
    return {y, z};
}

__global__ void grid_sum_kernel(const float* x, float* partial, float* total, int n) {
    cg::grid_group grid = cg::this_grid();
    float v = 0.0f;
    for (int i = grid.thread_rank(); i < n; i += grid.size()) v += x[i];
    partial[grid.thread_rank()] = v;
    grid.sync();
    if (grid.thread_rank() == 0)
        for (int i = 0; i < (int)grid.size(); ++i) *total += partial[i];
}
torch::Tensor grid_sum(torch::Tensor x) {
    auto partial = torch::empty({8 * 64}, x.options()), total = torch::zeros({1}, x.options());
    const float* in = x.data_ptr<float>();
    float *p = partial.data_ptr<float>(), *t = total.data_ptr<float>();
    int n = x.numel();
    void* arguments[] = {&in, &p, &t, &n};
    C10_CUDA_CHECK(cudaLaunchCooperativeKernel((void*)grid_sum_kernel, dim3(8), dim3(64), arguments));
    return total;
}

// Block i waits for block i - 1 (and thread 0 of each for its own): all blocks must make progress.
__global__ void spinning_kernel(volatile int* flags) {
    if (threadIdx.x == 0) {
        int before = gridDim.x - 1 - blockIdx.x;
        if (before > 0) while (flags[before - 1] == 0) {}
        __threadfence();
        flags[before] = before == 0 ? 1 : flags[before - 1] + 1;
    }
}
torch::Tensor spinning(torch::Tensor x) {
    spinning_kernel<<<8, 32>>>(x.data_ptr<int>());
    return x;
}

__constant__ float factors[4];
__device__ float offset = 0.5f;
extern __shared__ float scratch[];
__global__ void symbols_kernel(float* x) {
    scratch[threadIdx.x] = factors[threadIdx.x] + offset;
    __syncthreads();
    x[threadIdx.x] = scratch[3 - threadIdx.x];
}
torch::Tensor symbols(torch::Tensor x) {
    const float host[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    cudaMemcpyToSymbol(factors, host, sizeof(host));
    symbols_kernel<<<1, 4, 4 * sizeof(float)>>>(x.data_ptr<float>());
    return x;
}

__global__ void early_exit_kernel(const float* x, float* y, int n) {
    __shared__ float s[32];
    int i = blockIdx.x * 32 + threadIdx.x;
    if (i >= n) return;
    s[threadIdx.x] = x[i];
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (int k = 0; k < 32 && blockIdx.x * 32 + k < n; ++k) sum += s[k];
        y[blockIdx.x] = sum;
    }
}
torch::Tensor early_exit(torch::Tensor x) {
    auto y = torch::empty({3}, torch::TensorOptions().device(torch::kCUDA));
    early_exit_kernel<<<3, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}

__global__ void cub_kernel(const float* x, float* sums, int* ranks, int n) {
    using Reduce = cub::BlockReduce<float, 64>;
    using Scan = cub::BlockScan<int, 64>;
    __shared__ typename Reduce::TempStorage reduce;
    __shared__ typename Scan::TempStorage scan;
    int i = blockIdx.x * 64 + threadIdx.x;
    float v = i < n ? x[i] : 0.0f;
    float sum = Reduce(reduce).Sum(v);
    __syncthreads();
    float most = Reduce(reduce).Reduce(v, cub::Max());
    if (threadIdx.x == 0) sums[2 * blockIdx.x] = sum, sums[2 * blockIdx.x + 1] = most;
    int rank;
    Scan(scan).ExclusiveSum(v > 50.0f ? 1 : 0, rank);
    ranks[i] = rank;
}
std::vector<torch::Tensor> cub_calls(torch::Tensor x) {
    auto sums = torch::empty({4}, x.options()), ranks = torch::empty({128}, x.options().dtype(torch::kInt32));
    cub_kernel<<<2, 64>>>(x.data_ptr<float>(), sums.data_ptr<float>(), ranks.data_ptr<int>(), x.numel());
    auto total = torch::empty({1}, x.options());
    size_t bytes = 0;
    cub::DeviceReduce::Sum(nullptr, bytes, x.data_ptr<float>(), total.data_ptr<float>(), (int)x.numel());
    auto storage = torch::empty({(int64_t)bytes}, x.options().dtype(torch::kUInt8));
    cub::DeviceReduce::Sum(storage.data_ptr(), bytes, x.data_ptr<float>(), total.data_ptr<float>(), (int)x.numel());
    return {sums, ranks, total};
}

// A return before a full-mask collective: it completes without those lanes, but what is read of them is undefined.
__global__ void exited_shuffle_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffffu, v, d);  // MARK exited
    if (i == 0) *y = v;
}
torch::Tensor exited_shuffle(torch::Tensor x) {
    auto y = torch::empty({1}, x.options());
    exited_shuffle_kernel<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}

__global__ void after_exit_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    unsigned votes = __ballot_sync(0xffffffffu, x[i] > 0.0f);
    __syncwarp();
    float first = __shfl_sync(0xffffffffu, x[i], 0);
    y[i] = first + __popc(votes) + __all_sync(0xffffffffu, i < n);
}
torch::Tensor after_exit(torch::Tensor x) {
    auto y = torch::empty_like(x);
    after_exit_kernel<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}

// As torch's own tutorial on extensions has it: accessors by value, with restricted pointers.
template <typename T>
__global__ void C10_LAUNCH_BOUNDS_1(128) accessors_kernel(torch::PackedTensorAccessor32<T, 2, torch::RestrictPtrTraits> x,
                                                          torch::PackedTensorAccessor32<T, 2, torch::RestrictPtrTraits> y) {
    int row = blockIdx.x, column = threadIdx.x;
    if (column < x.size(1)) y[row][column] = 2 * x[row][column] + x.size(0);
}
torch::Tensor accessors(torch::Tensor x) {
    auto y = torch::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "accessors", ([&] {
        accessors_kernel<scalar_t><<<x.size(0), 32>>>(x.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
                                                      y.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>());
    }));
    return y;
}

__device__ int sum_of(cg::thread_group group, int* work, int value) {
    int rank = group.thread_rank();
    for (int i = group.size() / 2; i > 0; i /= 2) {
        work[rank] = value;
        group.sync();
        if (rank < i) value += work[rank + i];
        group.sync();
    }
    return value;
}
__global__ void groups_kernel(int* out) {
    __shared__ int work[64];
    cg::thread_block block = cg::this_thread_block();
    int sum = sum_of(block, work, threadIdx.x);
    if (threadIdx.x == 0) out[0] = sum;
    auto tile = cg::tiled_partition<16>(block);
    int part = sum_of(tile, work + threadIdx.x / 16 * 16, threadIdx.x);
    if (tile.thread_rank() == 0) out[1 + threadIdx.x / 16] = part;
}
torch::Tensor groups(torch::Tensor x) {
    int* out = static_cast<int*>(c10::cuda::CUDACachingAllocator::raw_alloc(5 * sizeof(int)));
    groups_kernel<<<1, 64>>>(out);
    cudaMemcpy(x.data_ptr<int>(), out, 5 * sizeof(int), cudaMemcpyDeviceToDevice);
    c10::cuda::CUDACachingAllocator::raw_delete(out);
    return x;
}

// One stream waits for another's event; an event that was not made for timing gives none.
torch::Tensor events(torch::Tensor x) {
    auto side = at::cuda::getStreamFromPool();
    at::cuda::CUDAEvent ready, start(cudaEventDefault), end(cudaEventDefault);
    start.record();
    ready.record(side);
    ready.block(at::cuda::getCurrentCUDAStream());
    end.record(at::cuda::getCurrentCUDAStream());
    end.synchronize();
    torch::cuda::synchronize();
    bool timed = true;
    try {
        start.elapsed_time(ready);
    } catch (const c10::Error&) {
        timed = false;
    }
    float* values = x.data_ptr<float>();
    const float results[4] = {ready.isCreated() && ready.query() ? 1.0f : 0.0f, start.elapsed_time(end) >= 0.0f ? 1.0f : 0.0f,
                              torch::cuda::is_available() && torch::cuda::device_count() == 1 ? 1.0f : 0.0f, timed ? 1.0f : 0.0f};
    cudaMemcpy(values, results, sizeof(results), cudaMemcpyHostToDevice);
    return x;
}

template <typename T>
__global__ void compat_kernel(T* x, int n) {
    if (threadIdx.x < n) x[threadIdx.x] = c10::cuda::compat::sqrt(c10::cuda::compat::max(x[threadIdx.x], T(0)));
}
torch::Tensor compat(torch::Tensor x) {
    compat_kernel<<<1, 32>>>(x.data_ptr<float>(), x.numel());
    return x;
}

template <typename T> __global__ void torch_warp_kernel(const T* x, T* y) {
    T v = doLdg(x + threadIdx.x);
    for (int o = C10_WARP_SIZE / 2; o > 0; o >>= 1) v = v + WARP_SHFL_DOWN(v, o);
    v = WARP_SHFL(v, 0);
    const T largest = WARP_SHFL_XOR(x[threadIdx.x], 1), before = WARP_SHFL_UP(x[threadIdx.x], 1);
    WARP_SYNC();
    if (threadIdx.x == 0) y[0] = v;
    gpuAtomicMax(y + 1, threadIdx.x == 0 ? largest : before);
    gpuAtomicMin(y + 2, largest);
    if (threadIdx.x < 3) gpuAtomicMul(y + 3, T(2));
    if (WARP_BALLOT(threadIdx.x < 2) != 3 || ACTIVE_MASK() != 0xffffffff) y[0] = T(-1);
}
torch::Tensor torch_warp(torch::Tensor x) {
    auto y = torch::ones({4}, x.options());
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "torch_warp", [&] {
        torch_warp_kernel<scalar_t><<<1, 32>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>());
    });
    return y;
}

torch::Tensor streams(torch::Tensor x) {
    cudaStream_t raw;
    cudaStreamCreate(&raw);
    const auto own = c10::cuda::getStreamFromExternal(raw, x.get_device());
    const auto before = at::cuda::getCurrentCUDAStream();
    bool right = own.stream() == raw && own != before && c10::Stream(own) == own.unwrap();
    {
        c10::cuda::OptionalCUDAStreamGuard outer, other(own.unwrap());
        right = right && at::cuda::getCurrentCUDAStream() == own && !outer.current_stream().has_value();
        c10::cuda::CUDAStreamGuard inner(before);
        right = right && at::cuda::getCurrentCUDAStream() == before && inner.original_stream() == own;
    }
    right = right && at::cuda::getCurrentCUDAStream() == before;
    x.record_stream(own);
    auto* allocator = c10::cuda::CUDACachingAllocator::get();
    const auto block = allocator->allocate(x.numel() * sizeof(float));
    c10::cuda::CUDACachingAllocator::recordStream(block, own);
    compat_kernel<<<1, 32, 0, own>>>(x.data_ptr<float>(), x.numel());
    cudaMemcpyAsync(block.get(), x.data_ptr<float>(), x.numel() * sizeof(float), cudaMemcpyDeviceToDevice, own);
    own.synchronize();
    auto y = torch::empty_like(x);
    if (right) cudaMemcpy(y.data_ptr<float>(), block.get(), x.numel() * sizeof(float), cudaMemcpyDeviceToDevice);
    cudaStreamDestroy(raw);
    return y;
}

struct Span {
    float* x;
    int n;
};
template <typename T> __global__ void span_kernel(Span span, T factor) {
    if (threadIdx.x < span.n) span.x[threadIdx.x] *= factor;
}
static void scaled(float* x, int n) {
    if (n > 0) return span_kernel<float><<<1, 32>>>({x, n}, 3.0f);
}
torch::Tensor launch_forms(torch::Tensor x) {
    scaled(x.data_ptr<float>(), x.numel());
    const auto kernel = span_kernel<double>;
    kernel<<<{1}, {32, 1}>>>({.x = x.data_ptr<float>(), .n = 2}, {});
    return x;
}

__global__ void doubled_kernel(const float* x, float* y, int n) {
    if (threadIdx.x < n) y[threadIdx.x] = 2 * x[threadIdx.x];
}
torch::Tensor doubled(torch::Tensor x) {
    auto y = torch::empty_like(x);
    doubled_kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}

struct alignas(16) Two { unsigned long long first, second; };
__device__ Two two;
__global__ void wide_kernel(float* x, int n) {
    if (blockIdx.x * blockDim.x + threadIdx.x >= n) return;
    Two seen{0, 0};
    for (;;) {
        const Two found = atomicCAS(&two, seen, Two{seen.first + 1, seen.second + 3});
        if (found.first == seen.first && found.second == seen.second) break;
        seen = found;
    }
}
__global__ void wide_taken_kernel(float* x) {
    const Two old = atomicExch_block(&two, Two{7, 8});
    x[0] = old.first;
    x[1] = old.second;
    unsigned __int128 last, given = 9;
    asm volatile("atom.global.exch.b128 %0, [%1], %2;" : "=q"(last) : "l"(&two), "q"(given) : "memory");
    x[2] = static_cast<unsigned long long>(last);
    x[3] = static_cast<unsigned long long>(last >> 64);
    asm volatile("atom.global.cas.b128 %0, [%1], %2, %3;" : "=q"(last) : "l"(&two), "q"(given), "q"(last) : "memory");
    x[4] = static_cast<unsigned long long>(last);
    two = Two{0, 0};
}
torch::Tensor wide(torch::Tensor x) {
    wide_kernel<<<8, 64>>>(x.data_ptr<float>(), 500);
    wide_taken_kernel<<<1, 1>>>(x.data_ptr<float>());
    return x;
}

__global__ void wide_race_kernel(float* x) {
    __shared__ Two mine;
    if (threadIdx.x == 0) mine = Two{1, 1};
    __syncthreads();
    if (threadIdx.x == 0) mine.second = 4;  // MARK wide write
    else atomicCAS(&mine, Two{1, 1}, Two{2, 2});  // MARK wide swap
    __syncthreads();
    x[0] = mine.first;
}
void wide_race(torch::Tensor x) { wide_race_kernel<<<1, 64>>>(x.data_ptr<float>()); }

torch::Tensor pinned(torch::Tensor x) {
    auto mine = x.cpu().pin_memory();
    auto host = torch::empty({x.numel()}, torch::dtype(torch::kFloat32).pinned_memory(true));
    TORCH_CHECK(mine.is_pinned() && host.is_pinned() && !x.is_pinned() && !x.cpu().is_pinned());
    doubled_kernel<<<1, 32>>>(mine.data_ptr<float>(), host.data_ptr<float>(), x.numel());
    cudaDeviceSynchronize();
    return host.to(x.device(), /*non_blocking=*/true);
}

__global__ void torch_device_kernel(float* x, int64_t* n, int16_t* s, at::Half* h) {
    float v = x[threadIdx.x];
    for (int o = C10_WARP_SIZE / 2; o > 0; o /= 2) v += WARP_SHFL_DOWN(v, o);
    const at::Half next = WARP_SHFL_DOWN(at::Half(threadIdx.x), 1);
    if (threadIdx.x == 2) gpuAtomicAdd(h, next);
    atomicAdd(s + 1, static_cast<int16_t>(1));
    gpuAtomicAdd(n, static_cast<int64_t>(WARP_BALLOT(threadIdx.x < 2)));
    gpuAtomicMax(x + 33, threadIdx.x == 5 ? NAN : static_cast<float>(threadIdx.x));
    gpuAtomicMin(x + 34, -static_cast<float>(threadIdx.x));
    gpuAtomicMul(x + 35, threadIdx.x < 3 ? 2.0f : 1.0f);
    if (threadIdx.x == 0) x[32] = WARP_SHFL(v, 0, 1) + doLdg(x);
}
torch::Tensor torch_device(torch::Tensor x) {
    auto n = torch::zeros({1}, x.options().dtype(torch::kInt64)), s = torch::zeros({2}, x.options().dtype(torch::kInt16));
    auto h = torch::zeros({2}, x.options().dtype(torch::kHalf));
    torch_device_kernel<<<at::cuda::ATenCeilDiv(x.numel(), int64_t{40}), 32>>>(x.data_ptr<float>(), n.data_ptr<int64_t>(), s.data_ptr<int16_t>(), h.data_ptr<at::Half>());
    return torch::cat({x.slice(0, 32), n.to(torch::kFloat), s.to(torch::kFloat), h.to(torch::kFloat)});
}

torch::Tensor blobs(torch::Tensor x) {
    float* mine;
    cudaMallocAsync(&mine, 3 * sizeof(float), nullptr);
    auto t = torch::from_blob(mine, {3}, [](void* p) { cudaFree(p); }, x.options());
    doubled_kernel<<<1, 32>>>(x.data_ptr<float>(), t.data_ptr<float>(), 3);
    TORCH_CHECK(t.is_cuda() && (x + t).is_cuda());
    float held[3] = {1, 2, 3};
    TORCH_CHECK(torch::from_blob(held, {3}).is_cpu());
    auto strided = torch::from_blob(mine, {2, 3}, {0, 1}, x.options());
    bool refused = false;
    try {
        torch::from_blob(held, {3}, x.options());
    } catch (const c10::Error&) {
        refused = true;
    }
    return torch::cat({strided.sum(0) + t, torch::full({1}, refused, x.options())});
}

__device__ int known_to_kernels;
__managed__ float known_to_both[2];
void host_access(torch::Tensor x) {
    float* values = x.data_ptr<float>();
    for (int i = 0; i < 3; ++i)
        values[i] += 1;  // MARK host access
    known_to_kernels = 1;  // MARK host variable
}

__global__ void both_kernel(float* x) { x[threadIdx.x] = known_to_both[threadIdx.x]; }
torch::Tensor hosts_own(torch::Tensor x) {
    float *managed, *pinned;
    cudaMallocManaged(&managed, sizeof(float));
    cudaMallocHost(&pinned, 2 * sizeof(float));
    std::vector<float> own(2, 1);
    cudaHostRegister(own.data(), 2 * sizeof(float), cudaHostRegisterPortable | cudaHostRegisterMapped);
    cudaMemPrefetchAsync(managed, sizeof(float), cudaMemLocation{cudaMemLocationTypeDevice, 0}, 0, nullptr);
    auto copy = x.cpu();
    *managed = own[1];
    pinned[0] = *managed + copy.data_ptr<float>()[0];
    pinned[1] = copy.accessor<float, 1>()[1];
    known_to_both[0] = pinned[0];
    known_to_both[1] = pinned[1];
    both_kernel<<<1, 2>>>(x.data_ptr<float>());
    cudaDeviceSynchronize();
    cudaHostUnregister(own.data());
    cudaFreeHost(pinned);
    cudaFree(managed);
    return x;
}

struct Counted {
    float* gone;
    float value = 2;
    __device__ ~Counted() { atomicAdd(gone, value); }
};
struct Shape {
    __device__ virtual float area() const = 0;
    __device__ virtual ~Shape() {}
};
template <class T> struct Square : Shape {
    T side;
    __device__ explicit Square(T s) : side(s) {}
    __device__ float area() const override { return side * side; }
};
__global__ void heap_objects_kernel(float* x) {
    auto* one = new Counted{x};
    auto* many = new Counted[3]{{x}, {x}, {x}};
    float* plain = new float[threadIdx.x + 1];
    const Shape* shape = new Square<float>(3);
    plain[threadIdx.x] = shape->area();
    atomicAdd(x + 1, plain[threadIdx.x]);
    alignas(float) char place[sizeof(float)];
    x[2] = *new (place) float(5);
    delete shape;
    delete[] plain;
    delete[] many;
    delete one;
    delete static_cast<float*>(nullptr);
}
torch::Tensor heap_objects(torch::Tensor x) {
    heap_objects_kernel<<<1, 4>>>(x.data_ptr<float>());
    return x;
}
