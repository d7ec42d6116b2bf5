// cuRAND's log-normal numbers in device code: the exponential function of normal ones. The second of a pair waits with the mean and the deviation of
// the call that drew it.
#ifndef HOSTCUDA_CURAND_LOGNORMAL_H
#define HOSTCUDA_CURAND_LOGNORMAL_H
#include "curand_normal.h"

namespace hostcuda {
inline float log_normal_of(float normal, float mean, float deviation) { return expf(__fmaf_rn(deviation, normal, mean)); }
inline double log_normal_of(double normal, double mean, double deviation) { return exp(__fma_rn(deviation, normal, mean)); }
}  // namespace hostcuda

template <hostcuda::curand_state State> inline float2 curand_log_normal2(State* state, float mean, float deviation) {
    const float2 v = curand_normal2(state);
    return make_float2(hostcuda::log_normal_of(v.x, mean, deviation), hostcuda::log_normal_of(v.y, mean, deviation));
}
inline float4 curand_log_normal4(curandStatePhilox4_32_10_t* state, float mean, float deviation) {
    const float4 v = curand_normal4(state);
    return make_float4(hostcuda::log_normal_of(v.x, mean, deviation), hostcuda::log_normal_of(v.y, mean, deviation),
                       hostcuda::log_normal_of(v.z, mean, deviation), hostcuda::log_normal_of(v.w, mean, deviation));
}
template <hostcuda::curand_state State> inline double2 curand_log_normal2_double(State* state, double mean, double deviation) {
    const double2 v = curand_normal2_double(state);
    return make_double2(hostcuda::log_normal_of(v.x, mean, deviation), hostcuda::log_normal_of(v.y, mean, deviation));
}
inline double4 curand_log_normal4_double(curandStatePhilox4_32_10_t* state, double mean, double deviation) {
    const double2 a = curand_log_normal2_double(state, mean, deviation), b = curand_log_normal2_double(state, mean, deviation);
    return make_double4(a.x, a.y, b.x, b.y);
}

template <hostcuda::curand_state State> inline float curand_log_normal(State* state, float mean, float deviation) {
    return hostcuda::one_of_pair(state->boxmuller_flag, state->boxmuller_extra, EXTRA_FLAG_LOG_NORMAL,
                                 [=] { return curand_log_normal2(state, mean, deviation); });
}
template <hostcuda::curand_state State> inline double curand_log_normal_double(State* state, double mean, double deviation) {
    return hostcuda::one_of_pair(state->boxmuller_flag_double, state->boxmuller_extra_double, EXTRA_FLAG_LOG_NORMAL,
                                 [=] { return curand_log_normal2_double(state, mean, deviation); });
}

#endif
