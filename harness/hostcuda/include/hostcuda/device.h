// What device code finds built in: threadIdx and kin, barriers, warp collectives, atomics, fences, clocks, assert.
// Arithmetic is in hostcuda/math_intrinsics.h.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <type_traits>

#include "cuda_fp16.h"
#include "cuda_bf16.h"
#include "hostcuda/arithmetic.h"
#include "hostcuda/dim3.h"
#include "hostcuda/interface.h"
#include "hostcuda/math_intrinsics.h"
#include "hostcuda/qualifiers.h"
#include "hostcuda/warp.h"

#define HOSTCUDA_TLS __attribute__((tls_model("initial-exec")))
HOSTCUDA_TLS extern __thread const uint3 threadIdx;
HOSTCUDA_TLS extern __thread const uint3 blockIdx;
HOSTCUDA_TLS extern __thread const dim3 blockDim;
HOSTCUDA_TLS extern __thread const dim3 gridDim;
static constexpr int warpSize = 32;

namespace hostcuda {
HOSTCUDA_TLS extern __thread char* const shared_window;
HOSTCUDA_TLS extern __thread unsigned char* const shared_touched;
HOSTCUDA_TLS extern __thread bool const launch_known;
}  // namespace hostcuda


// ---- barriers and fences
inline void __syncthreads(HOSTCUDA_LINE) { hostcuda::barrier(0, hostcuda::BarrierAnswer::none, line); }
inline void __syncthreads(hostcuda::Place place, HOSTCUDA_LINE) { hostcuda::barrier(0, hostcuda::BarrierAnswer::none, line, place); }
inline void __barrier_sync(unsigned number, HOSTCUDA_LINE) {
    hostcuda::named_barrier(number, 0, true, 0, hostcuda::BarrierAnswer::none, line);
}
inline void __barrier_sync_count(unsigned number, unsigned count, HOSTCUDA_LINE) {
    hostcuda::named_barrier(number, count, true, 0, hostcuda::BarrierAnswer::none, line);
}
inline int __syncthreads_count(int p, HOSTCUDA_LINE) { return hostcuda::barrier(p, hostcuda::BarrierAnswer::count, line); }
inline int __syncthreads_count(int p, hostcuda::Place place, HOSTCUDA_LINE) { return hostcuda::barrier(p, hostcuda::BarrierAnswer::count, line, place); }
inline int __syncthreads_and(int p, HOSTCUDA_LINE) { return hostcuda::barrier(p, hostcuda::BarrierAnswer::all, line); }
inline int __syncthreads_and(int p, hostcuda::Place place, HOSTCUDA_LINE) { return hostcuda::barrier(p, hostcuda::BarrierAnswer::all, line, place); }
inline int __syncthreads_or(int p, HOSTCUDA_LINE) { return hostcuda::barrier(p, hostcuda::BarrierAnswer::any, line); }
inline int __syncthreads_or(int p, hostcuda::Place place, HOSTCUDA_LINE) { return hostcuda::barrier(p, hostcuda::BarrierAnswer::any, line, place); }
inline void __threadfence() { hostcuda::fence(); __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { hostcuda::fence(hostcuda::Scope::block); __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __threadfence(); }
inline void __nanosleep(unsigned) { hostcuda::poll_hint(); }
[[noreturn]] inline void __trap() { hostcuda::trap(); }
inline void __brkpt() {}

// ---- clusters
namespace hostcuda {
inline dim3 dims(const Dim3& d) { return dim3(d.x, d.y, d.z); }
}  // namespace hostcuda
inline void __cluster_barrier_arrive(HOSTCUDA_LINE) { hostcuda::cluster_arrive(false, line); }
inline void __cluster_barrier_arrive_relaxed(HOSTCUDA_LINE) { hostcuda::cluster_arrive(true, line); }
inline void __cluster_barrier_wait(HOSTCUDA_LINE) { hostcuda::cluster_wait(line); }
inline void __threadfence_cluster() { __threadfence(); }
inline void* __cluster_map_shared_rank(const void* p, unsigned rank, HOSTCUDA_LINE) { return hostcuda::cluster_map(p, rank, line); }
inline unsigned __cluster_query_shared_rank(const void* p) { return hostcuda::cluster_rank_of(p); }
inline unsigned __isClusterShared(const void* p) { return hostcuda::cluster_rank_of(p) != ~0u; }
inline unsigned __clusterDimIsSpecified() { return hostcuda::cluster_place().explicitly; }
inline dim3 __clusterDim() { return hostcuda::dims(hostcuda::cluster_place().extent); }
inline dim3 __clusterRelativeBlockIdx() { return hostcuda::dims(hostcuda::cluster_place().block); }
inline dim3 __clusterGridDimInClusters() { return hostcuda::dims(hostcuda::cluster_place().count); }
inline dim3 __clusterIdx() { return hostcuda::dims(hostcuda::cluster_place().index); }
inline unsigned __clusterRelativeBlockRank() { return hostcuda::cluster_place().rank; }
inline unsigned __clusterSizeInBlocks() { return hostcuda::cluster_place().size; }

// ---- dependent launches: the kernel before has ended when this one begins
inline void cudaGridDependencySynchronize() {}
inline void cudaTriggerProgrammaticLaunchCompletion() {}

// ---- warp collectives
inline void __syncwarp(unsigned mask = 0xffffffffu, HOSTCUDA_LINE) {
    hostcuda::warp_collective(hostcuda::WarpOperation::synchronize, mask, nullptr, nullptr, 0, 0, "__syncwarp", line);
}
inline unsigned __activemask(HOSTCUDA_LINE) { return hostcuda::active_mask(line); }
inline unsigned __ballot_sync(unsigned mask, int predicate, HOSTCUDA_LINE) {
    return hostcuda::warp_collective(hostcuda::WarpOperation::ballot, mask, nullptr, nullptr, 0, predicate != 0, "__ballot_sync", line);
}
inline int __any_sync(unsigned mask, int predicate, HOSTCUDA_LINE) {
    return hostcuda::warp_collective(hostcuda::WarpOperation::ballot, mask, nullptr, nullptr, 0, predicate != 0, "__any_sync", line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, HOSTCUDA_LINE) {
    return hostcuda::warp_collective(hostcuda::WarpOperation::ballot, mask, nullptr, nullptr, 0, predicate == 0, "__all_sync", line) == 0;
}
inline int __uni_sync(unsigned mask, int predicate, HOSTCUDA_LINE) {
    unsigned yes = hostcuda::warp_collective(hostcuda::WarpOperation::ballot, mask, nullptr, nullptr, 0, predicate != 0, "__uni_sync", line);
    return yes == 0 || yes == mask;
}

namespace hostcuda {
template <class T> inline T shuffle(unsigned mask, T value, unsigned source, const char* kind, int line) {
    T result;
    warp_collective(WarpOperation::shuffle, mask, &value, &result, sizeof(T), source, kind, line);
    return result;
}
// Lane arithmetic of the four shuffles (PTX ISA, shfl.sync): segments of `width` lanes, out of range keeps the own lane.
inline unsigned lane_of(int width) { return static_cast<unsigned>(lane_id()) & ~static_cast<unsigned>(width - 1); }
}  // namespace hostcuda

// Overloads, as CUDA has them: smaller integers become int, and what no type of these stands for, as a struct, has none.
#define HOSTCUDA_SHUFFLES(type)                                                                                                      \
    inline type __shfl_sync(unsigned mask, type value, int source, int width = 32, HOSTCUDA_LINE) {                                  \
        const unsigned segment = static_cast<unsigned>(width - 1);                                                                   \
        return hostcuda::shuffle(mask, value, hostcuda::lane_of(width) + (static_cast<unsigned>(source) & segment), "__shfl_sync", line); \
    }                                                                                                                                \
    inline type __shfl_up_sync(unsigned mask, type value, unsigned delta, int width = 32, HOSTCUDA_LINE) {                           \
        const unsigned lane = static_cast<unsigned>(hostcuda::lane_id()), first = hostcuda::lane_of(width);                          \
        return hostcuda::shuffle(mask, value, lane >= first + delta ? lane - delta : lane, "__shfl_up_sync", line);                  \
    }                                                                                                                                \
    inline type __shfl_down_sync(unsigned mask, type value, unsigned delta, int width = 32, HOSTCUDA_LINE) {                         \
        const unsigned lane = static_cast<unsigned>(hostcuda::lane_id());                                                            \
        const unsigned last = hostcuda::lane_of(width) + static_cast<unsigned>(width - 1);                                           \
        return hostcuda::shuffle(mask, value, lane + delta <= last ? lane + delta : lane, "__shfl_down_sync", line);                 \
    }                                                                                                                                \
    inline type __shfl_xor_sync(unsigned mask, type value, int lanes, int width = 32, HOSTCUDA_LINE) {                               \
        const unsigned lane = static_cast<unsigned>(hostcuda::lane_id()), target = lane ^ static_cast<unsigned>(lanes);              \
        const unsigned last = hostcuda::lane_of(width) + static_cast<unsigned>(width - 1);                                           \
        return hostcuda::shuffle(mask, value, target <= last ? target : lane, "__shfl_xor_sync", line);                              \
    }
#define HOSTCUDA_MATCHES(type)                                                                                                       \
    inline unsigned __match_any_sync(unsigned mask, type value, HOSTCUDA_LINE) {                                                     \
        return hostcuda::warp_collective(hostcuda::WarpOperation::match_any, mask, &value, nullptr, sizeof(type), 0, "__match_any_sync", line); \
    }                                                                                                                                \
    inline unsigned __match_all_sync(unsigned mask, type value, int* predicate, HOSTCUDA_LINE) {                                     \
        unsigned same = hostcuda::warp_collective(hostcuda::WarpOperation::match_all, mask, &value, nullptr, sizeof(type), 0, "__match_all_sync", line); \
        *predicate = same != 0;                                                                                                      \
        return same;                                                                                                                 \
    }
#define HOSTCUDA_OF_NUMBERS(overloads) \
    overloads(int) overloads(unsigned) overloads(long) overloads(unsigned long) overloads(long long) overloads(unsigned long long) \
    overloads(float) overloads(double)
HOSTCUDA_OF_NUMBERS(HOSTCUDA_SHUFFLES)
HOSTCUDA_OF_NUMBERS(HOSTCUDA_MATCHES)
HOSTCUDA_SHUFFLES(__half)
HOSTCUDA_SHUFFLES(__half2)
HOSTCUDA_SHUFFLES(__nv_bfloat16)
HOSTCUDA_SHUFFLES(__nv_bfloat162)

namespace hostcuda {
template <class T, class F> inline T reduce(unsigned mask, T value, const char* kind, int line, F combine) {
    T all[32];
    unsigned gave = warp_collective(WarpOperation::exchange, mask, &value, all, sizeof(T), 0, kind, line);
    T result = value;
    bool first = true;
    for (int i = 0; i < 32; ++i)
        if (gave >> i & 1u) result = first ? all[i] : combine(result, all[i]), first = false;
    return result;
}
}  // namespace hostcuda
#define HOSTCUDA_REDUCE(name, type, expression)                                                     \
    inline type name(unsigned mask, type value, HOSTCUDA_LINE) {                                    \
        return hostcuda::reduce(mask, value, #name, line, [](type a, type b) -> type { return expression; }); \
    }
HOSTCUDA_REDUCE(__reduce_add_sync, unsigned, a + b)
HOSTCUDA_REDUCE(__reduce_add_sync, int, static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b)))
HOSTCUDA_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
HOSTCUDA_REDUCE(__reduce_min_sync, int, a < b ? a : b)
HOSTCUDA_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
HOSTCUDA_REDUCE(__reduce_max_sync, int, a > b ? a : b)
HOSTCUDA_REDUCE(__reduce_and_sync, unsigned, a & b)
HOSTCUDA_REDUCE(__reduce_or_sync, unsigned, a | b)
HOSTCUDA_REDUCE(__reduce_xor_sync, unsigned, a ^ b)

// ---- atomics: every width through the compiler's builtins; what the processor has no instruction for is a compare-and-swap loop
namespace hostcuda {
template <std::size_t bytes> struct Word;
template <> struct Word<1> { using type = std::uint8_t; };
template <> struct Word<2> { using type = std::uint16_t; };
template <> struct Word<4> { using type = std::uint32_t; };
template <> struct Word<8> { using type = std::uint64_t; };
template <class T> using word_of = typename Word<sizeof(T)>::type;
template <int order = __ATOMIC_RELAXED, class T, class F> inline T atomic_update(T* address, F change) {
    auto* place = reinterpret_cast<word_of<T>*>(address);
    word_of<T> before = __atomic_load_n(place, __ATOMIC_RELAXED);
    for (;;) {
        T old, next;
        std::memcpy(static_cast<void*>(&old), &before, sizeof(T));
        next = change(old);
        word_of<T> after;
        std::memcpy(&after, static_cast<const void*>(&next), sizeof(T));
        if (__atomic_compare_exchange_n(place, &before, after, false, order, __ATOMIC_RELAXED)) return old;
    }
}
}  // namespace hostcuda

#define HOSTCUDA_ATOMIC_BUILTIN(name, type, builtin)                                                       \
    inline type name(type* p, type v) { return builtin(p, v, __ATOMIC_RELAXED); }                          \
    inline type name##_block(type* p, type v) { return builtin(p, v, HOSTCUDA_BLOCK_SCOPE); }              \
    inline type name##_system(type* p, type v) { return builtin(p, v, __ATOMIC_RELAXED); }
#define HOSTCUDA_ATOMIC_LOOP(name, type, expression)                                                       \
    inline type name(type* p, type v) { return hostcuda::atomic_update(p, [v](type old) -> type { return expression; }); } \
    inline type name##_block(type* p, type v) { return hostcuda::atomic_update<HOSTCUDA_BLOCK_SCOPE>(p, [v](type old) -> type { return expression; }); } \
    inline type name##_system(type* p, type v) { return name(p, v); }
// The types are CUDA's: it has nothing for `unsigned long`, which `uint64_t` and `size_t` are, and nothing signed where that is not said.
#define HOSTCUDA_ATOMIC_WORDS(name, builtin)                \
    HOSTCUDA_ATOMIC_BUILTIN(name, int, builtin)             \
    HOSTCUDA_ATOMIC_BUILTIN(name, unsigned, builtin)
#define HOSTCUDA_ATOMIC_INTEGERS(name, builtin)             \
    HOSTCUDA_ATOMIC_WORDS(name, builtin)                    \
    HOSTCUDA_ATOMIC_BUILTIN(name, unsigned long long, builtin)
#define HOSTCUDA_ATOMIC_BITS(name, builtin)                 \
    HOSTCUDA_ATOMIC_INTEGERS(name, builtin)                 \
    HOSTCUDA_ATOMIC_BUILTIN(name, long long, builtin)
#define HOSTCUDA_ATOMIC_ORDER(name, expression)             \
    HOSTCUDA_ATOMIC_LOOP(name, int, expression)             \
    HOSTCUDA_ATOMIC_LOOP(name, unsigned, expression)        \
    HOSTCUDA_ATOMIC_LOOP(name, long long, expression)       \
    HOSTCUDA_ATOMIC_LOOP(name, unsigned long long, expression)
HOSTCUDA_ATOMIC_INTEGERS(atomicAdd, __atomic_fetch_add)
HOSTCUDA_ATOMIC_WORDS(atomicSub, __atomic_fetch_sub)
HOSTCUDA_ATOMIC_BITS(atomicAnd, __atomic_fetch_and)
HOSTCUDA_ATOMIC_BITS(atomicOr, __atomic_fetch_or)
HOSTCUDA_ATOMIC_BITS(atomicXor, __atomic_fetch_xor)
HOSTCUDA_ATOMIC_INTEGERS(atomicExch, __atomic_exchange_n)
HOSTCUDA_ATOMIC_ORDER(atomicMin, v < old ? v : old)
HOSTCUDA_ATOMIC_ORDER(atomicMax, v > old ? v : old)
HOSTCUDA_ATOMIC_LOOP(atomicAdd, float, old + v)
HOSTCUDA_ATOMIC_LOOP(atomicAdd, double, old + v)
HOSTCUDA_ATOMIC_LOOP(atomicAdd, __half, __hadd(old, v))
HOSTCUDA_ATOMIC_LOOP(atomicAdd, __nv_bfloat16, __hadd(old, v))
HOSTCUDA_ATOMIC_LOOP(atomicExch, float, (void(old), v))
HOSTCUDA_ATOMIC_LOOP(atomicInc, unsigned, old >= v ? 0u : old + 1u)
HOSTCUDA_ATOMIC_LOOP(atomicDec, unsigned, old == 0u || old > v ? v : old - 1u)
// The vector forms are atomic in each element (CUDA programming guide).
#define HOSTCUDA_ATOMIC_PAIR(type) \
    inline type atomicAdd(type* p, type v) { type old; old.x = atomicAdd(&p->x, v.x); old.y = atomicAdd(&p->y, v.y); return old; }
HOSTCUDA_ATOMIC_PAIR(__half2)
HOSTCUDA_ATOMIC_PAIR(__nv_bfloat162)
HOSTCUDA_ATOMIC_PAIR(float2)
inline float4 atomicAdd(float4* p, float4 v) {
    float4 old;
    old.x = atomicAdd(&p->x, v.x), old.y = atomicAdd(&p->y, v.y), old.z = atomicAdd(&p->z, v.z), old.w = atomicAdd(&p->w, v.w);
    return old;
}
#define HOSTCUDA_ATOMIC_SWAP(type)                                                                              \
    inline type atomicCAS(type* p, type expected, type value) {                                                 \
        __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);            \
        return expected;                                                                                        \
    }                                                                                                           \
    inline type atomicCAS_block(type* p, type expected, type value) {                                           \
        __atomic_compare_exchange_n(p, &expected, value, false, HOSTCUDA_BLOCK_SCOPE, __ATOMIC_RELAXED);        \
        return expected;                                                                                        \
    }                                                                                                           \
    inline type atomicCAS_system(type* p, type expected, type value) { return atomicCAS(p, expected, value); }
HOSTCUDA_ATOMIC_SWAP(int)
HOSTCUDA_ATOMIC_SWAP(unsigned)
HOSTCUDA_ATOMIC_SWAP(unsigned long long)
HOSTCUDA_ATOMIC_SWAP(unsigned short)
// Of 128 bits (compute capability 9.0), for any type of that size and alignment.
#ifdef HOSTCUDA_CHECKED
#define HOSTCUDA_ATOMIC_WIDE(place, expected, value, old) hostcuda::atomic_wide(place, expected, value, old, true)
#else
#define HOSTCUDA_ATOMIC_WIDE(place, expected, value, old) hostcuda::atomic_wide(place, expected, value, old, false)
#endif
namespace hostcuda {
template <class T> concept Wide = sizeof(T) == 16 && alignof(T) >= 16 && std::is_trivially_copyable_v<T>;
template <class T> union Unmade {
    Unmade() {}
    T value;
};
}  // namespace hostcuda
#define HOSTCUDA_ATOMICS_WIDE(scope)                                                                                              \
    __attribute__((always_inline)) inline void __u128AtomicCAS##scope(void* p, void* expected, void* value, void* old) {          \
        HOSTCUDA_ATOMIC_WIDE(p, expected, value, old);                                                                            \
    }                                                                                                                             \
    __attribute__((always_inline)) inline void __u128AtomicExch##scope(void* p, void* value, void* old) {                         \
        HOSTCUDA_ATOMIC_WIDE(p, nullptr, value, old);                                                                             \
    }                                                                                                                             \
    template <hostcuda::Wide T> __attribute__((always_inline)) inline T atomicCAS##scope(T* p, T expected, T value) {             \
        hostcuda::Unmade<T> old;                                                                                                  \
        HOSTCUDA_ATOMIC_WIDE(p, std::addressof(expected), std::addressof(value), std::addressof(old.value));                      \
        return old.value;                                                                                                         \
    }                                                                                                                             \
    template <hostcuda::Wide T> __attribute__((always_inline)) inline T atomicExch##scope(T* p, T value) {                        \
        hostcuda::Unmade<T> old;                                                                                                  \
        HOSTCUDA_ATOMIC_WIDE(p, nullptr, std::addressof(value), std::addressof(old.value));                                       \
        return old.value;                                                                                                         \
    }
HOSTCUDA_ATOMICS_WIDE()
HOSTCUDA_ATOMICS_WIDE(_block)
HOSTCUDA_ATOMICS_WIDE(_system)

// ---- clocks and addresses
inline long long clock64() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000ll + t.tv_nsec; }
inline unsigned long long __globaltimer() { return static_cast<unsigned long long>(clock64()); }
inline size_t __cvta_generic_to_shared(const void* p) { return hostcuda::shared_address(p); }
inline void* __cvta_shared_to_generic(size_t a) { return hostcuda::shared_pointer(static_cast<unsigned>(a)); }
inline size_t __cvta_generic_to_global(const void* p) { return reinterpret_cast<size_t>(p); }
inline size_t __cvta_generic_to_constant(const void* p) { return reinterpret_cast<size_t>(p); }
inline size_t __cvta_generic_to_local(const void* p) { return reinterpret_cast<size_t>(p); }
inline void* __cvta_global_to_generic(size_t a) { return reinterpret_cast<void*>(a); }
inline void* __cvta_constant_to_generic(size_t a) { return reinterpret_cast<void*>(a); }
inline void* __cvta_local_to_generic(size_t a) { return reinterpret_cast<void*>(a); }
inline unsigned __isShared(const void* p) { return hostcuda::in_kernel() && hostcuda::in_shared(p); }
inline unsigned __isGlobal(const void* p) { return !__isClusterShared(p); }
