// Keys of radix sorts as unsigned integers in the same order.
#pragma once
#include "util.cuh"

namespace cub {
namespace detail {

template <class T> inline constexpr bool is_floating_key = std::is_floating_point_v<T> || std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;
template <class T> inline constexpr bool is_radix_key = std::is_arithmetic_v<T> || is_floating_key<T>;

// What a sort by bits [begin, end) compares. Negative zero counts as positive zero; the key itself keeps its bits.
template <class T, bool Descending> struct RadixOrder {
    static_assert(is_radix_key<T>, "radix sorts take keys of arithmetic type");
    using Word = std::conditional_t<sizeof(T) == 1, std::uint8_t, std::conditional_t<sizeof(T) == 2, std::uint16_t, std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;
    static constexpr Word top = static_cast<Word>(Word{1} << (8 * sizeof(T) - 1));
    int begin, end;
    Word digit(const T& key) const {
        Word bits;
        __builtin_memcpy(&bits, static_cast<const void*>(&key), sizeof(T));
        if constexpr (is_floating_key<T>) {
            if (bits == top) bits = 0;
            bits = static_cast<Word>((bits & top) != 0 ? ~bits : bits | top);
        } else if constexpr (std::is_signed_v<T>) {
            bits = static_cast<Word>(bits ^ top);
        }
        const int width = end - begin;
        if (width <= 0) return 0;
        bits = static_cast<Word>(bits >> begin);
        return width >= static_cast<int>(8 * sizeof(T)) ? bits : static_cast<Word>(bits & ((std::uint64_t{1} << width) - 1));
    }
    bool operator()(const T& a, const T& b) const { return Descending ? digit(b) < digit(a) : digit(a) < digit(b); }
};

}  // namespace detail
}  // namespace cub
