/*
summary: Tiles, trees, scans and broadcasts in shared memory between __syncthreads()
inputs:
  x: integers(-50, 50, 4, 64)
outputs:
  y: new(64, dtype=torch.int32)
sizes: [4]
helpers: |
  def turned(x):
      return x.sum(0).flip(0).to(torch.int32)
expected:
  y: turned(x)
arch: 70
kernel: total
macros: >
  WAY=0 FIRST=__syncthreads() SECOND=__syncthreads() BUFFER=(row&1)
pairs:
  tile_read_too_early: {broken: "FIRST="}
  tile_read_behind_a_barrier_of_the_warp: {broken: "FIRST=__syncwarp()"}
  tile_overwritten_too_early: {broken: "SECOND="}
  tile_overwritten_behind_a_barrier_of_the_warp: {broken: "SECOND=__syncwarp()"}
  vote_in_place_of_a_barrier: {sound: "FIRST=votes+=__syncthreads_count(t)", broken: "FIRST=votes+=__ballot_sync(~0u,t)!=0u"}
  tree_without_a_barrier_in_the_loop: {sound: "WAY=1", broken: "SECOND="}
  tree_by_warps_too_early: {sound: "WAY=1", broken: "SECOND=if(step>16)__syncthreads()"}
  scan_in_place: {sound: "WAY=2", broken: "FIRST="}
  scan_overwritten_too_early: {sound: "WAY=2", broken: "SECOND="}
  broadcast_read_too_early: {sound: "WAY=3", broken: "FIRST="}
  broadcast_overwritten_too_early: {sound: "WAY=3", broken: "SECOND="}
  two_buffers_swapped_too_early: {sound: "WAY=4", broken: "FIRST="}
  two_buffers_of_which_one_is_used: {sound: "WAY=4", broken: "BUFFER=0"}
*/
#include <cuda_runtime.h>


__global__ void total(const int* x, int* y, int rows) {
    __shared__ int held[2][64];
    __shared__ int one;
    const int t = threadIdx.x;
    int sum = 0, votes = 0;
#if WAY == 0
    for (int row = 0; row < rows; ++row) {
        held[0][t] = x[row * 64 + t];  // defect
        FIRST;
        sum += held[0][63 - t];  // defect
        SECOND;
    }
#elif WAY == 1
    // A tree over 64 numbers for each of the 64 sums.
    for (int i = 0; i < 64; ++i) {
        held[0][t] = t < rows ? x[t * 64 + 63 - i] : t - 64;
        held[1][t] = 0;
        __syncthreads();
        for (int step = 32; step > 0; step /= 2) {
            if (t < step) held[0][t] += held[0][t + step];  // defect
            SECOND;
        }
        if (t == i) sum = held[0][0] + (64 - rows) * (65 - rows) / 2;  // defect
        __syncthreads();
    }
#elif WAY == 2
    // Prefix sums in place: each reads its neighbour before that one changes.
    for (int row = 0; row < rows; ++row) {
        held[0][t] = x[row * 64 + 63 - t];
        __syncthreads();
        for (int step = 1; step < 64; step *= 2) {
            const int other = t >= step ? held[0][t - step] : 0;  // defect
            FIRST;
            held[0][t] += other;  // defect
            SECOND;
        }
        sum += held[0][t] - (t > 0 ? held[0][t - 1] : 0);  // defect
        __syncthreads();
    }
#elif WAY == 3
    for (int row = 0; row < rows; ++row)
        for (int i = 0; i < 64; ++i) {
            if (t == 0) one = x[row * 64 + i];  // defect
            FIRST;
            if (t == 63 - i) sum += one;  // defect
            SECOND;
        }
#else
    // One barrier a row is enough for two buffers.
    for (int row = 0; row < rows; ++row) {
        held[BUFFER][t] = x[row * 64 + t];  // defect
        FIRST;
        sum += held[BUFFER][63 - t];  // defect
    }
#endif
    y[t] = sum;
    if (votes < 0) y[t] = one + held[1][t];
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    total<<<1, 64>>>((const int*)in[0], (int*)out[0], (int)size[0]);
}
