// Whole numbers from a to b, both included: real ones in [a, b + 1) without their fraction, as Thrust has them.
#pragma once
#include <limits>

#include "uniform_real_distribution.h"

namespace thrust {
namespace random {
template <class Int = int> class uniform_int_distribution {
public:
    using result_type = Int;
    using param_type = thrust::pair<Int, Int>;
    explicit uniform_int_distribution(Int a = 0, Int b = std::numeric_limits<Int>::max()) : range_(a, b) {}
    explicit uniform_int_distribution(const param_type& range) : range_(range) {}
    void reset() {}
    template <class Engine> Int operator()(Engine& engine) { return (*this)(engine, range_); }
    template <class Engine> Int operator()(Engine& engine, const param_type& range) {
        uniform_real_distribution<double> real(static_cast<double>(range.first), static_cast<double>(range.second) + 1.0);
        return static_cast<Int>(real(engine));
    }
    Int a() const { return range_.first; }
    Int b() const { return range_.second; }
    param_type param() const { return range_; }
    void param(const param_type& range) { range_ = range; }
    Int min() const { return a(); }
    Int max() const { return b(); }
    friend bool operator==(const uniform_int_distribution& x, const uniform_int_distribution& y) { return x.range_ == y.range_; }
    friend std::ostream& operator<<(std::ostream& out, const uniform_int_distribution& x) { return out << x.a() << ' ' << x.b(); }

private:
    param_type range_;
};
}  // namespace random
using random::uniform_int_distribution;
}  // namespace thrust
