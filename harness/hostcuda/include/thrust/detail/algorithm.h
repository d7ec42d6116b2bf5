// What every algorithm here is made of: it is called with a policy or without, the latter where its iterators say, and takes plain pointers inside.
#pragma once
#include "../device_ptr.h"

namespace thrust {
namespace detail {

template <class It> void must_be_the_hosts(const char* name, At at, const It& it) {
    if constexpr (std::is_pointer_v<It>) {
        if (!hostcuda::host_reaches(name, it, at.line)) throw system_error(cudaErrorIllegalAddress, cuda_category(), name);
    }
}
// Plain pointers without a policy are the host's: on a GPU, a program that passes the device's there crashes.
template <class... It> Execution given(const Execution& where, const char* name, At at, const It&... it) {
    if (!where.on_device && !hostcuda::in_kernel()) (must_be_the_hosts(name, at, it), ...);
    return where;
}
template <class... It> Execution chosen(const char* name, At at, const It&... it) {
    return given(Execution{system_of<It...>() == System::device}, name, at, it...);
}
template <class It> inline constexpr bool indexed = requires(It it, std::int64_t i) { it[i], it + i; };  // else lists, streams and what inserts
template <class It> std::int64_t length(const It& first, const It& last) { return static_cast<std::int64_t>(last - first); }
template <class It> using item_of = typename std::iterator_traits<It>::value_type;

}  // namespace detail
}  // namespace thrust

#define HOSTCUDA_BARE(...) __VA_ARGS__
// An algorithm `name` over detail::do_<name>: its template parameters, parameters, arguments, and which of them are iterators.
#define HOSTCUDA_THRUST(name, templates, parameters, arguments, iterators)                                                          \
    template <detail::Policy Where, HOSTCUDA_BARE templates> auto name(const Where& where, HOSTCUDA_BARE parameters, HOSTCUDA_AT) { \
        return detail::do_##name(detail::given(where, "thrust::" #name, at, HOSTCUDA_BARE iterators), at, HOSTCUDA_BARE arguments); \
    }                                                                                                                               \
    template <HOSTCUDA_BARE templates> requires(!detail::Policy<In>) auto name(HOSTCUDA_BARE parameters, HOSTCUDA_AT) {             \
        return detail::do_##name(detail::chosen("thrust::" #name, at, HOSTCUDA_BARE iterators), at, HOSTCUDA_BARE arguments);       \
    }
