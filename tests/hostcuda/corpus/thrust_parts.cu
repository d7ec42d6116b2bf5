/*
summary: Thrust with vectors, device pointers and policies - transforms, reductions, scans, sorts, selections, searches, iterators that compute
inputs:
  x: normal(3000)
  k: integers(0, 40, 3000)
outputs:
  saxpy: new(3000)
  sums: new(6)
  scanned: new(3000)
  shifted: new(3000)
  by_key: new(3000)
  sorted: new(3000)
  order: new(3000, dtype=torch.int32)
  down: new(3000, dtype=torch.int32)
  far: new(3000)
  positive: zeros(3000)
  counts: new(12, dtype=torch.int32)
  runs: zeros(3000, dtype=torch.int32)
  run_sums: zeros(3000)
  gathered: new(3000)
  places: new(40, dtype=torch.int32)
  rows: new(30)
  parts: new(3000, dtype=torch.int32)
  zipped: new(3000)
sizes: [3000]
expected:
  saxpy: 2.5 * x + k
  sums: sums(x, k)
  scanned: x.double().cumsum(0).float()
  shifted: torch.cat([torch.full((1,), 5.0), 5 + x.double().cumsum(0)[:-1].float()])
  by_key: by_key(x, k)
  sorted: x.sort(stable=True).values
  order: k.sort(stable=True).indices.int()
  down: k.sort(descending=True).values.int()
  far: x[x.abs().sort(descending=True, stable=True).indices]
  positive: F.pad(x[x > 0], (0, int((x <= 0).sum())))
  counts: counts(x, k)
  runs: F.pad(k.unique_consecutive(), (0, 3000 - k.unique_consecutive().numel())).int()
  run_sums: run_sums(k, x)
  gathered: x[(torch.arange(3000) * 7) % 3000]
  places: torch.searchsorted(k.sort().values, torch.arange(40)).int()
  rows: x.view(30, 100).double().sum(1).float()
  parts: torch.cat([k[k % 2 == 1], k[k % 2 == 0]]).int()
  zipped: x * k + 1
helpers: |
  def run_sums(k, x):
      ids = F.pad((k.diff() != 0).long().cumsum(0), (1, 0))
      return torch.zeros(3000, dtype=torch.float64).index_add(0, ids, x.double())
  def by_key(x, k):
      keys = torch.arange(3000) // 100
      return x.view(30, 100).double().cumsum(1).flatten().float()
  def sums(x, k):
      d = x.double()
      return torch.stack([d.sum(), 10 + d.sum(), (d * d).sum(), (d * k).sum(), x.max().double(), x.min().double()]).float()
  def counts(x, k):
      s = k.sort().values
      return torch.stack([(x > 0).sum(), (k == 3).sum(), x.argmax(), x.argmin(), s.unique().numel() * torch.ones(()), (k % 2).sum(),
                          (k >= 20).int().argmax(), torch.ones(()), torch.zeros(()), torch.tensor(1.0), k[0], k[2999]]).int()
tolerance: 1.0e-5
*/
#include <cuda_runtime.h>
#include <thrust/adjacent_difference.h>
#include <thrust/binary_search.h>
#include <thrust/copy.h>
#include <thrust/count.h>
#include <thrust/device_ptr.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/extrema.h>
#include <thrust/fill.h>
#include <thrust/find.h>
#include <thrust/for_each.h>
#include <thrust/functional.h>
#include <thrust/gather.h>
#include <thrust/host_vector.h>
#include <thrust/inner_product.h>
#include <thrust/iterator/constant_iterator.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/discard_iterator.h>
#include <thrust/iterator/permutation_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/logical.h>
#include <thrust/partition.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/scatter.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <thrust/transform_reduce.h>
#include <thrust/tuple.h>
#include <thrust/unique.h>

struct Saxpy {
    float a;
    __host__ __device__ float operator()(float x, int y) const { return a * x + static_cast<float>(y); }
};
struct Positive {
    __host__ __device__ bool operator()(float v) const { return v > 0.0f; }
};
struct Odd {
    __host__ __device__ bool operator()(int v) const { return v % 2 == 1; }
};
struct Large {
    __host__ __device__ bool operator()(int v) const { return v >= 20; }
};
struct Square {
    __host__ __device__ float operator()(float v) const { return v * v; }
};
struct Farther {
    __host__ __device__ bool operator()(float a, float b) const { return fabsf(a) > fabsf(b); }
};
struct RowOf {
    int columns;
    __host__ __device__ int operator()(int i) const { return i / columns; }
};
struct Sevenfold {
    int n;
    __host__ __device__ int operator()(int i) const { return i * 7 % n; }
};
struct MulAdd {
    template <class Tuple> __host__ __device__ void operator()(Tuple t) const {
        thrust::get<2>(t) = thrust::get<0>(t) * static_cast<float>(thrust::get<1>(t)) + 1.0f;
    }
};

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const float* x = (const float*)in[0];
    const int* k = (const int*)in[1];
    const int n = (int)size[0];
    int* counts = (int*)out[10];
    cudaStream_t stream;
    cudaStreamCreate(&stream);

    // plain pointers with a policy
    thrust::transform(thrust::device, x, x + n, k, (float*)out[0], Saxpy{2.5f});
    thrust::inclusive_scan(thrust::cuda::par.on(stream), x, x + n, (float*)out[2]);
    thrust::exclusive_scan(thrust::cuda::par_nosync.on(stream), x, x + n, (float*)out[3], 5.0f);
    auto rows = thrust::make_transform_iterator(thrust::make_counting_iterator(0), RowOf{100});
    thrust::inclusive_scan_by_key(thrust::device, rows, rows + n, x, (float*)out[4]);
    thrust::reduce_by_key(thrust::cuda::par_nosync.on(stream), rows, rows + n, x, thrust::make_discard_iterator(), (float*)out[15]);
    cudaStreamSynchronize(stream);

    // device pointers
    thrust::device_ptr<const float> px = thrust::device_pointer_cast(x);
    thrust::device_ptr<const int> pk(k);
    const float sums[] = {
        thrust::reduce(px, px + n),
        thrust::reduce(px, px + n, 10.0f, thrust::plus<float>()),
        thrust::transform_reduce(px, px + n, Square(), 0.0f, thrust::plus<float>()),
        thrust::inner_product(px, px + n, pk, 0.0f),
        *thrust::max_element(px, px + n),
        thrust::reduce(px, px + n, 1e30f, thrust::minimum<float>()),
    };
    cudaMemcpy(out[1], sums, sizeof(sums), cudaMemcpyHostToDevice);
    thrust::device_ptr<float> sorted((float*)out[5]);
    thrust::copy(px, px + n, sorted);
    thrust::sort(sorted, sorted + n);
    thrust::device_ptr<float> far((float*)out[8]);
    thrust::copy(thrust::device, x, x + n, (float*)out[8]);
    thrust::stable_sort(far, far + n, Farther());
    thrust::copy_if(thrust::device, x, x + n, (float*)out[9], Positive());

    // vectors
    thrust::device_vector<int> keys(pk, pk + n), numbers(n);
    thrust::sequence(numbers.begin(), numbers.end());
    thrust::stable_sort_by_key(keys.begin(), keys.end(), numbers.begin());
    cudaMemcpy(out[6], thrust::raw_pointer_cast(numbers.data()), n * sizeof(int), cudaMemcpyDeviceToDevice);
    thrust::device_vector<int> falling(keys);
    thrust::sort(falling.begin(), falling.end(), thrust::greater<int>());
    thrust::copy(falling.begin(), falling.end(), thrust::device_pointer_cast((int*)out[7]));
    thrust::lower_bound(thrust::device, keys.begin(), keys.end(), thrust::counting_iterator<int>(0), thrust::counting_iterator<int>(40), thrust::device_pointer_cast((int*)out[14]));
    thrust::host_vector<int> told(12);
    told[0] = (int)thrust::count_if(px, px + n, Positive());
    told[1] = (int)thrust::count(pk, pk + n, 3);
    auto extremes = thrust::minmax_element(px, px + n);
    told[2] = (int)(extremes.second - px);
    told[3] = (int)(extremes.first - px);
    told[4] = (int)(thrust::unique(keys.begin(), keys.end()) - keys.begin());
    thrust::device_ptr<int> parts((int*)out[16]);
    thrust::copy(pk, pk + n, parts);
    told[5] = (int)(thrust::stable_partition(parts, parts + n, Odd()) - parts);
    told[6] = (int)(thrust::find_if(pk, pk + n, Large()) - pk);
    told[7] = thrust::is_sorted(sorted, sorted + n);
    told[8] = thrust::all_of(px, px + n, Positive());
    told[9] = thrust::equal(pk, pk + n, pk);
    thrust::host_vector<int> back(pk, pk + n);
    told[10] = back[0];
    told[11] = pk[n - 1];
    thrust::copy(told.begin(), told.end(), thrust::device_pointer_cast(counts));
    thrust::reduce_by_key(thrust::device, k, k + n, x, (int*)out[11], (float*)out[12]);

    // iterators that compute
    auto places = thrust::make_transform_iterator(thrust::make_counting_iterator(0), Sevenfold{n});
    auto chosen = thrust::make_permutation_iterator(px, places);
    thrust::copy(chosen, chosen + n, thrust::device_pointer_cast((float*)out[13]));
    auto zipped = thrust::make_zip_iterator(thrust::make_tuple(x, k, (float*)out[17]));
    thrust::for_each(thrust::device, zipped, zipped + n, MulAdd());
    cudaStreamDestroy(stream);
}
