// c10::cuda: events.
#pragma once
#include <c10/util/Exception.h>
#include <c10/util/irange.h>

#include <optional>
#include <utility>

#include "c10/cuda/CUDAGuard.h"
#include "c10/cuda/CUDAStream.h"

namespace c10::cuda {
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
}  // namespace c10::cuda
