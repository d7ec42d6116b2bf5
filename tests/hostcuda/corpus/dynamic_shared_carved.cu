/*
summary: One dynamic array cut into arrays of different types, template kernel with a typed view
inputs:
  x: normal(100)
outputs:
  y: new(100)
sizes: [100]
expected:
  y: (x.double()[x.argsort(stable=True)])
tolerance: 1.0e-6
*/
#include <cuda_runtime.h>

template <typename T>
struct Shared {
    __device__ static T* get() {
        extern __shared__ double storage[];
        return reinterpret_cast<T*>(storage);
    }
};

template <typename T>
__global__ void rank_sort(const T* x, T* y, int n) {
    T* values = Shared<T>::get();
    int* ranks = reinterpret_cast<int*>(values + n);
    unsigned char* seen = reinterpret_cast<unsigned char*>(ranks + n);
    const int t = threadIdx.x;
    if (t < n) {
        values[t] = x[t];
        seen[t] = 0;
    }
    __syncthreads();
    if (t < n) {
        int rank = 0;
        for (int i = 0; i < n; ++i) rank += values[i] < values[t] || (values[i] == values[t] && i < t);
        ranks[t] = rank;
        seen[rank] = 1;
    }
    __syncthreads();
    if (t < n && seen[t]) y[ranks[t]] = values[t];
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int n = (int)size[0];
    rank_sort<float><<<1, 128, n * (sizeof(float) + sizeof(int) + 1)>>>((const float*)in[0], (float*)out[0], n);
}
