/*
summary: The classical patterns of two to four threads and two places; y is 1 where no outcome was seen that the memory model forbids
inputs:
  x: integers(0, 2, 1)
outputs:
  a: zeros(64, dtype=torch.int32)
  b: zeros(64, dtype=torch.int32)
  r: zeros(256, dtype=torch.int32)
  y: new(64, dtype=torch.int32)
sizes: []
expected:
  y: torch.ones(64, dtype=torch.int32)
arch: 70
kernel: pattern
macros: >
  SHARED=0 THREADS=2 FENCE=__threadfence() PUT=put_atomic GET=get_atomic THIRD= FOURTH=
pairs:
  store_buffering: {sound: "FIRST=PUT(a,1);FENCE;r[0]=GET(b) SECOND=PUT(b,1);FENCE;r[1]=GET(a) FORBIDDEN=r[0]==0&&r[1]==0", broken: "PUT=put_plain GET=get_plain"}
  store_buffering_plain_stores: {sound: "FIRST=PUT(a,1);FENCE;r[0]=GET(b) SECOND=PUT(b,1);FENCE;r[1]=GET(a) FORBIDDEN=r[0]==0&&r[1]==0", broken: "PUT=put_plain"}
  store_buffering_volatile: {sound: "PUT=put_volatile GET=get_volatile FIRST=PUT(a,1);FENCE;r[0]=GET(b) SECOND=PUT(b,1);FENCE;r[1]=GET(a) FORBIDDEN=r[0]==0&&r[1]==0", broken: "PUT=put_plain GET=get_plain"}
  store_buffering_ptx: {sound: "PUT=put_ptx GET=get_ptx FENCE=fence_sc() FIRST=PUT(a,1);FENCE;r[0]=GET(b) SECOND=PUT(b,1);FENCE;r[1]=GET(a) FORBIDDEN=r[0]==0&&r[1]==0", broken: "PUT=put_weak GET=get_weak"}
  store_buffering_cuda_atomic: {sound: "PUT=put_ordered GET=get_ordered FENCE= FIRST=PUT(a,1);FENCE;r[0]=GET(b) SECOND=PUT(b,1);FENCE;r[1]=GET(a) FORBIDDEN=r[0]==0&&r[1]==0", broken: "PUT=put_plain GET=get_plain"}
  store_buffering_shared: {sound: "SHARED=1 FIRST=PUT(a,1);FENCE;r[0]=GET(b) SECOND=PUT(b,1);FENCE;r[1]=GET(a) FORBIDDEN=r[0]==0&&r[1]==0", broken: "PUT=put_volatile GET=get_volatile"}
  load_buffering: {sound: "FIRST=r[0]=GET(b);FENCE;PUT(a,1) SECOND=r[1]=GET(a);FENCE;PUT(b,1) FORBIDDEN=r[0]==1&&r[1]==1", broken: "PUT=put_plain GET=get_plain"}
  load_buffering_plain_stores: {sound: "FIRST=r[0]=GET(b);FENCE;PUT(a,1) SECOND=r[1]=GET(a);FENCE;PUT(b,1) FORBIDDEN=r[0]==1&&r[1]==1", broken: "PUT=put_plain"}
  load_buffering_shared: {sound: "SHARED=1 FIRST=r[0]=GET(b);FENCE;PUT(a,1) SECOND=r[1]=GET(a);FENCE;PUT(b,1) FORBIDDEN=r[0]==1&&r[1]==1", broken: "PUT=put_volatile GET=get_volatile"}
  message_without_a_wait: {sound: "FIRST=PUT(a,1);FENCE;PUT(b,1) SECOND=r[0]=GET(b);FENCE;r[1]=GET(a) FORBIDDEN=r[0]==1&&r[1]==0", broken: "PUT=put_plain GET=get_plain"}
  message_without_a_wait_shared: {sound: "SHARED=1 FIRST=PUT(a,1);FENCE;PUT(b,1) SECOND=r[0]=GET(b);FENCE;r[1]=GET(a) FORBIDDEN=r[0]==1&&r[1]==0", broken: "PUT=put_plain GET=get_plain"}
  two_writes_each: {sound: "FIRST=PUT(a,1);FENCE;PUT(b,2) SECOND=PUT(b,1);FENCE;PUT(a,2) FORBIDDEN=*a==1&&*b==1", broken: "PUT=put_plain"}
  write_seen_and_overwritten: {sound: "FIRST=PUT(a,2);FENCE;PUT(b,1) SECOND=r[0]=GET(b);FENCE;PUT(a,1) FORBIDDEN=r[0]==1&&*a==2", broken: "PUT=put_plain GET=get_plain"}
  reads_of_one_place_in_order: {sound: "FIRST=PUT(a,1) SECOND=r[0]=GET(a);r[1]=GET(a) FORBIDDEN=r[0]==1&&r[1]==0", broken: "PUT=put_plain GET=get_plain"}
  two_readers_of_two_writers: {sound: "THREADS=4 FIRST=PUT(a,1) SECOND=PUT(b,1) THIRD=r[0]=GET(a);FENCE;r[1]=GET(b) FOURTH=r[2]=GET(b);FENCE;r[3]=GET(a) FORBIDDEN=r[0]==1&&r[1]==0&&r[2]==1&&r[3]==0", broken: "PUT=put_plain GET=get_plain"}
*/
#include <cuda/atomic>
#include <cuda_runtime.h>

__device__ void put_plain(int* place, int value) { *place = value; }  // defect
__device__ int get_plain(const int* place) { return *place; }         // defect
__device__ void put_volatile(int* place, int value) { *(volatile int*)place = value; }  // defect
__device__ int get_volatile(const int* place) { return *(const volatile int*)place; }   // defect
__device__ void put_atomic(int* place, int value) { atomicExch(place, value); }  // defect
__device__ int get_atomic(int* place) { return atomicAdd(place, 0); }            // defect
__device__ void put_ordered(int* place, int value) { cuda::atomic_ref<int, cuda::thread_scope_device>(*place).store(value); }
__device__ int get_ordered(int* place) { return cuda::atomic_ref<int, cuda::thread_scope_device>(*place).load(); }
__device__ void put_ptx(int* place, int value) { asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(place), "r"(value) : "memory"); }
__device__ void put_weak(int* place, int value) { asm volatile("st.global.u32 [%0], %1;" ::"l"(place), "r"(value) : "memory"); }  // defect
__device__ int get_weak(const int* place) {
    int value;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(value) : "l"(place) : "memory");  // defect
    return value;
}
__device__ int get_ptx(const int* place) {
    int value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(place) : "memory");
    return value;
}
__device__ void fence_sc() { asm volatile("fence.sc.gpu;" ::: "memory"); }

// Each of 64 games has its places `a` and `b` and its answers `r`.
__global__ void pattern(int* a, int* b, int* r, int* y) {
#if SHARED
    const int game = blockIdx.x, role = threadIdx.x % 32 == 0 ? (int)threadIdx.x / 32 : -1;
    __shared__ int places[2];
    if (threadIdx.x < 2) places[threadIdx.x] = 0;
    __syncthreads();
    int* const a_global = a + game;
    int* const b_global = b + game;
    a = places, b = places + 1, r += 4 * game;
#else
    const int game = threadIdx.x, role = blockIdx.x;
    a += game, b += game, r += 4 * game;
#endif
    if (role == 0) {
        FIRST;
    } else if (role == 1) {
        SECOND;
    } else if (role == 2) {
        THIRD;
    } else if (role == 3) {
        FOURTH;
    }
#if SHARED
    __syncthreads();
    if (threadIdx.x == 0) *a_global = *a, *b_global = *b;
#endif
}

__global__ void judge(const int* a, const int* b, const int* r, int* y) {
    const int game = threadIdx.x;
    a += game, b += game, r += 4 * game;
    y[game] = (FORBIDDEN) ? 0 : 1;
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    int *const a = (int*)out[0], *const b = (int*)out[1], *const r = (int*)out[2], *const y = (int*)out[3];
    pattern<<<SHARED ? 64 : THREADS, 64>>>(a, b, r, y);
    judge<<<1, 64>>>(a, b, r, y);
}
