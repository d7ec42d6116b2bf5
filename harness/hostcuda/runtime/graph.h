// Graphs: nodes in the order in which they were captured, which is one of those that their edges allow.
#pragma once
#include <memory>
#include <vector>

#include "hostcuda/capture.h"
#include "hostcuda/interface.h"

namespace hostcuda {

// A launch that is kept: the kernel and its arguments, and which memory its pointers pointed into.
class KeptLaunch {
public:
    explicit KeptLaunch(const LaunchRequest& request);
    KeptLaunch(const KeptLaunch& other);
    KeptLaunch& operator=(const KeptLaunch&) = delete;
    ~KeptLaunch();
    int run() const;
    void get(cudaKernelNodeParams& params);
    cudaError_t set(const cudaKernelNodeParams& params);
    bool same_kernel(const KeptLaunch& other) const { return request_.invoke == other.request_.invoke; }

private:
    void find_memory();
    LaunchRequest request_;
    std::vector<PointerArgument> pointers_;
    std::vector<std::uint64_t> memory_;  // of each pointer: which allocation, 0 where it is none that is known
    std::vector<void*> addresses_;       // of the arguments in the closure
    std::vector<std::size_t> bytes_;
};

}  // namespace hostcuda

struct hostcuda_graph_node {
    cudaGraphNodeType type;
    hostcuda::Work work;
    std::unique_ptr<hostcuda::KeptLaunch> kernel;
    int run() const { return kernel != nullptr ? kernel->run() : work(); }
    std::unique_ptr<hostcuda_graph_node> copy() const;
};
struct hostcuda_graph {
    std::vector<std::unique_ptr<hostcuda_graph_node>> nodes;
};
struct hostcuda_graph_exec {
    std::vector<std::unique_ptr<hostcuda_graph_node>> nodes;
    std::vector<const hostcuda_graph_node*> sources;  // the nodes of the graph that they were made of
};
