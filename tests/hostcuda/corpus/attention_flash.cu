/*
summary: Attention over tiles of keys with running maximum and sum, tiles in dynamic shared memory
inputs:
  q: normal(40, 16)
  k: normal(48, 16)
  v: normal(48, 16)
outputs:
  o: new(40, 16)
sizes: [40, 48, 16]
expected:
  o: F.scaled_dot_product_attention(q.double()[None], k.double()[None], v.double()[None])[0]
tolerance: 1.0e-4
*/
#include <cuda_runtime.h>
#define TILE 16
#define D 16

__global__ void attention(const float* q, const float* k, const float* v, float* o, int queries, int keys) {
    extern __shared__ float shared[];
    float* ks = shared;
    float* vs = ks + TILE * D;
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    float query[D], sum[D];
    for (int d = 0; d < D; ++d) {
        query[d] = row < queries ? q[row * D + d] * rsqrtf((float)D) : 0.0f;
        sum[d] = 0.0f;
    }
    float largest = -1e30f, total = 0.0f;
    for (int start = 0; start < keys; start += TILE) {
        for (int i = threadIdx.x; i < TILE * D; i += blockDim.x) {
            ks[i] = k[start * D + i];
            vs[i] = v[start * D + i];
        }
        __syncthreads();
        float scores[TILE], tile_largest = largest;
        for (int j = 0; j < TILE; ++j) {
            float s = 0.0f;
            for (int d = 0; d < D; ++d) s += query[d] * ks[j * D + d];
            scores[j] = s;
            tile_largest = fmaxf(tile_largest, s);
        }
        const float rescale = __expf(largest - tile_largest);
        total *= rescale;
        for (int d = 0; d < D; ++d) sum[d] *= rescale;
        for (int j = 0; j < TILE; ++j) {
            const float p = __expf(scores[j] - tile_largest);
            total += p;
            for (int d = 0; d < D; ++d) sum[d] += p * vs[j * D + d];
        }
        largest = tile_largest;
        __syncthreads();
    }
    if (row < queries)
        for (int d = 0; d < D; ++d) o[row * D + d] = sum[d] / total;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const size_t bytes = 2 * TILE * D * sizeof(float);
    attention<<<(int)(size[0] + 15) / 16, 16, bytes>>>((const float*)in[0], (const float*)in[1], (const float*)in[2],
                                                      (float*)out[0], (int)size[0], (int)size[1]);
}
