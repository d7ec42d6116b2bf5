// What every unit begins with, behind the precompiled prelude: CUDA's headers, then the compiler's words that a CUDA source may ask for (torch's
// headers ask too, and must be behind).
#pragma once
#include "assert.h"
#include "cooperative_groups.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_fp8.h"
#include "cuda_runtime.h"
#include "hostcuda/bind.h"
#include "hostcuda/ptx_table.h"
#include "hostcuda/torch_cuda.h"
#include "math_constants.h"
#include "mma.h"

#define __CUDACC__ 1
#define __NVCC__ 1
#define __CUDA_ARCH__ 900
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
