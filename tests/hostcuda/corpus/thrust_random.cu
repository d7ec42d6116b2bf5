/*
summary: Thrust's random numbers, each thread some way ahead in one sequence, random orders, and complex numbers
inputs:
  z: normal(128, 2)
  w: normal(128, 2)
outputs:
  words: new(128, 3, dtype=torch.int32)
  reals: new(128, 2)
  whole: new(128, dtype=torch.int32)
  normals: new(20000)
  order: new(100, dtype=torch.int32)
  products: new(128, 2)
  others: new(128, 2, 6)
  total: new(2)
sizes: [128, 100]
expected:
  words: torch.tensor([[at(7, 5 * t + 1), at(7, 5 * t + 2), at(7, 5 * t + 3)] for t in range(128)]).int()
  reals: torch.tensor([[-2 + 5 * part(7, 5 * t + 4), part(7, 5 * t + 5)] for t in range(128)])
  whole: torch.tensor([int(-10 + 28 * part(7, 5 * t + 6)) for t in range(128)])  # towards zero.int()
  normals: folded(torch.tensor([at(1234, i + 1) - 1 for i in range(20000)]))
  order: shuffled(100, 3)
  products: torch.view_as_real(torch.view_as_complex(z) * torch.view_as_complex(w))
  others: others(torch.view_as_complex(z), torch.view_as_complex(w))
  total: z.double().sum(0).float()
tolerance: 1.0e-5
helpers: |
  M = 2147483647
  def at(seed, n):
      return seed * pow(48271, n, M) % M
  def part(seed, n):
      return (at(seed, n) - 1) / (M - 1)
  def shuffled(n, seed):
      bits = max(4, (n - 1).bit_length())
      left, right = bits // 2, bits - bits // 2
      keys = [at(seed, i + 1) for i in range(24)]
      order = []
      for place in range(1 << bits):
          a, b = place >> right, place & (1 << right) - 1
          for key in keys:
              product = 0xD2B74407B1CE6E93 * a & (1 << 64) - 1
              low = (product & 0xFFFFFFFF) << right - left | b >> left
              a, b = ((product >> 32) ^ key ^ b) & (1 << left) - 1, low & (1 << right) - 1
          order.append(a << right | b)
      return torch.tensor([place for place in order if place < n]).int()
  def folded(places):  # above the middle, the distance to the end
      upper = places > (M - 2) // 2
      z = torch.special.ndtri((torch.where(upper, M - 2 - places, places) + 0.5).double() / (M - 2))
      return (3 + 2 * torch.where(upper, -z, z)).float()
  def others(z, w):
      def real(c):
          return torch.view_as_real(c)
      return torch.stack([real(z / w), real(z.exp()), real(z.sqrt()), real(w.sin()), real(2 * z.conj() - w / 2), torch.stack([z.abs(), z.angle()], 1)], 2)
*/
#include <cuda_runtime.h>
#include <thrust/complex.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/random.h>
#include <thrust/reduce.h>
#include <thrust/sequence.h>
#include <thrust/shuffle.h>
#include <thrust/transform.h>

using Complex = thrust::complex<float>;

__global__ void draw(unsigned* words, float* reals, int* whole, int n) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    thrust::default_random_engine engine(7);
    engine.discard(5ull * t);
    for (int i = 0; i < 3; i++) words[t * 3 + i] = engine();
    thrust::uniform_real_distribution<float> range(-2.0f, 3.0f), unit;
    thrust::uniform_int_distribution<int> die(-10, 17);
    reals[t * 2] = range(engine);
    reals[t * 2 + 1] = unit(engine);
    whole[t] = die(engine);
}

struct Normal {
    __host__ __device__ float operator()(unsigned i) const {
        thrust::minstd_rand engine(1234);
        engine.discard(i);
        thrust::random::normal_distribution<float> normal(3.0f, 2.0f);
        return normal(engine);
    }
};
struct Product {
    __host__ __device__ Complex operator()(Complex a, Complex b) const { return a * b; }
};

__global__ void compute(const Complex* z, const Complex* w, float* others) {
    const int t = threadIdx.x;
    const Complex results[6] = {z[t] / w[t], exp(z[t]), sqrt(z[t]), sin(w[t]), 2.0f * thrust::conj(z[t]) - w[t] / 2.0f, Complex(abs(z[t]), arg(z[t]))};
    for (int i = 0; i < 6; i++) {
        others[t * 12 + i] = results[i].real();
        others[t * 12 + 6 + i] = results[i].imag();
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int n = (int)size[0], m = (int)size[1];
    const thrust::device_ptr<const Complex> z((const Complex*)in[0]), w((const Complex*)in[1]);
    draw<<<4, 32>>>((unsigned*)out[0], (float*)out[1], (int*)out[2], n);
    thrust::transform(thrust::device, thrust::counting_iterator<unsigned>(0), thrust::counting_iterator<unsigned>(20000), (float*)out[3], Normal());

    thrust::default_random_engine engine(3);
    thrust::device_vector<int> order(m);
    thrust::sequence(order.begin(), order.end());
    thrust::shuffle(order.begin(), order.end(), engine);
    cudaMemcpy(out[4], thrust::raw_pointer_cast(order.data()), m * sizeof(int), cudaMemcpyDeviceToDevice);

    thrust::transform(z, z + n, w, thrust::device_pointer_cast((Complex*)out[5]), Product());
    compute<<<1, n>>>((const Complex*)in[0], (const Complex*)in[1], (float*)out[6]);
    const Complex total = thrust::reduce(z, z + n, Complex(0.0f), thrust::plus<Complex>());
    cudaMemcpy(out[7], &total, sizeof(total), cudaMemcpyHostToDevice);
}
