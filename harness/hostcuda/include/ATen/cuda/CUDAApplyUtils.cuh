// Grids for elements one by one, which torch's own headers have; what launches kernels there (CUDA_tensor_apply) is not here.
#pragma once
#include <ATen/ceil_div.h>
#include <ATen/core/Tensor.h>

#include "ATen/cuda/Atomic.cuh"
#include "ATen/cuda/CUDAContext.h"
#include <ATen/cuda/ApplyGridUtils.cuh>
#include <ATen/cuda/detail/IndexUtils.cuh>
