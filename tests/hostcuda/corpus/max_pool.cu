/*
summary: Two-dimensional pooling with indices
inputs:
  x: normal(3, 8, 10)
outputs:
  y: new(3, 4, 5)
  where: new(3, 4, 5, dtype=torch.int32)
sizes: [3, 8, 10]
expected:
  y: F.max_pool2d(x[None], 2)[0]
  where: F.max_pool2d(x[None], 2, return_indices=True)[1][0].to(torch.int32)
*/
#include <cuda_runtime.h>

__global__ void max_pool(const float* x, float* y, int* where, int height, int width) {
    const int ox = threadIdx.x, oy = threadIdx.y, plane = blockIdx.x;
    const float* from = x + plane * height * width;
    float best = -1.0f / 0.0f;
    int at = 0;
    for (int dy = 0; dy < 2; ++dy)
        for (int dx = 0; dx < 2; ++dx) {
            const int i = (2 * oy + dy) * width + 2 * ox + dx;
            if (from[i] > best) {
                best = from[i];
                at = i;
            }
        }
    const int o = (plane * blockDim.y + oy) * blockDim.x + ox;
    y[o] = best;
    where[o] = at;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int height = (int)size[1], width = (int)size[2];
    max_pool<<<(unsigned)size[0], dim3(width / 2, height / 2)>>>((const float*)in[0], (float*)out[0], (int*)out[1], height, width);
}
