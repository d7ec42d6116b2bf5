// cuRAND's Poisson numbers in device code. Small means: uniform numbers are multiplied until e^-lambda is reached (Knuth: Seminumerical Algorithms).
// Large ones: rounded normal numbers. Between them: rejection from an approximate inverse of the incomplete gamma function; a GPU takes its approximate
// instructions there (ex2, lg2, rsqrt, rcp), which may accept another number once in a while.
#ifndef HOSTCUDA_CURAND_POISSON_H
#define HOSTCUDA_CURAND_POISSON_H
#include <math.h>

#include "curand_normal.h"

namespace hostcuda {
// P(x) = 1 / (1 + e^(alpha (a - x) - beta))^2, with alpha and beta fitted as functions of a, and its inverse.
struct PoissonCurve {
    float a, alpha, beta;
    explicit PoissonCurve(float a_)
        : a(a_), alpha(__fmaf_rn(1.43248035075540910f, 1.0f / sqrtf(a_ - 0.12400979329415655f), 0.00025361074907033f)),
          beta(__fmaf_rn(0.21096734870196546f, 1.0f / sqrtf(a_ - 1.97381164089999420f), 0.94201734077887530f)) {}
    float below(float x) const {
        const float root = 1.0f + expf(__fmaf_rn(alpha, a - x, -beta));
        return 1.0f / (root * root);
    }
    float inverse(float p) const { return __fmaf_rn(-(beta + logf(1.0f / sqrtf(p) - 1.0f)), 1.0f / alpha, a); }
};

template <class State> inline unsigned poisson_by_products(State* state, float lambda) {
    unsigned count = 0;
    for (float product = expf(lambda) * curand_uniform(state); product > 1.0f; product *= curand_uniform(state)) ++count;
    return count;
}
template <class State> inline unsigned poisson_by_rejection(State* state, float lambda) {
    const PoissonCurve curve(lambda);
    const float log_lambda = logf(lambda);
    while (true) {
        const float x = floorf(curve.inverse(curand_uniform(state)));
        const float bound = (curve.below(x + 1.0f) - curve.below(x)) * 1.3f, height = curand_uniform(state) * bound;
        int sign;
        const float log_factorial = static_cast<float>(::lgamma_r(static_cast<int>(1.0f + x), &sign));
        const float density = expf(__fmaf_rn(x, log_lambda, -lambda) - log_factorial);
        if (height < density && bound >= 1e-20) return static_cast<unsigned>(x);
    }
}
inline unsigned poisson_of_normal(double normal, double lambda) { return static_cast<unsigned>(__fma_rn(sqrt(lambda), normal, lambda) + 0.5); }
}  // namespace hostcuda

template <hostcuda::curand_state State> inline unsigned int curand_poisson(State* state, double lambda) {
    if (lambda < 64) return hostcuda::poisson_by_products(state, static_cast<float>(lambda));
    if (lambda > 4000) return hostcuda::poisson_of_normal(curand_normal_double(state), lambda);
    return hostcuda::poisson_by_rejection(state, static_cast<float>(lambda));
}
inline uint4 curand_poisson4(curandStatePhilox4_32_10_t* state, double lambda) {
    if (lambda > 4000) {
        const double4 v = curand_normal4_double(state);
        return make_uint4(hostcuda::poisson_of_normal(v.x, lambda), hostcuda::poisson_of_normal(v.y, lambda), hostcuda::poisson_of_normal(v.z, lambda),
                          hostcuda::poisson_of_normal(v.w, lambda));
    }
    unsigned k[4];
    for (unsigned& one : k) one = curand_poisson(state, lambda);
    return make_uint4(k[0], k[1], k[2], k[3]);
}

#endif
