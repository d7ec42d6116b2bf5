// CUDA's headers, as every unit has them. The author's switches (__CUDA_NO_HALF_OPERATORS__ and the like) decide what they declare.
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
