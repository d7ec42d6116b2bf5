// Real numbers in [a, b). A product and a sum are rounded once, as nvcc has them.
#pragma once
#include <cmath>
#include <ostream>

#include "../pair.h"

namespace thrust {
namespace random {
template <class Real = float> class uniform_real_distribution {
public:
    using result_type = Real;
    using param_type = thrust::pair<Real, Real>;
    explicit uniform_real_distribution(Real a = 0, Real b = 1) : range_(a, b) {}
    explicit uniform_real_distribution(const param_type& range) : range_(range) {}
    void reset() {}
    template <class Engine> Real operator()(Engine& engine) { return (*this)(engine, range_); }
    template <class Engine> Real operator()(Engine& engine, const param_type& range) {
        const Real part = static_cast<Real>(engine() - Engine::min) / (Real(1) + static_cast<Real>(Engine::max - Engine::min));
        return std::fma(part, range.second - range.first, range.first);
    }
    Real a() const { return range_.first; }
    Real b() const { return range_.second; }
    param_type param() const { return range_; }
    void param(const param_type& range) { range_ = range; }
    Real min() const { return a(); }
    Real max() const { return b(); }
    friend bool operator==(const uniform_real_distribution& x, const uniform_real_distribution& y) { return x.range_ == y.range_; }
    friend std::ostream& operator<<(std::ostream& out, const uniform_real_distribution& x) { return out << x.a() << ' ' << x.b(); }

private:
    param_type range_;
};
}  // namespace random
using random::uniform_real_distribution;
}  // namespace thrust
