// torch's cuBLAS handle, as ATen/cuda/CUDAContext.h declares it.
#pragma once
#include <c10/util/Exception.h>

#include "cublas_v2.h"
#include "hostcuda/torch_cuda.h"

namespace at::cuda {
inline cublasHandle_t getCurrentCUDABlasHandle() {
    const cublasHandle_t handle = hostcuda::blas::torch_handle();
    cublasSetStream(handle, c10::cuda::getCurrentCUDAStream());
    return handle;
}
namespace blas {
inline const char* _cublasGetErrorEnum(cublasStatus_t status) { return cublasGetStatusName(status); }
}  // namespace blas
}  // namespace at::cuda

#define TORCH_CUDABLAS_CHECK(expression)                                                                                    \
    do {                                                                                                                   \
        const cublasStatus_t hostcuda_status = (expression);                                                               \
        TORCH_CHECK(hostcuda_status == CUBLAS_STATUS_SUCCESS, "CUDA error: ", cublasGetStatusName(hostcuda_status),        \
                    " when calling `" #expression "`");                                                                    \
    } while (0)
