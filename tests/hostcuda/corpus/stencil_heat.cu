/*
summary: Five-point stencil, ten launches that swap two buffers
inputs:
  x: uniform(20, 24)
outputs:
  a: new(20, 24)
  b: new(20, 24)
sizes: [20, 24, 10]
expected:
  a: heat(x.double(), 10)
helpers: |
  def heat(u, steps):
      for _ in range(steps):
          v = u.clone()
          v[1:-1, 1:-1] = u[1:-1, 1:-1] + 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
          u = v
      return u
tolerance: 1.0e-5
*/
#include <cuda_runtime.h>
#include <utility>
#define T 8

__global__ void step(const float* from, float* to, int height, int width) {
    __shared__ float s[T + 2][T + 2];
    const int c = blockIdx.x * T + threadIdx.x, r = blockIdx.y * T + threadIdx.y;
    const int sc = threadIdx.x + 1, sr = threadIdx.y + 1;
    const bool inside = r < height && c < width;
    auto at = [&](int y, int x) { return y >= 0 && y < height && x >= 0 && x < width ? from[y * width + x] : 0.0f; };
    s[sr][sc] = at(r, c);
    if (threadIdx.y == 0) s[0][sc] = at(r - 1, c);
    if (threadIdx.y == T - 1) s[T + 1][sc] = at(r + 1, c);
    if (threadIdx.x == 0) s[sr][0] = at(r, c - 1);
    if (threadIdx.x == T - 1) s[sr][T + 1] = at(r, c + 1);
    __syncthreads();
    if (!inside) return;
    float v = s[sr][sc];
    if (r > 0 && r < height - 1 && c > 0 && c < width - 1)
        v += 0.1f * (s[sr - 1][sc] + s[sr + 1][sc] + s[sr][sc - 1] + s[sr][sc + 1] - 4.0f * v);
    to[r * width + c] = v;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int height = (int)size[0], width = (int)size[1];
    float *a = (float*)out[0], *b = (float*)out[1];
    cudaMemcpy(a, in[0], sizeof(float) * height * width, cudaMemcpyDeviceToDevice);
    const dim3 grid((width + T - 1) / T, (height + T - 1) / T), block(T, T);
    for (int i = 0; i < size[2]; ++i) {
        step<<<grid, block>>>(a, b, height, width);
        std::swap(a, b);
    }
}
