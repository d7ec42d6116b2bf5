// cuBLAS's handle and its modes, its statuses and copies, and how a call of a routine begins.
#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <mutex>
#include <unordered_set>

#include "blas.h"
#include "hostcuda/capture.h"

namespace hostcuda::blas {

namespace {
std::mutex mutex;
std::unordered_set<cublasHandle_t>& handles() {
    static auto* set = new std::unordered_set<cublasHandle_t>();
    return *set;
}
}  // namespace

bool live(cublasHandle_t handle) {
    std::lock_guard<std::mutex> lock(mutex);
    return handles().count(handle) != 0;
}

Call::Call(const char* routine, cublasHandle_t handle, void* caller)
    : routine_(routine), handle_(handle), site_(reinterpret_cast<std::uintptr_t>(caller)) {
    needs(live(handle), CUBLAS_STATUS_NOT_INITIALIZED);
}

Call& Call::needs(bool holds, cublasStatus_t otherwise) {
    if (status_ == CUBLAS_STATUS_SUCCESS && !holds) status_ = otherwise;
    return *this;
}

bool Call::begin() {
    if (status_ != CUBLAS_STATUS_SUCCESS) return false;
    if (is_capturing(handle_->stream)) return lacks("cuBLAS in a CUDA graph"), false;
    begun_ = library_begins(routine_) == 0;
    needs(begun_, CUBLAS_STATUS_EXECUTION_FAILED);
    return begun_;
}

bool Call::touches(const std::vector<Operand>& operands) { return library_touches(routine_, operands.data(), operands.size(), site_) == 0; }

cublasStatus_t Call::lacks(const char* construct) {
    library_lacks(routine_, construct, site_);
    return status_ = CUBLAS_STATUS_NOT_SUPPORTED;
}

bool Call::reachable(const char* name, const void* at, std::uint32_t bytes, bool reads, bool writes) {
    if (at == nullptr) return needs(false), false;
    if (handle_->pointers == CUBLAS_POINTER_MODE_DEVICE) return touches({Operand{name, at, bytes, 1, 1, 1, reads, writes}});
    const bool there = library_reads_on_host(routine_, name, at, site_);
    needs(there);
    return there;
}

}  // namespace hostcuda::blas

using hostcuda::blas::live;

namespace {
template <class Take> cublasStatus_t with(cublasHandle_t handle, bool valid, Take take) {
    if (!live(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!valid) return CUBLAS_STATUS_INVALID_VALUE;
    take();
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t copy(int rows, int cols, int bytes, const void* from, int from_leading, void* to, int to_leading, cudaMemcpyKind kind) {
    if (rows < 0 || cols < 0 || bytes <= 0 || from_leading <= 0 || to_leading <= 0) return CUBLAS_STATUS_INVALID_VALUE;
    if (rows == 0 || cols == 0) return CUBLAS_STATUS_SUCCESS;
    if (from == nullptr || to == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    const auto unit = static_cast<std::size_t>(bytes);
    const cudaError_t error = cudaMemcpy2D(to, to_leading * unit, from, from_leading * unit, rows * unit, static_cast<std::size_t>(cols), kind);
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_MAPPING_ERROR;
}
}  // namespace

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
    if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    *handle = nullptr;
    if (cudaPeekAtLastError() != cudaSuccess && cudaDeviceSynchronize() != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
    auto* made = new cublasContext();
    std::lock_guard<std::mutex> lock(hostcuda::blas::mutex);
    hostcuda::blas::handles().insert(made);
    *handle = made;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy(cublasHandle_t handle) {
    {
        std::lock_guard<std::mutex> lock(hostcuda::blas::mutex);
        if (hostcuda::blas::handles().erase(handle) == 0) return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetVersion(cublasHandle_t, int* version) {  // cuBLAS answers without a handle too
    if (version == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetProperty(libraryPropertyType type, int* value) {
    if (value == nullptr || type < MAJOR_VERSION || type > PATCH_LEVEL) return CUBLAS_STATUS_INVALID_VALUE;
    *value = type == MAJOR_VERSION ? CUBLAS_VER_MAJOR : type == MINOR_VERSION ? CUBLAS_VER_MINOR : CUBLAS_VER_PATCH;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t h, cudaStream_t stream) { return with(h, true, [&] { h->stream = stream; }); }
cublasStatus_t cublasGetStream(cublasHandle_t h, cudaStream_t* stream) { return with(h, stream != nullptr, [&] { *stream = h->stream; }); }
// What is put into a workspace is the library's affair: nothing here needs one.
cublasStatus_t cublasSetWorkspace(cublasHandle_t h, void* workspace, size_t) { return with(h, reinterpret_cast<std::uintptr_t>(workspace) % 256 == 0, [] {}); }
cublasStatus_t cublasSetPointerMode(cublasHandle_t h, cublasPointerMode_t mode) {
    return with(h, mode == CUBLAS_POINTER_MODE_HOST || mode == CUBLAS_POINTER_MODE_DEVICE, [&] { h->pointers = mode; });
}
cublasStatus_t cublasGetPointerMode(cublasHandle_t h, cublasPointerMode_t* mode) { return with(h, mode != nullptr, [&] { *mode = h->pointers; }); }
cublasStatus_t cublasSetAtomicsMode(cublasHandle_t h, cublasAtomicsMode_t mode) {
    return with(h, mode == CUBLAS_ATOMICS_NOT_ALLOWED || mode == CUBLAS_ATOMICS_ALLOWED, [&] { h->atomics = mode; });
}
cublasStatus_t cublasGetAtomicsMode(cublasHandle_t h, cublasAtomicsMode_t* mode) { return with(h, mode != nullptr, [&] { *mode = h->atomics; }); }
cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t mode) {
    const int plain = static_cast<int>(mode) & ~static_cast<int>(CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    return with(h, plain >= CUBLAS_DEFAULT_MATH && plain <= CUBLAS_TF32_TENSOR_OP_MATH, [&] { h->math = mode; });
}
cublasStatus_t cublasGetMathMode(cublasHandle_t h, cublasMath_t* mode) { return with(h, mode != nullptr, [&] { *mode = h->math; }); }

#define STATUS(code, text) case code: return text
const char* cublasGetStatusName(cublasStatus_t status) {
    switch (status) {
        STATUS(CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS");
        STATUS(CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED");
        STATUS(CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED");
        STATUS(CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE");
        STATUS(CUBLAS_STATUS_ARCH_MISMATCH, "CUBLAS_STATUS_ARCH_MISMATCH");
        STATUS(CUBLAS_STATUS_MAPPING_ERROR, "CUBLAS_STATUS_MAPPING_ERROR");
        STATUS(CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED");
        STATUS(CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR");
        STATUS(CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED");
        STATUS(CUBLAS_STATUS_LICENSE_ERROR, "CUBLAS_STATUS_LICENSE_ERROR");
    }
    return "CUBLAS_STATUS_UNKNOWN";
}
const char* cublasGetStatusString(cublasStatus_t status) {
    switch (status) {
        STATUS(CUBLAS_STATUS_SUCCESS, "success");
        STATUS(CUBLAS_STATUS_NOT_INITIALIZED, "the library was not initialized");
        STATUS(CUBLAS_STATUS_ALLOC_FAILED, "the resource allocation failed");
        STATUS(CUBLAS_STATUS_INVALID_VALUE, "an invalid value was used as an argument");
        STATUS(CUBLAS_STATUS_ARCH_MISMATCH, "an absent device architectural feature is required");
        STATUS(CUBLAS_STATUS_MAPPING_ERROR, "an access to GPU memory space failed");
        STATUS(CUBLAS_STATUS_EXECUTION_FAILED, "the GPU program failed to execute");
        STATUS(CUBLAS_STATUS_INTERNAL_ERROR, "an internal operation failed");
        STATUS(CUBLAS_STATUS_NOT_SUPPORTED, "the functionality is not supported");
        STATUS(CUBLAS_STATUS_LICENSE_ERROR, "a license error was detected");
    }
    return "unknown status";
}

cublasStatus_t cublasSetVector(int n, int bytes, const void* x, int incx, void* y, int incy) { return copy(1, n, bytes, x, incx, y, incy, cudaMemcpyHostToDevice); }
cublasStatus_t cublasGetVector(int n, int bytes, const void* x, int incx, void* y, int incy) { return copy(1, n, bytes, x, incx, y, incy, cudaMemcpyDeviceToHost); }
cublasStatus_t cublasSetMatrix(int rows, int cols, int bytes, const void* A, int lda, void* B, int ldb) {
    return copy(rows, cols, bytes, A, lda, B, ldb, cudaMemcpyHostToDevice);
}
cublasStatus_t cublasGetMatrix(int rows, int cols, int bytes, const void* A, int lda, void* B, int ldb) {
    return copy(rows, cols, bytes, A, lda, B, ldb, cudaMemcpyDeviceToHost);
}

namespace hostcuda::blas {
cublasHandle_t torch_handle() {
    thread_local cublasHandle_t handle = nullptr;
    if (handle == nullptr) {
        const cublasStatus_t made = cublasCreate(&handle);
        TORCH_CHECK(made == CUBLAS_STATUS_SUCCESS, "CUDA error: ", cublasGetStatusName(made), " when calling `cublasCreate(handle)`");
    }
    cublasSetMathMode(handle, at::globalContext().allowTF32CuBLAS() ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH);
    return handle;
}
}  // namespace hostcuda::blas
