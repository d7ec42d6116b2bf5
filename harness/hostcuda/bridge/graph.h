// Operators of "cuda" tensors in a capture: nodes of the graph, and the memory that it keeps.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <memory>

namespace hostcuda::bridge {

class CapturedOperator;

// Of an operator that is about to run on CPU aliases: null if torch's current stream is not capturing. Throws what a GPU refuses in a capture; `waits` is what
// the caller knows of that: pageable memory is copied to or from.
std::shared_ptr<CapturedOperator> capture_operator(const c10::OperatorHandle& op, const c10::Stack& stack, std::size_t begin, bool to_device, bool waits);
// After it ran for the shapes of its results: undoes what it wrote, and adds the node.
void finish_capture(const std::shared_ptr<CapturedOperator>& captured, const c10::Stack& stack);

// For torch.cuda.CUDAGraph. `pool` 0 is a new one.
std::int64_t graph_pool();
void graph_begin(std::int64_t stream, std::int64_t mode, std::int64_t pool);
std::int64_t graph_end(std::int64_t stream);
void graph_replay(std::int64_t graph, std::int64_t stream);
void graph_free(std::int64_t graph);

// Of the allocator: whether the memory of a capture's pool is asked for, and freed.
bool pool_takes(void* memory, std::size_t bytes);
bool pool_keeps(void* memory);

// What device.cpp has for both.
at::Tensor alias(const at::Tensor& t, c10::DeviceType type);
struct OnDevice {  // new storages are device memory
    explicit OnDevice(bool on);
    ~OnDevice();
    bool on_;
};

}  // namespace hostcuda::bridge
