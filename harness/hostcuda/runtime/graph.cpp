// CUDA graphs (include/hostcuda/graph_api.h): what a capture collected, launched again, and changed.
#include "graph.h"

#include <cstdlib>
#include <cstring>

#include "api.h"
#include "report.h"
#include "state.h"
#include "streams.h"

namespace hostcuda {

namespace {

constexpr std::size_t closure_alignment = 256;

void* copy_of(const void* closure, std::size_t bytes) {
    void* copy = std::aligned_alloc(closure_alignment, (bytes + closure_alignment - 1) / closure_alignment * closure_alignment);
    std::memcpy(copy, closure, bytes);
    return copy;
}

std::uint64_t allocation_at(const void* place) {
    const Region* region = region_containing(reinterpret_cast<std::uintptr_t>(place), 1);
    return region == nullptr || region->kind == RegionKind::image ? 0 : region->allocation;
}

}  // namespace

KeptLaunch::KeptLaunch(const LaunchRequest& request)
    : request_(request), pointers_(request.pointers, request.pointers + request.pointer_count), addresses_(request.parameter_count + 1), bytes_(request.parameter_count + 1) {
    request_.closure = copy_of(request.closure, request.closure_bytes);
    request_.pointers = pointers_.data();
    request_.stream = nullptr;
    request_.parameters(const_cast<void*>(request_.closure), addresses_.data(), bytes_.data());
    find_memory();
}
KeptLaunch::KeptLaunch(const KeptLaunch& other) : KeptLaunch(other.request_) { memory_ = other.memory_; }
KeptLaunch::~KeptLaunch() { std::free(const_cast<void*>(request_.closure)); }

void KeptLaunch::find_memory() {
    memory_.clear();
    for (PointerArgument& pointer : pointers_) {
        std::memcpy(&pointer.value, addresses_[pointer.position], sizeof pointer.value);
        memory_.push_back(allocation_at(pointer.value));
    }
}

int KeptLaunch::run() const {
    for (std::size_t i = 0; i < pointers_.size(); ++i) {
        if (memory_[i] == 0 || allocation_at(pointers_[i].value) == memory_[i]) continue;
        ReportDetails details;
        details.kind = ReportKind::memory_error;
        details.kernel = request_.text;
        details.line = request_.line;
        const std::string message = "a graph launches it with a stale pointer: the memory of argument " + std::to_string(pointers_[i].position + 1) + " was freed since the capture";
        details.message = message.c_str();
        report_outside(details);
        set_sticky_error(error_illegal_address);
        return error_illegal_address;
    }
    return launch(request_);
}

void KeptLaunch::get(cudaKernelNodeParams& params) {
    params = {reinterpret_cast<void*>(request_.invoke), dim3(request_.grid.x, request_.grid.y, request_.grid.z), dim3(request_.block.x, request_.block.y, request_.block.z),
              static_cast<unsigned>(request_.dynamic_shared_bytes), addresses_.data(), nullptr};
}

cudaError_t KeptLaunch::set(const cudaKernelNodeParams& params) {
    if (params.func != reinterpret_cast<void*>(request_.invoke)) {
        library_lacks("cudaGraphKernelNodeSetParams", "another kernel for a node of a CUDA graph", 0);
        return fail(cudaErrorNotSupported);
    }
    if (params.kernelParams == nullptr) return fail(cudaErrorInvalidValue);
    for (std::uint32_t i = 0; i < request_.parameter_count; ++i)
        if (params.kernelParams[i] != addresses_[i]) std::memcpy(addresses_[i], params.kernelParams[i], bytes_[i]);
    request_.grid = {params.gridDim.x, params.gridDim.y, params.gridDim.z};
    request_.block = {params.blockDim.x, params.blockDim.y, params.blockDim.z};
    request_.dynamic_shared_bytes = params.sharedMemBytes;
    find_memory();
    return static_cast<cudaError_t>(check_launch(request_));
}

void add_node(Capture& capture, cudaGraphNodeType type, const Work& work) {
    capture.graph->nodes.push_back(std::unique_ptr<hostcuda_graph_node>(new hostcuda_graph_node{type, work, nullptr}));
}
void add_launch(Capture& capture, const LaunchRequest& request) {
    capture.graph->nodes.push_back(std::unique_ptr<hostcuda_graph_node>(new hostcuda_graph_node{cudaGraphNodeTypeKernel, nullptr, std::make_unique<KeptLaunch>(request)}));
}

namespace {
cudaError_t run_all(const hostcuda_graph_exec& exec) {
    for (const auto& node : exec.nodes)
        if (const int error = node->run(); error != 0) return launch_status(error);
    return status();
}
void fill(hostcuda_graph_exec& exec, const hostcuda_graph& graph) {
    exec.nodes.clear(), exec.sources.clear();
    for (const auto& node : graph.nodes) exec.nodes.push_back(node->copy()), exec.sources.push_back(node.get());
}
}  // namespace

}  // namespace hostcuda

using hostcuda::fail;
using hostcuda::status;

std::unique_ptr<hostcuda_graph_node> hostcuda_graph_node::copy() const {
    return std::unique_ptr<hostcuda_graph_node>(new hostcuda_graph_node{type, work, kernel == nullptr ? nullptr : std::make_unique<hostcuda::KeptLaunch>(*kernel)});
}

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) { *graph = new hostcuda_graph; return status(); }
cudaError_t cudaGraphClone(cudaGraph_t* copy, cudaGraph_t graph) {
    *copy = new hostcuda_graph;
    for (const auto& node : graph->nodes) (*copy)->nodes.push_back(node->copy());
    return status();
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { delete graph; return status(); }
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
    if (graph == nullptr || count == nullptr) return fail(cudaErrorInvalidValue);
    const std::size_t held = graph->nodes.size(), room = *count;
    if (nodes != nullptr)
        for (std::size_t i = 0; i < room; ++i) nodes[i] = i < held ? graph->nodes[i].get() : nullptr;
    *count = nodes == nullptr || room > held ? held : room;
    return status();
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) { *type = node->type; return status(); }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
    if (graph == nullptr) return fail(cudaErrorInvalidValue);
    *exec = new hostcuda_graph_exec;
    hostcuda::fill(**exec, *graph);
    return status();
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { delete exec; return status(); }
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return status(); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    if (exec == nullptr) return fail(cudaErrorInvalidValue);
    if (hostcuda::is_capturing(stream)) {  // a child, as it is now
        auto child = std::make_shared<hostcuda_graph_exec>();
        for (const auto& node : exec->nodes) child->nodes.push_back(node->copy());
        return *hostcuda::captured(stream, cudaGraphNodeTypeGraph, [child] { return static_cast<int>(hostcuda::run_all(*child)); });
    }
    return hostcuda::run_all(*exec);
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info) {
    const auto refuse = [&](cudaGraphExecUpdateResult result, cudaGraphNode_t node) {
        if (info != nullptr) *info = {result, node, nullptr};
        return fail(cudaErrorGraphExecUpdateFailure);
    };
    if (exec == nullptr || graph == nullptr) return fail(cudaErrorInvalidValue);
    if (exec->nodes.size() != graph->nodes.size()) return refuse(cudaGraphExecUpdateErrorTopologyChanged, nullptr);
    for (std::size_t i = 0; i < graph->nodes.size(); ++i) {
        const hostcuda_graph_node& now = *exec->nodes[i];
        const hostcuda_graph_node& then = *graph->nodes[i];
        if (now.type != then.type) return refuse(cudaGraphExecUpdateErrorNodeTypeChanged, graph->nodes[i].get());
        if (now.kernel != nullptr && (then.kernel == nullptr || !now.kernel->same_kernel(*then.kernel))) return refuse(cudaGraphExecUpdateErrorFunctionChanged, graph->nodes[i].get());
    }
    hostcuda::fill(*exec, *graph);
    if (info != nullptr) *info = {cudaGraphExecUpdateSuccess, nullptr, nullptr};
    return status();
}
cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams* params) {
    if (node == nullptr || node->kernel == nullptr) return fail(cudaErrorInvalidValue);
    node->kernel->get(*params);
    return status();
}
cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const cudaKernelNodeParams* params) {
    if (node == nullptr || node->kernel == nullptr) return fail(cudaErrorInvalidValue);
    return node->kernel->set(*params);
}
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, const cudaKernelNodeParams* params) {
    if (exec == nullptr) return fail(cudaErrorInvalidValue);
    for (std::size_t i = 0; i < exec->sources.size(); ++i)
        if (exec->sources[i] == node && exec->nodes[i]->kernel != nullptr) return exec->nodes[i]->kernel->set(*params);
    return fail(cudaErrorInvalidValue);
}
