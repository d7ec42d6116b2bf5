// Matrix products of cuBLAS, one, strided and by arrays of pointers, over torch's CPU products. Matrices lie in columns. Factors of half
// types are multiplied and summed in float32 as tensor cores do, or with sums in float16 where the compute type says so.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "blas.h"

#define CALLER __builtin_return_address(0)

namespace hostcuda::blas {

namespace {

using at::ScalarType;

enum class Rounding { none, tf32, half, bfloat };  // of float32 factors, before they are multiplied

struct Arithmetic {
    ScalarType factors, result, scale;  // scale: of alpha and beta, and of the sums
    Rounding rounding = Rounding::none;
};

bool is_complex(cudaDataType type) {
    return type == CUDA_C_32F || type == CUDA_C_64F || type == CUDA_C_16F || type == CUDA_C_8I || type == CUDA_C_16BF;
}

Rounding fast(cublasComputeType_t compute, cublasMath_t math, cublasGemmAlgo_t algo, bool plain_float_routine) {
    const int mode = static_cast<int>(math) & ~static_cast<int>(CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    switch (compute) {
        case CUBLAS_COMPUTE_32F_FAST_TF32: return Rounding::tf32;
        case CUBLAS_COMPUTE_32F_FAST_16F: return Rounding::half;
        case CUBLAS_COMPUTE_32F_FAST_16BF: return Rounding::bfloat;
        case CUBLAS_COMPUTE_32F: break;
        default: return Rounding::none;
    }
    if (mode == CUBLAS_PEDANTIC_MATH) return Rounding::none;
    if (mode == CUBLAS_TF32_TENSOR_OP_MATH) return Rounding::tf32;
    // the old switches for tensor cores still stand for FAST_16F (cuBLAS manual, cublasMath_t and cublasGemmAlgo_t)
    if (mode == CUBLAS_TENSOR_OP_MATH && plain_float_routine) return Rounding::half;
    return algo >= CUBLAS_GEMM_DEFAULT_TENSOR_OP && algo != CUBLAS_GEMM_AUTOTUNE ? Rounding::half : Rounding::none;
}

// The combinations of the manual's table; none for the others.
std::optional<Arithmetic> arithmetic(cudaDataType a, cudaDataType b, cudaDataType c, cublasComputeType_t compute, Rounding rounding) {
    if (a != b) return std::nullopt;
    switch (compute) {
        case CUBLAS_COMPUTE_16F:
        case CUBLAS_COMPUTE_16F_PEDANTIC:
            if (a != CUDA_R_16F || c != CUDA_R_16F) return std::nullopt;
            return Arithmetic{at::kHalf, at::kHalf, at::kHalf};
        case CUBLAS_COMPUTE_32I:
        case CUBLAS_COMPUTE_32I_PEDANTIC:
            if (a != CUDA_R_8I || c != CUDA_R_32I) return std::nullopt;
            return Arithmetic{at::kChar, at::kInt, at::kInt};
        case CUBLAS_COMPUTE_64F:
        case CUBLAS_COMPUTE_64F_PEDANTIC:
            if (a != CUDA_R_64F || c != CUDA_R_64F) return std::nullopt;
            return Arithmetic{at::kDouble, at::kDouble, at::kDouble};
        case CUBLAS_COMPUTE_32F_FAST_16F:
        case CUBLAS_COMPUTE_32F_FAST_16BF:
        case CUBLAS_COMPUTE_32F_FAST_TF32:
            if (a != CUDA_R_32F || c != CUDA_R_32F) return std::nullopt;
            return Arithmetic{at::kFloat, at::kFloat, at::kFloat, rounding};
        case CUBLAS_COMPUTE_32F:
        case CUBLAS_COMPUTE_32F_PEDANTIC: {
            if (c != CUDA_R_32F && (c != a || (a != CUDA_R_16F && a != CUDA_R_16BF))) return std::nullopt;
            const auto result = c == CUDA_R_32F ? at::kFloat : c == CUDA_R_16F ? at::kHalf : at::kBFloat16;
            if (a == CUDA_R_32F) return Arithmetic{at::kFloat, result, at::kFloat, rounding};
            if (a == CUDA_R_16F) return Arithmetic{at::kHalf, result, at::kFloat};
            if (a == CUDA_R_16BF) return Arithmetic{at::kBFloat16, result, at::kFloat};
            if (a == CUDA_R_8I) return Arithmetic{at::kChar, result, at::kFloat};
            return std::nullopt;
        }
    }
    return std::nullopt;
}

at::Tensor view(const void* at, ScalarType type, std::int64_t rows, std::int64_t columns, std::int64_t leading) {
    return at::from_blob(const_cast<void*>(at), {rows, columns}, {1, leading}, at::TensorOptions().dtype(type));
}

at::Tensor rounded(const at::Tensor& factor, const Arithmetic& how) {
    switch (how.rounding) {
        case Rounding::half: return factor.to(at::kHalf).to(at::kFloat);
        case Rounding::bfloat: return factor.to(at::kBFloat16).to(at::kFloat);
        case Rounding::tf32: {  // ten bits of mantissa, to nearest
            const at::Tensor finite = factor.contiguous();
            const at::Tensor bits = finite.view(at::kInt).add(0x1000).bitwise_and(~0x1fff).view(at::kFloat);
            return at::where(finite.isfinite(), bits, finite);
        }
        case Rounding::none: break;
    }
    if (how.scale == at::kInt) return factor.to(at::kDouble);  // in which products of bytes and their sums are exact
    return factor.to(how.scale == at::kDouble ? at::kDouble : at::kFloat);
}

// op(A) op(B) in the type of the sums.
at::Tensor product(const at::Tensor& a, const at::Tensor& b, const Arithmetic& how) {
    const at::Tensor left = rounded(a, how), right = rounded(b, how);
    if (how.scale == at::kInt) return at::mm(left, right).to(at::kInt);
    if (how.scale != at::kHalf) return at::mm(left, right);
    // Tensor cores add sixteen products at a time to a float16 sum.
    constexpr std::int64_t step = 16;
    at::Tensor sum = at::zeros({a.size(0), b.size(1)}, at::kHalf);
    for (std::int64_t from = 0; from < a.size(1); from += step) {
        const std::int64_t length = std::min(step, a.size(1) - from);
        sum = (sum.to(at::kFloat) + at::mm(left.narrow(1, from, length), right.narrow(0, from, length))).to(at::kHalf);
    }
    return sum;
}

struct Shape {
    cublasOperation_t transa, transb;
    int m, n, k, lda, ldb, ldc;
};

// The matrices of a batch, once the call has begun; false where they can't be had.
struct Batch {
    std::vector<const void*> a, b, c;
};
using Gather = std::function<bool(Call&, Batch&)>;

struct Types {
    cudaDataType a, b, c;
    cublasComputeType_t compute;
    cublasGemmAlgo_t algo = CUBLAS_GEMM_DEFAULT;
    bool plain_float_routine = false;
};

template <class T> bool scalars(Call& call, const void* alpha, const void* beta, at::Scalar& first, at::Scalar& second) {
    T a{}, b{};
    if (!call.scalar("alpha", static_cast<const T*>(alpha), a) || !call.scalar("beta", static_cast<const T*>(beta), b)) return false;
    first = a, second = b;
    return true;
}

void one(const Shape& s, const Arithmetic& how, const at::Scalar& alpha, const at::Scalar& beta, const void* a, const void* b, const void* c) {
    const bool multiplies = s.k > 0 && alpha.toDouble() != 0;
    const auto working = how.scale == at::kHalf ? at::kFloat : how.scale;
    at::Tensor sum;
    if (multiplies) {
        const bool ta = transposed(s.transa), tb = transposed(s.transb);
        const at::Tensor left = view(a, how.factors, ta ? s.k : s.m, ta ? s.m : s.k, s.lda);
        const at::Tensor right = view(b, how.factors, tb ? s.n : s.k, tb ? s.k : s.n, s.ldb);
        sum = product(ta ? left.t() : left, tb ? right.t() : right, how).to(working);
        if (alpha.toDouble() != 1) sum.mul_(alpha);
    } else {
        sum = at::zeros({s.m, s.n}, working);
    }
    at::Tensor result = view(c, how.result, s.m, s.n, s.ldc);
    if (beta.toDouble() != 0) sum.add_(result.to(working), beta);
    result.copy_(sum);
}

cublasStatus_t multiply(Call& call, const Shape& s, const Types& types, const void* alpha, const void* beta, int count, const Gather& gather) {
    const bool ta = transposed(s.transa), tb = transposed(s.transb);
    call.needs(known(s.transa) && known(s.transb) && s.m >= 0 && s.n >= 0 && s.k >= 0 && count >= 0);
    call.needs(s.lda >= std::max(1, ta ? s.k : s.m) && s.ldb >= std::max(1, tb ? s.n : s.k) && s.ldc >= std::max(1, s.m));
    if (call.status() != CUBLAS_STATUS_SUCCESS) return call.status();
    if (is_complex(types.a) || is_complex(types.b) || is_complex(types.c)) return call.lacks("cuBLAS (products of complex matrices)");
    const auto how = arithmetic(types.a, types.b, types.c, types.compute, fast(types.compute, call.handle()->math, types.algo, types.plain_float_routine));
    call.needs(how.has_value(), CUBLAS_STATUS_NOT_SUPPORTED);
    if (how.has_value() && how->scale == at::kInt) call.needs(s.lda % 4 == 0 && s.ldb % 4 == 0, CUBLAS_STATUS_NOT_SUPPORTED);
    call.needs(alpha != nullptr && beta != nullptr);
    if (call.status() != CUBLAS_STATUS_SUCCESS || s.m == 0 || s.n == 0 || count == 0 || !call.begin()) return call.status();

    at::Scalar by, plus;
    const bool read = how->scale == at::kHalf     ? scalars<at::Half>(call, alpha, beta, by, plus)
                      : how->scale == at::kDouble ? scalars<double>(call, alpha, beta, by, plus)
                      : how->scale == at::kInt    ? scalars<std::int32_t>(call, alpha, beta, by, plus)
                                                  : scalars<float>(call, alpha, beta, by, plus);
    Batch batch;
    if (!read || !gather(call, batch)) return call.status();

    const bool multiplies = s.k > 0 && by.toDouble() != 0;
    const auto bytes = static_cast<std::uint32_t>(c10::elementSize(how->factors)), result_bytes = static_cast<std::uint32_t>(c10::elementSize(how->result));
    std::vector<Operand> touched;
    for (int i = 0; i < count; ++i) {
        if (multiplies) {
            touched.push_back({"A", batch.a[i], bytes, ta ? s.k : s.m, ta ? s.m : s.k, s.lda, true, false});
            touched.push_back({"B", batch.b[i], bytes, tb ? s.n : s.k, tb ? s.k : s.n, s.ldb, true, false});
        }
        touched.push_back({"C", batch.c[i], result_bytes, s.m, s.n, s.ldc, plus.toDouble() != 0, true});
        if (count > 1)
            for (std::size_t each = multiplies ? 3 : 1; each > 0; --each) touched[touched.size() - each].number = i;
    }
    if (!call.touches(touched)) return call.status();
    const at::AutoDispatchBelowADInplaceOrView below;
    for (int i = 0; i < count; ++i) one(s, *how, by, plus, batch.a[i], batch.b[i], batch.c[i]);
    return call.status();
}

Gather strided(const void* a, std::int64_t stride_a, const void* b, std::int64_t stride_b, const void* c, std::int64_t stride_c, int count, const Types& types) {
    const auto size = [](cudaDataType type) -> std::int64_t {
        return type == CUDA_R_64F ? 8 : type == CUDA_R_32F || type == CUDA_R_32I ? 4 : type == CUDA_R_8I ? 1 : 2;
    };
    const auto place = [](const void* first, std::int64_t bytes) { return static_cast<const void*>(static_cast<const char*>(first) + bytes); };
    return [=](Call&, Batch& batch) {
        for (std::int64_t i = 0; i < count; ++i) {
            batch.a.push_back(place(a, i * stride_a * size(types.a)));
            batch.b.push_back(place(b, i * stride_b * size(types.b)));
            batch.c.push_back(place(c, i * stride_c * size(types.c)));
        }
        return true;
    };
}

Gather pointers(const void* const* a, const void* const* b, const void* const* c, int count) {
    return [=](Call& call, Batch& batch) {  // the arrays lie in device memory, as the matrices do
        const std::int64_t n = count;
        if (!call.touches({matrix("Aarray", a, n, 1, n, true, false), matrix("Barray", b, n, 1, n, true, false), matrix("Carray", c, n, 1, n, true, false)})) return false;
        batch.a.assign(a, a + n), batch.b.assign(b, b + n), batch.c.assign(c, c + n);
        return true;
    };
}

Types plain(cudaDataType type, cublasComputeType_t compute) { return {type, type, type, compute, CUBLAS_GEMM_DEFAULT, type == CUDA_R_32F}; }

}  // namespace

}  // namespace hostcuda::blas

using namespace hostcuda::blas;

#define PRODUCTS(S, T, type, compute)                                                                                                                  \
    cublasStatus_t cublas##S##gemm(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const T* alpha,     \
                                   const T* A, int lda, const T* B, int ldb, const T* beta, T* C, int ldc) {                                           \
        Call call("cublas" #S "gemm", handle, CALLER);                                                                                                 \
        const Types types = plain(type, compute);                                                                                                      \
        return multiply(call, {transa, transb, m, n, k, lda, ldb, ldc}, types, alpha, beta, 1, strided(A, 0, B, 0, C, 0, 1, types));                   \
    }                                                                                                                                                  \
    cublasStatus_t cublas##S##gemmBatched(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,              \
                                          const T* alpha, const T* const A[], int lda, const T* const B[], int ldb, const T* beta, T* const C[],       \
                                          int ldc, int count) {                                                                                        \
        Call call("cublas" #S "gemmBatched", handle, CALLER);                                                                                          \
        const auto raw = [](auto p) { return reinterpret_cast<const void* const*>(p); };                                                               \
        return multiply(call, {transa, transb, m, n, k, lda, ldb, ldc}, plain(type, compute), alpha, beta, count,                                      \
                        pointers(raw(A), raw(B), raw(C), count));                                                                                      \
    }                                                                                                                                                  \
    cublasStatus_t cublas##S##gemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,       \
                                                 const T* alpha, const T* A, int lda, long long strideA, const T* B, int ldb, long long strideB,       \
                                                 const T* beta, T* C, int ldc, long long strideC, int count) {                                         \
        Call call("cublas" #S "gemmStridedBatched", handle, CALLER);                                                                                   \
        const Types types = plain(type, compute);                                                                                                      \
        return multiply(call, {transa, transb, m, n, k, lda, ldb, ldc}, types, alpha, beta, count,                                                     \
                        strided(A, strideA, B, strideB, C, strideC, count, types));                                                                    \
    }
PRODUCTS(S, float, CUDA_R_32F, CUBLAS_COMPUTE_32F)
PRODUCTS(D, double, CUDA_R_64F, CUBLAS_COMPUTE_64F)
PRODUCTS(H, __half, CUDA_R_16F, CUBLAS_COMPUTE_16F)

cublasStatus_t cublasSgemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const float* alpha, const void* A,
                             cudaDataType Atype, int lda, const void* B, cudaDataType Btype, int ldb, const float* beta, void* C, cudaDataType Ctype, int ldc) {
    Call call("cublasSgemmEx", handle, CALLER);
    const Types types{Atype, Btype, Ctype, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT, true};
    return multiply(call, {transa, transb, m, n, k, lda, ldb, ldc}, types, alpha, beta, 1, strided(A, 0, B, 0, C, 0, 1, types));
}
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const void* alpha, const void* A,
                            cudaDataType Atype, int lda, const void* B, cudaDataType Btype, int ldb, const void* beta, void* C, cudaDataType Ctype, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algo) {
    Call call("cublasGemmEx", handle, CALLER);
    const Types types{Atype, Btype, Ctype, compute, algo};
    return multiply(call, {transa, transb, m, n, k, lda, ldb, ldc}, types, alpha, beta, 1, strided(A, 0, B, 0, C, 0, 1, types));
}
cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const void* alpha,
                                   const void* const A[], cudaDataType Atype, int lda, const void* const B[], cudaDataType Btype, int ldb, const void* beta,
                                   void* const C[], cudaDataType Ctype, int ldc, int count, cublasComputeType_t compute, cublasGemmAlgo_t algo) {
    Call call("cublasGemmBatchedEx", handle, CALLER);
    return multiply(call, {transa, transb, m, n, k, lda, ldb, ldc}, {Atype, Btype, Ctype, compute, algo}, alpha, beta, count, pointers(A, B, C, count));
}
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const void* alpha,
                                          const void* A, cudaDataType Atype, int lda, long long strideA, const void* B, cudaDataType Btype, int ldb,
                                          long long strideB, const void* beta, void* C, cudaDataType Ctype, int ldc, long long strideC, int count,
                                          cublasComputeType_t compute, cublasGemmAlgo_t algo) {
    Call call("cublasGemmStridedBatchedEx", handle, CALLER);
    const Types types{Atype, Btype, Ctype, compute, algo};
    return multiply(call, {transa, transb, m, n, k, lda, ldb, ldc}, types, alpha, beta, count, strided(A, strideA, B, strideB, C, strideC, count, types));
}
