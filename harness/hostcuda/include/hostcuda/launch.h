// What the rewriter puts in place of <<<...>>> and __shared__. A launch evaluates its arguments once; every GPU thread calls the kernel with
// copies of them.
#pragma once
#include <cstdlib>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cuda_runtime_api.h"
#include "hostcuda/device.h"

// The launch's own code is not instrumented: what it reads lies on the host's stack, which is no concern of the kernel's.
#define HOSTCUDA_UNCHECKED __attribute__((no_sanitize("thread", "undefined")))

// What `new` in device code is given: it takes the device's heap.
namespace hostcuda {
struct Heap {};
inline constexpr Heap device_heap{};
}  // namespace hostcuda
inline void* operator new(std::size_t bytes, hostcuda::Heap) { return hostcuda::device_malloc(bytes); }
inline void* operator new[](std::size_t bytes, hostcuda::Heap) { return hostcuda::device_malloc(bytes); }
// The same where host and device may both come by (a macro, a function for both): the heap of who calls.
namespace hostcuda {
// Which of the two versions of a function for both sides is called: a constant is the device's.
constexpr bool on_host() {
    if (std::is_constant_evaluated()) return false;
    return !in_kernel();
}
struct CallersHeap {};
inline constexpr CallersHeap callers_heap{};
}  // namespace hostcuda
inline void* operator new(std::size_t bytes, hostcuda::CallersHeap) { return hostcuda::in_kernel() ? hostcuda::device_malloc(bytes) : ::operator new(bytes); }
inline void* operator new[](std::size_t bytes, hostcuda::CallersHeap) { return hostcuda::in_kernel() ? hostcuda::device_malloc(bytes) : ::operator new[](bytes); }

namespace hostcuda {

// What a kernel begins with. Behind the bound of threads there may be the dimensions of its clusters.
__attribute__((always_inline)) inline void enter(const char* name, const char* parameters, int max_threads, Dim3 cluster = {}) {
    if (__builtin_expect(!launch_known, 0)) kernel_entry(name, parameters, max_threads, cluster);
}

struct Configuration {
    dim3 grid, block;
    std::size_t shared_bytes;
    void* stream;
    Dim3 cluster{0, 0, 0};               // 0: nothing is said of clusters
    Configuration(dim3 grid_, dim3 block_, std::size_t shared_bytes_ = 0, cudaStream_t stream_ = nullptr)
        : grid(grid_), block(block_), shared_bytes(shared_bytes_), stream(stream_) {}
};

template <class T> inline void note_pointer(PointerArgument* list, std::uint32_t& count, std::uint32_t position, const T& value) {
    if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>) {
        using Element = std::remove_cv_t<std::remove_pointer_t<T>>;
        std::uint32_t bytes = 0;
        if constexpr (std::is_object_v<Element>) bytes = sizeof(Element);
        list[count++] = PointerArgument{position, const_cast<const void*>(static_cast<const volatile void*>(value)), bytes};
    }
}

// The type of a kernel's parameter, for an argument that is only a list in braces. F is a function, or what points or refers to one.
template <std::size_t I, class F> struct ParameterOf : ParameterOf<I, std::remove_pointer_t<std::remove_reference_t<F>>> {};
template <std::size_t I, class R, class... P> struct ParameterOf<I, R(P...)> {
    using type = std::decay_t<std::tuple_element_t<I, std::tuple<P...>>>;
};
template <std::size_t I, class F> using Parameter = typename ParameterOf<I, std::remove_cv_t<F>>::type;

template <class Kernel, class Arguments> struct Closure {
    Kernel kernel;
    Arguments arguments;
    HOSTCUDA_UNCHECKED static void invoke(const void* closure) {
        const auto& self = *static_cast<const Closure*>(closure);
        std::apply(self.kernel, self.arguments);
    }
    HOSTCUDA_UNCHECKED static void parameters(void* closure, void** addresses, std::size_t* bytes) {
        std::size_t i = 0;
        std::apply([&](auto&... value) { ((addresses[i] = const_cast<void*>(static_cast<const void*>(&value)), bytes[i++] = sizeof value), ...); },
                   static_cast<Closure*>(closure)->arguments);
    }
};

template <class Kernel, class... A>
inline cudaError_t start(const Configuration& configuration, bool cooperative, const char* text, int line, Kernel kernel, A&&... arguments) {
    using Arguments = std::tuple<std::decay_t<A>...>;
    Closure<Kernel, Arguments> closure{kernel, Arguments(std::forward<A>(arguments)...)};
    PointerArgument pointers[sizeof...(A) + 1];
    std::uint32_t count = 0, position = 0;
    std::apply([&](const auto&... values) { (note_pointer(pointers, count, position++, values), ...); }, closure.arguments);
    const LaunchRequest request{{configuration.grid.x, configuration.grid.y, configuration.grid.z},
                                {configuration.block.x, configuration.block.y, configuration.block.z},
                                configuration.shared_bytes, configuration.stream, &Closure<Kernel, Arguments>::invoke, &closure, sizeof closure,
                                &Closure<Kernel, Arguments>::parameters, sizeof...(A), text, "", line,
                                pointers, count, cooperative, configuration.cluster};
    return launch_status(launch(request));
}

// ---- new and delete in device code: the device's heap
// What stands in front of an array whose elements have destructors (Itanium ABI): room for their number, which is its last word.
template <class T> constexpr std::size_t cookie_bytes = std::is_trivially_destructible_v<T> ? 0 : alignof(T) > sizeof(std::size_t) ? alignof(T) : sizeof(std::size_t);
template <class T> HOSTCUDA_UNCHECKED inline std::size_t count_before(const T* array) { return reinterpret_cast<const std::size_t*>(array)[-1]; }
template <class T> inline void device_delete(T* object) {
    if (object == nullptr) return;
    object->~T();
    device_free(const_cast<std::remove_cv_t<T>*>(object));
}
template <class T> inline void device_delete_array(T* array) {
    if (array == nullptr) return;
    if constexpr (!std::is_trivially_destructible_v<T>)
        for (std::size_t i = count_before(array); i-- > 0;) array[i].~T();
    device_free(reinterpret_cast<char*>(const_cast<std::remove_cv_t<T>*>(array)) - cookie_bytes<T>);
}
template <class T> inline void callers_delete(T* object) {
    if (in_kernel()) device_delete(object);
    else delete object;
}
template <class T> inline void callers_delete_array(T* array) {
    if (in_kernel()) device_delete_array(array);
    else delete[] array;
}
inline void* callers_malloc(std::size_t bytes) { return in_kernel() ? device_malloc(bytes) : std::malloc(bytes); }
inline void callers_free(void* memory) {
    if (in_kernel()) device_free(memory);
    else std::free(memory);
}

// ---- __shared__
template <class T> constexpr std::uint32_t extent_of(unsigned dimension) {
    constexpr std::size_t extents[4] = {std::extent_v<T, 0>, std::extent_v<T, 1>, std::extent_v<T, 2>, std::extent_v<T, 3>};
    return static_cast<std::uint32_t>(extents[dimension]);
}
template <class T, class Tag> struct SharedVariable {
    static_assert(sizeof(T) <= 48 * 1024, "a __shared__ variable is larger than the 48 KiB a kernel may declare");
    static inline constinit VariableInfo info{Tag::hostcuda_name(), sizeof(T), static_cast<std::uint32_t>(sizeof(std::remove_all_extents_t<T>)),
                                              {extent_of<T>(0), extent_of<T>(1), extent_of<T>(2), extent_of<T>(3)}, Tag::hostcuda_line, 0, 0};
    struct Registration { Registration() { register_shared(info); } };
    static inline Registration registration{};
    __attribute__((noinline)) HOSTCUDA_UNCHECKED static T& get() {
        (void)registration;
        if (__builtin_expect(shared_touched[info.number] == 0, 0)) shared_first_touch(info);
        return *reinterpret_cast<T*>(shared_window + info.offset);
    }
};
template <class T> __attribute__((always_inline)) inline T& dynamic_shared_as() { return *reinterpret_cast<T*>(dynamic_shared()); }

// The base of a subscript without the bounds that the compiler would check; anything but an array stays what it is.
template <class T, std::size_t n> __attribute__((always_inline)) constexpr T* without_bounds(T (&array)[n]) { return array; }
template <class T> __attribute__((always_inline)) constexpr T&& without_bounds(T&& base) { return static_cast<T&&>(base); }

struct KernelRegistration {
    KernelRegistration(const void* kernel, int max_threads, const Dim3& cluster = {}) { register_kernel(kernel, max_threads, cluster); }
};
struct SymbolRegistration {
    SymbolRegistration(const volatile void* address, std::size_t bytes, const char* name, bool managed = false) { register_symbol(const_cast<const void*>(address), bytes, name, managed); }
};

}  // namespace hostcuda

template <class Kernel> inline cudaError_t cudaLaunchCooperativeKernel(Kernel* kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes = 0, cudaStream_t stream = nullptr);
template <class Kernel> inline cudaError_t cudaLaunchKernel(Kernel* kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes = 0, cudaStream_t stream = nullptr);

namespace hostcuda {
template <class... P, std::size_t... I>
inline cudaError_t start_packed(const Configuration& c, bool cooperative, void (*kernel)(P...), void** packed, std::index_sequence<I...>) {
    const auto call = [kernel](const auto&... arguments) HOSTCUDA_UNCHECKED { kernel(arguments...); };
    return start(c, cooperative, nullptr, 0, call, static_cast<const std::decay_t<P>&>(*static_cast<std::decay_t<P>*>(packed[I]))...);
}
template <class... P> inline cudaError_t start_packed(const Configuration& c, bool cooperative, void (*kernel)(P...), void** packed) {
    return start_packed(c, cooperative, kernel, packed, std::index_sequence_for<P...>{});
}
cudaError_t untyped_launch();  // cudaLaunchKernel through void*: the parameter types are lost
}  // namespace hostcuda
template <class Kernel> inline cudaError_t cudaLaunchCooperativeKernel(Kernel* kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes, cudaStream_t stream) {
    return hostcuda::start_packed(hostcuda::Configuration(grid, block, shared_bytes, stream), true, kernel, arguments);
}
template <class Kernel> inline cudaError_t cudaLaunchKernel(Kernel* kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes, cudaStream_t stream) {
    return hostcuda::start_packed(hostcuda::Configuration(grid, block, shared_bytes, stream), false, kernel, arguments);
}

// With attributes: clusters, cooperative; all others are hints.
namespace hostcuda {
template <class Start> inline cudaError_t start_extended(const cudaLaunchConfig_t& c, Start start_it) {
    const LaunchShape shape = shape_of(c);
    Configuration configuration(c.gridDim, c.blockDim, c.dynamicSmemBytes, c.stream);
    configuration.cluster = shape.cluster;
    if (shape.has_cluster && (shape.cluster.x == 0 || shape.cluster.y == 0 || shape.cluster.z == 0)) return launch_status(error_invalid_value);
    return start_it(configuration, shape.cooperative);
}
}  // namespace hostcuda
template <class... P, class... A> inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... arguments) {
    const auto call = [kernel](const auto&... values) HOSTCUDA_UNCHECKED { kernel(values...); };
    return hostcuda::start_extended(*config, [&](const hostcuda::Configuration& c, bool cooperative) {
        return hostcuda::start(c, cooperative, nullptr, 0, call, static_cast<std::decay_t<P>>(std::forward<A>(arguments))...);
    });
}
template <class Kernel> inline cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, Kernel* kernel, void** arguments) {
    return hostcuda::start_extended(*config, [&](const hostcuda::Configuration& c, bool cooperative) { return hostcuda::start_packed(c, cooperative, kernel, arguments); });
}
