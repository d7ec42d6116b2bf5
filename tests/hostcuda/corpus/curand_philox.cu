/*
summary: cuRAND's Philox generator in device code, against its definition and the answers that its authors published
inputs:
  seed: torch.tensor([20, 3], dtype=torch.int32)
outputs:
  known: new(2, 4, dtype=torch.int32)
  words: new(64, 6, dtype=torch.int32)
  uniform: new(64, 4)
  same: new(64, 5)
  normal: new(64, 4)
sizes: [64]
expected:
  known: signed(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8, 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1).view(2, 4)
  words: stream(64, 6)
  uniform: as_uniform(stream(64, 4))
  same: as_uniform(stream(64, 5))
  normal: as_normal(stream(64, 4))
tolerance: 1.0e-5
helpers: |
  def signed(*words):
      return torch.tensor([w - (1 << 32) if w >> 31 else w for w in words], dtype=torch.int64).int()
  def block(c, k):
      mask = 0xFFFFFFFF
      for _ in range(10):
          p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
          c = [(q >> 32) ^ c[1] ^ k[0], q & mask, (p >> 32) ^ c[3] ^ k[1], p & mask]
          k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
      return c
  def stream(threads, n, offset=3):
      rows = [[w for b in range(3) for w in block([b, 0, t, 0], [20, 3])][offset:offset + n] for t in range(threads)]
      return signed(*[w for row in rows for w in row]).view(threads, n)
  def as_uniform(words):
      return ((words.long() & 0xFFFFFFFF).double() + 0.5) * 2.0**-32
  def as_normal(words):
      u = as_uniform(words)
      s, v = (-2 * u[:, 0::2].log()).sqrt(), 2 * torch.pi * u[:, 1::2]
      return torch.stack([v.sin() * s, v.cos() * s], 2).reshape(-1, 4)
*/
#include <cuda_runtime.h>
#include <curand_kernel.h>

__global__ void known_answers(uint4* known) {
    curandStatePhilox4_32_10_t zero, pi;
    curand_init(0ull, 0ull, 0ull, &zero);
    known[0] = curand4(&zero);
    curand_init(0x299f31d0a4093822ull, 0x0370734413198a2eull, 0ull, &pi);
    for (int i = 0; i < 4; ++i) skipahead(0x85a308d3243f6a88ull, &pi);
    known[1] = curand4(&pi);
}

__global__ void draw(const int* seed, unsigned* words, float4* uniform, float* same, float4* normal, int n) {
    const int t = threadIdx.x;
    if (t >= n) return;
    const unsigned long long key = (unsigned)seed[0] | (unsigned long long)(unsigned)seed[1] << 32;
    curandStatePhilox4_32_10_t state;
    curand_init(key, t, 3, &state);
    for (int i = 0; i < 6; ++i) words[t * 6 + i] = curand(&state);
    curand_init(key, t, 3, &state);
    uniform[t] = curand_uniform4(&state);
    curand_init(key, t, 3, &state);
    for (int i = 0; i < 5; ++i) same[t * 5 + i] = curand_uniform(&state);
    curand_init(key, t, 3, &state);
    if (t % 2 == 0) {
        normal[t] = curand_normal4(&state);
    } else {
        float4 v;
        v.x = curand_normal(&state), v.y = curand_normal(&state), v.z = curand_normal(&state), v.w = curand_normal(&state);
        normal[t] = v;
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    known_answers<<<1, 1>>>((uint4*)out[0]);
    draw<<<1, 64>>>((const int*)in[0], (unsigned*)out[1], (float4*)out[2], (float*)out[3], (float4*)out[4], (int)size[0]);
}
