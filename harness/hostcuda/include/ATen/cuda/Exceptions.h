// at::cuda: checks of the errors of CUDA's libraries.
#pragma once
#include <c10/util/Exception.h>

#include "c10/cuda/CUDAException.h"
#include "cublas_v2.h"

namespace at::cuda {
namespace blas {
inline const char* _cublasGetErrorEnum(cublasStatus_t status) { return cublasGetStatusName(status); }
}  // namespace blas
}  // namespace at::cuda

#define AT_CUDA_CHECK(expression) C10_CUDA_CHECK(expression)
#define TORCH_CUDABLAS_CHECK(expression)                                                                                    \
    do {                                                                                                                   \
        const cublasStatus_t hostcuda_status = (expression);                                                               \
        TORCH_CHECK(hostcuda_status == CUBLAS_STATUS_SUCCESS, "CUDA error: ", cublasGetStatusName(hostcuda_status),        \
                    " when calling `" #expression "`");                                                                    \
    } while (0)
