/*
summary: every distribution of cuRAND's device functions over its three generators, against what each makes of the numbers that it draws
inputs:
  parameters: torch.tensor([0.25, 0.5])
outputs:
  words: new(3, 64, 8, dtype=torch.int32)
  floats: new(3, 64, 8)
  doubles: new(3, 64, 8, dtype=torch.float64)
  fours: new(64, 8)
  counts: new(3, 64, 3, dtype=torch.int32)
sizes: [64]
expected:
  floats: torch.stack([floats(g) for g in range(3)])
  doubles: torch.stack([doubles(g) for g in range(3)])
  fours: of_four()
  counts: torch.stack([counts(g) for g in range(3)])
tolerance: 1.0e-5
helpers: |
  import itertools, math
  M, M1, M2 = 0xFFFFFFFF, 4294967087, 4294944443
  def xorwow(t):
      a, b = 1099087573 * (9 ^ 0xaad26b49) & M, 2591861531 * (t ^ 0xf7dcefdd) & M
      v, d = [123456789 + a & M, 362436069 ^ a, 521288629 + b & M, 88675123 ^ b, 5783321 + a & M], 6615241 + a + b
      while True:
          first = v[0] ^ v[0] >> 2
          v, d = [*v[1:], (v[4] ^ v[4] << 4 ^ first ^ first << 1) & M], d + 362437
          yield v[4] + d & M
  def philox(t):
      for n in itertools.count():
          c, k = [n, 0, 0, 0], [9, t]
          for _ in range(10):
              p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
              c = [(q >> 32) ^ c[1] ^ k[0], q & M, (p >> 32) ^ c[3] ^ k[1], p & M]
              k = [(k[0] + 0x9E3779B9) & M, (k[1] + 0xBB67AE85) & M]
          yield from c
  def mrg(t):
      x, y = 9 ^ 0x55555555, t ^ 0xAAAAAAAA
      a, b = [x * 12345 % M1, y * 12345 % M1, x * 12345 % M1], [y * 12345 % M2, x * 12345 % M2, y * 12345 % M2]
      while True:
          a, b = [*a[1:], (1403580 * a[1] - 810728 * a[0]) % M1], [*b[1:], (527612 * b[2] - 1370589 * b[0]) % M2]
          yield a[2] - b[2] if a[2] > b[2] else a[2] - b[2] + M1
  def uniform(g, s):
      return next(s) * 2.3283065498378288e-10 if g == 2 else (next(s) + 0.5) * 2.0**-32
  def uniform_double(g, s):
      if g == 0:
          return ((next(s) ^ next(s) << 21) + 0.5) * 2.0**-53
      return uniform(g, s) if g == 2 else (next(s) + 1) * 2.0**-32
  def pair(u, v):
      r = math.sqrt(-2 * math.log(u))
      return r * math.sin(2 * math.pi * v), r * math.cos(2 * math.pi * v)
  def normal2(g, s):
      return pair(uniform(g, s), uniform(g, s))
  def normal2_double(g, s):
      return pair(uniform(g, s), uniform(g, s)) if g == 2 else pair(((next(s) ^ next(s) << 21) + 0.5) * 2.0**-53, ((next(s) ^ next(s) << 21) + 0.5) * 2.0**-53)
  def log_normal(pair):
      return [math.exp(0.25 + 0.5 * z) for z in pair]
  generators = (xorwow, philox, mrg)
  def floats(g):
      rows = []
      for t in range(64):
          s = generators[g](t)
          rows.append([uniform(g, s), *normal2(g, s)[:1], *log_normal(normal2(g, s)), *normal2(g, s), *log_normal(normal2(g, s))])
      return torch.tensor(rows)
  def doubles(g):
      rows = []
      for t in range(64):
          s = generators[g](t)
          rows.append([*normal2_double(g, s)[:1], *log_normal(normal2_double(g, s)), *normal2_double(g, s), *log_normal(normal2_double(g, s)), uniform_double(g, s)])
      return torch.tensor(rows, dtype=torch.float64)
  def of_four():
      rows = []
      for t in range(64):
          s = philox(t)
          next(s)
          rows.append([*normal2(1, s), *normal2(1, s), *log_normal(normal2(1, s)), *log_normal(normal2(1, s))])
      return torch.tensor(rows)
  def counts(g):
      rows = []
      for t in range(64):
          s = generators[g](t)
          row = []
          for _ in range(2):
              k, p = 0, math.exp(3.5) * uniform(g, s)
              while p > 1:
                  k, p = k + 1, p * uniform(g, s)
              row.append(k)
          rows.append([*row, int(100 * normal2_double(g, s)[0] + 10000.5)])
      return torch.tensor(rows).int()
*/
#include <cuda_runtime.h>
#include <curand_kernel.h>

template <class State> __global__ void draw(const float* p, unsigned* words, float* floats, double* doubles, int* counts) {
    const int t = threadIdx.x;
    const unsigned long long seed = 9 | (unsigned long long)t << 32;
    State state;
    curand_init(seed, 0, 0, &state);
    for (int i = 0; i < 8; ++i) words[t * 8 + i] = curand(&state);

    curand_init(seed, 0, 0, &state);
    float* f = floats + t * 8;
    f[0] = curand_uniform(&state);
    f[1] = curand_normal(&state);
    // What waits in the state is a normal number: another distribution draws anew.
    f[2] = curand_log_normal(&state, p[0], p[1]);
    f[3] = curand_log_normal(&state, 0.0f, 1.0f);
    const float2 normal = curand_normal2(&state), log_normal = curand_log_normal2(&state, p[0], p[1]);
    f[4] = normal.x, f[5] = normal.y, f[6] = log_normal.x, f[7] = log_normal.y;

    curand_init(seed, 0, 0, &state);
    double* d = doubles + t * 8;
    d[0] = curand_normal_double(&state);
    d[1] = curand_log_normal_double(&state, p[0], p[1]);
    d[2] = curand_log_normal_double(&state, 0.0, 1.0);
    const double2 normal_double = curand_normal2_double(&state), log_normal_double = curand_log_normal2_double(&state, p[0], p[1]);
    d[3] = normal_double.x, d[4] = normal_double.y, d[5] = log_normal_double.x, d[6] = log_normal_double.y;
    d[7] = curand_uniform_double(&state);

    curand_init(seed, 0, 0, &state);
    for (int i = 0; i < 2; ++i) counts[t * 3 + i] = curand_poisson(&state, 3.5);
    counts[t * 3 + 2] = curand_poisson(&state, 10000.0);
}

__global__ void draw_four(const float* p, float4* fours) {
    curandStatePhilox4_32_10_t state;
    curand_init(9 | (unsigned long long)threadIdx.x << 32, 0, 1, &state);
    fours[threadIdx.x * 2] = curand_normal4(&state);
    fours[threadIdx.x * 2 + 1] = curand_log_normal4(&state, p[0], p[1]);
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const float* p = (const float*)in[0];
    unsigned* words = (unsigned*)out[0];
    float* floats = (float*)out[1];
    double* doubles = (double*)out[2];
    int* counts = (int*)out[4];
    const int n = (int)size[0];
    draw<curandState><<<1, n>>>(p, words, floats, doubles, counts);
    draw<curandStatePhilox4_32_10_t><<<1, n>>>(p, words + n * 8, floats + n * 8, doubles + n * 8, counts + n * 3);
    draw<curandStateMRG32k3a_t><<<1, n>>>(p, words + n * 16, floats + n * 16, doubles + n * 16, counts + n * 6);
    draw_four<<<1, n>>>(p, (float4*)out[3]);
}
