// CUDA graphs of torch's operators. An operator runs once while it is captured, for the shapes of its results, on memory that is kept for the graph; what
// it wrote to other memory is undone. Memory of the pool is zero during a capture, so that indices are valid, and poison after it, so that results that no
// replay has made are seen.
#include "graph.h"

#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "hostcuda/capture.h"
#include "hostcuda/interface.h"
#include "hostcuda/torch_stream.h"

namespace hostcuda::bridge {

namespace {

std::recursive_mutex mutex;

// Memory of one or several graphs, which outlives the tensors that were made in it.
struct Pool {
    std::unordered_map<void*, std::size_t> bytes;
    std::unordered_set<void*> returned;  // by torch; freed with the pool
    ~Pool();
};
std::unordered_map<void*, Pool*>& pool_of() {
    static auto* map = new std::unordered_map<void*, Pool*>();
    return *map;
}
Pool::~Pool() {
    std::lock_guard<std::recursive_mutex> lock(mutex);
    for (const auto& entry : bytes) pool_of().erase(entry.first);
    for (void* each : returned) c10::GetCPUAllocator()->raw_deleter()(each);
}

struct Graph {
    cudaGraphExec_t exec = nullptr;
    std::shared_ptr<Pool> pool;
};
std::map<std::int64_t, Graph>& graphs() {
    static auto* map = new std::map<std::int64_t, Graph>();
    return *map;
}
std::map<std::int64_t, std::weak_ptr<Pool>>& pools() {
    static auto* map = new std::map<std::int64_t, std::weak_ptr<Pool>>();
    return *map;
}
std::map<std::int64_t, Graph>& under_way() {  // by stream
    static auto* map = new std::map<std::int64_t, Graph>();
    return *map;
}
// The pool of the capture that this thread's work belongs to; of those under way there is nearly always one.
Pool* current_pool() {
    if (captures.load() == 0 || !is_capturing(torch_stream()) || under_way().empty()) return nullptr;
    const auto own = under_way().find(reinterpret_cast<std::int64_t>(torch_stream()));
    return (own == under_way().end() ? under_way().begin() : own)->second.pool.get();
}
thread_local int running = 0;  // operators that are captured: what they free themselves is free

void check(cudaError_t error) {
    if (error != cudaSuccess) cudaGetLastError();
    TORCH_CHECK(error == cudaSuccess, "CUDA error: ", cudaGetErrorString(error));
}
cudaStream_t handle(std::int64_t stream) { return reinterpret_cast<cudaStream_t>(stream); }

std::string full_name(const c10::OperatorHandle& op) {
    const c10::OperatorName& name = op.operator_name();
    return name.name + (name.overload_name.empty() ? "" : "." + name.overload_name);
}

// What waits for the device, because the host needs a value: no capture allows it.
bool asks_host(const c10::OperatorHandle& op) {
    static const std::unordered_set<std::string> names = {
        "aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::nonzero_static", "aten::masked_select", "aten::_unique2", "aten::unique_dim",
        "aten::unique_consecutive", "aten::unique_dim_consecutive", "aten::equal", "aten::is_nonzero", "aten::repeat_interleave.Tensor", "aten::_assert_async"};
    return names.count(full_name(op)) != 0;
}

// A tensor of a captured call. Memory of the pool lives as long as the graph; of other memory it is the solution's affair.
class HeldTensor {
public:
    explicit HeldTensor(const at::Tensor& t) : plain_(t) {
        if (!t.defined() || !t.has_storage() || t.unsafeGetTensorImpl()->is_wrapped_number()) return;
        const c10::Storage& storage = t.storage();
        std::lock_guard<std::recursive_mutex> lock(mutex);
        if (pool_of().count(const_cast<void*>(storage.data())) != 0 || storage.nbytes() == 0) {
            plain_ = alias(t, c10::DeviceType::CPU);
            return;
        }
        weak_ = storage.getWeakStorageImpl();
        meta_ = at::Tensor(c10::make_intrusive<c10::TensorImpl>(c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0, c10::DataPtr(), nullptr, false)),
                                                                c10::DispatchKeySet(c10::DispatchKey::CPU), t.dtype()));
        meta_.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
        if (t.is_conj()) meta_.unsafeGetTensorImpl()->_set_conj(true);
        if (t.is_neg()) meta_.unsafeGetTensorImpl()->_set_neg(true);
        plain_ = at::Tensor();
    }
    // False if its memory was freed.
    bool get(at::Tensor& out) const {
        if (!weak_.has_value()) return out = plain_, true;
        auto storage = weak_->lock();
        if (storage == nullptr) return false;
        auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::CPU), meta_.dtype());
        impl->set_sizes_and_strides(meta_.sizes(), meta_.strides(), meta_.storage_offset());
        if (meta_.is_conj()) impl->_set_conj(true);
        if (meta_.is_neg()) impl->_set_neg(true);
        return out = at::Tensor(std::move(impl)), true;
    }

private:
    at::Tensor plain_, meta_;
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> weak_;
};

std::vector<at::Tensor> tensors_in(const c10::IValue& value) {
    std::vector<at::Tensor> found;
    if (value.isTensor()) found.push_back(value.toTensor());
    else if (value.isTensorList()) found = value.toTensorVector();
    else if (value.isOptionalTensorList()) {
        for (const std::optional<at::Tensor>& t : value.toOptionalTensorVector()) found.push_back(t.value_or(at::Tensor()));
    }
    return found;
}

}  // namespace

class CapturedOperator {
public:
    CapturedOperator(const c10::OperatorHandle& op, const c10::Stack& stack, std::size_t begin, bool to_device) : op_(op), to_device_(to_device) {
        const auto& arguments = op.schema().arguments();
        for (std::size_t i = 0; i < arguments.size(); ++i) {
            const c10::IValue& value = stack[begin + i];
            const std::vector<at::Tensor> tensors = tensors_in(value);
            Argument held{value.isTensor() || value.isTensorList() || value.isOptionalTensorList() ? c10::IValue() : value, kind_of(value), {}};
            const bool written = arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite();
            for (const at::Tensor& t : tensors) {
                held.tensors.emplace_back(t);
                if (t.defined() && t.has_storage()) before_.push_back(t);
                if (written && t.defined()) written_.emplace_back(t, t.clone());
            }
            arguments_.push_back(std::move(held));
        }
        ++running;
    }
    ~CapturedOperator() { leave(); }
    CapturedOperator(const CapturedOperator&) = delete;
    CapturedOperator& operator=(const CapturedOperator&) = delete;

    bool finish(const c10::Stack& stack) {
        for (auto& [tensor, content] : written_)
            if (tensor.sizes() == content.sizes()) tensor.copy_(content);
        bool changes = !written_.empty();
        written_.clear();
        const std::size_t returned = op_.schema().returns().size();
        for (std::size_t i = stack.size() - returned; i < stack.size(); ++i)
            for (const at::Tensor& t : tensors_in(stack[i])) {
                const bool fresh = t.defined() && t.has_storage() && !shares(t);
                results_.push_back(fresh ? alias(t, c10::DeviceType::CPU) : at::Tensor());
                changes |= fresh;
            }
        before_.clear();
        leave();
        return changes;  // a view alone is nothing to do again
    }

    int run() const {
        c10::Stack stack;
        for (const Argument& argument : arguments_)
            if (!push(argument, stack)) return stale();
        {
            const OnDevice memory(to_device_);
            at::AutoDispatchBelowADInplaceOrView below;
            op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
        }
        std::size_t next = 0;
        for (const c10::IValue& value : stack)
            for (const at::Tensor& t : tensors_in(value)) {
                const at::Tensor& to = results_[next++];
                if (to.defined()) alias(to, c10::DeviceType::CPU).copy_(t);
            }
        return 0;
    }

private:
    enum class Kind { plain, tensor, list, optional_list };
    struct Argument {
        c10::IValue plain;
        Kind kind;
        std::vector<HeldTensor> tensors;
    };
    static Kind kind_of(const c10::IValue& value) {
        return value.isTensor() ? Kind::tensor : value.isTensorList() ? Kind::list : value.isOptionalTensorList() ? Kind::optional_list : Kind::plain;
    }

    static bool push(const Argument& argument, c10::Stack& stack) {
        std::vector<at::Tensor> tensors(argument.tensors.size());
        for (std::size_t i = 0; i < tensors.size(); ++i)
            if (!argument.tensors[i].get(tensors[i])) return false;
        if (argument.kind == Kind::plain) stack.push_back(argument.plain);
        else if (argument.kind == Kind::tensor) stack.emplace_back(tensors[0]);
        else if (argument.kind == Kind::list) stack.emplace_back(c10::List<at::Tensor>(tensors));
        else {
            c10::List<std::optional<at::Tensor>> list;
            for (const at::Tensor& t : tensors) list.push_back(t.defined() ? std::optional<at::Tensor>(t) : std::nullopt);
            stack.emplace_back(std::move(list));
        }
        return true;
    }

    int stale() const {
        library_reports_stale(op_.schema().name().c_str());
        return error_illegal_address;
    }
    bool shares(const at::Tensor& t) const {
        for (const at::Tensor& each : before_)
            if (each.storage().unsafeGetStorageImpl() == t.storage().unsafeGetStorageImpl()) return true;
        return false;
    }
    void leave() {
        if (!left_) --running;
        left_ = true;
    }

    c10::OperatorHandle op_;
    bool to_device_, left_ = false;
    std::vector<Argument> arguments_;
    std::vector<at::Tensor> before_, results_;
    std::vector<std::pair<at::Tensor, at::Tensor>> written_;  // and their content from before
};

std::shared_ptr<CapturedOperator> capture_operator(const c10::OperatorHandle& op, const c10::Stack& stack, std::size_t begin, bool to_device, bool waits) {
    if (captures.load() == 0 || !is_capturing(torch_stream())) return nullptr;
    waits |= !to_device || asks_host(op);
    if (op.schema().name() == "aten::index")  // by a mask: how many elements are there?
        for (const at::Tensor& t : tensors_in(stack[begin + 1])) waits |= t.defined() && (t.scalar_type() == at::kBool || t.scalar_type() == at::kByte);
    if (waits) check(outside_of_capture(torch_stream()));
    return std::make_shared<CapturedOperator>(op, stack, begin, to_device);
}

void finish_capture(const std::shared_ptr<CapturedOperator>& captured_operator, const c10::Stack& stack) {
    if (!captured_operator->finish(stack)) return;
    const auto taken = captured(torch_stream(), cudaGraphNodeTypeKernel, [captured_operator] { return captured_operator->run(); });
    check(taken.value_or(cudaSuccess));
}

bool pool_takes(void* memory, std::size_t bytes) {
    if (captures.load() == 0 || memory == nullptr) return false;
    std::lock_guard<std::recursive_mutex> lock(mutex);
    Pool* pool = current_pool();
    if (pool == nullptr) return false;
    std::memset(memory, 0, bytes);
    pool->bytes[memory] = bytes;
    pool_of()[memory] = pool;
    return true;
}

bool pool_keeps(void* memory) {
    std::lock_guard<std::recursive_mutex> lock(mutex);
    const auto found = pool_of().find(memory);
    if (found == pool_of().end()) return false;
    if (running > 0 && current_pool() == found->second) {
        found->second->bytes.erase(memory);
        pool_of().erase(found);
        return false;
    }
    found->second->returned.insert(memory);
    return true;
}

std::int64_t graph_pool() {
    static std::atomic<std::int64_t> number{1};
    return number++;
}

void graph_begin(std::int64_t stream, std::int64_t mode, std::int64_t pool) {
    check(cudaStreamBeginCapture(handle(stream), static_cast<cudaStreamCaptureMode>(mode)));
    std::lock_guard<std::recursive_mutex> lock(mutex);
    std::shared_ptr<Pool> shared = pools()[pool].lock();
    if (shared == nullptr) pools()[pool] = shared = std::make_shared<Pool>();
    under_way()[stream].pool = shared;
}

std::int64_t graph_end(std::int64_t stream) {
    static std::int64_t number = 0;
    cudaGraph_t graph = nullptr;
    const cudaError_t error = cudaStreamEndCapture(handle(stream), &graph);
    std::lock_guard<std::recursive_mutex> lock(mutex);
    Graph made = under_way()[stream];
    under_way().erase(stream);
    for (const auto& [memory, bytes] : made.pool->bytes) hostcuda_poison(memory, bytes);
    check(error);
    check(cudaGraphInstantiate(&made.exec, graph));
    cudaGraphDestroy(graph);
    graphs()[++number] = made;
    return number;
}

void graph_replay(std::int64_t graph, std::int64_t stream) {
    check(cudaGraphLaunch(graphs().at(graph).exec, handle(stream)));
}

void graph_free(std::int64_t graph) {
    const auto found = graphs().find(graph);
    if (found == graphs().end()) return;
    const Graph freed = found->second;
    graphs().erase(found);
    cudaGraphExecDestroy(freed.exec);
}

}  // namespace hostcuda::bridge
