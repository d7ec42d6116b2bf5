// Loops of a grid over elements.
#pragma once
#include <c10/util/Exception.h>

#include <limits>

#define CUDA_KERNEL_LOOP_TYPE(i, n, index_type)                                                                 \
    std::int64_t i##_at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;                     \
    for (index_type i = static_cast<index_type>(i##_at); i##_at < (n);                                          \
         i##_at += static_cast<std::int64_t>(blockDim.x) * gridDim.x, i = static_cast<index_type>(i##_at))
#define CUDA_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP_TYPE(i, n, int)

