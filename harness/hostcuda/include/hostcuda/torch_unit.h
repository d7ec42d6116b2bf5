// What <torch/types.h> declares in a unit that nvcc compiles, besides the same in any other: CUDA's half types by way of c10's, and
// <thrust/complex.h> by way of <c10/util/complex.h>.
#pragma once
#include <ATen/core/Tensor.h>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"
#include "thrust/complex.h"

// torch's own headers are read before __CUDACC__ is defined.
namespace at {
template <class T> struct RestrictPtrTraits {
    using PtrType = T* __restrict__;
};
}  // namespace at
namespace torch {
using at::RestrictPtrTraits;
}
#undef C10_LAUNCH_BOUNDS_0
#undef C10_LAUNCH_BOUNDS_1
#undef C10_LAUNCH_BOUNDS_2
#define C10_LAUNCH_BOUNDS_0 __launch_bounds__(256, 4)
#define C10_LAUNCH_BOUNDS_1(threads) __launch_bounds__(threads)
#define C10_LAUNCH_BOUNDS_2(threads, blocks) __launch_bounds__(threads, blocks)
#undef C10_WARP_SIZE
#define C10_WARP_SIZE 32


// To nvcc torch's half is a float as well as CUDA's, so that shuffling one is ambiguous.
float __shfl_sync(unsigned, c10::Half, int, int = 32) = delete;
float __shfl_up_sync(unsigned, c10::Half, unsigned, int = 32) = delete;
float __shfl_down_sync(unsigned, c10::Half, unsigned, int = 32) = delete;
float __shfl_xor_sync(unsigned, c10::Half, int, int = 32) = delete;
