/*
summary: Mean and variance of a row by Welford's method, merged across the block
inputs:
  x: normal(7, 150) + 3
  gain: normal(150)
  bias: normal(150)
outputs:
  y: new(7, 150)
sizes: [7, 150]
expected:
  y: F.layer_norm(x.double(), (150,), gain.double(), bias.double(), 1e-5)
tolerance: 1.0e-4
*/
#include <cuda_runtime.h>

struct Moments {
    float mean = 0.0f, m2 = 0.0f;
    int count = 0;
    __device__ void add(float v) {
        ++count;
        const float delta = v - mean;
        mean += delta / count;
        m2 += delta * (v - mean);
    }
    __device__ void merge(const Moments& o) {
        if (o.count == 0) return;
        const int total = count + o.count;
        const float delta = o.mean - mean;
        mean += delta * o.count / total;
        m2 += o.m2 + delta * delta * count * o.count / total;
        count = total;
    }
};

__global__ void layer_norm(const float* x, const float* gain, const float* bias, float* y, int columns, float eps) {
    __shared__ float means[64], m2s[64];
    __shared__ int counts[64];
    const int t = threadIdx.x;
    const float* row = x + blockIdx.x * columns;
    Moments m;
    for (int i = t; i < columns; i += blockDim.x) m.add(row[i]);
    means[t] = m.mean;
    m2s[t] = m.m2;
    counts[t] = m.count;
    __syncthreads();
    for (int d = 32; d > 0; d >>= 1) {
        if (t < d) {
            Moments a, b;
            a.mean = means[t], a.m2 = m2s[t], a.count = counts[t];
            b.mean = means[t + d], b.m2 = m2s[t + d], b.count = counts[t + d];
            a.merge(b);
            means[t] = a.mean, m2s[t] = a.m2, counts[t] = a.count;
        }
        __syncthreads();
    }
    const float mean = means[0], scale = rsqrtf(m2s[0] / columns + eps);
    for (int i = t; i < columns; i += blockDim.x)
        y[blockIdx.x * columns + i] = (row[i] - mean) * scale * gain[i] + bias[i];
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    layer_norm<<<(int)size[0], 64>>>((const float*)in[0], (const float*)in[1], (const float*)in[2], (float*)out[0],
                                     (int)size[1], 1e-5f);
}
