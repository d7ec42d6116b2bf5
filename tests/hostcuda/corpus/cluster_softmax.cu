/*
summary: Softmax of long rows, each shared by a cluster whose size is the kernel's own, over shared variables of all its blocks; split barrier
inputs:
  x: normal(5, 3000)
outputs:
  y: new(5, 3000)
sizes: [5, 3000]
expected:
  y: x.double().softmax(1).float()
tolerance: 1.0e-5
arch: 90
*/
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

constexpr int kThreads = 128;

template <class Combine> __device__ float over_cluster(float value, Combine combine) {
    __shared__ float warps[kThreads / 32];
    __shared__ float mine;
    cg::cluster_group cluster = cg::this_cluster();
    const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    value = cg::reduce(warp, value, combine);
    if (warp.thread_rank() == 0) warps[warp.meta_group_rank()] = value;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < kThreads / 32; w++) value = combine(value, warps[w]);
        mine = value;
    }
    cluster.sync();
    value = *cluster.map_shared_rank(&mine, 0);
    for (unsigned rank = 1; rank < cluster.num_blocks(); rank++) value = combine(value, *cluster.map_shared_rank(&mine, rank));
    cluster.barrier_arrive();  // nobody writes `mine` again, or leaves, while another reads it
    value *= 1.0f;
    cluster.barrier_wait();
    return value;
}

template <int Blocks> __global__ void __cluster_dims__(Blocks, 1, 1) __launch_bounds__(kThreads) softmax(const float* x, float* y, int columns) {
    const unsigned rank = cg::this_cluster().thread_rank(), step = cg::this_cluster().num_threads();
    const long long row = cg::this_grid().cluster_rank();
    x += row * columns;
    y += row * columns;
    float greatest = -INFINITY, sum = 0.0f;
    for (int i = rank; i < columns; i += step) greatest = fmaxf(greatest, x[i]);
    greatest = over_cluster(greatest, cg::greater<float>());
    for (int i = rank; i < columns; i += step) sum += expf(x[i] - greatest);
    sum = over_cluster(sum, cg::plus<float>());
    for (int i = rank; i < columns; i += step) y[i] = expf(x[i] - greatest) / sum;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    softmax<4><<<4 * (int)size[0], kThreads>>>((const float*)in[0], (float*)out[0], (int)size[1]);
}
