// Where an algorithm runs: execution policies, and a body run as one thread of the device, as many, or by whoever calls.
#pragma once
#include <concepts>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "../../cub/device/two_calls.cuh"
#include "../system_error.h"

namespace thrust {
namespace detail {

using cub::detail::At;
using cub::detail::value_of;

// An algorithm that is called without one asks its iterators.
struct Execution {
    bool on_device;
    cudaStream_t stream = nullptr;
    bool waits = true;
    constexpr Execution on(cudaStream_t other) const { return {on_device, other, waits}; }
    template <class Allocator> constexpr Execution operator()(Allocator&&) const { return *this; }  // temporary memory is of no concern here
};
template <class P> concept Policy = std::is_same_v<std::remove_cvref_t<P>, Execution>;

inline void check(cudaError_t error, const char* name) {
    if (error != cudaSuccess) throw system_error(error, cuda_category(), name);
}

// Whether the caller does it all itself: on the host, and in a kernel, where each thread that calls does.
inline bool inlined(const Execution& where) { return !where.on_device || hostcuda::in_kernel(); }

template <class Body> void once(const Execution& where, const char* name, At at, Body body) {
    if (inlined(where)) return body();
    detail::check(hostcuda::start(hostcuda::Configuration(1, 1, 0, where.stream), false, name, at.line,
                                  [body, name]() HOSTCUDA_UNCHECKED { cub::detail::device_wide(body, name); }), name);
    if (where.waits) detail::check(cudaStreamSynchronize(where.stream), name);
}

template <class Body> __attribute__((noinline)) void device_each(Body body, std::int64_t count, const char* name) {
    ::hostcuda::enter(name, "", 0);
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) body(i);
}
// `body` of each number below `count`, in no order: two that touch the same memory race, as on a GPU.
template <class Body> void each(const Execution& where, const char* name, At at, std::int64_t count, Body body) {
    if (count <= 0) return;
    if (inlined(where)) {
        for (std::int64_t i = 0; i < count; ++i) body(i);
        return;
    }
    const std::int64_t wanted = (count + 255) / 256;
    const hostcuda::Configuration configuration(static_cast<unsigned>(wanted < 32 ? wanted : 32), 256, 0, where.stream);
    detail::check(hostcuda::start(configuration, false, name, at.line, [body, count, name]() HOSTCUDA_UNCHECKED { device_each(body, count, name); }), name);
    if (where.waits) detail::check(cudaStreamSynchronize(where.stream), name);
}

// Memory of the device, as long as an algorithm needs it; of the host's or the thread's own heap where those run it.
template <class T> class Room {
public:
    Room(const Execution& where, std::size_t count) : on_device_(!inlined(where)) {
        const std::size_t bytes = (count == 0 ? 1 : count) * sizeof(T);
        void* memory = nullptr;
        if (on_device_) detail::check(cudaMalloc(&memory, bytes), "thrust: temporary storage");
        else memory = hostcuda::device_malloc(bytes);
        memory_ = static_cast<T*>(memory);
        if constexpr (made) {
            if (!on_device_) std::uninitialized_value_construct_n(memory_, made_ = count);
        }
    }
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;
    ~Room() {
        if (on_device_) cudaFree(memory_);
        else {
            if constexpr (made) std::destroy_n(memory_, made_);
            hostcuda::device_free(memory_);
        }
    }
    T* get() const { return memory_; }

private:
    static constexpr bool made = !std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T>;  // an assignment to nothing would read it
    bool on_device_;
    std::size_t made_ = 0;
    T* memory_ = nullptr;
};

// What `body` returns, brought to the caller.
template <class Body> auto answer(const Execution& where, const char* name, At at, Body body) {
    using T = std::decay_t<decltype(body())>;
    if (inlined(where)) return static_cast<T>(body());
    const Room<T> room(where, 1);
    once(where, name, at, [body, place = room.get()]() mutable { *place = body(); });
    alignas(T) unsigned char bytes[sizeof(T)];
    detail::check(cudaMemcpy(bytes, room.get(), sizeof(T), cudaMemcpyDeviceToHost), name);
    return T(reinterpret_cast<T&>(bytes));
}

}  // namespace detail

inline constexpr detail::Execution host{false}, seq{false}, device{true};
namespace cuda {
inline constexpr detail::Execution par{true}, par_nosync{true, nullptr, false};
}
namespace cpp {
inline constexpr detail::Execution par{false};
}
namespace system {
namespace cuda { using thrust::cuda::par; using thrust::cuda::par_nosync; }
namespace cpp { using thrust::cpp::par; }
}
}  // namespace thrust
