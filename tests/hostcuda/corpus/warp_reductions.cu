/*
summary: __reduce_*_sync, __match_all_sync, __all_sync, __any_sync, __shfl_sync broadcast
inputs:
  x: integers(0, 1000, 4, 32)
outputs:
  y: new(4, 7, dtype=torch.int32)
sizes: [4]
arch: 80
expected:
  y: torch.stack([x.sum(1), x.min(1).values, x.max(1).values, fold(x, 'and'), fold(x, 'xor'), (x >= 0).all(1).int() + 2 * (x > 990).any(1).int(), x[:, 5] * 2], 1).to(torch.int32)
helpers: |
  def fold(x, kind):
      out = x[:, 0].clone()
      for i in range(1, 32):
          out = out & x[:, i] if kind == 'and' else out ^ x[:, i]
      return out
*/
#include <cuda_runtime.h>

__global__ void reduce(const int* x, int* y) {
    const int row = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned all = 0xffffffffu;
    const int v = x[row * 32 + lane];
    const int sum = __reduce_add_sync(all, v), low = __reduce_min_sync(all, v), high = __reduce_max_sync(all, v);
    const unsigned common = __reduce_and_sync(all, (unsigned)v), parity = __reduce_xor_sync(all, (unsigned)v);
    const int votes = (__all_sync(all, v >= 0) ? 1 : 0) + (__any_sync(all, v > 990) ? 2 : 0);
    int same = 0;
    __match_all_sync(all, row, &same);
    const int sixth = __shfl_sync(all, v, 5);
    const int last = __shfl_sync(all, same ? sixth : -1, 31);
    if (lane == 0) {
        int* to = y + row * 7;
        to[0] = sum, to[1] = low, to[2] = high, to[3] = (int)common, to[4] = (int)parity, to[5] = votes, to[6] = sixth + last;
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    reduce<<<1, 128>>>((const int*)in[0], (int*)out[0]);
}
