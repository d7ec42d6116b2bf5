/*
summary: CUB's merge sorts, shuffles and differences of a block, and its device-wide sorts of segments, scans by key, runs and selections by flag
inputs:
  x: normal(4, 512)
  k: integers(0, 2, 2048)
outputs:
  merged: new(4, 512)
  order: new(4, 512, dtype=torch.int32)
  first: new(4, 301)
  offset: zeros(4, 128)
  turned: new(4, 128)
  before: zeros(4, 512)
  after: zeros(4, 512)
  left: new(4, 512)
  right: new(4, 512)
  rows: new(2048)
  places: new(2048, dtype=torch.int32)
  down: new(2048, dtype=torch.int32)
  sums: new(2048)
  exclusive: new(2048)
  values: zeros(2048, dtype=torch.int32)
  lengths: zeros(2048, dtype=torch.int32)
  flagged: zeros(2048)
  unique: zeros(2048)
  counts: new(3, dtype=torch.int32)
sizes: [4]
expected:
  merged: x.sort(dim=1, stable=True, descending=True).values
  order: x.sort(dim=1, stable=True, descending=True).indices.int()
  first: x[:, :301].sort(dim=1).values
  offset: F.pad(x[:, 2:128], (0, 2))
  turned: x[:, :128].roll(-5, 1)
  before: F.pad(x[:, :-1], (1, 0))
  after: F.pad(x[:, 1:], (0, 1))
  left: torch.cat([x[:, :1], x.diff(dim=1)], 1)
  right: torch.cat([-x.diff(dim=1), x[:, -1:]], 1)
  rows: x.sort(dim=1, stable=True).values.flatten()
  places: (x.sort(dim=1, stable=True).indices + 512 * torch.arange(4)[:, None]).flatten().int()
  down: k.view(4, 512).sort(dim=1, descending=True).values.flatten().int()
  sums: by_key(k, x.flatten(), True)
  exclusive: by_key(k, x.flatten(), False)
  values: F.pad(k.unique_consecutive(), (0, 2048 - k.unique_consecutive().numel())).int()
  lengths: lengths(k)
  flagged: F.pad(x.flatten()[k > 0], (0, int((k <= 0).sum())))
  unique: F.pad(x.flatten()[heads(k)], (0, int((~heads(k)).sum())))
  counts: torch.stack([heads(k).sum(), (k > 0).sum(), heads(k).sum()]).int()
helpers: |
  def heads(k):
      return F.pad(k.diff() != 0, (1, 0), value=True)
  def lengths(k):
      found = k.unique_consecutive(return_counts=True)[1]
      return F.pad(found, (0, 2048 - found.numel())).int()
  def by_key(k, x, inclusive):
      out, total = [], 0.0
      for i, (head, value) in enumerate(zip(heads(k).tolist(), x.double().tolist())):
          total = 0.0 if head else total
          out.append(total + value if inclusive else total)
          total += value
      return torch.tensor(out)
tolerance: 1.0e-5
*/
#include <cub/block/block_shuffle.cuh>
#include <cub/cub.cuh>
#include <cuda_runtime.h>

constexpr int THREADS = 128, ITEMS = 4, TILE = THREADS * ITEMS, VALID = 301;

struct Greater {
    __device__ bool operator()(float a, float b) const { return a > b; }
};
struct Less {
    __device__ bool operator()(float a, float b) const { return a < b; }
};
struct Minus {
    __device__ float operator()(float a, float b) const { return a - b; }
};

__global__ void sort_rows(const float* x, float* merged, int* order, float* first) {
    using Pairs = cub::BlockMergeSort<float, THREADS, ITEMS, int>;
    using Keys = cub::BlockMergeSort<float, THREADS, ITEMS>;
    __shared__ union {
        typename Pairs::TempStorage pairs;
        typename Keys::TempStorage keys;
    } storage;
    const int mine = threadIdx.x * ITEMS, at = blockIdx.x * TILE + mine;
    float keys[ITEMS], part[ITEMS];
    int places[ITEMS];
    for (int i = 0; i < ITEMS; ++i) {
        keys[i] = part[i] = x[at + i];
        places[i] = mine + i;
    }
    Pairs(storage.pairs).Sort(keys, places, Greater());
    __syncthreads();
    Keys(storage.keys).Sort(part, Less(), VALID, 99.0f);
    for (int i = 0; i < ITEMS; ++i) {
        merged[at + i] = keys[i];
        order[at + i] = places[i];
        if (mine + i < VALID) first[blockIdx.x * VALID + mine + i] = part[i];  // what stands behind is not to be relied on
    }
}

__global__ void move_rows(const float* x, float* offset, float* turned, float* before, float* after, float* left, float* right) {
    using Shuffle = cub::BlockShuffle<float, THREADS>;
    using Difference = cub::BlockAdjacentDifference<float, THREADS>;
    __shared__ typename Shuffle::TempStorage shuffle;
    __shared__ typename Difference::TempStorage difference;
    const int at = blockIdx.x * TILE + threadIdx.x * ITEMS, one = blockIdx.x * THREADS + threadIdx.x;
    float items[ITEMS], up[ITEMS] = {}, down[ITEMS] = {}, less[ITEMS], more[ITEMS], far = 0.0f, round;
    for (int i = 0; i < ITEMS; ++i) items[i] = x[at + i];
    const float mine = x[blockIdx.x * TILE + threadIdx.x];
    Shuffle(shuffle).Offset(mine, far, 2);
    __syncthreads();
    Shuffle(shuffle).Rotate(mine, round, 5);
    __syncthreads();
    Shuffle(shuffle).Up(items, up);
    __syncthreads();
    Shuffle(shuffle).Down(items, down);
    Difference(difference).SubtractLeft(items, less, Minus());
    __syncthreads();
    Difference(difference).SubtractRight(items, more, Minus());
    offset[one] = far;
    turned[one] = round;
    for (int i = 0; i < ITEMS; ++i) {
        before[at + i] = up[i];
        after[at + i] = down[i];
        left[at + i] = less[i];
        right[at + i] = more[i];
    }
}

__global__ void prepare(const int* k, int* offsets, int* numbers, int* flags, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        if (i <= 4) offsets[i] = i * (n / 4);
        numbers[i] = i;
        flags[i] = k[i] > 0;
    }
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
    const int rows = (int)size[0], n = rows * TILE;
    int *offsets, *numbers, *flags, *spare, *kept, *counts = (int*)out[18];
    cudaMalloc(&offsets, 5 * sizeof(int));
    for (int** one : {&numbers, &flags, &spare, &kept}) cudaMalloc(one, n * sizeof(int));
    sort_rows<<<rows, THREADS>>>(x, (float*)out[0], (int*)out[1], (float*)out[2]);
    move_rows<<<rows, THREADS>>>(x, (float*)out[3], (float*)out[4], (float*)out[5], (float*)out[6], (float*)out[7], (float*)out[8]);
    prepare<<<1, 256>>>(k, offsets, numbers, flags, n);
    twice([&](void* t, size_t& b) {
        cub::DeviceSegmentedRadixSort::SortPairs(t, b, x, (float*)out[9], numbers, (int*)out[10], n, 4, offsets, offsets + 1);
    });
    cudaMemcpy(spare, k, n * sizeof(int), cudaMemcpyDeviceToDevice);
    cub::DoubleBuffer<int> both(spare, kept);
    twice([&](void* t, size_t& b) { cub::DeviceSegmentedRadixSort::SortKeysDescending(t, b, both, n, 4, offsets, offsets + 1); });
    cudaMemcpy(out[11], both.Current(), n * sizeof(int), cudaMemcpyDeviceToDevice);
    twice([&](void* t, size_t& b) { cub::DeviceScan::InclusiveSumByKey(t, b, k, x, (float*)out[12], n); });
    twice([&](void* t, size_t& b) { cub::DeviceScan::ExclusiveSumByKey(t, b, k, x, (float*)out[13], n); });
    twice([&](void* t, size_t& b) { cub::DeviceRunLengthEncode::Encode(t, b, k, (int*)out[14], (int*)out[15], counts, n); });
    twice([&](void* t, size_t& b) { cub::DeviceSelect::Flagged(t, b, x, flags, (float*)out[16], counts + 1, n); });
    twice([&](void* t, size_t& b) { cub::DeviceSelect::UniqueByKey(t, b, k, x, numbers, (float*)out[17], counts + 2, n); });
    for (int* one : {numbers, flags, spare, kept, offsets}) cudaFree(one);
}
