// Warps by torch's names. Here only, since sources that don't include this define some for themselves.
#pragma once
#include <c10/util/Half.h>
#include <c10/util/complex.h>

#include "cuda.h"

inline unsigned ACTIVE_MASK(HOSTCUDA_LINE) { return __activemask(line); }
inline void WARP_SYNC(unsigned mask = 0xffffffff, HOSTCUDA_LINE) { __syncwarp(mask, line); }
inline unsigned WARP_BALLOT(int predicate, unsigned mask = 0xffffffff, HOSTCUDA_LINE) { return __ballot_sync(mask, predicate, line); }

template <class T> inline T WARP_SHFL(T v, int lane, int width = warpSize, unsigned mask = 0xffffffff, HOSTCUDA_LINE) { return __shfl_sync(mask, v, lane, width, line); }
template <class T> inline T WARP_SHFL_XOR(T v, int bits, int width = warpSize, unsigned mask = 0xffffffff, HOSTCUDA_LINE) { return __shfl_xor_sync(mask, v, bits, width, line); }
template <class T> inline T WARP_SHFL_UP(T v, unsigned by, int width = warpSize, unsigned mask = 0xffffffff, HOSTCUDA_LINE) { return __shfl_up_sync(mask, v, by, width, line); }
template <class T> inline T WARP_SHFL_DOWN(T v, unsigned by, int width = warpSize, unsigned mask = 0xffffffff, HOSTCUDA_LINE) { return __shfl_down_sync(mask, v, by, width, line); }
template <> inline c10::Half WARP_SHFL_DOWN<c10::Half>(c10::Half v, unsigned by, int width, unsigned mask, int line) {
    return c10::Half(__shfl_down_sync(mask, static_cast<unsigned>(v.x), by, width, line), c10::Half::from_bits());
}
template <class T> inline c10::complex<T> WARP_SHFL_DOWN(c10::complex<T> v, unsigned by, int width = warpSize, unsigned mask = 0xffffffff, HOSTCUDA_LINE) {
    return {WARP_SHFL_DOWN(v.real_, by, width, mask, line), WARP_SHFL_DOWN(v.imag_, by, width, mask, line)};
}

template <class T> inline T doLdg(const T* p) { return __ldg(p); }
