/*
summary: CUB's block-wide loads and stores in all arrangements, radix sorts of keys and pairs, exchanges, histograms and flags
inputs:
  x: normal(4, 1000)
  k: integers(-500, 500, 4, 512)
outputs:
  copies: zeros(6, 4, 1000)
  sorted: new(4, 512)
  order: new(4, 512, dtype=torch.int32)
  down: new(4, 512)
  low: new(4, 512, dtype=torch.int32)
  halves: new(4, 512)
  bins: new(4, 16, dtype=torch.int32)
  heads: new(4, 512, dtype=torch.int32)
  striped: new(4, 512, dtype=torch.int32)
  slices: new(4, 512, dtype=torch.int32)
sizes: [4, 1000]
expected:
  copies: (x + 1).expand(6, 4, 1000).contiguous()
  sorted: x[:, :512].sort(dim=1, stable=True).values
  order: x[:, :512].sort(dim=1, stable=True).indices.int()
  down: x[:, :512].sort(dim=1, descending=True).values
  low: by_low_bits(k)
  halves: x[:, :512].half().sort(dim=1).values.float()
  bins: torch.stack([torch.bincount(row & 15, minlength=16) for row in k]).int()
  heads: torch.cat([torch.ones(4, 1), (k.sort(dim=1).values.diff(dim=1) != 0).float()], 1).int()
  striped: k.view(4, 128, 4).transpose(1, 2).reshape(4, 512)
  slices: k.view(4, 4, 32, 4).transpose(2, 3).reshape(4, 512)
helpers: |
  def by_low_bits(k):
      shifted = (k >> 2) & 63
      return k.gather(1, shifted.sort(dim=1, stable=True).indices)
*/
#include <cub/cub.cuh>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

constexpr int THREADS = 128, ITEMS = 4, TILE = THREADS * ITEMS;

template <cub::BlockLoadAlgorithm L, cub::BlockStoreAlgorithm S> __global__ void copy_rows(const float* x, float* y, int n) {
    using Load = cub::BlockLoad<float, THREADS, ITEMS, L>;
    using Store = cub::BlockStore<float, THREADS, ITEMS, S>;
    __shared__ union {
        typename Load::TempStorage load;
        typename Store::TempStorage store;
    } storage;
    const float* row = x + blockIdx.x * n;
    for (int base = 0; base < n; base += TILE) {
        float items[ITEMS];
        const int left = n - base;
        if (left >= TILE) Load(storage.load).Load(row + base, items);
        else Load(storage.load).Load(row + base, items, left, 0.0f);
        __syncthreads();
        for (int i = 0; i < ITEMS; ++i) items[i] += 1.0f;
        if (left >= TILE) Store(storage.store).Store(y + blockIdx.x * n + base, items);
        else Store(storage.store).Store(y + blockIdx.x * n + base, items, left);
        __syncthreads();
    }
}

__global__ void sort_rows(const float* x, const int* k, float* sorted, int* order, float* down, int* low, float* halves, int n) {
    using Pairs = cub::BlockRadixSort<float, THREADS, ITEMS, int>;
    using Floats = cub::BlockRadixSort<float, THREADS, ITEMS>;
    using Ints = cub::BlockRadixSort<int, THREADS, ITEMS>;
    using Halves = cub::BlockRadixSort<__half, THREADS, ITEMS>;
    __shared__ union {
        typename Pairs::TempStorage pairs;
        typename Floats::TempStorage floats;
        typename Ints::TempStorage ints;
        typename Halves::TempStorage halves;
    } storage;
    const int at = blockIdx.x * TILE, mine = threadIdx.x * ITEMS;
    float keys[ITEMS], others[ITEMS];
    int values[ITEMS], ints[ITEMS];
    __half small[ITEMS];
    for (int i = 0; i < ITEMS; ++i) {
        keys[i] = others[i] = x[blockIdx.x * n + mine + i];
        values[i] = mine + i;
        ints[i] = k[at + mine + i];
        small[i] = __float2half(keys[i]);
    }
    Pairs(storage.pairs).Sort(keys, values);
    __syncthreads();
    Floats(storage.floats).SortDescending(others);
    __syncthreads();
    Ints(storage.ints).Sort(ints, 2, 8);
    __syncthreads();
    Halves(storage.halves).SortBlockedToStriped(small);
    for (int i = 0; i < ITEMS; ++i) {
        sorted[at + mine + i] = keys[i];
        order[at + mine + i] = values[i];
        down[at + mine + i] = others[i];
        low[at + mine + i] = ints[i];
        halves[at + threadIdx.x + i * THREADS] = __half2float(small[i]);
    }
}

struct Differ {
    __device__ bool operator()(int a, int b) const { return a != b; }
};

template <cub::BlockHistogramAlgorithm A> __global__ void count_rows(const int* k, int* bins) {
    using Count = cub::BlockHistogram<unsigned char, THREADS, ITEMS, 16, A>;
    __shared__ typename Count::TempStorage storage;
    __shared__ int counts[16];
    unsigned char items[ITEMS];
    for (int i = 0; i < ITEMS; ++i) items[i] = k[blockIdx.x * TILE + threadIdx.x * ITEMS + i] & 15;
    Count(storage).Histogram(items, counts);
    __syncthreads();
    if (threadIdx.x < 16) bins[blockIdx.x * 16 + threadIdx.x] = counts[threadIdx.x];
}

__global__ void rearrange_rows(const int* k, int* heads, int* striped, int* slices) {
    using Sort = cub::BlockRadixSort<int, THREADS, ITEMS>;
    using Flags = cub::BlockDiscontinuity<int, THREADS>;
    using Exchange = cub::BlockExchange<int, THREADS, ITEMS>;
    using Sliced = cub::BlockExchange<int, THREADS, ITEMS, true>;
    __shared__ typename Sort::TempStorage sort;
    __shared__ typename Flags::TempStorage flag;
    __shared__ typename Exchange::TempStorage exchange;
    __shared__ typename Sliced::TempStorage sliced;
    const int at = blockIdx.x * TILE + threadIdx.x * ITEMS;
    int items[ITEMS], flags[ITEMS], moved[ITEMS], turned[ITEMS];
    for (int i = 0; i < ITEMS; ++i) {
        items[i] = k[at + i];
        moved[i] = k[at + i];
        turned[i] = k[at + i];
    }
    Sort(sort).Sort(items);
    Flags(flag).FlagHeads(flags, items, Differ());
    Exchange(exchange).StripedToBlocked(moved, moved);
    Sliced(sliced).WarpStripedToBlocked(turned, turned);
    for (int i = 0; i < ITEMS; ++i) {
        heads[at + i] = flags[i];
        striped[at + i] = moved[i];
        slices[at + i] = turned[i];
    }
}

template <cub::BlockLoadAlgorithm L, cub::BlockStoreAlgorithm S> void copy(const float* x, float* y, int rows, int n, int place) {
    copy_rows<L, S><<<rows, THREADS>>>(x, y + place * rows * n, n);
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const float* x = (const float*)in[0];
    const int* k = (const int*)in[1];
    const int rows = (int)size[0], n = (int)size[1];
    float* y = (float*)out[0];
    copy<cub::BLOCK_LOAD_DIRECT, cub::BLOCK_STORE_DIRECT>(x, y, rows, n, 0);
    copy<cub::BLOCK_LOAD_STRIPED, cub::BLOCK_STORE_STRIPED>(x, y, rows, n, 1);
    copy<cub::BLOCK_LOAD_VECTORIZE, cub::BLOCK_STORE_VECTORIZE>(x, y, rows, n, 2);
    copy<cub::BLOCK_LOAD_TRANSPOSE, cub::BLOCK_STORE_TRANSPOSE>(x, y, rows, n, 3);
    copy<cub::BLOCK_LOAD_WARP_TRANSPOSE, cub::BLOCK_STORE_WARP_TRANSPOSE>(x, y, rows, n, 4);
    copy<cub::BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED, cub::BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED>(x, y, rows, n, 5);
    sort_rows<<<rows, THREADS>>>(x, k, (float*)out[1], (int*)out[2], (float*)out[3], (int*)out[4], (float*)out[5], n);
    count_rows<cub::BLOCK_HISTO_SORT><<<rows, THREADS>>>(k, (int*)out[6]);
    count_rows<cub::BLOCK_HISTO_ATOMIC><<<rows, THREADS>>>(k, (int*)out[6]);
    rearrange_rows<<<rows, THREADS>>>(k, (int*)out[7], (int*)out[8], (int*)out[9]);
}
