// cuBLAS as the host device has it: declarations; the bridge library holds the routines (bridge/blas*.cpp). Names, values, order of arguments
// and meanings are those of the cuBLAS manual. What is not declared here is not there, and a source that asks for it is not emulated. The
// functions have C++ names, so that a symbol of the real library stays one that is missing.
#ifndef HOSTCUDA_CUBLAS_V2_H
#define HOSTCUDA_CUBLAS_V2_H
#include <cstddef>
#include <cstdint>

#include "cuda_fp16.h"
#include "cuda_runtime_api.h"
#include "library_types.h"

#define CUBLASAPI
#define CUBLASWINAPI
#define CUBLAS_VER_MAJOR 13
#define CUBLAS_VER_MINOR 0
#define CUBLAS_VER_PATCH 0
#define CUBLAS_VERSION (CUBLAS_VER_MAJOR * 10000 + CUBLAS_VER_MINOR * 100 + CUBLAS_VER_PATCH)

typedef enum {
    CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_ALLOC_FAILED = 3, CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_ARCH_MISMATCH = 8, CUBLAS_STATUS_MAPPING_ERROR = 11, CUBLAS_STATUS_EXECUTION_FAILED = 13, CUBLAS_STATUS_INTERNAL_ERROR = 14,
    CUBLAS_STATUS_NOT_SUPPORTED = 15, CUBLAS_STATUS_LICENSE_ERROR = 16
} cublasStatus_t;
typedef enum { CUBLAS_FILL_MODE_LOWER = 0, CUBLAS_FILL_MODE_UPPER = 1, CUBLAS_FILL_MODE_FULL = 2 } cublasFillMode_t;
typedef enum { CUBLAS_DIAG_NON_UNIT = 0, CUBLAS_DIAG_UNIT = 1 } cublasDiagType_t;
typedef enum { CUBLAS_SIDE_LEFT = 0, CUBLAS_SIDE_RIGHT = 1 } cublasSideMode_t;
typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2, CUBLAS_OP_HERMITAN = 2, CUBLAS_OP_CONJG = 3 } cublasOperation_t;
typedef enum { CUBLAS_POINTER_MODE_HOST = 0, CUBLAS_POINTER_MODE_DEVICE = 1 } cublasPointerMode_t;
typedef enum { CUBLAS_ATOMICS_NOT_ALLOWED = 0, CUBLAS_ATOMICS_ALLOWED = 1 } cublasAtomicsMode_t;
typedef enum {
    CUBLAS_GEMM_DFALT = -1, CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_ALGO0 = 0, CUBLAS_GEMM_ALGO1, CUBLAS_GEMM_ALGO2, CUBLAS_GEMM_ALGO3,
    CUBLAS_GEMM_ALGO4, CUBLAS_GEMM_ALGO5, CUBLAS_GEMM_ALGO6, CUBLAS_GEMM_ALGO7, CUBLAS_GEMM_ALGO8, CUBLAS_GEMM_ALGO9, CUBLAS_GEMM_ALGO10,
    CUBLAS_GEMM_ALGO11, CUBLAS_GEMM_ALGO12, CUBLAS_GEMM_ALGO13, CUBLAS_GEMM_ALGO14, CUBLAS_GEMM_ALGO15, CUBLAS_GEMM_ALGO16, CUBLAS_GEMM_ALGO17,
    CUBLAS_GEMM_ALGO18, CUBLAS_GEMM_ALGO19, CUBLAS_GEMM_ALGO20, CUBLAS_GEMM_ALGO21, CUBLAS_GEMM_ALGO22, CUBLAS_GEMM_ALGO23,
    CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99, CUBLAS_GEMM_DFALT_TENSOR_OP = 99, CUBLAS_GEMM_ALGO0_TENSOR_OP = 100, CUBLAS_GEMM_ALGO1_TENSOR_OP,
    CUBLAS_GEMM_ALGO2_TENSOR_OP, CUBLAS_GEMM_ALGO3_TENSOR_OP, CUBLAS_GEMM_ALGO4_TENSOR_OP, CUBLAS_GEMM_ALGO5_TENSOR_OP,
    CUBLAS_GEMM_ALGO6_TENSOR_OP, CUBLAS_GEMM_ALGO7_TENSOR_OP, CUBLAS_GEMM_ALGO8_TENSOR_OP, CUBLAS_GEMM_ALGO9_TENSOR_OP,
    CUBLAS_GEMM_ALGO10_TENSOR_OP, CUBLAS_GEMM_ALGO11_TENSOR_OP, CUBLAS_GEMM_ALGO12_TENSOR_OP, CUBLAS_GEMM_ALGO13_TENSOR_OP,
    CUBLAS_GEMM_ALGO14_TENSOR_OP, CUBLAS_GEMM_ALGO15_TENSOR_OP, CUBLAS_GEMM_AUTOTUNE = 999
} cublasGemmAlgo_t;
typedef enum {
    CUBLAS_DEFAULT_MATH = 0, CUBLAS_TENSOR_OP_MATH = 1, CUBLAS_PEDANTIC_MATH = 2, CUBLAS_TF32_TENSOR_OP_MATH = 3,
    CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16
} cublasMath_t;
typedef enum {
    CUBLAS_COMPUTE_16F = 64, CUBLAS_COMPUTE_16F_PEDANTIC = 65, CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_PEDANTIC = 69,
    CUBLAS_COMPUTE_64F = 70, CUBLAS_COMPUTE_64F_PEDANTIC = 71, CUBLAS_COMPUTE_32I = 72, CUBLAS_COMPUTE_32I_PEDANTIC = 73,
    CUBLAS_COMPUTE_32F_FAST_16F = 74, CUBLAS_COMPUTE_32F_FAST_16BF = 75, CUBLAS_COMPUTE_32F_FAST_TF32 = 77
} cublasComputeType_t;
typedef cudaDataType cublasDataType_t;
struct cublasContext;
typedef struct cublasContext* cublasHandle_t;

#define HOSTCUDA_BLAS(name, ...) cublasStatus_t name(cublasHandle_t handle, ##__VA_ARGS__)

// ---- the handle
cublasStatus_t cublasCreate(cublasHandle_t* handle);
HOSTCUDA_BLAS(cublasDestroy);
HOSTCUDA_BLAS(cublasGetVersion, int* version);
cublasStatus_t cublasGetProperty(libraryPropertyType type, int* value);
HOSTCUDA_BLAS(cublasSetStream, cudaStream_t stream);
HOSTCUDA_BLAS(cublasGetStream, cudaStream_t* stream);
HOSTCUDA_BLAS(cublasSetWorkspace, void* workspace, size_t bytes);
HOSTCUDA_BLAS(cublasSetPointerMode, cublasPointerMode_t mode);
HOSTCUDA_BLAS(cublasGetPointerMode, cublasPointerMode_t* mode);
HOSTCUDA_BLAS(cublasSetAtomicsMode, cublasAtomicsMode_t mode);
HOSTCUDA_BLAS(cublasGetAtomicsMode, cublasAtomicsMode_t* mode);
HOSTCUDA_BLAS(cublasSetMathMode, cublasMath_t mode);
HOSTCUDA_BLAS(cublasGetMathMode, cublasMath_t* mode);
const char* cublasGetStatusName(cublasStatus_t status);
const char* cublasGetStatusString(cublasStatus_t status);

// ---- copies
cublasStatus_t cublasSetVector(int n, int bytes, const void* x, int incx, void* y, int incy);
cublasStatus_t cublasGetVector(int n, int bytes, const void* x, int incx, void* y, int incy);
cublasStatus_t cublasSetMatrix(int rows, int cols, int bytes, const void* A, int lda, void* B, int ldb);
cublasStatus_t cublasGetMatrix(int rows, int cols, int bytes, const void* A, int lda, void* B, int ldb);

// ---- one declaration for float (S) and double (D)
#define HOSTCUDA_BLAS_REAL(S, s, T)                                                                                                       \
    HOSTCUDA_BLAS(cublas##S##axpy, int n, const T* alpha, const T* x, int incx, T* y, int incy);                                           \
    HOSTCUDA_BLAS(cublas##S##scal, int n, const T* alpha, T* x, int incx);                                                                 \
    HOSTCUDA_BLAS(cublas##S##copy, int n, const T* x, int incx, T* y, int incy);                                                           \
    HOSTCUDA_BLAS(cublas##S##swap, int n, T* x, int incx, T* y, int incy);                                                                 \
    HOSTCUDA_BLAS(cublas##S##dot, int n, const T* x, int incx, const T* y, int incy, T* result);                                           \
    HOSTCUDA_BLAS(cublas##S##nrm2, int n, const T* x, int incx, T* result);                                                                \
    HOSTCUDA_BLAS(cublas##S##asum, int n, const T* x, int incx, T* result);                                                                \
    HOSTCUDA_BLAS(cublasI##s##amax, int n, const T* x, int incx, int* result);                                                             \
    HOSTCUDA_BLAS(cublasI##s##amin, int n, const T* x, int incx, int* result);                                                             \
    HOSTCUDA_BLAS(cublas##S##gemv, cublasOperation_t trans, int m, int n, const T* alpha, const T* A, int lda, const T* x, int incx,        \
                  const T* beta, T* y, int incy);                                                                                          \
    HOSTCUDA_BLAS(cublas##S##ger, int m, int n, const T* alpha, const T* x, int incx, const T* y, int incy, T* A, int lda);                 \
    HOSTCUDA_BLAS(cublas##S##gemm, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const T* alpha, const T* A,    \
                  int lda, const T* B, int ldb, const T* beta, T* C, int ldc);                                                             \
    HOSTCUDA_BLAS(cublas##S##gemmBatched, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const T* alpha,         \
                  const T* const A[], int lda, const T* const B[], int ldb, const T* beta, T* const C[], int ldc, int count);              \
    HOSTCUDA_BLAS(cublas##S##gemmStridedBatched, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const T* alpha,  \
                  const T* A, int lda, long long strideA, const T* B, int ldb, long long strideB, const T* beta, T* C, int ldc,            \
                  long long strideC, int count);                                                                                           \
    HOSTCUDA_BLAS(cublas##S##syrk, cublasFillMode_t uplo, cublasOperation_t trans, int n, int k, const T* alpha, const T* A, int lda,      \
                  const T* beta, T* C, int ldc);                                                                                           \
    HOSTCUDA_BLAS(cublas##S##trsm, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans, cublasDiagType_t diag, int m,    \
                  int n, const T* alpha, const T* A, int lda, T* B, int ldb);                                                              \
    HOSTCUDA_BLAS(cublas##S##geam, cublasOperation_t transa, cublasOperation_t transb, int m, int n, const T* alpha, const T* A, int lda,  \
                  const T* beta, const T* B, int ldb, T* C, int ldc);                                                                      \
    HOSTCUDA_BLAS(cublas##S##dgmm, cublasSideMode_t mode, int m, int n, const T* A, int lda, const T* x, int incx, T* C, int ldc);
HOSTCUDA_BLAS_REAL(S, s, float)
HOSTCUDA_BLAS_REAL(D, d, double)

// ---- products of other types
HOSTCUDA_BLAS(cublasHgemm, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const __half* alpha, const __half* A, int lda,
              const __half* B, int ldb, const __half* beta, __half* C, int ldc);
HOSTCUDA_BLAS(cublasHgemmBatched, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const __half* alpha,
              const __half* const A[], int lda, const __half* const B[], int ldb, const __half* beta, __half* const C[], int ldc, int count);
HOSTCUDA_BLAS(cublasHgemmStridedBatched, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const __half* alpha,
              const __half* A, int lda, long long strideA, const __half* B, int ldb, long long strideB, const __half* beta, __half* C, int ldc,
              long long strideC, int count);
HOSTCUDA_BLAS(cublasSgemmEx, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const float* alpha, const void* A,
              cudaDataType Atype, int lda, const void* B, cudaDataType Btype, int ldb, const float* beta, void* C, cudaDataType Ctype, int ldc);
HOSTCUDA_BLAS(cublasGemmEx, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const void* alpha, const void* A,
              cudaDataType Atype, int lda, const void* B, cudaDataType Btype, int ldb, const void* beta, void* C, cudaDataType Ctype, int ldc,
              cublasComputeType_t compute, cublasGemmAlgo_t algo);
HOSTCUDA_BLAS(cublasGemmBatchedEx, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const void* alpha,
              const void* const A[], cudaDataType Atype, int lda, const void* const B[], cudaDataType Btype, int ldb, const void* beta,
              void* const C[], cudaDataType Ctype, int ldc, int count, cublasComputeType_t compute, cublasGemmAlgo_t algo);
HOSTCUDA_BLAS(cublasGemmStridedBatchedEx, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const void* alpha,
              const void* A, cudaDataType Atype, int lda, long long strideA, const void* B, cudaDataType Btype, int ldb, long long strideB,
              const void* beta, void* C, cudaDataType Ctype, int ldc, long long strideC, int count, cublasComputeType_t compute,
              cublasGemmAlgo_t algo);

namespace hostcuda::blas {
cublasHandle_t torch_handle();  // the calling thread's, with the math mode that torch's switches for TF32 ask for
// The compute type that an element type of the time before compute types stands for; 0, which no routine takes, for the others.
inline cublasComputeType_t compute_type(cudaDataType type) {
    return type == CUDA_R_32F ? CUBLAS_COMPUTE_32F : type == CUDA_R_64F ? CUBLAS_COMPUTE_64F : type == CUDA_R_16F ? CUBLAS_COMPUTE_16F
         : type == CUDA_R_32I ? CUBLAS_COMPUTE_32I : static_cast<cublasComputeType_t>(0);
}
}  // namespace hostcuda::blas
// Inlined, so that the place of a call is the author's.
HOSTCUDA_INLINED HOSTCUDA_BLAS(cublasGemmEx, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const void* alpha,
                               const void* A, cudaDataType Atype, int lda, const void* B, cudaDataType Btype, int ldb, const void* beta, void* C,
                               cudaDataType Ctype, int ldc, cudaDataType compute, cublasGemmAlgo_t algo) {
    return cublasGemmEx(handle, transa, transb, m, n, k, alpha, A, Atype, lda, B, Btype, ldb, beta, C, Ctype, ldc, hostcuda::blas::compute_type(compute), algo);
}
HOSTCUDA_INLINED HOSTCUDA_BLAS(cublasGemmBatchedEx, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const void* alpha,
                               const void* const A[], cudaDataType Atype, int lda, const void* const B[], cudaDataType Btype, int ldb,
                               const void* beta, void* const C[], cudaDataType Ctype, int ldc, int count, cudaDataType compute,
                               cublasGemmAlgo_t algo) {
    return cublasGemmBatchedEx(handle, transa, transb, m, n, k, alpha, A, Atype, lda, B, Btype, ldb, beta, C, Ctype, ldc, count, hostcuda::blas::compute_type(compute), algo);
}
HOSTCUDA_INLINED HOSTCUDA_BLAS(cublasGemmStridedBatchedEx, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
                               const void* alpha, const void* A, cudaDataType Atype, int lda, long long strideA, const void* B,
                               cudaDataType Btype, int ldb, long long strideB, const void* beta, void* C, cudaDataType Ctype, int ldc,
                               long long strideC, int count, cudaDataType compute, cublasGemmAlgo_t algo) {
    return cublasGemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, A, Atype, lda, strideA, B, Btype, ldb, strideB, beta, C, Ctype, ldc, strideC, count,
                                      hostcuda::blas::compute_type(compute), algo);
}

#endif
