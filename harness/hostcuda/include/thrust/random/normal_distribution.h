// Normal numbers, each of one number of the engine, by the inverse of the complementary error function. As nvcc has them; that function's last bits are
// not a GPU's.
#pragma once
#include <limits>

#include "../../hostcuda/math_intrinsics.h"
#include "uniform_real_distribution.h"

namespace thrust {
namespace random {
template <class Real = float> class normal_distribution {
public:
    using result_type = Real;
    using param_type = thrust::pair<Real, Real>;
    explicit normal_distribution(Real mean = 0, Real deviation = 1) : param_(mean, deviation) {}
    explicit normal_distribution(const param_type& param) : param_(param) {}
    void reset() {}
    template <class Engine> Real operator()(Engine& engine) { return (*this)(engine, param_); }
    template <class Engine> Real operator()(Engine& engine, const param_type& param) {
        constexpr auto range = Engine::max - Engine::min;
        constexpr Real step = static_cast<Real>(1.0 / static_cast<double>(range));
        Real size = static_cast<Real>(-1.4142135623730951);
        auto place = engine() - Engine::min;
        if (place > range / 2) place = range - place, size = -size;  // the smaller half, where the function is precise
        const Real p = std::fma(static_cast<Real>(place), step, step / 2);
        return std::fma(param.second * size, static_cast<Real>(erfcinv(static_cast<double>(2 * p))), param.first);
    }
    Real mean() const { return param_.first; }
    Real stddev() const { return param_.second; }
    param_type param() const { return param_; }
    void param(const param_type& param) { param_ = param; }
    Real min() const { return std::numeric_limits<Real>::lowest(); }
    Real max() const { return std::numeric_limits<Real>::max(); }
    friend bool operator==(const normal_distribution& x, const normal_distribution& y) { return x.param_ == y.param_; }
    friend std::ostream& operator<<(std::ostream& out, const normal_distribution& x) { return out << x.mean() << ' ' << x.stddev(); }

private:
    param_type param_;
};
}  // namespace random
using random::normal_distribution;
}  // namespace thrust
