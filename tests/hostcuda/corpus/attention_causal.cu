/*
summary: "Three kernels in a row: masked scores, softmax, weighted sum"
inputs:
  q: normal(24, 8)
  k: normal(24, 8)
  v: normal(24, 8)
outputs:
  s: new(24, 24)
  o: new(24, 8)
sizes: [24, 8]
expected:
  o: F.scaled_dot_product_attention(q.double()[None], k.double()[None], v.double()[None], is_causal=True)[0]
tolerance: 1.0e-4
*/
#include <cuda_runtime.h>

__global__ void scores(const float* q, const float* k, float* s, int n, int d) {
    const int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || j >= n) return;
    float sum = 0.0f;
    for (int c = 0; c < d; ++c) sum += q[i * d + c] * k[j * d + c];
    s[i * n + j] = j <= i ? sum / sqrtf((float)d) : -INFINITY;
}

__global__ void softmax_rows(float* s, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float m = -INFINITY, total = 0.0f;
    for (int j = 0; j < n; ++j) m = fmaxf(m, s[i * n + j]);
    for (int j = 0; j < n; ++j) total += (s[i * n + j] = expf(s[i * n + j] - m));
    for (int j = 0; j < n; ++j) s[i * n + j] /= total;
}

__global__ void weigh(const float* s, const float* v, float* o, int n, int d) {
    const int i = blockIdx.x, c = threadIdx.x;
    float sum = 0.0f;
    for (int j = 0; j < n; ++j) sum += s[i * n + j] * v[j * d + c];
    o[i * d + c] = sum;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int n = (int)size[0], d = (int)size[1];
    float* s = (float*)out[0];
    scores<<<dim3(3, 3), dim3(8, 8)>>>((const float*)in[0], (const float*)in[1], s, n, d);
    softmax_rows<<<2, 16>>>(s, n);
    weigh<<<n, d>>>(s, (const float*)in[2], (float*)out[1], n, d);
}
