// Tensors of device "cuda" on a machine without one. Such a tensor has the CUDA dispatch key and CPU memory; an operator called on it is
// carried out by its CPU kernel on aliases of the same storage, and its results become "cuda" tensors again. So every tensor keeps its
// device, in Python and in C++, and mixing devices fails as it does on a GPU.
#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "device.h"
#include "graph.h"
#include "hostcuda/interface.h"
#include "hostcuda/torch_stream.h"

namespace hostcuda::bridge {

namespace {

using c10::Device;
using c10::DeviceType;

thread_local int device_depth = 0;  // while above 0, new storages are device memory
thread_local int pinned_depth = 0;  // and pinned memory of the host, which kernels may use
const Device the_device(DeviceType::CUDA, 0);

struct PinnedMemory {
    explicit PinnedMemory(bool on) : on_(on) { pinned_depth += on_; }
    ~PinnedMemory() { pinned_depth -= on_; }
    bool on_;
};

// The device of a tensor is kept beside its dispatch keys; torch changes the two together only in its own factories.
struct Relabel : c10::TensorImpl {
    static void to(c10::TensorImpl& impl, Device device) {
        impl._change_backend_component_keys(device);
        impl.*(&Relabel::device_opt_) = device;
    }
};

bool on_device(const at::Tensor& t) { return t.defined() && t.is_cuda(); }

}  // namespace

OnDevice::OnDevice(bool on) : on_(on) { device_depth += on_; }
OnDevice::~OnDevice() { device_depth -= on_; }

at::Tensor alias(const at::Tensor& t, DeviceType type) {
    const c10::InferenceMode mode(t.is_inference());  // what is a view of it is so too, whatever the mode it is made in
    auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(t.storage()), c10::DispatchKeySet(c10::DispatchKey::CPU), t.dtype());
    impl->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
    if (t.is_conj()) impl->_set_conj(true);
    if (t.is_neg()) impl->_set_neg(true);
    if (t.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
    if (type == DeviceType::CUDA) Relabel::to(*impl, the_device);
    return at::Tensor(std::move(impl));
}

namespace {

struct Aliases {
    struct Pair {
        at::Tensor original, alias;
    };
    c10::SmallVector<Pair, 8> pairs;
    const at::Tensor* mixed = nullptr;
    at::Tensor cpu;

    at::Tensor take(const at::Tensor& t) {
        if (!t.defined()) return t;
        if (!t.is_cuda()) {
            if (t.dim() > 0) cpu = t;
            return t;
        }
        for (const Pair& pair : pairs)
            if (pair.original.is_same(t)) return pair.alias;
        pairs.push_back({t, alias(t, DeviceType::CPU)});
        return pairs.back().alias;
    }
    // What an operator changed of an argument itself: sizes after resize_, storage after set_.
    void copy_back() {
        for (Pair& pair : pairs) {
            c10::TensorImpl* to = pair.original.unsafeGetTensorImpl();
            c10::TensorImpl* from = pair.alias.unsafeGetTensorImpl();
            if (to->unsafe_storage().unsafeGetStorageImpl() != from->unsafe_storage().unsafeGetStorageImpl()) {
                to->set_storage_keep_dtype(c10::Storage(from->unsafe_storage()));
                Relabel::to(*to, the_device);
            }
            if (to->sizes() != from->sizes() || to->strides() != from->strides() || to->storage_offset() != from->storage_offset())
                to->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
        }
    }
    at::Tensor give(const at::Tensor& t, bool to_device) const {
        if (!t.defined()) return t;
        for (const Pair& pair : pairs)
            if (pair.alias.is_same(t)) return pair.original;
        if (!to_device || t.is_cuda() || !t.device().is_cpu()) return t;
        if (t.layout() != c10::kStrided) return t;
        if (t.use_count() > 2 || t.requires_grad()) return alias(t, DeviceType::CUDA);
        Relabel::to(*t.unsafeGetTensorImpl(), the_device);
        return t;
    }
};

// Operators that take tensors of both devices on a GPU too.
bool mixes_devices(const c10::OperatorHandle& op) {
    static const std::unordered_set<std::string> names = {
        "aten::copy_", "aten::_to_copy", "aten::index.Tensor", "aten::index_put_", "aten::_index_put_impl_", "aten::index_put",
        "aten::_unsafe_index.Tensor", "aten::set_.source_Storage", "aten::set_.source_Storage_storage_offset", "aten::set_.source_Tensor",
        "aten::_foreach_copy_", "aten::_copy_from", "aten::_copy_from_and_resize", "aten::tensor_split.tensor_indices_or_sections",
        "aten::_pack_padded_sequence", "aten::_embedding_bag", "aten::repeat_interleave.Tensor", "aten::copy", "aten::multinomial"};
    return names.count(op.schema().operator_name().name + (op.schema().operator_name().overload_name.empty() ? "" : "." + op.schema().operator_name().overload_name)) != 0;
}

bool is_pinned(const at::Tensor& t, std::optional<Device>);

std::string namespace_of(const std::string& name) { return name.substr(0, name.find("::")); }

// Namespaces of operators that were there before any solution, and of torch's domain libraries, which have kernels for a GPU where they are built for one.
std::unordered_set<std::string>& of_libraries() {
    static auto* set = new std::unordered_set<std::string>{"torchao", "torchaudio", "torchcodec", "torchvision"};
    return *set;
}

// An operator of a solution's own runs here only where it is registered for the device: with kernels for the CPU alone, or none, it would fail on a GPU.
// What torch has for a GPU only (cuDNN's operators, fused attention by name): nothing is known of who asks for that.
void needs_kernel(const c10::OperatorHandle& op) {
    using Key = c10::DispatchKey;
    const std::string& name = op.schema().name();
    if (of_libraries().count(namespace_of(name)) == 0) {
        TORCH_CHECK_NOT_IMPLEMENTED(
            false, "Could not run '", op.schema().operator_name(), "' with arguments from the 'CUDA' backend. This could be because the operator doesn't exist for this backend, ",
            "or was omitted during the selective/custom build process (if using custom build).", op.hasKernelForDispatchKey(Key::CPU) ? " It is registered for the CPU." : "");
    }
    for (const Key key : {Key::CPU, Key::CompositeExplicitAutograd, Key::CompositeExplicitAutogradNonFunctional, Key::CompositeImplicitAutograd})
        if (op.hasKernelForDispatchKey(key)) return;
    if (name.rfind("aten::", 0) != 0) return;  // torch refuses it in its words
    const std::string lacking = "an operator that torch has for a GPU only (" + name + ")";
    library_lacks("", lacking.c_str(), 0);
    TORCH_CHECK_NOT_IMPLEMENTED(false, "not emulated on the host device: ", lacking);
}

bool holds_tensors(const c10::List<c10::IValue>& list) {
    for (std::size_t k = 0; k < list.size(); ++k)
        if (list.get(k).isTensor()) return true;
    return false;
}

void on_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet, c10::Stack* stack) {
    needs_kernel(op);
    const c10::FunctionSchema& schema = op.schema();
    const std::size_t count = schema.arguments().size();
    const std::size_t begin = stack->size() - count;
    Aliases aliases;
    std::optional<Device> asked;
    for (std::size_t i = 0; i < count; ++i) {
        c10::IValue& value = (*stack)[begin + i];
        if (value.isTensor()) {
            const at::Tensor& t = value.toTensor();
            if (on_device(t)) value = aliases.take(t);
            else aliases.take(t);
        } else if (value.isTensorList()) {
            c10::List<at::Tensor> list;
            for (const at::Tensor& t : value.toTensorVector()) list.push_back(aliases.take(t));
            value = std::move(list);
        } else if (value.isOptionalTensorList()) {
            c10::List<std::optional<at::Tensor>> list;
            for (const std::optional<at::Tensor>& t : value.toOptionalTensorVector())
                list.push_back(t.has_value() ? std::optional<at::Tensor>(aliases.take(*t)) : std::nullopt);
            value = std::move(list);
        } else if (value.isList()) {  // a script's list of tensors has a type that says more of them
            c10::List<c10::IValue> list = value.toList();
            if (!holds_tensors(list)) continue;
            list = list.copy();
            for (std::size_t k = 0; k < list.size(); ++k) {
                const c10::IValue held = list.get(k);
                if (held.isTensor()) list.set(k, aliases.take(held.toTensor()));
            }
            value = std::move(list);
        } else if (value.isDevice()) {
            asked = value.toDevice();
            TORCH_CHECK(!asked->is_cuda() || asked->index() <= 0, "CUDA error: invalid device ordinal");
            if (asked->is_cuda()) value = Device(DeviceType::CPU);
        } else if (value.isBool() && schema.arguments()[i].name() == "pin_memory") {
            TORCH_CHECK(!value.toBool() || (asked.has_value() && !asked->is_cuda()), "Only dense CPU tensors can be pinned");
        } else if (value.isGenerator() && value.toGenerator().device().is_cuda()) {
            value = c10::IValue();
        }
    }
    if (aliases.cpu.defined() && !aliases.pairs.empty() && !mixes_devices(op))
        TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! (when checking arguments of ", schema.name(), ")");
    const bool to_device = asked.has_value() ? asked->is_cuda() : true;
    const std::shared_ptr<CapturedOperator> captured = capture_operator(op, *stack, begin, to_device, aliases.cpu.defined() && !is_pinned(aliases.cpu, std::nullopt));
    {
        OnDevice memory(to_device);
        at::AutoDispatchBelowADInplaceOrView below;
        op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
    }
    if (captured != nullptr) finish_capture(captured, *stack);
    aliases.copy_back();
    const std::size_t returned = schema.returns().size();
    for (std::size_t i = stack->size() - returned; i < stack->size(); ++i) {
        c10::IValue& value = (*stack)[i];
        if (value.isTensor()) {
            at::Tensor t = std::move(value).toTensor();
            value = c10::IValue();
            value = aliases.give(t, to_device);
        } else if (value.isTensorList()) {
            c10::List<at::Tensor> list;
            for (const at::Tensor& t : value.toTensorVector()) list.push_back(aliases.give(t, to_device));
            value = std::move(list);
        }
    }
}

// scaled_dot_product_attention: the plain formula; the fused ones exist for real GPUs only.
void choose_math(const c10::OperatorHandle& op, c10::DispatchKeySet, c10::Stack* stack) {
    torch::jit::drop(*stack, op.schema().arguments().size());
    stack->emplace_back(std::int64_t{0});
}

// The cells of recurrent layers that torch fuses on a GPU and has no CPU kernel for.
using Biased = const std::optional<at::Tensor>&;
at::Tensor biased(const at::Tensor& gates, Biased bias) { return bias.has_value() && bias->defined() ? gates + *bias : gates; }
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input, const at::Tensor& hidden, const at::Tensor& cx, Biased input_bias, Biased hidden_bias) {
    const at::Tensor gates = biased(input, input_bias) + biased(hidden, hidden_bias);
    const auto parts = gates.chunk(4, 1);
    at::Tensor cy = parts[1].sigmoid() * cx + parts[0].sigmoid() * parts[2].tanh();
    return {parts[3].sigmoid() * cy.tanh(), cy, gates};
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(Biased grad_hy, Biased grad_cy, const at::Tensor& cx, const at::Tensor& cy, const at::Tensor& gates, bool has_bias) {
    const auto parts = gates.chunk(4, 1);
    const at::Tensor in = parts[0].sigmoid(), forget = parts[1].sigmoid(), cell = parts[2].tanh(), out = parts[3].sigmoid(), state = cy.tanh();
    const at::Tensor hy = grad_hy.has_value() && grad_hy->defined() ? *grad_hy : at::zeros_like(cx);
    at::Tensor c = hy * out * (1 - state * state);
    if (grad_cy.has_value() && grad_cy->defined()) c = c + *grad_cy;
    at::Tensor grads = at::cat({c * cell * in * (1 - in), c * cx * forget * (1 - forget), c * in * (1 - cell * cell), hy * state * out * (1 - out)}, 1);
    return {grads, c * forget, has_bias ? grads.sum(0) : at::Tensor()};
}
std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input, const at::Tensor& hidden, const at::Tensor& hx, Biased input_bias, Biased hidden_bias) {
    const auto in = biased(input, input_bias).chunk(3, 1);
    const auto hid = biased(hidden, hidden_bias).chunk(3, 1);
    const at::Tensor reset = (in[0] + hid[0]).sigmoid(), update = (in[1] + hid[1]).sigmoid();
    const at::Tensor fresh = (in[2] + reset * hid[2]).tanh();
    return {(hx - fresh) * update + fresh, at::cat({reset, update, fresh, hx, hid[2]}, 1)};
}
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias) {
    const auto parts = workspace.chunk(5, 1);
    const at::Tensor &reset = parts[0], &update = parts[1], &fresh = parts[2], &hx = parts[3], &hidden = parts[4];
    const at::Tensor grad_fresh = grad_hy * (1 - update) * (1 - fresh * fresh);
    const at::Tensor grad_reset = grad_fresh * hidden * reset * (1 - reset), grad_update = grad_hy * (hx - fresh) * update * (1 - update);
    const at::Tensor in = at::cat({grad_reset, grad_update, grad_fresh}, 1), hid = at::cat({grad_reset, grad_update, grad_fresh * reset}, 1);
    return {in, hid, grad_hy * update, has_bias ? in.sum(0) : at::Tensor(), has_bias ? hid.sum(0) : at::Tensor()};
}

// Products whose result is wider than their factors: they are summed in the wider type.
at::Tensor wide_mm(const at::Tensor& a, const at::Tensor& b, at::ScalarType wide) { return at::mm(a.to(wide), b.to(wide)); }
at::Tensor wide_bmm(const at::Tensor& a, const at::Tensor& b, at::ScalarType wide) { return at::bmm(a.to(wide), b.to(wide)); }
at::Tensor wide_addmm(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, at::ScalarType wide, const at::Scalar& beta, const at::Scalar& alpha) {
    return at::addmm(c.to(wide), a.to(wide), b.to(wide), beta, alpha);
}
at::Tensor wide_baddbmm(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, at::ScalarType wide, const at::Scalar& beta, const at::Scalar& alpha) {
    return at::baddbmm(c.to(wide), a.to(wide), b.to(wide), beta, alpha);
}

void do_nothing(const c10::OperatorHandle& op, c10::DispatchKeySet, c10::Stack* stack) {
    torch::jit::drop(*stack, op.schema().arguments().size());
}

c10::Stream stream_of(cudaStream_t handle) { return c10::Stream(c10::Stream::UNSAFE, the_device, reinterpret_cast<c10::StreamId>(handle)); }

// Autograd's threads take over the stream of the forward pass by it.
struct Guard final : c10::impl::DeviceGuardImplInterface {
    DeviceType type() const override { return DeviceType::CUDA; }
    Device exchangeDevice(Device) const override { return the_device; }
    Device getDevice() const override { return the_device; }
    void setDevice(Device) const override {}
    void uncheckedSetDevice(Device) const noexcept override {}
    c10::Stream getStream(Device) const noexcept override { return stream_of(torch_stream()); }
    c10::Stream getDefaultStream(Device) const override { return c10::Stream(c10::Stream::DEFAULT, the_device); }
    virtual c10::Stream getNewStream(Device, int) const { return c10::Stream(c10::Stream::DEFAULT, the_device); }
    c10::Stream getStreamFromGlobalPool(Device, bool) const override { return c10::Stream(c10::Stream::DEFAULT, the_device); }
    c10::Stream exchangeStream(c10::Stream s) const noexcept override { return stream_of(std::exchange(torch_stream(), reinterpret_cast<cudaStream_t>(s.id()))); }
    c10::DeviceIndex deviceCount() const noexcept override { return 1; }
    bool queryStream(const c10::Stream&) const override { return true; }
    void synchronizeStream(const c10::Stream&) const override {}
    // these, and getNewStream, are younger than the oldest torch that is supported
    virtual void synchronizeDevice(c10::DeviceIndex) const {}
    void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
    void block(void*, const c10::Stream&) const override {}
    bool queryEvent(void*) const override { return true; }
    virtual void synchronizeEvent(void*) const {}
    void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
    void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};

// ---- memory that checked mode knows: red zones on both sides, poison inside
constexpr std::size_t red_zone = 512;

std::mutex owned_mutex;
std::unordered_set<void*>& owned() {
    static auto* set = new std::unordered_set<void*>();
    return *set;
}
std::unordered_set<const void*>& pinned() {
    static auto* set = new std::unordered_set<const void*>();
    return *set;
}
std::unordered_map<const void*, std::size_t>& on_device() {
    static auto* blocks = new std::unordered_map<const void*, std::size_t>();
    return *blocks;
}
std::size_t device_bytes = 0;

void* noted(void* user, std::size_t bytes) {
    if ((pinned_depth > 0 || device_depth > 0) && user != nullptr) {
        std::lock_guard<std::mutex> lock(owned_mutex);
        if (pinned_depth > 0) pinned().insert(user);
        if (device_depth > 0) {
            on_device()[user] = bytes;
            device_bytes += bytes;
        }
    }
    return user;
}

// Torch may hand over memory of the time before checked mode, and frees through this function whatever the allocator gave.
void free_any(void* user) {
    if (user == nullptr || pool_keeps(user)) return;
    bool ours;
    {
        std::lock_guard<std::mutex> lock(owned_mutex);
        ours = owned().erase(user) != 0;
        pinned().erase(user);
        if (const auto block = on_device().find(user); block != on_device().end()) {
            device_bytes -= block->second;
            on_device().erase(block);
        }
    }
    if (!ours) return c10::free_cpu(user);
    region_remove(user);
    std::free(static_cast<char*>(user) - red_zone);
}

struct TrackingAllocator final : c10::Allocator {
    c10::DataPtr allocate(std::size_t bytes) override {
        if (!hostcuda_checked() || bytes == 0) {
            c10::DataPtr plain_memory = plain->allocate(bytes);
            void* address = noted(plain_memory.release_context(), bytes);
            if (device_depth > 0) pool_takes(address, bytes);
            return {address, address, &free_any, Device(DeviceType::CPU)};
        }
        const std::size_t total = (bytes + 2 * red_zone + 255) / 256 * 256;
        void* block = std::aligned_alloc(256, total);
        TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr, "CUDA out of memory. Tried to allocate ", bytes, " bytes");
        char* user = static_cast<char*>(block) + red_zone;
        const bool device = device_depth > 0;
        if (device) hostcuda_poison(block, total);
        if (device) pool_takes(user, bytes);
        region_add(user, bytes, device ? RegionKind::device : pinned_depth > 0 ? RegionKind::pinned : RegionKind::host, device, red_zone, nullptr);
        noted(user, bytes);
        {
            std::lock_guard<std::mutex> lock(owned_mutex);
            owned().insert(user);
        }
        return {user, user, &free_any, Device(DeviceType::CPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &free_any; }
    void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
    c10::Allocator* plain = nullptr;
};

// ---- pinned memory: torch asks a driver for it, whatever the device of the tensor
using Type = std::optional<at::ScalarType>;
using Layout = std::optional<at::Layout>;
using Where = std::optional<Device>;
using Pinned = std::optional<bool>;

at::Tensor empty(c10::SymIntArrayRef sizes, Type type, Layout layout, Where device, Pinned pin, std::optional<at::MemoryFormat> format) {
    const PinnedMemory memory(pin.value_or(false));
    return at::native::empty_cpu(C10_AS_INTARRAYREF_SLOW(sizes), type, layout, device, false, format);
}
at::Tensor empty_strided(c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides, Type type, Layout layout, Where device, Pinned pin) {
    const PinnedMemory memory(pin.value_or(false));
    return at::native::empty_strided_cpu(C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides), type, layout, device, false);
}
bool is_pinned(const at::Tensor& t, Where) {
    if (t.is_cuda() || !t.has_storage()) return false;
    std::lock_guard<std::mutex> lock(owned_mutex);
    return pinned().count(t.storage().data()) != 0;
}
at::Tensor pin(const at::Tensor& t, Where) {
    return at::empty_strided(t.sizes(), t.strides(), t.options().pinned_memory(true)).copy_(t);
}
at::Tensor refuse_pinning(const at::Tensor& t, Where) {
    TORCH_CHECK(false, "cannot pin '", t.toString(), "' only dense CPU tensors can be pinned");
}

torch::Library* library = nullptr;

// Torch warns when a kernel is registered over another: that is the purpose here.
struct Quiet : c10::WarningHandler {
    Quiet() : before_(c10::WarningUtils::get_warning_handler()) { c10::WarningUtils::set_warning_handler(this); }
    ~Quiet() override { c10::WarningUtils::set_warning_handler(before_); }
    void process(const c10::Warning&) override {}

private:
    c10::WarningHandler* before_;
};

}  // namespace

bool activated() { return library != nullptr; }

std::size_t allocated_bytes() {
    std::lock_guard<std::mutex> lock(owned_mutex);
    return device_bytes;
}

void activate() {
    if (library != nullptr) return;
    static Guard guard;
    static const c10::impl::DeviceGuardImplRegistrar registrar(DeviceType::CUDA, &guard);
    static TrackingAllocator allocator;
    allocator.plain = c10::GetCPUAllocator();
    c10::SetCPUAllocator(&allocator, 255);
    library = new torch::Library(torch::Library::FRAGMENT, "hostcuda", std::nullopt, __FILE__, __LINE__);
    static auto* fallback = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::CUDA, __FILE__, __LINE__);
    fallback->fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>());
    static auto* aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
    const Quiet quiet;
    auto& dispatcher = c10::Dispatcher::singleton();
    static auto* host = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    host->impl("empty.memory_format", empty);
    host->impl("empty_strided", empty_strided);
    host->impl("is_pinned", is_pinned);
    host->impl("_pin_memory", pin);
    aten->impl("is_pinned", is_pinned);
    aten->impl("_pin_memory", refuse_pinning);
    aten->impl("_thnn_fused_lstm_cell", lstm_cell);
    aten->impl("_thnn_fused_gru_cell", gru_cell);
    aten->impl("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
    aten->impl("_thnn_fused_gru_cell_backward", gru_cell_backward);
    std::unordered_set<std::string> own = {"aten::_thnn_fused_lstm_cell", "aten::_thnn_fused_gru_cell", "aten::_thnn_fused_lstm_cell_backward_impl",
                                           "aten::_thnn_fused_gru_cell_backward", "aten::is_pinned", "aten::_pin_memory"};
    // Torch's own is for any device, and calls the operator that a trace records: with aliases for arguments that would be one of constants.
    own.insert("aten::convolution");
    const auto wide = [&](const char* name, auto* function) {
        if (!dispatcher.findSchema({std::string("aten::") + name, "dtype"}).has_value()) return;  // they are younger than the oldest torch
        aten->impl((std::string(name) + ".dtype").c_str(), function);
        own.insert(std::string("aten::") + name + ".dtype");
    };
    wide("mm", wide_mm);
    wide("bmm", wide_bmm);
    wide("addmm", wide_addmm);
    wide("baddbmm", wide_baddbmm);
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
        of_libraries().insert(namespace_of(name.name));
        if (name.name.rfind("aten::", 0) != 0) continue;
        auto found = dispatcher.findOp(name);
        if (!found.has_value() || !found->hasSchema()) continue;
        const std::string full = name.name + (name.overload_name.empty() ? "" : "." + name.overload_name);
        if (own.count(full) != 0) continue;
        if (name.name == "aten::_fused_sdp_choice") {
            aten->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&choose_math>());
        } else if (name.name == "aten::record_stream") {
            aten->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&do_nothing>());
        } else if (found->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
                   found->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional) ||
                   found->hasKernelForDispatchKey(c10::DispatchKey::CUDA)) {
            aten->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&on_cpu>());
        }
    }
}

at::Tensor as_device(const at::Tensor& t) {
    if (t.is_cuda()) return t;
    TORCH_CHECK(t.device().is_cpu() && t.layout() == c10::kStrided, "only strided CPU tensors can stand for device memory");
    if (hostcuda_checked()) {
        const auto& storage = t.storage();
        region_add(storage.data(), storage.nbytes(), RegionKind::device, false, 0, nullptr);
    }
    return alias(t, DeviceType::CUDA);
}

at::Tensor relabelled(const at::Tensor& t) { return alias(t, DeviceType::CUDA); }

at::Tensor as_host(const at::Tensor& t) { return t.is_cuda() ? alias(t, DeviceType::CPU) : t; }

}  // namespace hostcuda::bridge
