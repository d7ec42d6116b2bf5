/*
summary: Plain pointers to the device's memory without a policy, which Thrust takes for the host's
twin: thrust_parts
inputs:
  x: normal(1000)
outputs:
  y: new(1)
sizes: [1000]
defect:
  status: memory_error
  kernel: thrust::reduce
  tool: null
*/
#include <cuda_runtime.h>
#include <thrust/reduce.h>

#include <stdexcept>

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const float* x = (const float*)in[0];
    try {
        const float sum = thrust::reduce(x, x + size[0]);  // defect
        cudaMemcpy(out[0], &sum, sizeof sum, cudaMemcpyHostToDevice);
    } catch (const std::exception&) {
        cudaMemset(out[0], 0, sizeof(float));
    }
}
