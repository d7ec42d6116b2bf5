/*
summary: Philox 4x32-10, counter-based random integers, bit for bit
inputs:
  key: torch.tensor([123456789, 362436069], dtype=torch.int32)
outputs:
  y: new(64, 4, dtype=torch.int32)
sizes: [64]
expected:
  y: philox(key, 64)
helpers: |
  def philox(key, n):
      mask, rows = 0xFFFFFFFF, []
      for i in range(n):
          c, k = [i, 0, 7, 9], [int(v) & mask for v in key]
          for _ in range(10):
              p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
              c = [(q >> 32) ^ c[1] ^ k[0], q & mask, (p >> 32) ^ c[3] ^ k[1], p & mask]
              k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
          rows.append([v - (1 << 32) if v >> 31 else v for v in c])
      return torch.tensor(rows, dtype=torch.int32)
*/
#include <cuda_runtime.h>

__global__ void philox(const unsigned* key, uint4* y) {
    unsigned k0 = key[0], k1 = key[1];
    uint4 c = make_uint4(threadIdx.x, 0, 7, 9);
    for (int round = 0; round < 10; ++round) {
        const unsigned high0 = __umulhi(0xD2511F53u, c.x), low0 = 0xD2511F53u * c.x;
        const unsigned high1 = __umulhi(0xCD9E8D57u, c.z), low1 = 0xCD9E8D57u * c.z;
        c = make_uint4(high1 ^ c.y ^ k0, low1, high0 ^ c.w ^ k1, low0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    y[threadIdx.x] = c;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    philox<<<1, (int)size[0]>>>((const unsigned*)in[0], (uint4*)out[0]);
}
