// c10::cuda: streams.
#pragma once
#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include <tuple>

#include "c10/cuda/CUDAFunctions.h"
#include "cuda_runtime_api.h"
#include "hostcuda/torch_stream.h"

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
    bool is_capturing() const {
        cudaStreamCaptureStatus state;
        return cudaStreamIsCapturing(stream(), &state) == cudaSuccess && state != cudaStreamCaptureStatusNone;
    }
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
inline CUDAStream getStreamFromExternal(cudaStream_t stream, c10::DeviceIndex) {
    const c10::Device device(c10::kCUDA, 0);
    return CUDAStream(CUDAStream::UNCHECKED, c10::Stream(c10::Stream::UNSAFE, device, reinterpret_cast<c10::StreamId>(stream)));
}
inline CUDAStream getCurrentCUDAStream(c10::DeviceIndex = -1) { return getStreamFromExternal(hostcuda::torch_stream(), 0); }
inline CUDAStream getDefaultCUDAStream(c10::DeviceIndex = -1) { return getStreamFromExternal(nullptr, 0); }
inline CUDAStream getStreamFromPool(bool = false, c10::DeviceIndex = -1) {
    cudaStream_t stream = nullptr;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    return getStreamFromExternal(stream, 0);
}
inline void setCurrentCUDAStream(CUDAStream s) { hostcuda::torch_stream() = s.stream(); }
}  // namespace c10::cuda
