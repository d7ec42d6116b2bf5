// cuRAND's normal numbers in device code, by Box and Muller: two uniform numbers give two normal ones, of which the second waits in the state for a
// caller that asks for one. Sums of products are rounded once, as nvcc has them; sines are exact to the last bits where a GPU's `__sincosf` is not.
#ifndef HOSTCUDA_CURAND_NORMAL_H
#define HOSTCUDA_CURAND_NORMAL_H
#include "curand_uniform.h"

#define EXTRA_FLAG_NORMAL 0x00000001
#define EXTRA_FLAG_LOG_NORMAL 0x00000002

namespace hostcuda {
inline float2 normal_of(float u, float angle) {
    const float radius = sqrtf(-2.0f * logf(u));
    return make_float2(sinf(angle) * radius, cosf(angle) * radius);
}
inline double2 normal_of(double u, double half_turns) {
    const double radius = sqrt(-2.0 * log(u));
    return make_double2(sin(half_turns * CURAND_PI_DOUBLE) * radius, cos(half_turns * CURAND_PI_DOUBLE) * radius);
}
}  // namespace hostcuda

inline float2 _curand_box_muller(unsigned int x, unsigned int y) {
    return hostcuda::normal_of(_curand_uniform(x), __fmaf_rn(static_cast<float>(y), CURAND_2POW32_INV_2PI, CURAND_2POW32_INV_2PI / 2.0f));
}
inline double2 _curand_box_muller_double(unsigned int x0, unsigned int x1, unsigned int y0, unsigned int y1) {
    return hostcuda::normal_of(_curand_uniform_double_hq(x0, x1), 2.0 * _curand_uniform_double_hq(y0, y1));
}

template <hostcuda::curand_words State> inline float2 curand_normal2(State* state) {
    const unsigned x = curand(state), y = curand(state);
    return _curand_box_muller(x, y);
}
inline float2 curand_normal2(curandStateMRG32k3a_t* state) {
    const float u = curand_uniform(state), v = curand_uniform(state);
    return hostcuda::normal_of(u, v * CURAND_2PI);
}
inline float4 curand_normal4(curandStatePhilox4_32_10_t* state) {
    const uint4 w = curand4(state);
    const float2 a = _curand_box_muller(w.x, w.y), b = _curand_box_muller(w.z, w.w);
    return make_float4(a.x, a.y, b.x, b.y);
}

inline double2 curand_normal2_double(curandStateXORWOW_t* state) {
    unsigned w[4];
    for (unsigned& word : w) word = curand(state);
    return _curand_box_muller_double(w[0], w[1], w[2], w[3]);
}
inline double2 curand_normal2_double(curandStatePhilox4_32_10_t* state) {
    const uint4 w = curand4(state);
    return _curand_box_muller_double(w.x, w.y, w.z, w.w);
}
inline double2 curand_normal2_double(curandStateMRG32k3a_t* state) {
    const double u = curand_uniform_double(state), v = curand_uniform_double(state);
    return hostcuda::normal_of(u, v * 2.0);
}
inline double4 curand_normal4_double(curandStatePhilox4_32_10_t* state) {
    const double2 a = curand_normal2_double(state), b = curand_normal2_double(state);
    return make_double4(a.x, a.y, b.x, b.y);
}

namespace hostcuda {
// One of a pair now, the other one at the next call for the same distribution. A call for another one in between takes a new pair.
template <class Value, class Pair> inline Value one_of_pair(int& flag, Value& extra, int kind, Pair pair) {
    if (flag == kind) return flag = 0, extra;
    const auto both = pair();
    extra = both.y, flag = kind;
    return both.x;
}
}  // namespace hostcuda

template <hostcuda::curand_state State> inline float curand_normal(State* state) {
    return hostcuda::one_of_pair(state->boxmuller_flag, state->boxmuller_extra, EXTRA_FLAG_NORMAL, [state] { return curand_normal2(state); });
}
template <hostcuda::curand_state State> inline double curand_normal_double(State* state) {
    return hostcuda::one_of_pair(state->boxmuller_flag_double, state->boxmuller_extra_double, EXTRA_FLAG_NORMAL, [state] { return curand_normal2_double(state); });
}

#endif
