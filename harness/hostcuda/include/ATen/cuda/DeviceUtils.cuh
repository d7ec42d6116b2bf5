// The warp's functions under torch's names; any type that a shuffle takes, torch's half types and complex numbers among them.
#pragma once
#include "hostcuda/torch_cuda.h"

inline unsigned ACTIVE_MASK(HOSTCUDA_LINE) { return __activemask(line); }
inline void WARP_SYNC(unsigned mask = 0xffffffff, HOSTCUDA_LINE) { __syncwarp(mask, line); }
inline unsigned WARP_BALLOT(int predicate, unsigned mask = 0xffffffff, HOSTCUDA_LINE) { return __ballot_sync(mask, predicate, line); }
template <class T> inline T WARP_SHFL(T value, int lane, int width = warpSize, unsigned mask = 0xffffffff, HOSTCUDA_LINE) {
    return __shfl_sync(mask, value, lane, width, line);
}
template <class T> inline T WARP_SHFL_UP(T value, unsigned delta, int width = warpSize, unsigned mask = 0xffffffff, HOSTCUDA_LINE) {
    return __shfl_up_sync(mask, value, delta, width, line);
}
template <class T> inline T WARP_SHFL_DOWN(T value, unsigned delta, int width = warpSize, unsigned mask = 0xffffffff, HOSTCUDA_LINE) {
    return __shfl_down_sync(mask, value, delta, width, line);
}
template <class T> inline T WARP_SHFL_XOR(T value, int lanes, int width = warpSize, unsigned mask = 0xffffffff, HOSTCUDA_LINE) {
    return __shfl_xor_sync(mask, value, lanes, width, line);
}
template <class T> inline T doLdg(const T* p) { return __ldg(p); }
