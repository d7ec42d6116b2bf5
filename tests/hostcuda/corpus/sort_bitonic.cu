/*
summary: Bitonic sort of one block in shared memory
inputs:
  x: normal(256)
outputs:
  y: new(256)
sizes: [256]
expected:
  y: x.sort().values
*/
#include <cuda_runtime.h>

__global__ void bitonic(const float* x, float* y) {
    __shared__ float s[256];
    const unsigned t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    for (unsigned k = 2; k <= 256; k <<= 1) {
        for (unsigned j = k >> 1; j > 0; j >>= 1) {
            const unsigned other = t ^ j;
            if (other > t) {
                const bool ascending = (t & k) == 0;
                const float a = s[t], b = s[other];
                if ((a > b) == ascending) {
                    s[t] = b;
                    s[other] = a;
                }
            }
            __syncthreads();
        }
    }
    y[t] = s[t];
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    bitonic<<<1, 256>>>((const float*)in[0], (float*)out[0]);
}
