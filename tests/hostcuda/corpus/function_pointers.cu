/*
summary: A table of device functions, one handed to a kernel by way of the host, and kernels chosen through a host function pointer
inputs:
  x: normal(64)
outputs:
  y: new(4, 64)
  z: new(64)
  w: new(64)
sizes: [64]
expected:
  y: torch.stack([x + 1, x * x, -x, x.abs()])
  z: x - 1
  w: x * x
tolerance: 1.0e-6
*/
#include <cuda_runtime.h>

typedef float (*Op)(float);
__device__ float plus_one(float v) { return v + 1.0f; }
__device__ float square(float v) { return v * v; }
__device__ float negate(float v) { return -v; }
__device__ float magnitude(float v) { return fabsf(v); }
__device__ Op table[] = {plus_one, square, negate, magnitude};

__global__ void apply(const float* x, float* y, int n) { y[blockIdx.x * n + threadIdx.x] = table[blockIdx.x](x[threadIdx.x]); }

__device__ Op chosen = square;
__global__ void apply_one(const float* x, float* y, Op op) { y[threadIdx.x] = op(x[threadIdx.x]); }

template <int Sign>
__global__ void shift(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] + Sign; }

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int n = (int)size[0];
    apply<<<4, n>>>((const float*)in[0], (float*)out[0], n);
    void (*kernel)(const float*, float*) = n > 1000 ? shift<1> : shift<-1>;
    kernel<<<1, n>>>((const float*)in[0], (float*)out[1]);
    Op op;
    cudaMemcpyFromSymbol(&op, chosen, sizeof(Op));
    apply_one<<<1, n>>>((const float*)in[0], (float*)out[2], op);
}
