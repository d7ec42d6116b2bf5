// Work that is given to a capturing stream becomes a node of a graph: for the runtime and the torch bridge.
#pragma once
#include <atomic>
#include <functional>
#include <optional>

#include "cuda_runtime_api.h"

namespace hostcuda {

using Work = std::function<int()>;                        // a cudaError_t

extern std::atomic<int> captures;                         // how many streams' captures are under way: mostly none
bool is_capturing(cudaStream_t stream);
// No value: the stream is not capturing, and the caller does the work now. Otherwise the call's result.
std::optional<cudaError_t> captured(cudaStream_t stream, cudaGraphNodeType type, const Work& work);
// An error if a capture is under way that forbids calls outside of its streams (memory, synchronisation): that ends it.
cudaError_t outside_of_captures();
// The same of a call that waits for a stream.
cudaError_t outside_of_capture(cudaStream_t stream);

}  // namespace hostcuda
