// How all device-wide parts run: the first call asks for the size of the temporary storage, the second is a launch of one thread, whose accesses
// are checked like those of any kernel.
#pragma once
#include "../util.cuh"

namespace cub {
namespace detail {

// Takes its copy of the body by value: the original lies on the host's stack, which is none of the device's memory.
template <class Body> __attribute__((noinline)) void device_wide(Body body, const char* name) {
    ::hostcuda::enter(name, "", 0);
    body();
}

template <class Body>
inline cudaError_t two_calls(void* storage, std::size_t& bytes, std::size_t needed, const char* name, cudaStream_t stream, At at, Body body) {
    if (storage == nullptr) return bytes = needed == 0 ? 1 : needed, cudaSuccess;
    if (bytes < needed) return cudaErrorInvalidValue;
    return hostcuda::start(hostcuda::Configuration(1, 1, 0, stream), false, name, at.line, [body, name]() HOSTCUDA_UNCHECKED { device_wide(body, name); });
}

// Arrays in the temporary storage; they begin where any type may stand.
constexpr std::size_t room(std::size_t count, std::size_t size) { return (count * size + 255) / 256 * 256 + 256; }
template <class T> inline T* placed(void*& storage, std::size_t count) {
    const auto start = (reinterpret_cast<std::uintptr_t>(storage) + 255) / 256 * 256;
    storage = reinterpret_cast<void*>(start + (count * sizeof(T) + 255) / 256 * 256);
    return reinterpret_cast<T*>(start);
}

template <class In> using value_of = std::decay_t<decltype(*std::declval<In>())>;
// What an output takes; an output that swallows everything takes what the input gives.
template <class Out, class In> using output_of = std::conditional_t<std::is_void_v<value_of<Out>>, value_of<In>, value_of<Out>>;
template <class F, class T, class U = T> using combined_of = std::decay_t<std::invoke_result_t<F&, T, U>>;

}  // namespace detail
}  // namespace cub
