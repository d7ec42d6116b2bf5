/*
summary: cuRAND's default generator, each thread with a subsequence of its own, its state kept in memory between kernels
inputs:
  seed: torch.tensor([20, 3], dtype=torch.int32)
outputs:
  states: new(96 * 12, dtype=torch.int32)
  words: new(96, 6, dtype=torch.int32)
  ahead: new(96, 2, dtype=torch.int32)
  uniform: new(96, 4)
sizes: [96]
expected:
  words: signed([[word(v, d) for v, d in run(start(20, 3, t, 5), 6)] for t in range(96)])
  ahead: signed([[word(*go(start(20, 3, t, 5), 6 + 1000 * t)), word(*go(start(20, 3, t + 2, 5), 6 + 1000 * t + 1))] for t in range(96)])
  uniform: as_uniform(signed([[word(*start(20, 3, 95 - t, 100 + i)) for i in range(1, 5)] for t in range(96)]))
helpers: |
  M = 0xFFFFFFFF
  def step(v):
      a = (v & M) ^ (v & M) >> 2
      e = v >> 128
      return v >> 32 | ((e ^ e << 4 ^ a ^ a << 1) & M) << 128
  def times(m, v):
      out = 0
      while v:
          low = v & -v
          out ^= m[low.bit_length() - 1]
          v ^= low
      return out
  squares = [[step(1 << i) for i in range(160)]]
  while len(squares) < 75:
      squares.append([times(squares[-1], column) for column in squares[-1]])
  def jump(v, n, power):
      for i in range(n.bit_length()):
          if n >> i & 1:
              v = times(squares[power + i], v)
      return v
  def go(at, n):
      return jump(at[0], n, 0), at[1] + 362437 * n & M
  def start(low, high, subsequence, offset):
      a, b = 1099087573 * (low ^ 0xaad26b49) & M, 2591861531 * (high ^ 0xf7dcefdd) & M
      parts = [123456789 + a, 362436069 ^ a, 521288629 + b, 88675123 ^ b, 5783321 + a]
      v = sum((part & M) << 32 * i for i, part in enumerate(parts))
      return go((jump(v, subsequence, 67), 6615241 + a + b & M), offset)
  def run(at, n):
      for _ in range(n):
          at = go(at, 1)
          yield at
  def word(v, d):
      return (v >> 128) + d & M
  def signed(rows):
      return torch.tensor([[w - (1 << 32) if w >> 31 else w for w in row] for row in rows]).int()
  def as_uniform(words):
      return (words.long() & M).float() * 2.0**-32 + 2.0**-33
*/
#include <cuda_runtime.h>
#include <curand_kernel.h>

__global__ void prepare(curandState* states, const int* seed, int n) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < n) curand_init((unsigned)seed[0] | (unsigned long long)(unsigned)seed[1] << 32, t, 5, &states[t]);
}

__global__ void draw(curandState* states, unsigned* words, unsigned* ahead, int n) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    curandState_t own = states[t];
    for (int i = 0; i < 6; ++i) words[t * 6 + i] = curand(&own);
    states[t] = own;
    if (t != 0) skipahead(1000ull * t - 1, &own);
    ahead[t * 2] = t == 0 ? words[5] : curand(&own);
    skipahead_sequence(2, &own);
    ahead[t * 2 + 1] = curand(&own);
}

__global__ void other(const int* seed, float* uniform, int n) {
    curandStateXORWOW_t state;
    curand_init((unsigned)seed[0] | (unsigned long long)(unsigned)seed[1] << 32, n - 1 - threadIdx.x, 100, &state);
    for (int i = 0; i < 4; ++i) uniform[threadIdx.x * 4 + i] = curand_uniform(&state);
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    static_assert(sizeof(curandState) == 48, "the states' tensor has 12 words for each");
    const int n = (int)size[0];
    prepare<<<3, 32>>>((curandState*)out[0], (const int*)in[0], n);
    draw<<<3, 32>>>((curandState*)out[0], (unsigned*)out[1], (unsigned*)out[2], n);
    other<<<1, n>>>((const int*)in[0], (float*)out[3], n);
}
