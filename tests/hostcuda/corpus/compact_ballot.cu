/*
summary: Stream compaction that keeps the order, ranks by ballots and a scan of warp counts
inputs:
  x: normal(256)
outputs:
  y: full((256,), 0.0)
  count: new(1, dtype=torch.int32)
sizes: [256]
expected:
  y: F.pad(x[x > 0.3], (0, int((x <= 0.3).sum())))
  count: (x > 0.3).sum().to(torch.int32).view(1)
*/
#include <cuda_runtime.h>

__global__ void compact(const float* x, float* y, int* count) {
    __shared__ int offsets[9];
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    const bool keep = x[t] > 0.3f;
    const unsigned votes = __ballot_sync(~0u, keep);
    if (lane == 0) offsets[warp + 1] = __popc(votes);
    if (t == 0) offsets[0] = 0;
    __syncthreads();
    if (t == 0)
        for (int w = 0; w < 8; ++w) offsets[w + 1] += offsets[w];
    __syncthreads();
    if (keep) y[offsets[warp] + __popc(votes & ((1u << lane) - 1))] = x[t];
    if (t == 0) *count = offsets[8];
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    compact<<<1, 256>>>((const float*)in[0], (float*)out[0], (int*)out[1]);
}
