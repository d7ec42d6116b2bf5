// c10::cuda: guards of device and stream.
#pragma once
#include <optional>

#include "c10/cuda/CUDACachingAllocator.h"
#include "c10/cuda/CUDAException.h"
#include "c10/cuda/CUDAFunctions.h"
#include "c10/cuda/CUDAMacros.h"
#include "c10/cuda/CUDAStream.h"

namespace c10::cuda {
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
    explicit CUDAStreamGuard(c10::Stream s) : before_(getCurrentCUDAStream()) { reset_stream(s); }
    ~CUDAStreamGuard() { setCurrentCUDAStream(before_); }
    CUDAStreamGuard(const CUDAStreamGuard&) = delete;
    CUDAStreamGuard& operator=(const CUDAStreamGuard&) = delete;
    void reset_stream(c10::Stream s) { setCurrentCUDAStream(now_ = CUDAStream(s)); }
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
}  // namespace c10::cuda
