/*
summary: Cooperative groups of the grid, of a block, and of lanes that meet between writing and reading
inputs:
  x: normal(4, 64)
outputs:
  data: zeros(4, 64)
  y: new(4, 64)
sizes: []
expected:
  y: x.roll(-1, 0).flip(1) * 2
arch: 70
kernel: turn
macros: >
  WAY=0 FIRST= WRITE=mine[t]=value LATE= MEET=grid.sync() READ=y[b*64+t]=theirs[63-t] AGAIN= REUSE= K=31 PREDICATE=(t&1)!=0 LABEL=t/8
pairs:
  grid_only_the_block_meets: {broken: "MEET=block.sync()"}
  grid_overwritten_before_it_is_read: {sound: "AGAIN=grid.sync() REUSE=mine[t]=-1.0f", broken: "AGAIN="}
  grid_overwritten_behind_a_barrier_of_the_block: {sound: "AGAIN=grid.sync() REUSE=mine[t]=-1.0f", broken: "AGAIN=block.sync()"}
  grid_written_after_the_arrival: {sound: "MEET=auto_token=grid.barrier_arrive();LATE;grid.barrier_wait(std::move(token))", broken: "WRITE= LATE=mine[t]=value", known_gap: "barrier_arrive() of a block or grid is done by barrier_wait()"}
  grid_left_by_one_block: {broken: "FIRST=if(b==3)return", status: barrier_error}
  block_does_not_meet: {sound: "WAY=1 MEET=block.sync()", broken: "MEET="}
  block_only_warps_meet: {sound: "WAY=1 MEET=block.sync()", broken: "MEET=warp.sync()"}
  block_overwritten_before_it_is_read: {sound: "WAY=1 MEET=cg::sync(block) AGAIN=cg::sync(block) REUSE=mine[t]=-1.0f", broken: "AGAIN="}
  block_written_after_the_arrival: {sound: "WAY=1 MEET=auto_token=block.barrier_arrive();LATE;block.barrier_wait(std::move(token))", broken: "WRITE= LATE=mine[t]=value", known_gap: "barrier_arrive() of a block or grid is done by barrier_wait()"}
  warp_does_not_meet: {sound: "WAY=2 MEET=warp.sync()", broken: "MEET="}
  warp_only_half_of_it_meets: {sound: "WAY=2 MEET=warp.sync()", broken: "MEET=half.sync()"}
  warp_overwritten_before_it_is_read: {sound: "WAY=2 MEET=warp.sync() AGAIN=warp.sync() REUSE=held[t]=-1.0f", broken: "AGAIN="}
  half_does_not_meet: {sound: "WAY=2 K=15 MEET=half.sync()", broken: "MEET="}
  half_only_quarters_meet: {sound: "WAY=2 K=15 MEET=half.sync()", broken: "MEET=cg::tiled_partition<8>(half).sync()"}
  four_do_not_meet: {sound: "WAY=2 K=3 MEET=cg::tiled_partition<4>(block).sync()", broken: "MEET="}
  parts_by_predicate: {sound: "WAY=2 K=2 MEET=by_predicate.sync()", broken: "PREDICATE=(t&2)!=0"}
  parts_by_label: {sound: "WAY=2 K=4 MEET=by_label.sync()", broken: "LABEL=t/4"}
*/
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <utility>
namespace cg = cooperative_groups;

#define auto_token auto token

__global__ void turn(const float* x, float* data, float* y) {
    __shared__ float held[64];
    const cg::grid_group grid = cg::this_grid();
    const cg::thread_block block = cg::this_thread_block();
    const auto warp = cg::tiled_partition<32>(block);
    const auto half = cg::tiled_partition<16>(block);
    const int t = threadIdx.x, b = blockIdx.x, next = (b + 1) % 4;
    const auto by_predicate = cg::binary_partition(warp, PREDICATE);
    const auto by_label = cg::labeled_partition(warp, LABEL);
    FIRST;
#if WAY < 2
    // Each writes its own number, and reads another one of the next block's row or of its own.
    float* const mine = WAY == 0 ? data + b * 64 : held;
    const float* const theirs = WAY == 0 ? data + next * 64 : held;
    const float value = 2.0f * x[(WAY == 0 ? b : next) * 64 + t];
    WRITE;  // defect
    MEET;   // defect
    READ;   // defect
    AGAIN;
    REUSE;  // defect
#else
    // Lanes exchange numbers with the lane K away.
    held[t] = 2.0f * x[next * 64 + 63 - (t ^ K)];  // defect
    MEET;
    y[b * 64 + t] = held[t ^ K];  // defect
    AGAIN;
    REUSE;  // defect
#endif
    if (grid.size() + half.size() + by_predicate.size() + by_label.size() == 0) data[t] = 0.0f;
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    const float* x = (const float*)in[0];
    float *data = (float*)out[0], *y = (float*)out[1];
    void* arguments[] = {&x, &data, &y};
    cudaLaunchCooperativeKernel((const void*)turn, dim3(4), dim3(64), arguments, 0, 0);
}
