/*
summary: The types that Thrust computes in, outputs that lie where keys did, vectors that keep their memory, and what they convert to
inputs:
  x: normal(64)
outputs:
  told: new(44, dtype=torch.float32)
  twice: new(64)
  many: new(2)
sizes: [64, 1048576]
expected:
  told: told()
  twice: 4 * x
  many: torch.tensor([1.0, 104857.6])
helpers: |
  def told():
      return torch.tensor([0, 0, 0, 0,  100, 200, 44, 144,  0, 0, 0,  1, 2, 1, 2, 3, 1,  0, 1, 0, 1, 2, 0,  1, 2, 1, 2, 3, 1,
                           1, 0.5, 2,  2,  2, 1,  1, 1,  3, 7,  3, 6, 5,  10, 8])
tolerance: 1.0e-5
*/
#include <cub/cub.cuh>
#include <cuda_runtime.h>
#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/extrema.h>
#include <thrust/for_each.h>
#include <thrust/functional.h>
#include <thrust/host_vector.h>
#include <thrust/inner_product.h>
#include <thrust/iterator/constant_iterator.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/reduce.h>
#include <thrust/replace.h>
#include <thrust/scan.h>
#include <thrust/sort.h>
#include <thrust/swap.h>
#include <thrust/transform_scan.h>
#include <thrust/tuple.h>

#include <iterator>
#include <list>
#include <string>
#include <vector>

struct Half {
    __host__ __device__ float operator()(int) const { return 0.5f; }
};
struct Negative {
    __host__ __device__ bool operator()(int v) const { return v < 0; }
};
struct Adds {
    int* sum;
    void operator()(int v) const { *sum += v; }
};

__global__ void doubled(float* p, int n) {
    if ((int)threadIdx.x < n) p[threadIdx.x] *= 2.0f;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const float* x = (const float*)in[0];
    const int n = (int)size[0];
    std::vector<float> told;
    auto tell = [&](auto const& vector) {
        for (std::size_t i = 0; i < vector.size(); ++i) told.push_back((float)vector[i]);
    };

    // Sums are of the type of the start, or of the items where there is none.
    thrust::device_vector<float> half(4, 0.5f), sums(4);
    thrust::exclusive_scan(half.begin(), half.end(), sums.begin(), 0);
    tell(sums);
    thrust::device_vector<unsigned char> bytes(4, 100);
    thrust::device_vector<int> wide(4);
    thrust::inclusive_scan(bytes.begin(), bytes.end(), wide.begin());
    tell(wide);
    thrust::device_vector<int> three(3, 1);
    thrust::device_vector<float> scanned(3);
    thrust::transform_exclusive_scan(three.begin(), three.end(), scanned.begin(), Half(), 0, thrust::plus<>());
    tell(scanned);

    // What comes out may lie where the keys did.
    const int by[] = {1, 1, 2, 2, 2, 3};
    thrust::device_vector<int> keys(by, by + 6);
    thrust::inclusive_scan_by_key(keys.begin(), keys.end(), thrust::constant_iterator<int>(1), keys.begin());
    tell(keys);
    keys.assign(by, by + 6);
    thrust::exclusive_scan_by_key(keys.begin(), keys.end(), thrust::constant_iterator<int>(1), keys.begin());
    tell(keys);
    keys.assign(by, by + 6);
    std::size_t needed = 0;
    thrust::device_vector<int> ones(6, 1);
    int *k = thrust::raw_pointer_cast(keys.data()), *v = thrust::raw_pointer_cast(ones.data());
    cub::DeviceScan::InclusiveSumByKey(nullptr, needed, k, v, k, 6);
    thrust::device_vector<char> scratch(needed);
    cub::DeviceScan::InclusiveSumByKey(thrust::raw_pointer_cast(scratch.data()), needed, k, v, k, 6);
    tell(keys);

    const int signs[] = {1, -1, 2};
    thrust::device_vector<int> signed_(signs, signs + 3);
    thrust::device_vector<float> replaced(3);
    thrust::replace_copy_if(signed_.begin(), signed_.end(), replaced.begin(), Negative(), 0.5f);
    tell(replaced);
    thrust::device_vector<float> one(4, 1.0f);
    told.push_back((float)thrust::inner_product(half.begin(), half.end(), one.begin(), 0, thrust::plus<float>(), thrust::multiplies<float>()));
    thrust::device_vector<int> two(2);
    two[0] = 1, two[1] = 2;
    thrust::device_reference<int> a = two[0], b = two[1];
    swap(a, b);
    tell(two);
    thrust::swap(a, b);  // copies the references: the first item is written over before it is read
    tell(two);

    // Iterators and references of the device's items beside others.
    thrust::device_vector<int> places(2);
    places[1] = 3;
    told.push_back((float)(thrust::device_vector<int>::const_iterator(keys.begin() + places[1]) - keys.cbegin()));
    places[0] |= 7;
    places[0] %= 8;
    told.push_back((float)places[0]);
    std::list<int> linked = {1, 2, 3};
    thrust::host_vector<int> from_list(3);
    thrust::copy(linked.begin(), linked.end(), from_list.begin());
    std::vector<int> appended;
    thrust::copy(from_list.begin(), from_list.end(), std::back_inserter(appended));
    told.push_back((float)appended[2]);
    int sum = 0;
    thrust::for_each(thrust::host, linked.begin(), linked.end(), Adds{&sum});
    told.push_back((float)sum);
    thrust::host_vector<float> converted = thrust::host_vector<int>(3, 5);
    thrust::host_vector<std::string> words(20);
    for (int i = 0; i < 20; ++i) words[i] = std::string(30, char('z' - i));
    thrust::sort(words.begin(), words.end());
    told.push_back(words[0][0] == 'z' - 19 && thrust::max(1, 2) == 2 ? converted[1] : 0.0f);

    // A placeholder's value of a counted number, and iterators zipped without naming their types.
    using namespace thrust::placeholders;
    auto counted = thrust::make_transform_iterator(thrust::make_counting_iterator(0), _1);
    told.push_back((float)thrust::reduce(thrust::device, counted, counted + 5));
    thrust::zip_iterator zipped(thrust::make_tuple(places.begin(), two.begin()));
    told.push_back((float)(thrust::get<0>(*zipped) + thrust::get<1>(*zipped)));
    cudaMemcpy(out[0], told.data(), told.size() * sizeof(float), cudaMemcpyHostToDevice);

    // A vector that is large enough stays where it is: pointers to it are good.
    thrust::device_vector<float> kept(n);
    float* memory = thrust::raw_pointer_cast(kept.data());
    thrust::host_vector<float> items(n);
    cudaMemcpy(items.data(), x, n * sizeof(float), cudaMemcpyDeviceToHost);
    for (int i = 0; i < 2; ++i) {
        kept = items;
        doubled<<<1, 64>>>(memory, n);
    }
    thrust::device_vector<float> other = kept;
    kept.assign(n, 0.0f);
    kept = other;
    doubled<<<1, 64>>>(memory, n);
    cudaMemcpy(out[1], memory, n * sizeof(float), cudaMemcpyDeviceToDevice);

    const int long_run = (int)size[1];
    thrust::device_vector<float> tenths(long_run, 0.1f), totals(1);
    thrust::device_vector<int> same(long_run, 1), unique(1), runs(1);
    auto reduce = [&](void* storage) {
        cub::DeviceReduce::ReduceByKey(storage, needed, thrust::raw_pointer_cast(same.data()), thrust::raw_pointer_cast(unique.data()),
                                       thrust::raw_pointer_cast(tenths.data()), thrust::raw_pointer_cast(totals.data()),
                                       thrust::raw_pointer_cast(runs.data()), cuda::std::plus<>(), long_run);
    };
    reduce(nullptr);
    scratch.resize(needed);
    reduce(thrust::raw_pointer_cast(scratch.data()));
    const thrust::host_vector<float> total = totals;
    const float many[] = {(float)runs[0], total[0]};
    cudaMemcpy(out[2], many, sizeof many, cudaMemcpyHostToDevice);
}
