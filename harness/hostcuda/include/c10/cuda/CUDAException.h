// c10::cuda: checks of the runtime's errors.
#pragma once
#include <c10/util/Exception.h>
#include <c10/util/irange.h>

#include "c10/cuda/CUDAMacros.h"
#include "c10/cuda/CUDAMiscFunctions.h"
#include "cuda.h"

namespace c10::cuda {
inline void check_error(cudaError_t error) { TORCH_CHECK(error == cudaSuccess, "CUDA error: ", cudaGetErrorString(error)); }
}  // namespace c10::cuda

#define C10_CUDA_CHECK(expression) ::c10::cuda::check_error(expression)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define C10_CUDA_CHECK_WARN(expression) static_cast<void>(expression)
#define C10_CUDA_IGNORE_ERROR(expression) static_cast<void>(expression)
#define C10_CUDA_CLEAR_ERROR() static_cast<void>(cudaGetLastError())
#define C10_CUDA_ERROR_HANDLED(expression) (expression)
