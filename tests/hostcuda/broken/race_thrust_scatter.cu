/*
summary: Two items are scattered to one place, which of them stays is open
twin: thrust_parts
inputs:
  x: normal(1000)
outputs:
  y: zeros(500)
sizes: [1000]
defect:
  status: data_race
  kernel: thrust::scatter
  tool: null
*/
#include <cuda_runtime.h>
#include <thrust/execution_policy.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/scatter.h>

struct Half {
    __host__ __device__ int operator()(int i) const { return i / 2; }
};

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const float* x = (const float*)in[0];
    auto places = thrust::make_transform_iterator(thrust::make_counting_iterator(0), Half());
    thrust::scatter(thrust::device, x, x + size[0], places, (float*)out[0]);  // defect
}
