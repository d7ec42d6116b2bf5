/*
summary: Thrust's conditional and by-key algorithms, searches, placeholders, vectors that grow, and calls inside of kernels
inputs:
  x: normal(2000)
  k: integers(0, 30, 2000)
outputs:
  chosen: zeros(2000)
  replaced: new(2000)
  kept: zeros(2000)
  split: new(2000)
  moved: zeros(2000)
  merged: new(2000)
  steps: new(2000)
  runs: new(2000, dtype=torch.int32)
  turned: new(2000)
  table: new(2000, dtype=torch.int32)
  squares: new(2000)
  firsts: zeros(2000)
  told: new(16, dtype=torch.int32)
  inside: new(8)
  halves: new(2000, dtype=torch.float16)
  odd: new(2000)
sizes: [2000]
expected:
  chosen: torch.where(k > 10, x * 2 + 1, torch.zeros(()))
  replaced: torch.where(x < 0, torch.full((), -1.0), x)
  kept: F.pad(x[k != 3], (0, int((k == 3).sum())))
  split: torch.cat([x[x > 0], x[x <= 0]])
  moved: moved(x)
  merged: x.sort().values
  steps: torch.cat([x[:1], x.diff()])
  runs: runs(k)
  turned: x.flip(0)
  table: (3 * torch.arange(2000) + 1).int()
  squares: (x.double() ** 2).cumsum(0).float()
  firsts: firsts(x, k)
  told: told(x, k)
  inside: x[:1600].view(8, 200).double().sum(1).float()
  halves: x.half().sort().values
  odd: -x.abs()
helpers: |
  def moved(x):
      y = torch.zeros(2000)
      y[(torch.arange(2000) * 7) % 2000] = torch.where(x > 0, x, torch.zeros(()))
      return y
  def runs(k):
      ids = F.pad((k.diff() != 0).long().cumsum(0), (1, 0))
      starts = torch.searchsorted(ids, torch.arange(int(ids[-1]) + 1))
      return (torch.arange(2000) - starts[ids]).int()
  def firsts(x, k):
      keys, order = k.sort(stable=True)
      at = torch.searchsorted(keys, keys.unique())
      return F.pad(x[order][at], (0, 2000 - at.numel()))
  def told(x, k):
      s = k.sort().values
      lower, upper = int(torch.searchsorted(s, 7)), int(torch.searchsorted(s, 7, right=True))
      return torch.tensor([lower, upper, 1, 0, int((k > 10).sum()), int(k.max()), 9, 5, 45, 3, 1,
                           int(torch.unique_consecutive(k).numel()), int((x > 0).sum()), 100, 8, 2]).int()
tolerance: 1.0e-5
*/
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <thrust/adjacent_difference.h>
#include <thrust/binary_search.h>
#include <thrust/copy.h>
#include <thrust/count.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/extrema.h>
#include <thrust/functional.h>
#include <thrust/generate.h>
#include <thrust/host_vector.h>
#include <thrust/iterator/constant_iterator.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/reverse_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/iterator/transform_output_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/logical.h>
#include <thrust/merge.h>
#include <thrust/partition.h>
#include <thrust/reduce.h>
#include <thrust/remove.h>
#include <thrust/replace.h>
#include <thrust/reverse.h>
#include <thrust/scan.h>
#include <thrust/scatter.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/tabulate.h>
#include <thrust/transform.h>
#include <thrust/transform_scan.h>
#include <thrust/unique.h>
#include <thrust/zip_function.h>

struct AboveTen {
    __host__ __device__ bool operator()(int v) const { return v > 10; }
};
struct Positive {
    __host__ __device__ bool operator()(float v) const { return v > 0.0f; }
};
struct Negative {
    __host__ __device__ bool operator()(float v) const { return v < 0.0f; }
};
struct Three {
    __host__ __device__ bool operator()(int v) const { return v == 3; }
};
struct Sevenfold {
    int n;
    __host__ __device__ int operator()(int i) const { return i * 7 % n; }
};
struct Line {
    __host__ __device__ int operator()(int i) const { return 3 * i + 1; }
};
struct Square {
    __host__ __device__ float operator()(float v) const { return v * v; }
};
struct MinusAbs {
    __host__ __device__ float operator()(float v) const { return v > 0.0f ? -v : v; }
};
struct Halved {
    __host__ __device__ __half operator()(float v) const { return __float2half(v); }
};
struct Less {
    __host__ __device__ bool operator()(__half a, __half b) const { return __half2float(a) < __half2float(b); }
};
struct Counts {
    __host__ __device__ int operator()() const { return 9; }
};
struct Weighs {
    __host__ __device__ float operator()(float v, int w) const { return w > 10 ? v * 2.0f + 1.0f : 0.0f; }
};

__global__ void rows(const float* x, float* sums) {
    // each thread for itself
    sums[threadIdx.x] = thrust::reduce(thrust::seq, x + threadIdx.x * 200, x + threadIdx.x * 200 + 200, 0.0f);
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    using namespace thrust::placeholders;
    const float* x = (const float*)in[0];
    const int* k = (const int*)in[1];
    const int n = (int)size[0];
    const thrust::device_ptr<const float> px(x);
    const thrust::device_ptr<const int> pk(k);
    auto f = [&](int i) { return thrust::device_pointer_cast((float*)out[i]); };

    thrust::transform_if(px, px + n, pk, f(0), 2.0f * _1 + 1.0f, AboveTen());
    thrust::replace_copy_if(px, px + n, f(1), Negative(), -1.0f);
    thrust::remove_copy_if(px, px + n, pk, f(2), Three());
    thrust::partition_copy(px, px + n, f(3), thrust::make_reverse_iterator(f(3) + n), Positive());
    thrust::reverse(f(3) + thrust::count_if(px, px + n, Positive()), f(3) + n);
    auto places = thrust::make_transform_iterator(thrust::make_counting_iterator(0), Sevenfold{n});
    thrust::scatter_if(px, px + n, places, px, f(4), Positive());

    thrust::device_vector<float> low(px, px + n / 2), high(px + n / 2, px + n);
    thrust::sort(low.begin(), low.end());
    thrust::sort(high.begin(), high.end());
    thrust::merge(low.begin(), low.end(), high.begin(), high.end(), f(5));
    thrust::adjacent_difference(px, px + n, f(6));
    thrust::exclusive_scan_by_key(thrust::device, k, k + n, thrust::make_constant_iterator(1), (int*)out[7]);
    thrust::reverse_copy(px, px + n, f(8));
    thrust::tabulate(thrust::device, (int*)out[9], (int*)out[9] + n, Line());
    thrust::transform_inclusive_scan(px, px + n, f(10), Square(), thrust::plus<float>());

    thrust::device_vector<int> keys(pk, pk + n);
    thrust::device_vector<float> values(px, px + n);
    thrust::stable_sort_by_key(keys.begin(), keys.end(), values.begin());
    thrust::device_vector<int> sorted = keys;
    auto ends = thrust::unique_by_key(keys.begin(), keys.end(), values.begin());
    thrust::copy(values.begin(), ends.second, f(11));

    thrust::host_vector<int> told(16);
    told[0] = (int)(thrust::lower_bound(sorted.begin(), sorted.end(), 7) - sorted.begin());
    told[1] = (int)(thrust::upper_bound(sorted.begin(), sorted.end(), 7) - sorted.begin());
    told[2] = thrust::binary_search(sorted.begin(), sorted.end(), 7);
    told[3] = thrust::binary_search(sorted.begin(), sorted.end(), 30);
    told[4] = (int)thrust::count_if(pk, pk + n, _1 > 10);
    told[5] = *(thrust::max_element(sorted.begin(), sorted.end()));
    thrust::device_vector<int> grown(3, 4);
    grown.push_back(9);
    told[6] = grown.back();
    grown.resize(5, 5);
    told[7] = grown[4];
    grown[0] = 20;
    grown[1] += 3;
    told[8] = thrust::reduce(grown.begin(), grown.end());
    grown.erase(grown.begin(), grown.begin() + 2);
    told[9] = (int)grown.size();
    told[10] = thrust::none_of(grown.begin(), grown.end(), _1 == 20);
    told[11] = (int)thrust::unique_count(pk, pk + n);
    thrust::host_vector<float> mine(px, px + n);
    told[12] = (int)thrust::count_if(mine.begin(), mine.end(), Positive());
    thrust::device_vector<int> made(100);
    thrust::generate(made.begin(), made.end(), Counts());
    told[13] = (int)thrust::count(made.begin(), made.end(), 9);
    thrust::swap(told[14], told[15]);
    told[14] = (int)(thrust::remove(sorted.begin(), sorted.begin() + 0, 1) - sorted.begin()) + 8;
    told[15] = thrust::is_sorted(thrust::device, sorted.begin(), sorted.end()) + thrust::is_sorted(px, px + 1);
    cudaMemcpy(out[12], told.data(), 16 * sizeof(int), cudaMemcpyHostToDevice);

    rows<<<1, 8>>>(x, (float*)out[13]);
    thrust::device_vector<__half> halves(n);
    thrust::transform(px, px + n, halves.begin(), Halved());
    thrust::sort(halves.begin(), halves.end(), Less());
    cudaMemcpy(out[14], thrust::raw_pointer_cast(&halves[0]), n * sizeof(__half), cudaMemcpyDeviceToDevice);
    thrust::copy(px, px + n, thrust::make_transform_output_iterator(f(15), MinusAbs()));
    auto zipped = thrust::make_zip_iterator(px, pk);
    thrust::transform(zipped, zipped + n, f(0), thrust::make_zip_function(Weighs()));
}
