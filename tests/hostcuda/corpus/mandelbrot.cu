/*
summary: Loops of different length a thread, integer result
inputs:
  re: torch.linspace(-2, 0.5, 32)
  im: torch.linspace(-1, 1, 24)
outputs:
  y: new(24, 32, dtype=torch.int32)
sizes: [24, 32, 50]
expected:
  y: escape(re, im, 50)
helpers: |
  def escape(re, im, limit):
      out = torch.zeros(len(im), len(re), dtype=torch.int32)
      for r, y in enumerate(im.double().tolist()):
          for c, x in enumerate(re.double().tolist()):
              a = b = 0.0
              n = 0
              while n < limit and a * a + b * b <= 4:
                  a, b, n = a * a - b * b + x, 2 * a * b + y, n + 1
              out[r, c] = n
      return out
*/
#include <cuda_runtime.h>

__global__ void mandelbrot(const float* re, const float* im, int* y, int height, int width, int limit) {
    const int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (c >= width || r >= height) return;
    double a = 0, b = 0;
    int n = 0;
    while (n < limit && __dadd_rn(__dmul_rn(a, a), __dmul_rn(b, b)) <= 4) {
        const double t = __dadd_rn(__dsub_rn(__dmul_rn(a, a), __dmul_rn(b, b)), re[c]);
        b = __dadd_rn(__dmul_rn(2 * a, b), im[r]);
        a = t;
        ++n;
    }
    y[r * width + c] = n;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    mandelbrot<<<dim3(2, 3), dim3(16, 8)>>>((const float*)in[0], (const float*)in[1], (int*)out[0], (int)size[0], (int)size[1],
                                            (int)size[2]);
}
