/*
summary: What other threads copy through their pipelines is read without a barrier behind the wait
twin: libcudacxx_parts
inputs:
  x: normal(128)
outputs:
  y: new(128)
sizes: [128]
defect:
  status: data_race
  kernel: mirrored
  tool: racecheck
*/
#include <cuda/pipeline>
#include <cuda_runtime.h>

__global__ void mirrored(const float* x, float* y) {
    __shared__ float tile[128];
    auto pipe = cuda::make_pipeline();
    pipe.producer_acquire();
    cuda::memcpy_async(&tile[threadIdx.x], &x[threadIdx.x], sizeof(float), pipe);  // defect
    pipe.producer_commit();
    pipe.consumer_wait();                       // defect
    y[threadIdx.x] = tile[127 - threadIdx.x];  // defect
    pipe.consumer_release();
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    mirrored<<<1, 128>>>((const float*)in[0], (float*)out[0]);
}
