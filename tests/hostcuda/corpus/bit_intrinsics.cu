/*
summary: __popc, __clz, __ffs, __brev, __byte_perm, __funnelshift_l, __vadd4, __dp4a, bit for bit
inputs:
  x: integers(-2147483648, 2147483647, 256)
outputs:
  y: new(256, 8, dtype=torch.int32)
sizes: [256]
expected:
  y: bits(x)
helpers: |
  def bits(x):
      rows = []
      for v in x.tolist():
          u = v & 0xFFFFFFFF
          data = u.to_bytes(4, 'little')
          signed = [b - 256 if b > 127 else b for b in data]
          row = [u.bit_count(), 32 - u.bit_length(), (u & -u).bit_length(), int(f'{u:032b}'[::-1], 2),
                 int.from_bytes(data[::-1], 'little'), ((u << 7) | (u >> 25)) & 0xFFFFFFFF,
                 int.from_bytes(bytes((b + 200) % 256 for b in data), 'little'), (sum(b * b for b in signed) + v) & 0xFFFFFFFF]
          rows.append([w - (1 << 32) if w >> 31 else w for w in row])
      return torch.tensor(rows, dtype=torch.int32)
*/
#include <cuda_runtime.h>

__global__ void bits(const int* x, int* y) {
    const int v = x[threadIdx.x];
    int* row = y + 8 * threadIdx.x;
    row[0] = __popc(v);
    row[1] = __clz(v);
    row[2] = __ffs(v);
    row[3] = (int)__brev((unsigned)v);
    row[4] = (int)__byte_perm((unsigned)v, 0, 0x0123);
    row[5] = (int)__funnelshift_l((unsigned)v, (unsigned)v, 7);
    row[6] = (int)__vadd4((unsigned)v, 0xc8c8c8c8u);
    row[7] = __dp4a(v, v, v);
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    bits<<<1, (int)size[0]>>>((const int*)in[0], (int*)out[0]);
}
