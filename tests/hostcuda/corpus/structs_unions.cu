/*
summary: A struct by value with an array in it, a union, an enum, bit fields
inputs:
  x: integers(0, 65536, 128)
outputs:
  y: new(128, dtype=torch.int32)
sizes: [128]
expected:
  y: ((x & 31) * 3 + ((x >> 5) & 7) * 5 + ((x >> 8) & 255) + 7).to(torch.int32)
*/
#include <cuda_runtime.h>

enum class Field : int { low, middle, high };
struct Weights {
    int weight[3];
    union {
        float as_float;
        int as_int;
    } bias;
};
union Word {
    unsigned raw;
    struct {
        unsigned low : 5, middle : 3, high : 8, rest : 16;
    } field;
    unsigned char bytes[4];
};

__device__ int pick(const Word& w, Field f) {
    switch (f) {
        case Field::low: return w.field.low;
        case Field::middle: return w.field.middle;
        default: return w.bytes[1];
    }
}

__global__ void decode(const int* x, int* y, Weights weights) {
    Word w;
    w.raw = (unsigned)x[threadIdx.x];
    y[threadIdx.x] = pick(w, Field::low) * weights.weight[0] + pick(w, Field::middle) * weights.weight[1] +
                     pick(w, Field::high) * weights.weight[2] + __float_as_int(weights.bias.as_float);
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    Weights weights = {{3, 5, 1}, {0.0f}};
    weights.bias.as_int = 7;
    decode<<<1, 128>>>((const int*)in[0], (int*)out[0], weights);
}
