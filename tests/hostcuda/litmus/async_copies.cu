/*
summary: Rows that come to shared memory by cp.async, by pipelines and groups, and in bulk, and leave it in bulk
inputs:
  x: normal(4, 64)
outputs:
  work: zeros(4, 64)
  y: new(4, 64)
sizes: [4]
expected:
  y: x.flip(1)
arch: 90
kernel: turn
macros: >
  WAY=0 FROM=t COUNT=64 BEGIN=fetch(tile+t,source) COMMIT=commit() BEFORE= WAIT=wait<0>() CHANGE= MET=__syncthreads() READ=value=tile[63-t] NEXT=__syncthreads()
  STAGE=(row+1)%2 STORED=stored()
pairs:
  not_waited_for: {broken: "WAIT="}
  not_committed: {broken: "COMMIT="}
  newest_not_waited_for: {broken: "WAIT=wait<1>()"}
  all_not_waited_for: {sound: "COMMIT= WAIT=wait_all()", broken: "WAIT="}
  no_barrier_behind_the_wait: {broken: "MET="}
  only_a_warp_meets_behind_the_wait: {broken: "MET=__syncwarp()"}
  waited_for_behind_the_barrier: {broken: "WAIT= MET=__syncthreads();wait<0>()"}
  read_before_the_wait: {broken: "BEFORE=value=tile[63-t] READ="}
  own_number_not_waited_for: {sound: "FROM=63-t MET= READ=value=tile[t] NEXT=", broken: "WAIT="}
  refilled_while_others_read: {broken: "NEXT="}
  refilled_behind_a_barrier_of_the_warp: {broken: "NEXT=__syncwarp()"}
  source_changed_before_the_wait: {sound: "CHANGE=work[row*64+t]=-1.0f", broken: "CHANGE= BEFORE=work[row*64+t]=-1.0f"}
  primitives_newest_not_waited_for: {sound: "BEGIN=__pipeline_memcpy_async(tile+t,source,sizeof(float)) COMMIT=__pipeline_commit() WAIT=__pipeline_wait_prior(0)", broken: "WAIT=__pipeline_wait_prior(1)"}
  pipeline_not_waited_for: {sound: "BEGIN=pipe.producer_acquire();cuda::memcpy_async(tile+t,source,sizeof(float),pipe) COMMIT=pipe.producer_commit() WAIT=pipe.consumer_wait() NEXT=pipe.consumer_release();__syncthreads()", broken: "WAIT="}
  pipeline_no_barrier_behind_the_wait: {sound: "BEGIN=pipe.producer_acquire();cuda::memcpy_async(tile+t,source,sizeof(float),pipe) COMMIT=pipe.producer_commit() WAIT=pipe.consumer_wait() NEXT=pipe.consumer_release();__syncthreads()", broken: "MET="}
  barrier_of_the_copy_not_waited_for: {sound: "BEGIN=cuda::memcpy_async(tile+t,source,sizeof(float),bound) COMMIT= WAIT=bound.arrive_and_wait() MET=", broken: "WAIT=__syncthreads()"}
  group_not_waited_for: {sound: "BEGIN=cg::memcpy_async(cg::this_thread_block(),tile,work+row*64,sizeof(tile)) COMMIT= WAIT=cg::wait(cg::this_thread_block()) MET=", broken: "WAIT="}
  arrival_without_the_copy: {sound: "COMMIT=arrive_with_copies(place) WAIT=while(!passed(place,row&1)){} MET=", broken: "COMMIT=arrive(place)"}
  two_stages_newest_not_waited_for: {sound: "WAY=1 WAIT=wait<1>()", broken: "WAIT=wait<2>()"}
  two_stages_no_barrier_behind_the_wait: {sound: "WAY=1 WAIT=wait<1>()", broken: "MET="}
  two_stages_refilled_while_others_read: {sound: "WAY=1 WAIT=wait<1>()", broken: "NEXT="}
  two_stages_one_of_them_used: {sound: "WAY=1 WAIT=wait<1>()", broken: "STAGE=row%2"}
  bulk_not_waited_for: {sound: "COUNT=1 BEGIN=if(t==0)fetch_row(tile,x+row*64,place) COMMIT= WAIT=while(!passed(place,row&1)){} MET=", broken: "WAIT=__syncthreads()"}
  bulk_waited_for_by_one: {sound: "COUNT=1 BEGIN=if(t==0)fetch_row(tile,x+row*64,place) COMMIT= WAIT=while(t==0&&!passed(place,row&1)){}", broken: "MET="}
  bulk_waited_for_the_phase_before: {sound: "COUNT=1 BEGIN=if(t==0)fetch_row(tile,x+row*64,place) COMMIT= WAIT=while(!passed(place,row&1)){}", broken: "WAIT=wait_a_while(place,~row&1)"}
  bulk_refilled_while_others_read: {sound: "COUNT=1 BEGIN=if(t==0)fetch_row(tile,x+row*64,place) COMMIT= WAIT=while(!passed(place,row&1)){}", broken: "NEXT="}
  bulk_store_overwritten: {sound: "WAY=2", broken: "STORED="}
  bulk_store_overwritten_by_others: {sound: "WAY=2", broken: "NEXT="}
*/
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>
#pragma nv_diag_suppress static_var_with_dynamic_init
namespace cg = cooperative_groups;

__device__ unsigned at(const void* place) { return (unsigned)__cvta_generic_to_shared(place); }
__device__ void fetch(float* to, const float* from) { asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at(to)), "l"(from) : "memory"); }  // defect
__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int newest> __device__ void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(newest) : "memory"); }
__device__ void wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }
__device__ void arrive(unsigned place) { asm volatile("{ .reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0]; }" ::"r"(place) : "memory"); }
__device__ void arrive_with_copies(unsigned place) { asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(place) : "memory"); }
__device__ bool passed(unsigned place, int parity) {
    int done;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.s32 %0, 1, 0, p; }" : "=r"(done) : "r"(place), "r"(parity) : "memory");
    return done != 0;
}
// Not for ever: whoever comes late waits for a phase that never ends.
__device__ void wait_a_while(unsigned place, int parity) {
    for (int i = 0; i < 1000 && !passed(place, parity); ++i) {
    }
}
__device__ void fetch_row(float* to, const float* from, unsigned place) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], 256;" ::"r"(place) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(at(to)), "l"(from), "r"(place) : "memory");  // defect
}
__device__ void store_row(float* to, const float* from) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(to), "r"(at(from)) : "memory");  // defect
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ void stored() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

__global__ void turn(const float* x, float* work, float* y, int rows) {
    __shared__ alignas(16) float tile[64], stages[2][64];
    __shared__ alignas(8) unsigned long long full;
    __shared__ cuda::barrier<cuda::thread_scope_block> bound;
    auto pipe = cuda::make_pipeline();
    const int t = threadIdx.x;
    const unsigned place = at(&full);
    float value = 0.0f;
    if (t == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(place), "r"(COUNT) : "memory");
        init(&bound, 64);
    }
    for (int row = 0; row < rows; ++row) work[row * 64 + t] = x[row * 64 + t];
    __syncthreads();
#if WAY == 0
    for (int row = 0; row < rows; ++row) {
        const float* const source = work + row * 64 + (FROM);
        BEGIN;  // defect
        COMMIT;
        BEFORE;  // defect
        WAIT;
        CHANGE;
        MET;
        READ;  // defect
        y[row * 64 + t] = value;
        NEXT;
        if (source == nullptr) break;
    }
#elif WAY == 1
    // The next row is under way while one is read.
    fetch(&stages[0][t], work + t);
    commit();
    for (int row = 0; row < rows; ++row) {
        if (row + 1 < rows) fetch(&stages[STAGE][t], work + (row + 1) * 64 + t);
        commit();
        WAIT;
        MET;
        y[row * 64 + t] = stages[row % 2][63 - t];  // defect
        NEXT;
    }
#else
    for (int row = 0; row < rows; ++row) {
        tile[t] = x[row * 64 + 63 - t];  // defect
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        if (t == 0) {
            store_row(y + row * 64, tile);
            STORED;
        }
        NEXT;
    }
    if (t == 0) stored();
#endif
    if (place == 1) y[0] = value + stages[0][0];
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    turn<<<1, 64>>>((const float*)in[0], (float*)out[0], (float*)out[1], (int)size[0]);
}
