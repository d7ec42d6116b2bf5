// CUDA's declaration words as this compiler can take them. Pure macros. __noinline__ is not here: the standard library spells an
// attribute with it, so the rewriter replaces the word in the solution instead.
#pragma once
#define __host__
#define __device__
#define __global__ __attribute__((noinline))
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __inline_hint__
#ifndef __align__
#define __align__(n) __attribute__((aligned(n)))
#endif
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __nv_pure__
#define __builtin_assume(...) ((void)0)
#define __assume(...) ((void)0)
#define CUDART_CB
#define CUDARTAPI
