/*
summary: Doubles placed behind an odd number of floats in dynamic shared memory
twin: dynamic_shared_carved
inputs:
  x: normal(33)
outputs:
  y: new(33)
sizes: [33]
defect:
  status: memory_error
  kernel: square
  tool: memcheck
*/
#include <cuda_runtime.h>

__global__ void square(const float* x, float* y, int n) {
    extern __shared__ double storage[];
    float* values = reinterpret_cast<float*>(storage);
    double* squares = reinterpret_cast<double*>(values + n);
    const int t = threadIdx.x;
    values[t] = x[t];
    squares[t] = (double)values[t] * values[t];  // defect
    y[t] = (float)squares[t];                    // defect
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int n = (int)size[0];
    square<<<1, n, n * (sizeof(float) + sizeof(double)) + 8>>>((const float*)in[0], (float*)out[0], n);
}
