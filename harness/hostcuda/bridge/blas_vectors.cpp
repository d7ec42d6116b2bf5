// cuBLAS's routines of vectors, of a matrix and a vector, and those of matrices that are no plain product.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "blas.h"

#define CALLER __builtin_return_address(0)

namespace hostcuda::blas {

namespace {

template <class T> at::Tensor view(const T* at, std::int64_t rows, std::int64_t columns, std::int64_t leading) {
    return at::from_blob(const_cast<T*>(at), {rows, columns}, {1, leading}, at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value));
}

// ---- vectors. Sums are taken in float64: the tree of a GPU's reduction errs less than one running float32 sum, and nearly as little as this.

template <class T> cublasStatus_t axpy(Call&& call, int n, const T* alpha, Vector<const T> x, Vector<T> y) {
    call.needs(alpha != nullptr);
    T by{};
    if (call.status() != CUBLAS_STATUS_SUCCESS || n <= 0 || !call.begin() || !call.scalar("alpha", alpha, by) || by == T(0)) return call.status();
    if (!call.touches({x.operand(true, false), y.operand(true, true)})) return call.status();
    for (std::int64_t i = 0; i < n; ++i) y[i] = std::fma(by, x[i], y[i]);
    return call.status();
}
template <class T> cublasStatus_t scal(Call&& call, int n, const T* alpha, Vector<T> x) {
    call.needs(alpha != nullptr);
    T by{};
    if (call.status() != CUBLAS_STATUS_SUCCESS || n <= 0 || x.increment <= 0 || !call.begin() || !call.scalar("alpha", alpha, by)) return call.status();
    if (!call.touches({x.operand(true, true)})) return call.status();
    for (std::int64_t i = 0; i < n; ++i) x[i] *= by;
    return call.status();
}
template <class T> cublasStatus_t copy(Call&& call, int n, Vector<const T> x, Vector<T> y) {
    if (call.status() != CUBLAS_STATUS_SUCCESS || n <= 0 || !call.begin() || !call.touches({x.operand(true, false), y.operand(false, true)})) return call.status();
    for (std::int64_t i = 0; i < n; ++i) y[i] = x[i];
    return call.status();
}
template <class T> cublasStatus_t swap(Call&& call, int n, Vector<T> x, Vector<T> y) {
    if (call.status() != CUBLAS_STATUS_SUCCESS || n <= 0 || !call.begin()) return call.status();
    if (!call.touches({x.operand(true, true, false), y.operand(true, true, false)})) return call.status();
    for (std::int64_t i = 0; i < n; ++i) std::swap(x[i], y[i]);
    return call.status();
}
template <class T> cublasStatus_t dot(Call&& call, int n, Vector<const T> x, Vector<const T> y, T* result) {
    call.needs(result != nullptr);
    if (!call.begin() || (n > 0 && !call.touches({x.operand(true, false), y.operand(true, false)}))) return call.status();
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
    call.result(result, static_cast<T>(sum));
    return call.status();
}
// A number made of all elements of one vector; that of an empty one is 0.
template <class T, class R, class F> cublasStatus_t reduce(Call&& call, int n, Vector<const T> x, R* result, F make) {
    call.needs(result != nullptr);
    const bool empty = n <= 0 || x.increment <= 0;
    if (!call.begin() || (!empty && !call.touches({x.operand(true, false)}))) return call.status();
    call.result(result, empty ? R(0) : static_cast<R>(make(x)));
    return call.status();
}
template <class T> double norm(const Vector<const T>& x) {
    double largest = 0, sum = 0;
    for (std::int64_t i = 0; i < x.count; ++i) largest = std::max(largest, std::abs(static_cast<double>(x[i])));
    // scaled, so that squares neither overflow nor vanish
    const double scale = largest > 0 && std::isfinite(largest) ? largest : 1;
    for (std::int64_t i = 0; i < x.count; ++i) sum += (x[i] / scale) * (x[i] / scale);
    return std::sqrt(sum) * scale;
}
template <class T> double sum_of_magnitudes(const Vector<const T>& x) {
    double sum = 0;
    for (std::int64_t i = 0; i < x.count; ++i) sum += std::abs(static_cast<double>(x[i]));
    return sum;
}
template <class T> int extreme(const Vector<const T>& x, bool largest) {  // its position, from 1
    std::int64_t best = 0;
    for (std::int64_t i = 1; i < x.count; ++i)
        if (largest ? std::abs(x[i]) > std::abs(x[best]) : std::abs(x[i]) < std::abs(x[best])) best = i;
    return static_cast<int>(best) + 1;
}

// ---- a matrix and a vector
template <class T> cublasStatus_t gemv(Call&& call, cublasOperation_t trans, int m, int n, const T* alpha, const T* A, int lda, const T* x, int incx,
                                       const T* beta, T* y, int incy) {
    call.needs(known(trans) && m >= 0 && n >= 0 && lda >= std::max(1, m) && incx != 0 && incy != 0 && alpha != nullptr && beta != nullptr);
    if (call.status() != CUBLAS_STATUS_SUCCESS || m == 0 || n == 0 || !call.begin()) return call.status();
    T by{}, plus{};
    if (!call.scalar("alpha", alpha, by) || !call.scalar("beta", beta, plus)) return call.status();
    const Vector<const T> in{"x", x, transposed(trans) ? m : n, incx};
    const Vector<T> out{"y", y, transposed(trans) ? n : m, incy};
    std::vector<Operand> touched{out.operand(plus != T(0), true, false)};
    if (by != T(0)) touched.push_back(matrix("A", A, m, n, lda, true, false)), touched.push_back(in.operand(true, false, false));
    if (!call.touches(touched)) return call.status();
    const at::AutoDispatchBelowADInplaceOrView below;
    at::Tensor sum;
    if (by != T(0)) {
        at::Tensor vector = at::empty({in.count, 1}, c10::CppTypeToScalarType<T>::value);
        for (std::int64_t i = 0; i < in.count; ++i) vector.template mutable_data_ptr<T>()[i] = in[i];
        const at::Tensor held = view(A, m, n, lda);
        sum = at::mm(transposed(trans) ? held.t() : held, vector).contiguous();
    } else {
        sum = at::zeros({out.count, 1}, c10::CppTypeToScalarType<T>::value);
    }
    const T* values = sum.template const_data_ptr<T>();
    for (std::int64_t i = 0; i < out.count; ++i) out[i] = plus == T(0) ? by * values[i] : by * values[i] + plus * out[i];
    return call.status();
}
template <class T> cublasStatus_t ger(Call&& call, int m, int n, const T* alpha, const T* x, int incx, const T* y, int incy, T* A, int lda) {
    call.needs(m >= 0 && n >= 0 && incx != 0 && incy != 0 && lda >= std::max(1, m) && alpha != nullptr);
    T by{};
    if (call.status() != CUBLAS_STATUS_SUCCESS || m == 0 || n == 0 || !call.begin() || !call.scalar("alpha", alpha, by) || by == T(0)) return call.status();
    const Vector<const T> left{"x", x, m, incx}, right{"y", y, n, incy};
    if (!call.touches({left.operand(true, false, false), right.operand(true, false, false), matrix("A", A, m, n, lda, true, true)})) return call.status();
    for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t i = 0; i < m; ++i) A[i + j * lda] += by * left[i] * right[j];
    return call.status();
}

// ---- matrices
template <class T> cublasStatus_t syrk(Call&& call, cublasFillMode_t uplo, cublasOperation_t trans, int n, int k, const T* alpha, const T* A, int lda,
                                       const T* beta, T* C, int ldc) {
    const bool lower = uplo == CUBLAS_FILL_MODE_LOWER, t = transposed(trans);
    call.needs((lower || uplo == CUBLAS_FILL_MODE_UPPER) && known(trans) && n >= 0 && k >= 0 && lda >= std::max(1, t ? k : n) && ldc >= std::max(1, n));
    call.needs(alpha != nullptr && beta != nullptr);
    if (call.status() != CUBLAS_STATUS_SUCCESS || n == 0 || !call.begin()) return call.status();
    T by{}, plus{};
    if (!call.scalar("alpha", alpha, by) || !call.scalar("beta", beta, plus)) return call.status();
    const bool multiplies = k > 0 && by != T(0);
    Operand result = matrix("C", C, n, n, ldc, plus != T(0), true);
    result.partly = true;
    std::vector<Operand> touched{result};
    if (multiplies) touched.push_back(matrix("A", A, t ? k : n, t ? n : k, lda, true, false));
    if (!call.touches(touched)) return call.status();
    const at::AutoDispatchBelowADInplaceOrView below;
    at::Tensor sum = at::zeros({n, n}, c10::CppTypeToScalarType<T>::value);
    if (multiplies) {
        const at::Tensor held = view(A, t ? k : n, t ? n : k, lda);
        sum = (t ? at::mm(held.t(), held) : at::mm(held, held.t())).contiguous();
    }
    const T* values = sum.template const_data_ptr<T>();
    for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t i = lower ? j : 0; i < (lower ? n : j + 1); ++i) {
            T& place = C[i + j * ldc];
            place = plus == T(0) ? by * values[i * n + j] : by * values[i * n + j] + plus * place;
        }
    return call.status();
}
template <class T> cublasStatus_t trsm(Call&& call, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans, cublasDiagType_t diag, int m, int n,
                                       const T* alpha, const T* A, int lda, T* B, int ldb) {
    const bool left = side == CUBLAS_SIDE_LEFT, upper = uplo == CUBLAS_FILL_MODE_UPPER, unit = diag == CUBLAS_DIAG_UNIT;
    call.needs((left || side == CUBLAS_SIDE_RIGHT) && (upper || uplo == CUBLAS_FILL_MODE_LOWER) && known(trans) && (unit || diag == CUBLAS_DIAG_NON_UNIT));
    call.needs(m >= 0 && n >= 0 && lda >= std::max(1, left ? m : n) && ldb >= std::max(1, m) && alpha != nullptr);
    T by{};
    if (call.status() != CUBLAS_STATUS_SUCCESS || m == 0 || n == 0 || !call.begin() || !call.scalar("alpha", alpha, by)) return call.status();
    const std::int64_t order = left ? m : n;
    std::vector<Operand> touched{matrix("B", B, m, n, ldb, by != T(0), true)};
    if (by != T(0)) {
        touched.push_back(matrix("A", A, order, order, lda, true, false));
        touched.back().partly = true;
    }
    if (!call.touches(touched)) return call.status();
    const at::AutoDispatchBelowADInplaceOrView below;
    at::Tensor result = view(static_cast<const T*>(B), m, n, ldb);
    if (by == T(0)) return result.zero_(), call.status();
    const at::Tensor held = view(A, order, order, lda);
    const bool t = transposed(trans);
    result.copy_(at::linalg_solve_triangular(t ? held.t() : held, result * by, upper != t, left, unit));
    return call.status();
}
template <class T> cublasStatus_t geam(Call&& call, cublasOperation_t transa, cublasOperation_t transb, int m, int n, const T* alpha, const T* A, int lda,
                                       const T* beta, const T* B, int ldb, T* C, int ldc) {
    const bool ta = transposed(transa), tb = transposed(transb);
    call.needs(known(transa) && known(transb) && m >= 0 && n >= 0 && alpha != nullptr && beta != nullptr);
    call.needs(lda >= std::max(1, ta ? n : m) && ldb >= std::max(1, tb ? n : m) && ldc >= std::max(1, m));
    // in place only as it stands
    call.needs((C != A || (!ta && lda == ldc)) && (C != B || (!tb && ldb == ldc)));
    if (call.status() != CUBLAS_STATUS_SUCCESS || m == 0 || n == 0 || !call.begin()) return call.status();
    T first{}, second{};
    if (!call.scalar("alpha", alpha, first) || !call.scalar("beta", beta, second)) return call.status();
    std::vector<Operand> touched;
    const auto reads = [&](const char* name, const T* at, bool t, int leading) {
        touched.push_back(matrix(name, at, t ? n : m, t ? m : n, leading, true, false));
        touched.back().elementwise = !t;
    };
    if (first != T(0)) reads("A", A, ta, lda);
    if (second != T(0)) reads("B", B, tb, ldb);
    touched.push_back(matrix("C", C, m, n, ldc, false, true));
    if (!call.touches(touched)) return call.status();
    for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t i = 0; i < m; ++i) {
            const T a = first == T(0) ? T(0) : first * A[ta ? j + i * lda : i + j * lda];
            const T b = second == T(0) ? T(0) : second * B[tb ? j + i * ldb : i + j * ldb];
            C[i + j * ldc] = a + b;
        }
    return call.status();
}
template <class T> cublasStatus_t dgmm(Call&& call, cublasSideMode_t mode, int m, int n, const T* A, int lda, const T* x, int incx, T* C, int ldc) {
    const bool left = mode == CUBLAS_SIDE_LEFT;
    call.needs((left || mode == CUBLAS_SIDE_RIGHT) && m >= 0 && n >= 0 && lda >= std::max(1, m) && ldc >= std::max(1, m));
    if (call.status() != CUBLAS_STATUS_SUCCESS || m == 0 || n == 0 || !call.begin()) return call.status();
    const Vector<const T> diagonal{"x", x, left ? m : n, incx};
    Operand in = matrix("A", A, m, n, lda, true, false);
    in.elementwise = true;
    if (!call.touches({in, diagonal.operand(true, false, false), matrix("C", C, m, n, ldc, false, true)})) return call.status();
    for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t i = 0; i < m; ++i) C[i + j * ldc] = A[i + j * lda] * diagonal[left ? i : j];
    return call.status();
}

}  // namespace

}  // namespace hostcuda::blas

using namespace hostcuda::blas;
namespace routines = hostcuda::blas;

#define ROUTINES(S, s, real)                                                                                                                           \
    cublasStatus_t cublas##S##axpy(cublasHandle_t h, int n, const real* alpha, const real* x, int incx, real* y, int incy) {                           \
        return routines::axpy<real>(Call("cublas" #S "axpy", h, CALLER), n, alpha, {"x", x, n, incx}, {"y", y, n, incy});                              \
    }                                                                                                                                                  \
    cublasStatus_t cublas##S##scal(cublasHandle_t h, int n, const real* alpha, real* x, int incx) {                                                    \
        return routines::scal<real>(Call("cublas" #S "scal", h, CALLER), n, alpha, {"x", x, n, incx});                                                 \
    }                                                                                                                                                  \
    cublasStatus_t cublas##S##copy(cublasHandle_t h, int n, const real* x, int incx, real* y, int incy) {                                              \
        return routines::copy<real>(Call("cublas" #S "copy", h, CALLER), n, {"x", x, n, incx}, {"y", y, n, incy});                                     \
    }                                                                                                                                                  \
    cublasStatus_t cublas##S##swap(cublasHandle_t h, int n, real* x, int incx, real* y, int incy) {                                                    \
        return routines::swap<real>(Call("cublas" #S "swap", h, CALLER), n, {"x", x, n, incx}, {"y", y, n, incy});                                     \
    }                                                                                                                                                  \
    cublasStatus_t cublas##S##dot(cublasHandle_t h, int n, const real* x, int incx, const real* y, int incy, real* result) {                           \
        return routines::dot<real>(Call("cublas" #S "dot", h, CALLER), n, {"x", x, n, incx}, {"y", y, n, incy}, result);                               \
    }                                                                                                                                                  \
    cublasStatus_t cublas##S##nrm2(cublasHandle_t h, int n, const real* x, int incx, real* result) {                                                   \
        return routines::reduce<real>(Call("cublas" #S "nrm2", h, CALLER), n, {"x", x, n, incx}, result, norm<real>);                                  \
    }                                                                                                                                                  \
    cublasStatus_t cublas##S##asum(cublasHandle_t h, int n, const real* x, int incx, real* result) {                                                   \
        return routines::reduce<real>(Call("cublas" #S "asum", h, CALLER), n, {"x", x, n, incx}, result, sum_of_magnitudes<real>);                     \
    }                                                                                                                                                  \
    cublasStatus_t cublasI##s##amax(cublasHandle_t h, int n, const real* x, int incx, int* result) {                                                   \
        return routines::reduce<real>(Call("cublasI" #s "amax", h, CALLER), n, {"x", x, n, incx}, result,                                              \
                                      [](const Vector<const real>& v) { return extreme(v, true); });                                                   \
    }                                                                                                                                                  \
    cublasStatus_t cublasI##s##amin(cublasHandle_t h, int n, const real* x, int incx, int* result) {                                                   \
        return routines::reduce<real>(Call("cublasI" #s "amin", h, CALLER), n, {"x", x, n, incx}, result,                                              \
                                      [](const Vector<const real>& v) { return extreme(v, false); });                                                  \
    }                                                                                                                                                  \
    cublasStatus_t cublas##S##gemv(cublasHandle_t h, cublasOperation_t trans, int m, int n, const real* alpha, const real* A, int lda, const real* x,  \
                                   int incx, const real* beta, real* y, int incy) {                                                                    \
        return routines::gemv<real>(Call("cublas" #S "gemv", h, CALLER), trans, m, n, alpha, A, lda, x, incx, beta, y, incy);                          \
    }                                                                                                                                                  \
    cublasStatus_t cublas##S##ger(cublasHandle_t h, int m, int n, const real* alpha, const real* x, int incx, const real* y, int incy, real* A,        \
                                  int lda) {                                                                                                           \
        return routines::ger<real>(Call("cublas" #S "ger", h, CALLER), m, n, alpha, x, incx, y, incy, A, lda);                                         \
    }                                                                                                                                                  \
    cublasStatus_t cublas##S##syrk(cublasHandle_t h, cublasFillMode_t uplo, cublasOperation_t trans, int n, int k, const real* alpha, const real* A,   \
                                   int lda, const real* beta, real* C, int ldc) {                                                                      \
        return routines::syrk<real>(Call("cublas" #S "syrk", h, CALLER), uplo, trans, n, k, alpha, A, lda, beta, C, ldc);                              \
    }                                                                                                                                                  \
    cublasStatus_t cublas##S##trsm(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans, cublasDiagType_t diag,     \
                                   int m, int n, const real* alpha, const real* A, int lda, real* B, int ldb) {                                        \
        return routines::trsm<real>(Call("cublas" #S "trsm", h, CALLER), side, uplo, trans, diag, m, n, alpha, A, lda, B, ldb);                        \
    }                                                                                                                                                  \
    cublasStatus_t cublas##S##geam(cublasHandle_t h, cublasOperation_t transa, cublasOperation_t transb, int m, int n, const real* alpha,              \
                                   const real* A, int lda, const real* beta, const real* B, int ldb, real* C, int ldc) {                               \
        return routines::geam<real>(Call("cublas" #S "geam", h, CALLER), transa, transb, m, n, alpha, A, lda, beta, B, ldb, C, ldc);                   \
    }                                                                                                                                                  \
    cublasStatus_t cublas##S##dgmm(cublasHandle_t h, cublasSideMode_t mode, int m, int n, const real* A, int lda, const real* x, int incx, real* C,    \
                                   int ldc) {                                                                                                          \
        return routines::dgmm<real>(Call("cublas" #S "dgmm", h, CALLER), mode, m, n, A, lda, x, incx, C, ldc);                                         \
    }
ROUTINES(S, s, float)
ROUTINES(D, d, double)
