// CUDA's declaration words as this compiler can take them. Pure macros.
#pragma once
#define __host__
#define __device__
#define __global__ __attribute__((noinline))
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __inline_hint__
#ifndef __align__
#define __align__(n) __attribute__((aligned(n)))
#endif
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __nv_pure__
#define CUDART_CB
#define CUDARTAPI
