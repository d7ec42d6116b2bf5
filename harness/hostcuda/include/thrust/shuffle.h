// Items in a random order: Thrust's, which a Feistel cipher with keys from the engine makes of the places. Those below the next power of two are
// enciphered one after another, and what falls behind the end is passed over.
#pragma once
#include "copy.h"

namespace thrust {
namespace detail {

class Cipher {
public:
    template <class Engine> Cipher(std::uint64_t count, Engine& engine) {
        unsigned bits = count <= 16 ? 4 : 64 - static_cast<unsigned>(__builtin_clzll(count - 1));
        left_bits_ = bits / 2, right_bits_ = bits - left_bits_;
        for (std::uint32_t& key : keys_) key = static_cast<std::uint32_t>(engine());
    }
    std::uint64_t places() const { return std::uint64_t{1} << (left_bits_ + right_bits_); }
    std::uint64_t operator()(std::uint64_t place) const {
        std::uint32_t left = static_cast<std::uint32_t>(place >> right_bits_), right = static_cast<std::uint32_t>(place) & mask(right_bits_);
        for (const std::uint32_t key : keys_) {
            const std::uint64_t product = std::uint64_t{0xD2B74407B1CE6E93} * left;
            const std::uint32_t low = static_cast<std::uint32_t>(product) << (right_bits_ - left_bits_) | right >> left_bits_;
            left = (static_cast<std::uint32_t>(product >> 32) ^ key ^ right) & mask(left_bits_);
            right = low & mask(right_bits_);
        }
        return std::uint64_t{left} << right_bits_ | right;
    }

private:
    static std::uint32_t mask(unsigned bits) { return static_cast<std::uint32_t>((std::uint64_t{1} << bits) - 1); }
    unsigned left_bits_, right_bits_;
    std::uint32_t keys_[24];
};

template <class In, class Out, class Engine> void do_shuffle_copy(const Execution& where, At at, In first, In last, Out out, Engine& engine) {
    const auto n = static_cast<std::uint64_t>(length(first, last));
    const Cipher cipher(n, engine);
    once(where, "thrust::shuffle_copy", at, [n, cipher, in = raw(first), to = raw(out)]() mutable {
        std::int64_t placed = 0;
        for (std::uint64_t i = 0; i < cipher.places(); ++i)
            if (const std::uint64_t from = cipher(i); from < n) to[placed++] = in[static_cast<std::int64_t>(from)];
    });
}
template <class In, class Engine> void do_shuffle(const Execution& where, At at, In first, In last, Engine& engine) {
    using T = item_of<In>;
    const auto n = length(first, last);
    const Room<T> before(where, static_cast<std::size_t>(n < 0 ? 0 : n));
    each(where, "thrust::shuffle", at, n, [in = raw(first), to = before.get()](std::int64_t i) mutable { to[i] = in[i]; });
    do_shuffle_copy(where, at, before.get(), before.get() + n, first, engine);
}

}  // namespace detail

HOSTCUDA_THRUST(shuffle, (class In, class Engine), (In first, In last, Engine&& engine), (first, last, engine), (first))
HOSTCUDA_THRUST(shuffle_copy, (class In, class Out, class Engine), (In first, In last, Out out, Engine&& engine), (first, last, out, engine), (first, out))
}  // namespace thrust
