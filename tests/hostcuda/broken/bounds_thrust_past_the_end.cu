/*
summary: A difference of neighbours by Thrust reads one item behind the last
twin: thrust_parts
inputs:
  x: normal(1000)
outputs:
  y: new(1000)
sizes: [1000]
defect:
  status: memory_error
  kernel: thrust::transform
  tool: memcheck
*/
#include <cuda_runtime.h>
#include <thrust/device_ptr.h>
#include <thrust/functional.h>
#include <thrust/transform.h>

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const thrust::device_ptr<const float> x((const float*)in[0]);
    const thrust::device_ptr<float> y((float*)out[0]);
    thrust::transform(x + 1, x + size[0] + 1, x, y, thrust::minus<float>());  // defect
}
