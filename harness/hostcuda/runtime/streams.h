// Streams and events, and what they know of a capture.
#pragma once
#include <chrono>
#include <map>
#include <memory>

#include "hostcuda/capture.h"

namespace hostcuda {

// How much of each stream's work happened before: of a stream, and of an event that was recorded in one.
using Clock = std::map<const hostcuda_stream*, std::size_t>;

struct Capture {
    cudaStreamCaptureMode mode;
    const hostcuda_stream* origin;
    unsigned long long id;
    std::unique_ptr<hostcuda_graph> graph;
    bool invalid = false;
};

void add_node(Capture& capture, cudaGraphNodeType type, const Work& work);
void add_launch(Capture& capture, const LaunchRequest& request);
// As `captured`, of a kernel.
std::optional<cudaError_t> captured_launch(const LaunchRequest& request);

}  // namespace hostcuda

struct hostcuda_stream {
    bool blocking = true;                        // it and the legacy stream wait for each other
    std::shared_ptr<hostcuda::Capture> capture;  // that it is part of, or null
    hostcuda::Clock clock;
};
struct hostcuda_event {
    std::chrono::steady_clock::time_point at;
    bool recorded = false;
    std::shared_ptr<hostcuda::Capture> capture;  // in which it was recorded
    hostcuda::Clock clock;
};
