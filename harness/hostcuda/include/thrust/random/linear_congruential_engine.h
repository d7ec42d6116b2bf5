// Engines of one multiplication and one remainder, from which a thread reaches the start of its own numbers by discard() in a few steps.
#pragma once
#include <cstdint>
#include <istream>
#include <ostream>

#include "../version.h"

namespace thrust {
namespace random {
template <class UInt, UInt A, UInt C, UInt M> class linear_congruential_engine {
    __extension__ typedef unsigned __int128 Wide;
    static constexpr UInt reduced(Wide x) { return static_cast<UInt>(M == 0 ? x : x % (M == 0 ? 1 : M)); }

public:
    using result_type = UInt;
    static constexpr UInt multiplier = A, increment = C, modulus = M, min = C == 0 ? 1 : 0, max = static_cast<UInt>(M - 1), default_seed = 1;

    explicit linear_congruential_engine(UInt s = default_seed) { seed(s); }
    void seed(UInt s = default_seed) { x_ = reduced(C) == 0 && reduced(s) == 0 ? reduced(1) : reduced(s); }
    UInt operator()() { return x_ = reduced(Wide{A} * x_ + C); }
    // x -> factor x + term, squared for each bit of `count`.
    void discard(unsigned long long count) {
        UInt factor = A, term = C;
        for (; count != 0; count >>= 1) {
            if (count & 1) x_ = reduced(Wide{factor} * x_ + term);
            term = reduced(Wide{factor} * term + term);
            factor = reduced(Wide{factor} * factor);
        }
    }
    friend bool operator==(const linear_congruential_engine& a, const linear_congruential_engine& b) { return a.x_ == b.x_; }
    friend std::ostream& operator<<(std::ostream& out, const linear_congruential_engine& e) { return out << e.x_; }
    friend std::istream& operator>>(std::istream& in, linear_congruential_engine& e) { return in >> e.x_; }

private:
    UInt x_;
};
using minstd_rand0 = linear_congruential_engine<std::uint32_t, 16807, 0, 2147483647>;
using minstd_rand = linear_congruential_engine<std::uint32_t, 48271, 0, 2147483647>;
}  // namespace random
using random::linear_congruential_engine;
using random::minstd_rand;
using random::minstd_rand0;
}  // namespace thrust
