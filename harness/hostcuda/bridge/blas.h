// What the routines of cuBLAS share: the handle, one call of a routine with its status, and vectors.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <type_traits>
#include <vector>

#include "cublas_v2.h"
#include "hostcuda/interface.h"

struct cublasContext {
    cudaStream_t stream = nullptr;
    cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
    cublasAtomicsMode_t atomics = CUBLAS_ATOMICS_NOT_ALLOWED;
    cublasMath_t math = CUBLAS_DEFAULT_MATH;
};

namespace hostcuda::blas {

bool live(cublasHandle_t handle);        // made by cublasCreate and not destroyed
inline bool transposed(cublasOperation_t operation) { return operation != CUBLAS_OP_N; }
inline bool known(cublasOperation_t operation) { return operation == CUBLAS_OP_N || operation == CUBLAS_OP_T || operation == CUBLAS_OP_C; }

// One call of a routine. Arguments are judged first (`needs`), then `begin`, then what it touches; the first failure is its status. What a
// routine would do to memory that is not there leaves the device with an error and the call with success, as on a GPU, where the routine
// only begins when the call returns.
class Call {
public:
    Call(const char* routine, cublasHandle_t handle, void* caller);
    ~Call() { if (begun_) library_ends(); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    Call& needs(bool holds, cublasStatus_t otherwise = CUBLAS_STATUS_INVALID_VALUE);
    bool begin();
    bool touches(const std::vector<Operand>& operands);
    cublasStatus_t lacks(const char* construct);  // noted as not emulated; the status says not supported
    cublasStatus_t status() const { return status_; }
    cublasHandle_t handle() const { return handle_; }
    const char* routine() const { return routine_; }

    // A scalar argument, which lies where the handle's pointer mode says.
    template <class T> bool scalar(const char* name, const T* at, T& value) {
        if (!reachable(name, at, sizeof(T), true, false)) return false;
        value = *at;
        return true;
    }
    template <class T> bool result(T* at, T value) {
        if (!reachable("result", at, sizeof(T), false, true)) return false;
        *at = value;
        return true;
    }

private:
    bool reachable(const char* name, const void* at, std::uint32_t bytes, bool reads, bool writes);
    const char* routine_;
    cublasHandle_t handle_;
    std::uintptr_t site_;
    cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;
    bool begun_ = false;
};

template <class T> Operand matrix(const char* name, const T* at, std::int64_t rows, std::int64_t columns, std::int64_t leading, bool reads, bool writes) {
    return {name, at, sizeof(T), rows, columns, leading, reads, writes};
}

// A vector with an increment: a negative one runs from its far end, as BLAS has it.
template <class T> struct Vector {
    const char* name;
    T* at;
    std::int64_t count, increment;
    T& operator[](std::int64_t i) const { return at[increment < 0 ? (i - count + 1) * increment : i * increment]; }
    Operand operand(bool reads, bool writes, bool elementwise = true) const {
        const std::int64_t step = std::abs(increment);
        Operand o{name, at, sizeof(T), 1, step == 0 ? 1 : count, step == 0 ? 1 : step, reads, writes};
        if (step == 1) o.rows = count, o.columns = 1, o.leading = count;
        o.elementwise = elementwise;
        return o;
    }
};

}  // namespace hostcuda::blas
