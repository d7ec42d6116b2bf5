// cuRAND's uniform numbers in device code, in (0, 1].
#ifndef HOSTCUDA_CURAND_UNIFORM_H
#define HOSTCUDA_CURAND_UNIFORM_H
#include "hostcuda/curand_states.h"

inline float _curand_uniform(unsigned int x) { return static_cast<float>(x) * CURAND_2POW32_INV + CURAND_2POW32_INV / 2.0f; }
inline float4 _curand_uniform4(uint4 w) { return make_float4(_curand_uniform(w.x), _curand_uniform(w.y), _curand_uniform(w.z), _curand_uniform(w.w)); }
inline double _curand_uniform_double(unsigned int x) { return x * CURAND_2POW32_INV_DOUBLE + CURAND_2POW32_INV_DOUBLE; }
inline double _curand_uniform_double_hq(unsigned int x, unsigned int y) {
    const unsigned long long z = static_cast<unsigned long long>(x) ^ static_cast<unsigned long long>(y) << (53 - 32);
    return static_cast<double>(z) * CURAND_2POW53_INV_DOUBLE + CURAND_2POW53_INV_DOUBLE / 2.0;
}

template <hostcuda::curand_words State> inline float curand_uniform(State* state) { return _curand_uniform(curand(state)); }
inline float curand_uniform(curandStateMRG32k3a_t* state) { return static_cast<float>(curand_MRG32k3a(state) * MRG32K3A_NORM); }
inline float4 curand_uniform4(curandStatePhilox4_32_10_t* state) { return _curand_uniform4(curand4(state)); }

// Each generator has its own way: of two words, of one, of the number itself.
inline double curand_uniform_double(curandStateXORWOW_t* state) {
    const unsigned x = curand(state), y = curand(state);
    return _curand_uniform_double_hq(x, y);
}
inline double curand_uniform_double(curandStatePhilox4_32_10_t* state) { return _curand_uniform_double(curand(state)); }
inline double curand_uniform_double(curandStateMRG32k3a_t* state) { return curand_MRG32k3a(state) * MRG32K3A_NORM; }
inline double2 curand_uniform2_double(curandStatePhilox4_32_10_t* state) {
    const uint4 w = curand4(state);
    return make_double2(_curand_uniform_double_hq(w.x, w.y), _curand_uniform_double_hq(w.z, w.w));
}
inline double4 curand_uniform4_double(curandStatePhilox4_32_10_t* state) {
    const double2 a = curand_uniform2_double(state), b = curand_uniform2_double(state);
    return make_double4(a.x, a.y, b.x, b.y);
}

#endif
