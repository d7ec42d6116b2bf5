// What cuda::memcpy_async has in common, whatever tells its end: sizes with an alignment, and copies that arrive later, on the same footing as cp.async.
#pragma once
#include <cstddef>
#include <cstdint>

#include "../cuda_pipeline.h"

namespace cuda {
template <::std::size_t Alignment> struct aligned_size_t {
    static constexpr ::std::size_t align = Alignment;
    ::std::size_t value;
    explicit constexpr aligned_size_t(::std::size_t bytes) : value(bytes) {}
    constexpr operator ::std::size_t() const { return value; }
};

namespace hostcuda_detail {
template <class Size> struct promised { static constexpr ::std::size_t align = 1; };
template <::std::size_t A> struct promised<aligned_size_t<A>> { static constexpr ::std::size_t align = A; };

// Alignment is promised, and asked for as a GPU asks: with 16, 8 or 4 bytes the copy is in pieces of that size.
template <class Size> inline void keep_promise(const void* to, const void* from, Size bytes) {
    const ::std::uintptr_t all = reinterpret_cast<::std::uintptr_t>(to) | reinterpret_cast<::std::uintptr_t>(from) | static_cast<::std::size_t>(bytes);
    if (all % promised<Size>::align != 0) hostcuda::trap();
}
// Bound to a barrier, or without one to a stage of the thread's own pipeline.
inline void copy_later(void* to, const void* from, ::std::size_t bytes, const void* barrier) {
    if (barrier != nullptr) hostcuda::async_copy_until(barrier, to, from, static_cast<unsigned>(bytes));
    else hostcuda::async_copy(to, from, static_cast<unsigned>(bytes), static_cast<unsigned>(bytes));
}

// One thread's copy, and its share of one that a group makes together.
template <class Size> inline void copy_alone(void* to, const void* from, Size bytes, const void* barrier) {
    keep_promise(to, from, bytes);
    copy_later(to, from, bytes, barrier);
}
template <class Group, class Size> inline void copy_together(const Group& group, void* to, const void* from, Size bytes, const void* barrier) {
    constexpr ::std::size_t piece = 16;
    keep_promise(to, from, bytes);
    for (::std::size_t i = group.thread_rank() * piece; i < bytes; i += group.size() * piece) {
        const ::std::size_t left = bytes - i;
        copy_later(static_cast<char*>(to) + i, static_cast<const char*>(from) + i, left < piece ? left : piece, barrier);
    }
}
}  // namespace hostcuda_detail
}  // namespace cuda
