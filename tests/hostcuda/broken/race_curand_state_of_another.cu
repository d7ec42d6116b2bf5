/*
summary: generators with their states in memory, found by the thread's number in its block, so that all blocks draw from the same ones
inputs:
  seed: torch.tensor([7], dtype=torch.int32)
outputs:
  states: new(64 * 12, dtype=torch.int32)
  uniform: new(256)
sizes: [256]
twin: curand_xorwow
defect:
  status: data_race
  kernel: draw
  tool: null
*/
#include <cuda_runtime.h>
#include <curand_kernel.h>

__global__ void prepare(curandState* states, const int* seed) { curand_init(seed[0], threadIdx.x, 0, &states[threadIdx.x]); }

__global__ void draw(curandState* states, float* uniform, int n) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < n) uniform[t] = curand_uniform(&states[threadIdx.x]);  // defect
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    prepare<<<1, 64>>>((curandState*)out[0], (const int*)in[0]);
    draw<<<4, 64>>>((curandState*)out[0], (float*)out[1], (int)size[0]);
}
