/*
summary: Shifts by the width and more, conversions of numbers that the integer can't hold, overflow and division by zero
inputs:
  count: torch.tensor([0, 1, 31, 32, 33, 64, 200, -1], dtype=torch.int32)
  x: torch.tensor([1.0e20, -1.0e20, -1.5, float('nan'), float('inf'), 300.7, -0.5, 2147483520.0])
outputs:
  shifted: new(8, 6, dtype=torch.int64)
  whole: new(8, 9, dtype=torch.int64)
  divided: new(8, 4, dtype=torch.int64)
sizes: [8]
expected:
  shifted: shifted(count)
  whole: whole(x)
  divided: divided(count)
helpers: |
  def signed(value, bits):
      value %= 1 << bits
      return value - (1 << bits) if value >> (bits - 1) else value
  def shifted(count):
      rows = []
      for n in (c % (1 << 32) for c in count.tolist()):
          left = (1 << n) % (1 << 32) if n < 32 else 0
          rows.append([left, 0xffffffff >> n if n < 32 else 0, -8 >> min(n, 63), signed(5 << n, 64) if n < 64 else 0,
                       (left - 1) % (1 << 32), 0xfff0 >> n if n < 32 else 0])
      return torch.tensor(rows)
  def whole(x):
      def held(value, low, high):
          if value != value:
              return 0 if high < 1 << 32 else 1 << 63
          return int(min(max(value, low), high))
      rows = []
      for v in x.tolist():
          i, u = held(v, -2**31, 2**31 - 1), held(v, 0, 2**32 - 1)
          nan = v != v  # from double it is the highest bit
          rows.append([i, u, signed(held(v, -2**63, 2**63 - 1), 64), signed(held(v, 0, 2**64 - 1), 64), signed(i, 8),
                       u % 256, -2**31 if nan else i, 2**31 if nan else u, held(v, 0, 1000) % 256])
      return torch.tensor(rows)
  def divided(count):
      rows = []
      for n in count.tolist():
          zero = n == 0
          rows.append([-1 if zero else int(-7 / n), -7 - (n or 3) * int(-7 / (n or 3)),
                       0xffffffff if zero else 7 // (n % (1 << 32)), signed(2**31 - 1 + n, 32)])
      return torch.tensor(rows)
*/
#include <cuda_runtime.h>

#define BITS(n) ((1u << (n)) - 1)

__global__ void shift(const int* count, long long* shifted) {
    const int n = count[threadIdx.x];
    long long* row = shifted + 6 * threadIdx.x;
    row[0] = 1u << n;
    row[1] = 0xffffffffu >> n;
    row[2] = -8 >> n;
    row[3] = 5ll << n;
    row[4] = BITS(n);
    unsigned short part = 0xfff0;
    part >>= n;
    row[5] = part;
}

__global__ void convert(const float* x, long long* whole) {
    const float v = x[threadIdx.x];
    long long* row = whole + 9 * threadIdx.x;
    row[0] = (int)v;
    row[1] = static_cast<unsigned>(v);
    row[2] = (long long)v;
    row[3] = (long long)(unsigned long long)v;
    row[4] = (signed char)v;
    row[5] = (unsigned char)v;
    row[6] = int((double)v);
    row[7] = unsigned(double(v));
    const unsigned char cut = fminf(fmaxf(v, 0.0f), 1000.0f);
    row[8] = cut;
}

__global__ void divide(const int* count, long long* divided) {
    const int n = count[threadIdx.x];
    long long* row = divided + 4 * threadIdx.x;
    row[0] = -7 / n;
    row[1] = -7 % (n == 0 ? 3 : n);  // what is left of a division by zero depends on the code around it
    row[2] = 7u / (unsigned)n;
    row[3] = (int)(0x7fffffffu + n);
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    shift<<<1, (int)size[0]>>>((const int*)in[0], (long long*)out[0]);
    convert<<<1, (int)size[0]>>>((const float*)in[1], (long long*)out[1]);
    divide<<<1, (int)size[0]>>>((const int*)in[0], (long long*)out[2]);
}
