/*
summary: A helper block leaves its share of a tile in a workspace and the tile's owner adds it, tile after tile in the same workspace
inputs:
  x: integers(-50, 50, 3, 4, 64)
outputs:
  workspace: zeros(2, 64, dtype=torch.int32)
  flags: zeros(4, dtype=torch.int32)
  y: new(3, 2, 64, dtype=torch.int32)
sizes: [3]
expected:
  y: x[:, 0::2] + x[:, 1::2].flip(2)
arch: 70
kernel: tiles
macros: >
  OURS=pair EMPTY=while(atomicAdd(free,0)<tile){} ACQUIRE_FREE=__threadfence() MET_FREE=__syncthreads() WRITTEN= TOGETHER=__syncthreads() RELEASE=__threadfence() SIGNAL=atomicAdd(full,1)
  POLL=atomicAdd(full,0) ACQUIRE=__threadfence() MET=__syncthreads() DONE=__syncthreads() RELEASE_FREE=__threadfence() FREE=atomicAdd(free,1)
pairs:
  no_release_fence: {broken: "RELEASE="}
  release_of_block_scope: {broken: "RELEASE=__threadfence_block()"}
  no_barrier_before_the_signal: {broken: "TOGETHER="}
  only_a_warp_meets_before_the_signal: {broken: "TOGETHER=__syncwarp()"}
  no_barrier_behind_the_wait: {broken: "MET="}
  owner_enters_by_barrier: {sound: "ACQUIRE=", broken: "MET=__syncwarp()"}
  all_fence: {sound: "WRITTEN=__threadfence() RELEASE=", broken: "WRITTEN=if(t==0)__threadfence()"}
  flag_of_the_other_pair: {broken: "OURS=1-pair"}
  ptx_signal: {sound: "RELEASE= SIGNAL=add_release(full) POLL=load_acquire(full) ACQUIRE=", broken: "SIGNAL=add_relaxed(full)"}
  helper_overwrites_without_a_barrier: {broken: "MET_FREE="}
  freed_before_all_have_read: {broken: "DONE="}
  freed_before_another_warp_has_read: {broken: "DONE=__syncwarp()"}
  freed_without_a_fence: {broken: "RELEASE_FREE="}
  freed_for_the_block_only: {broken: "RELEASE_FREE=__threadfence_block()"}
*/
#include <cuda_runtime.h>

__device__ void add_release(int* place) { asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(place) : "memory"); }
__device__ void add_relaxed(int* place) { asm volatile("red.relaxed.gpu.global.add.s32 [%0], 1;" ::"l"(place) : "memory"); }
__device__ int load_acquire(const int* place) {
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(place) : "memory");
    return value;
}

__global__ void tiles(const int* x, int* workspace, int* flags, int* y, int count) {
    const int t = threadIdx.x, pair = blockIdx.x / 2;
    int* const free = flags + 2 + pair;
    for (int tile = 0; tile < count; ++tile) {
        const int share = x[(tile * 4 + blockIdx.x) * 64 + t];
        if (blockIdx.x % 2 == 1) {
            int* const full = flags + pair;
            if (t == 0) {
                EMPTY;
                ACQUIRE_FREE;
            }
            MET_FREE;
            workspace[pair * 64 + t] = share;  // defect
            WRITTEN;
            TOGETHER;
            if (t == 0) {
                RELEASE;
                SIGNAL;
            }
        } else {
            int* const full = flags + (OURS);
            if (t == 0) {
                while (POLL <= tile) {
                }
                ACQUIRE;
            }
            MET;
            y[(tile * 2 + pair) * 64 + t] = share + workspace[pair * 64 + 63 - t];  // defect
            DONE;
            if (t == 0) {
                RELEASE_FREE;
                FREE;
            }
        }
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    tiles<<<4, 64>>>((const int*)in[0], (int*)out[0], (int*)out[1], (int*)out[2], (int)size[0]);
}
