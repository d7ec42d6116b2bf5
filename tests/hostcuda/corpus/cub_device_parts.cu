/*
summary: CUB's device-wide sorts, segmented reductions, selections and reductions by key, with the two calls of their protocol
inputs:
  x: normal(3000)
  k: integers(0, 40, 3000)
outputs:
  sorted: new(3000)
  order: new(3000, dtype=torch.int32)
  down: new(3000, dtype=torch.int32)
  sums: new(3)
  most: new(3)
  positive: zeros(3000)
  counts: new(4, dtype=torch.int32)
  runs: zeros(3000, dtype=torch.int32)
  run_sums: zeros(3000)
  extremes: new(2)
  places: new(2, dtype=torch.int32)
  scanned: new(3000)
  products: new(3000, dtype=torch.int32)
  parts: new(3000, dtype=torch.int32)
sizes: [3000]
expected:
  sorted: x.sort(stable=True).values
  order: x.sort(stable=True).indices.int()
  down: k.sort(descending=True).values.int()
  sums: x.view(3, 1000).double().sum(1)
  most: x.view(3, 1000).max(1).values
  positive: F.pad(x[x > 0], (0, int((x <= 0).sum())))
  counts: torch.stack([(x > 0).sum(), k.sort().values.unique().numel() * torch.ones(()), (k.diff() != 0).sum() + 1, (k % 2).sum()]).int()
  runs: F.pad(k.unique_consecutive(), (0, 3000 - k.unique_consecutive().numel())).int()
  run_sums: run_sums(k, x)
  extremes: torch.stack([x.max(), x.min()])
  places: torch.stack([x.argmax(), x.argmin()]).int()
  scanned: torch.cat([torch.full((1,), 5.0), 5 + x.double().cumsum(0)[:-1].float()])
  products: k.cummax(0).values.int()
  parts: torch.cat([k[k % 2 == 1], k[k % 2 == 0].flip(0)]).int()
helpers: |
  def run_sums(k, x):
      ids = F.pad((k.diff() != 0).long().cumsum(0), (1, 0))
      return torch.zeros(3000, dtype=torch.float64).index_add(0, ids, x.double())
tolerance: 1.0e-5
*/
#include <cub/cub.cuh>
#include <cuda_runtime.h>

struct Positive {
    __host__ __device__ bool operator()(float v) const { return v > 0.0f; }
};
struct Odd {
    __host__ __device__ bool operator()(int v) const { return v % 2 == 1; }
};
struct Add {
    template <class T> __host__ __device__ T operator()(const T& a, const T& b) const { return a + b; }
};
struct Larger {
    template <class T> __host__ __device__ T operator()(const T& a, const T& b) const { return a > b ? a : b; }
};
__global__ void fill(int* offsets, int* numbers, int n) {
    if (threadIdx.x < 4) offsets[threadIdx.x] = threadIdx.x * (n / 3);
    for (int i = threadIdx.x; i < n; i += blockDim.x) numbers[i] = i;
}
__global__ void unpack(const cub::KeyValuePair<int, float>* pairs, float* values, int* places) {
    values[threadIdx.x] = pairs[threadIdx.x].value;
    places[threadIdx.x] = pairs[threadIdx.x].key;
}

template <class F> void twice(F call) {
    size_t bytes = 0;
    call((void*)nullptr, bytes);
    void* storage;
    cudaMalloc(&storage, bytes);
    call(storage, bytes);
    cudaFree(storage);
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const float* x = (const float*)in[0];
    const int* k = (const int*)in[1];
    const int n = (int)size[0];
    int *offsets, *numbers, *spare, *counts = (int*)out[6];
    cub::KeyValuePair<int, float>* pairs;
    cudaMalloc(&offsets, 4 * sizeof(int));
    cudaMalloc(&numbers, n * sizeof(int));
    cudaMalloc(&spare, n * sizeof(int));
    cudaMalloc(&pairs, 2 * sizeof(*pairs));
    fill<<<1, 256>>>(offsets, numbers, n);
    twice([&](void* t, size_t& b) { cub::DeviceRadixSort::SortPairs(t, b, x, (float*)out[0], numbers, (int*)out[1], n); });
    twice([&](void* t, size_t& b) { cub::DeviceRadixSort::SortKeysDescending(t, b, k, (int*)out[2], n, 0, 6); });
    twice([&](void* t, size_t& b) { cub::DeviceSegmentedReduce::Sum(t, b, x, (float*)out[3], 3, offsets, offsets + 1); });
    twice([&](void* t, size_t& b) { cub::DeviceSegmentedReduce::Max(t, b, x, (float*)out[4], 3, offsets, offsets + 1); });
    twice([&](void* t, size_t& b) { cub::DeviceSelect::If(t, b, x, (float*)out[5], counts, n, Positive()); });
    cudaMemcpy(numbers, k, n * sizeof(int), cudaMemcpyDeviceToDevice);
    cub::DoubleBuffer<int> both(numbers, spare);
    twice([&](void* t, size_t& b) { cub::DeviceRadixSort::SortKeys(t, b, both, n); });
    twice([&](void* t, size_t& b) { cub::DeviceSelect::Unique(t, b, both.Current(), both.Alternate(), counts + 1, n); });
    twice([&](void* t, size_t& b) { cub::DeviceReduce::ReduceByKey(t, b, k, (int*)out[7], x, (float*)out[8], counts + 2, Add(), n); });
    twice([&](void* t, size_t& b) { cub::DeviceReduce::ArgMax(t, b, x, pairs, n); });
    twice([&](void* t, size_t& b) { cub::DeviceReduce::ArgMin(t, b, x, pairs + 1, n); });
    unpack<<<1, 2>>>(pairs, (float*)out[9], (int*)out[10]);
    twice([&](void* t, size_t& b) { cub::DeviceScan::ExclusiveScan(t, b, x, (float*)out[11], Add(), 5.0f, n); });
    twice([&](void* t, size_t& b) { cub::DeviceScan::InclusiveScan(t, b, k, (int*)out[12], Larger(), n); });
    twice([&](void* t, size_t& b) { cub::DevicePartition::If(t, b, k, (int*)out[13], counts + 3, n, Odd()); });
    cudaFree(pairs), cudaFree(spare), cudaFree(numbers), cudaFree(offsets);
}
