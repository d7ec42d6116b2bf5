/*
summary: Blocks of a cluster that hand each other rows through their shared memory or through global memory
inputs:
  x: integers(-50, 50, 4, 64)
outputs:
  data: zeros(4, 64, dtype=torch.int32)
  y: new(4, 64, dtype=torch.int32)
sizes: []
expected:
  y: 2 * x.reshape(2, 2, 64).flip(1, 2).reshape(4, 64)
arch: 90
kernel: swap
macros: >
  WAY=0 WRITE=mine[t]=2*x[b*64+t] LATE= MEET=cluster.sync() EARLY= PEER=(b^1) READ=y[b*64+t]=theirs[63-t] AGAIN= REUSE= LEAVE=cluster.sync()
  TOGETHER=__syncthreads() TELLS=t==0 RELEASE=__threadfence() SIGNAL=atomicExch(far_flag,1) WAITS=t==0 POLL=atomicAdd(&flag,0) ACQUIRE=__threadfence() MET=__syncthreads()
  FIRST= ADD=add_atomic COUNT=1
pairs:
  only_the_block_meets: {broken: "MEET=__syncthreads()"}
  written_after_the_arrival: {sound: "MEET=cluster.barrier_arrive();LATE;cluster.barrier_wait()", broken: "WRITE= LATE=mine[t]=2*x[b*64+t]"}
  read_before_the_wait: {sound: "MEET=cluster.barrier_arrive();EARLY;cluster.barrier_wait()", broken: "EARLY=y[b*64+t]=theirs[63-t] READ="}
  ptx_arrival_relaxed: {sound: "MEET=arrive_release();wait_acquire()", broken: "MEET=arrive_relaxed();wait_acquire()"}
  ptx_fence_before_the_write: {sound: "MEET=fence_cluster();arrive_relaxed();wait_acquire()", broken: "WRITE=fence_cluster();mine[t]=2*x[b*64+t] MEET=arrive_relaxed();wait_acquire()"}
  ptx_fence_of_block_scope: {sound: "MEET=fence_cluster();arrive_relaxed();wait_acquire()", broken: "MEET=fence_block();arrive_relaxed();wait_acquire()"}
  overwritten_before_it_is_read: {sound: "AGAIN=cluster.sync() REUSE=mine[t]=-1000-t", broken: "AGAIN="}
  overwritten_behind_a_barrier_of_the_block: {sound: "AGAIN=cluster.sync() REUSE=mine[t]=-1000-t", broken: "AGAIN=__syncthreads()"}
  left_before_it_is_read: {broken: "LEAVE=", status: memory_error}
  flag_without_a_release: {sound: "WAY=1", broken: "RELEASE="}
  flag_released_for_the_block_only: {sound: "WAY=1", broken: "RELEASE=__threadfence_block()"}
  flag_without_an_acquire: {sound: "WAY=1 WAITS=true MET=", broken: "ACQUIRE="}
  flag_acquired_for_the_block_only: {sound: "WAY=1 WAITS=true MET=", broken: "ACQUIRE=__threadfence_block()"}
  flag_no_barrier_before_the_signal: {sound: "WAY=1", broken: "TOGETHER="}
  flag_no_barrier_behind_the_wait: {sound: "WAY=1", broken: "MET="}
  flag_by_volatile: {sound: "WAY=1", broken: "SIGNAL=*(volatile_int*)far_flag=1"}
  flag_by_ptx: {sound: "WAY=1 RELEASE= SIGNAL=store_release(far_flag) ACQUIRE= POLL=load_acquire(&flag)", broken: "SIGNAL=store_relaxed(far_flag)"}
  flag_by_ptx_of_block_scope: {sound: "WAY=1 RELEASE= SIGNAL=store_release(far_flag) ACQUIRE= POLL=load_acquire(&flag)", broken: "SIGNAL=store_release_block(far_flag)"}
  global_only_the_block_meets: {sound: "WAY=2", broken: "MEET=__syncthreads()"}
  global_of_another_cluster: {sound: "WAY=2", broken: "PEER=(b^2)"}
  global_written_after_the_arrival: {sound: "WAY=2 MEET=cluster.barrier_arrive();LATE;cluster.barrier_wait()", broken: "WRITE= LATE=mine[t]=2*x[b*64+t]"}
  plain_additions: {sound: "WAY=3", broken: "ADD=add_plain"}
  barrier_of_the_other_block: {sound: "WAY=4", broken: "TOGETHER="}
  barrier_of_the_other_block_too_early: {sound: "WAY=4 COUNT=64 TELLS=true TOGETHER=", broken: "FIRST=arrive_at(far_place) TELLS=false"}
*/
#include <cooperative_groups.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

using volatile_int = volatile int;
__device__ unsigned at(const void* place) { return (unsigned)__cvta_generic_to_shared(place); }
__device__ void add_atomic(int* place, int value) { atomicAdd(place, value); }
__device__ void add_plain(int* place, int value) { *place += value; }  // defect
__device__ void arrive_release() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ void arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ void wait_acquire() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ void fence_cluster() { asm volatile("fence.acq_rel.cluster;" ::: "memory"); }
__device__ void fence_block() { asm volatile("fence.acq_rel.cta;" ::: "memory"); }
__device__ void store_release(int* place) { asm volatile("st.release.cluster.u32 [%0], 1;" ::"l"(place) : "memory"); }
__device__ void store_relaxed(int* place) { asm volatile("st.relaxed.cluster.u32 [%0], 1;" ::"l"(place) : "memory"); }
__device__ void store_release_block(int* place) { asm volatile("st.release.cta.u32 [%0], 1;" ::"l"(place) : "memory"); }
__device__ int load_acquire(const int* place) {
    int value;
    asm volatile("ld.acquire.cluster.u32 %0, [%1];" : "=r"(value) : "l"(place) : "memory");
    return value;
}
__device__ unsigned mapped(unsigned place, unsigned rank) {
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(place), "r"(rank));
    return there;
}
__device__ void arrive_at(unsigned place) { asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(place) : "memory"); }
__device__ bool passed(unsigned place) {
    int done;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0; selp.s32 %0, 1, 0, p; }" : "=r"(done) : "r"(place) : "memory");
    return done != 0;
}

__global__ void __cluster_dims__(2, 1, 1) swap(const int* x, int* data, int* y) {
    __shared__ int held[64];
    __shared__ int flag;
    __shared__ alignas(8) unsigned long long full;
    cg::cluster_group cluster = cg::this_cluster();
    const int t = threadIdx.x, b = blockIdx.x, other = cluster.block_rank() ^ 1;
    int* const far = cluster.map_shared_rank(held, other);
    int* const far_flag = cluster.map_shared_rank(&flag, other);
    const unsigned far_place = mapped(at(&full), other);
    held[t] = 0;
    if (t == 0) {
        flag = 0;
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(&full)), "r"(COUNT) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster.sync();
#if WAY == 0 || WAY == 2
    // Each writes its own row and reads its peer's.
    int* const mine = WAY == 2 ? data + b * 64 : held;
    const int* const theirs = WAY == 2 ? data + PEER * 64 : far;
    WRITE;  // defect
    MEET;   // defect
    READ;   // defect
    AGAIN;
    REUSE;  // defect
#elif WAY == 1
    // Each writes into its peer and sets a flag there.
    far[t] = 2 * x[b * 64 + t];  // defect
    TOGETHER;
    if (TELLS) {
        RELEASE;
        SIGNAL;  // defect
    }
    if (WAITS) {
        while (POLL == 0) {  // defect
        }
        ACQUIRE;
    }
    MET;
    y[b * 64 + t] = held[63 - t];  // defect
#elif WAY == 3
    // Both add to both.
    ADD(far + 63 - t, x[b * 64 + t]);
    ADD(held + 63 - t, x[(b ^ 1) * 64 + t]);
    cluster.sync();
    y[b * 64 + t] = held[t];
#else
    // Each writes into its peer and arrives at a barrier there.
    FIRST;
    far[t] = 2 * x[b * 64 + t];  // defect
    TOGETHER;
    if (TELLS) arrive_at(far_place);
    while (!passed(at(&full))) {
    }
    y[b * 64 + t] = held[63 - t];  // defect
#endif
    LEAVE;
    if (far_place == 1) *far_flag = far[0];
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    swap<<<4, 64>>>((const int*)in[0], (int*)out[0], (int*)out[1]);
}
