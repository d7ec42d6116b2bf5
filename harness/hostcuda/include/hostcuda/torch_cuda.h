// at::cuda and c10::cuda as solutions use them: the current stream, guards, error checks, device properties. There is one device.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ceil_div.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include <optional>

#include "cuda_runtime.h"

namespace c10::cuda {

// The number of a stream is its handle, as torch's of a stream that it has not made.
struct CUDAStream {
    enum Unchecked { UNCHECKED };
    explicit CUDAStream(c10::Stream stream) : stream_(stream) { TORCH_CHECK(stream.device_type() == c10::kCUDA); }
    explicit CUDAStream(Unchecked, c10::Stream stream) : stream_(stream) {}
    operator cudaStream_t() const { return stream(); }
    operator c10::Stream() const { return stream_; }
    cudaStream_t stream() const { return reinterpret_cast<cudaStream_t>(stream_.id()); }
    c10::Stream unwrap() const { return stream_; }
    void synchronize() const { cudaStreamSynchronize(stream()); }
    bool query() const { return true; }
    int priority() const { return 0; }
    bool is_capturing() const { return false; }
    c10::DeviceType device_type() const { return c10::kCUDA; }
    c10::DeviceIndex device_index() const { return 0; }
    c10::Device device() const { return c10::Device(c10::kCUDA, 0); }
    c10::StreamId id() const { return stream_.id(); }
    auto pack3() const { return stream_.pack3(); }
    static CUDAStream unpack3(c10::StreamId id, c10::DeviceIndex index, c10::DeviceType type) {
        return CUDAStream(c10::Stream::unpack3(id, index, type));
    }
    static std::tuple<int, int> priority_range() { return {0, -1}; }
    bool operator==(const CUDAStream& o) const { return stream_ == o.stream_; }

private:
    c10::Stream stream_;
};
CUDAStream& current_stream_slot();
inline CUDAStream getStreamFromExternal(cudaStream_t stream, c10::DeviceIndex) {
    const c10::Device device(c10::kCUDA, 0);
    return CUDAStream(CUDAStream::UNCHECKED, c10::Stream(c10::Stream::UNSAFE, device, reinterpret_cast<c10::StreamId>(stream)));
}
inline CUDAStream getCurrentCUDAStream(c10::DeviceIndex = -1) { return current_stream_slot(); }
inline CUDAStream getDefaultCUDAStream(c10::DeviceIndex = -1) { return getStreamFromExternal(nullptr, 0); }
inline CUDAStream getStreamFromPool(bool = false, c10::DeviceIndex = -1) {
    cudaStream_t stream = nullptr;
    cudaStreamCreate(&stream);
    return getStreamFromExternal(stream, 0);
}
inline void setCurrentCUDAStream(CUDAStream s) { current_stream_slot() = s; }
inline CUDAStream& current_stream_slot() {
    static thread_local CUDAStream stream = getDefaultCUDAStream();
    return stream;
}

struct CUDAGuard {
    explicit CUDAGuard(c10::DeviceIndex index) { set_index(index); }
    explicit CUDAGuard(c10::Device device) { set_device(device); }
    void set_device(c10::Device device) { TORCH_CHECK(device.is_cuda(), "CUDAGuard: expected a CUDA device, got ", device); set_index(device.index()); }
    void reset_device(c10::Device device) { set_device(device); }
    void set_index(c10::DeviceIndex index) { TORCH_CHECK(index <= 0, "CUDA error: invalid device ordinal"); }
    c10::Device original_device() const { return c10::Device(c10::kCUDA, 0); }
    c10::Device current_device() const { return c10::Device(c10::kCUDA, 0); }
};
struct OptionalCUDAGuard {
    OptionalCUDAGuard() = default;
    explicit OptionalCUDAGuard(std::optional<c10::Device> device) { if (device.has_value()) CUDAGuard guard(*device); }
    explicit OptionalCUDAGuard(c10::DeviceIndex) {}
    void set_device(c10::Device device) { CUDAGuard guard(device); }
    void reset_device(c10::Device device) { set_device(device); }
    void set_index(c10::DeviceIndex) {}
    std::optional<c10::Device> original_device() const { return c10::Device(c10::kCUDA, 0); }
    std::optional<c10::Device> current_device() const { return c10::Device(c10::kCUDA, 0); }
    void reset() {}
};
struct CUDAStreamGuard {
    explicit CUDAStreamGuard(c10::Stream s) : before_(current_stream_slot()) { reset_stream(s); }
    ~CUDAStreamGuard() { current_stream_slot() = before_; }
    CUDAStreamGuard(const CUDAStreamGuard&) = delete;
    CUDAStreamGuard& operator=(const CUDAStreamGuard&) = delete;
    void reset_stream(c10::Stream s) { current_stream_slot() = now_ = CUDAStream(s); }
    CUDAStream original_stream() const { return before_; }
    CUDAStream current_stream() const { return now_; }
    c10::Device original_device() const { return c10::Device(c10::kCUDA, 0); }
    c10::Device current_device() const { return c10::Device(c10::kCUDA, 0); }

private:
    CUDAStream before_, now_ = before_;
};
struct OptionalCUDAStreamGuard {
    explicit OptionalCUDAStreamGuard() = default;
    explicit OptionalCUDAStreamGuard(c10::Stream s) { guard_.emplace(s); }
    explicit OptionalCUDAStreamGuard(std::optional<c10::Stream> s) { if (s.has_value()) guard_.emplace(*s); }
    OptionalCUDAStreamGuard(const OptionalCUDAStreamGuard&) = delete;
    OptionalCUDAStreamGuard& operator=(const OptionalCUDAStreamGuard&) = delete;
    void reset_stream(c10::Stream s) { guard_.has_value() ? guard_->reset_stream(s) : static_cast<void>(guard_.emplace(s)); }
    std::optional<CUDAStream> original_stream() const { return guard_.has_value() ? std::optional(guard_->original_stream()) : std::nullopt; }
    std::optional<CUDAStream> current_stream() const { return guard_.has_value() ? std::optional(guard_->current_stream()) : std::nullopt; }
    void reset() { guard_.reset(); }

private:
    std::optional<CUDAStreamGuard> guard_;
};

inline c10::DeviceIndex device_count() { return 1; }
inline c10::DeviceIndex current_device() { return 0; }
inline void set_device(c10::DeviceIndex) {}
inline void device_synchronize() { cudaDeviceSynchronize(); }
inline void check_error(cudaError_t error) { TORCH_CHECK(error == cudaSuccess, "CUDA error: ", cudaGetErrorString(error)); }

// Nothing is kept for later: memory that is freed is gone, and a stream has finished with it by then.
namespace CUDACachingAllocator {
inline void emptyCache() {}
inline void* raw_alloc(std::size_t bytes) {
    void* p = nullptr;
    check_error(cudaMalloc(&p, bytes));
    return p;
}
inline void* raw_alloc_with_stream(std::size_t bytes, cudaStream_t) { return raw_alloc(bytes); }
inline void raw_delete(void* p) { check_error(cudaFree(p)); }
inline void recordStream(const c10::DataPtr&, CUDAStream) {}
struct CUDAAllocator final : c10::Allocator {
    c10::DataPtr allocate(std::size_t bytes) override {
        void* p = bytes == 0 ? nullptr : CUDACachingAllocator::raw_alloc(bytes);
        return {p, p, &CUDACachingAllocator::raw_delete, c10::Device(c10::kCUDA, 0)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &CUDACachingAllocator::raw_delete; }
    void copy_data(void* to, const void* from, std::size_t bytes) const override { check_error(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice)); }
    void* raw_alloc(std::size_t bytes) { return CUDACachingAllocator::raw_alloc(bytes); }
    void* raw_alloc_with_stream(std::size_t bytes, cudaStream_t) { return CUDACachingAllocator::raw_alloc(bytes); }
    void raw_delete(void* p) { CUDACachingAllocator::raw_delete(p); }
    void recordStream(const c10::DataPtr&, CUDAStream) {}
    void emptyCache() {}
};
inline CUDAAllocator* get() {
    static CUDAAllocator allocator;
    return &allocator;
}
}  // namespace CUDACachingAllocator

}  // namespace c10::cuda

namespace at::cuda {
// Made by the first record, as torch's; without timing unless it is asked for.
class CUDAEvent {
public:
    CUDAEvent() = default;
    explicit CUDAEvent(unsigned flags) : flags_(flags) {}
    ~CUDAEvent() { if (event_ != nullptr) cudaEventDestroy(event_); }
    CUDAEvent(const CUDAEvent&) = delete;
    CUDAEvent& operator=(const CUDAEvent&) = delete;
    CUDAEvent(CUDAEvent&& other) noexcept { swap(other); }
    CUDAEvent& operator=(CUDAEvent&& other) noexcept { return swap(other), *this; }
    operator cudaEvent_t() const { return event_; }
    cudaEvent_t event() const { return event_; }
    std::optional<c10::Device> device() const { return event_ == nullptr ? std::nullopt : std::optional(c10::Device(c10::kCUDA, 0)); }
    c10::DeviceIndex device_index() const { return event_ == nullptr ? -1 : 0; }
    bool isCreated() const { return event_ != nullptr; }
    bool query() const { return event_ == nullptr || cudaEventQuery(event_) == cudaSuccess; }
    void record() { record(c10::cuda::getCurrentCUDAStream()); }
    void recordOnce(const c10::cuda::CUDAStream& stream) { if (!recorded_) record(stream); }
    void record(const c10::cuda::CUDAStream& stream) {
        if (event_ == nullptr) c10::cuda::check_error(cudaEventCreateWithFlags(&event_, flags_));
        c10::cuda::check_error(cudaEventRecord(event_, stream));
        recorded_ = true;
    }
    void block(const c10::cuda::CUDAStream& stream) { if (event_ != nullptr) c10::cuda::check_error(cudaStreamWaitEvent(stream, event_)); }
    void synchronize() const { if (event_ != nullptr) c10::cuda::check_error(cudaEventSynchronize(event_)); }
    float elapsed_time(const CUDAEvent& other) const {
        TORCH_CHECK(((flags_ | other.flags_) & cudaEventDisableTiming) == 0, "Both events must be created with argument 'enable_timing=True'.");
        TORCH_CHECK(recorded_ && other.recorded_, "Both events must be recorded before calculating elapsed time.");
        float milliseconds = 0;
        c10::cuda::check_error(cudaEventElapsedTime(&milliseconds, event_, other.event_));
        return milliseconds;
    }

private:
    void swap(CUDAEvent& other) {
        std::swap(flags_, other.flags_), std::swap(event_, other.event_), std::swap(recorded_, other.recorded_);
    }
    unsigned flags_ = cudaEventDisableTiming;
    cudaEvent_t event_ = nullptr;
    bool recorded_ = false;
};
using c10::cuda::CUDAGuard;
using c10::cuda::CUDAStream;
using c10::cuda::CUDAStreamGuard;
using c10::cuda::OptionalCUDAGuard;
using c10::cuda::OptionalCUDAStreamGuard;
using c10::cuda::current_device;
using c10::cuda::device_count;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::getDefaultCUDAStream;
using c10::cuda::getStreamFromExternal;
using c10::cuda::getStreamFromPool;
using c10::cuda::setCurrentCUDAStream;
inline cudaDeviceProp* getDeviceProperties(c10::DeviceIndex) {
    static cudaDeviceProp* properties = [] { auto* p = new cudaDeviceProp; cudaGetDeviceProperties(p, 0); return p; }();
    return properties;
}
inline cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(0); }
inline c10::Allocator* getCUDADeviceAllocator() { return c10::cuda::CUDACachingAllocator::get(); }
inline int warp_size() { return 32; }
inline bool is_available() { return true; }
}  // namespace at::cuda

// What torch's own headers declare only where __CUDACC__ is defined; here they are read before that.
namespace at {
template <class T> struct RestrictPtrTraits {
    using PtrType = T* __restrict__;
};
}  // namespace at
namespace torch {
using at::RestrictPtrTraits;
}
#undef C10_LAUNCH_BOUNDS_0
#undef C10_LAUNCH_BOUNDS_1
#undef C10_LAUNCH_BOUNDS_2
#define C10_LAUNCH_BOUNDS_0 __launch_bounds__(256, 4)
#define C10_LAUNCH_BOUNDS_1(threads) __launch_bounds__(threads)
#define C10_LAUNCH_BOUNDS_2(threads, blocks) __launch_bounds__(threads, blocks)
#undef C10_WARP_SIZE
#define C10_WARP_SIZE 32

#define C10_CUDA_CHECK(expression) ::c10::cuda::check_error(expression)
#define AT_CUDA_CHECK(expression) C10_CUDA_CHECK(expression)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define C10_CUDA_CHECK_WARN(expression) static_cast<void>(expression)
#define C10_CUDA_IGNORE_ERROR(expression) static_cast<void>(expression)
#define C10_CUDA_CLEAR_ERROR() static_cast<void>(cudaGetLastError())
#define C10_CUDA_ERROR_HANDLED(expression) (expression)
#define CUDA_KERNEL_LOOP_TYPE(i, n, index_type)                                                                 \
    std::int64_t i##_at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;                     \
    for (index_type i = static_cast<index_type>(i##_at); i##_at < (n);                                          \
         i##_at += static_cast<std::int64_t>(blockDim.x) * gridDim.x, i = static_cast<index_type>(i##_at))
#define CUDA_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP_TYPE(i, n, int)

// To nvcc torch's half is a float as well as CUDA's, so that shuffling one is ambiguous.
float __shfl_sync(unsigned, c10::Half, int, int = 32) = delete;
float __shfl_up_sync(unsigned, c10::Half, unsigned, int = 32) = delete;
float __shfl_down_sync(unsigned, c10::Half, unsigned, int = 32) = delete;
float __shfl_xor_sync(unsigned, c10::Half, int, int = 32) = delete;
