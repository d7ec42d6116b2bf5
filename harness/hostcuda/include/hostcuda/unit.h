// What every CUDA unit begins with, behind torch's headers if it has them (HOSTCUDA_TORCH): CUDA's, then the compiler's words that a CUDA source may ask for (torch's
// headers ask too).
#pragma once
#include "hostcuda/headers.h"
#ifdef HOSTCUDA_TORCH
#include "hostcuda/bind.h"
#include "hostcuda/torch_unit.h"
#endif

#define __CUDACC__ 1
#define __NVCC__ 1
#define __CUDA_ARCH__ 900
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0

// Two barriers are two where they stand on one line, in the body of one macro, too. Headers that come later give a line themselves.
#define HOSTCUDA_FIRST(first, ...) first
#define __syncthreads(...) __syncthreads(HOSTCUDA_FIRST(__VA_ARGS__ __VA_OPT__(,) hostcuda::Place(__COUNTER__ + 1)))
#define __syncthreads_count(...) __syncthreads_count(__VA_ARGS__, hostcuda::Place(__COUNTER__ + 1))
#define __syncthreads_and(...) __syncthreads_and(__VA_ARGS__, hostcuda::Place(__COUNTER__ + 1))
#define __syncthreads_or(...) __syncthreads_or(__VA_ARGS__, hostcuda::Place(__COUNTER__ + 1))
