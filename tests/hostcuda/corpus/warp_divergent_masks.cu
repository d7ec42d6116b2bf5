/*
summary: Shuffles inside branches with the mask of the lanes that take them, tail warps with __activemask
inputs:
  x: integers(0, 100, 50)
outputs:
  y: new(50, dtype=torch.int32)
  total: zeros(1, dtype=torch.int32)
sizes: [50]
expected:
  y: branches(x)
  total: x.sum().to(torch.int32).view(1)
helpers: |
  def branches(x):
      out = []
      for i, v in enumerate(x.tolist()):
          lane, warp = i % 32, i // 32
          if warp == 1:
              out.append(v)
          elif lane < 16:
              out.append(int(x[lane ^ 1]))
          else:
              out.append(int(x[16]) + v)
      return torch.tensor(out, dtype=torch.int32)
*/
#include <cuda_runtime.h>

__global__ void branches(const int* x, int* y, int* total, int n) {
    const int t = threadIdx.x, lane = t % 32;
    if (t >= n) return;
    int v = x[t];
    if (t < 32) {
        if (lane < 16) {
            v = __shfl_xor_sync(0x0000ffffu, v, 1);
        } else {
            v += __shfl_sync(0xffff0000u, v, 16);
        }
    }
    y[t] = v;
    const unsigned active = t < 32 ? 0xffffffffu : (1u << (n - 32)) - 1u;
    int sum = x[t];
    for (int d = 16; d > 0; d /= 2) {
        const int other = __shfl_down_sync(active, sum, d);
        if (lane + d < 32 && ((active >> (lane + d)) & 1u)) sum += other;
    }
    if (lane == 0) atomicAdd(total, sum);
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    branches<<<1, 64>>>((const int*)in[0], (int*)out[0], (int*)out[1], (int)size[0]);
}
