// Random numbers in device code: the Philox 4x32-10 generator of cuRAND, bit for bit (Salmon, Moraes, Dror, Shaw: Parallel random numbers:
// as easy as 1, 2, 3; SC 2011), with uniform and normal values as cuRAND's documentation derives them. A state: the key is the seed, the two high
// counter words the subsequence, the low ones the position in it.
#ifndef HOSTCUDA_CURAND_KERNEL_H
#define HOSTCUDA_CURAND_KERNEL_H
#include "cuda_runtime.h"

#define CURAND_2POW32_INV (2.3283064e-10f)
#define CURAND_2POW32_INV_2PI (2.3283064e-10f * 6.2831855f)
#define CURAND_2POW53_INV_DOUBLE (1.1102230246251565e-16)

struct curandStatePhilox4_32_10 {
    uint4 ctr;
    uint4 output;
    uint2 key;
    unsigned int STATE;
    int boxmuller_flag;
    int boxmuller_flag_double;
    float boxmuller_extra;
    double boxmuller_extra_double;
};
typedef struct curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;

namespace hostcuda {
inline uint4 philox4x32_10(uint4 c, uint2 k) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t a = std::uint64_t{0xD2511F53u} * c.x, b = std::uint64_t{0xCD9E8D57u} * c.z;
        c = make_uint4(static_cast<unsigned>(b >> 32) ^ c.y ^ k.x, static_cast<unsigned>(b), static_cast<unsigned>(a >> 32) ^ c.w ^ k.y, static_cast<unsigned>(a));
        k.x += 0x9E3779B9u;
        k.y += 0xBB67AE85u;
    }
    return c;
}
inline void philox_advance(uint4& c, unsigned long long steps) {
    const unsigned long long low = c.x | static_cast<unsigned long long>(c.y) << 32, sum = low + steps;
    c.x = static_cast<unsigned>(sum), c.y = static_cast<unsigned>(sum >> 32);
    if (sum < low && ++c.z == 0) ++c.w;
}
inline void philox_advance_high(uint4& c, unsigned long long steps) {
    const unsigned long long sum = (c.z | static_cast<unsigned long long>(c.w) << 32) + steps;
    c.z = static_cast<unsigned>(sum), c.w = static_cast<unsigned>(sum >> 32);
}
inline unsigned word_of_four(const uint4& v, unsigned i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }
// Box and Muller: two uniform words give two normal values.
inline float2 box_muller(unsigned x, unsigned y) {
    const float u = static_cast<float>(x) * CURAND_2POW32_INV + CURAND_2POW32_INV / 2.0f;
    const float v = __fmaf_rn(static_cast<float>(y), CURAND_2POW32_INV_2PI, CURAND_2POW32_INV_2PI / 2.0f);
    const float s = sqrtf(-2.0f * logf(u));
    return make_float2(sinf(v) * s, cosf(v) * s);
}
inline double uniform_of_two(unsigned x, unsigned y) {
    const unsigned long long z = static_cast<unsigned long long>(x) ^ (static_cast<unsigned long long>(y) << (53 - 32));
    return static_cast<double>(z) * CURAND_2POW53_INV_DOUBLE + CURAND_2POW53_INV_DOUBLE / 2.0;
}
inline double2 box_muller_double(uint4 w) {
    const double u = uniform_of_two(w.x, w.y), v = 2.0 * uniform_of_two(w.z, w.w);
    const double s = sqrt(-2.0 * log(u));
    return make_double2(sin(v * 3.14159265358979323846) * s, cos(v * 3.14159265358979323846) * s);
}
}  // namespace hostcuda

inline void skipahead(unsigned long long n, curandStatePhilox4_32_10_t* state) {
    state->STATE += static_cast<unsigned>(n & 3);
    n /= 4;
    if (state->STATE > 3) n += 1, state->STATE -= 4;
    hostcuda::philox_advance(state->ctr, n);
    state->output = hostcuda::philox4x32_10(state->ctr, state->key);
}
inline void skipahead_sequence(unsigned long long n, curandStatePhilox4_32_10_t* state) {
    hostcuda::philox_advance_high(state->ctr, n);
    state->output = hostcuda::philox4x32_10(state->ctr, state->key);
}
inline void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset, curandStatePhilox4_32_10_t* state) {
    state->ctr = make_uint4(0, 0, 0, 0);
    state->key = make_uint2(static_cast<unsigned>(seed), static_cast<unsigned>(seed >> 32));
    state->STATE = 0;
    state->boxmuller_flag = state->boxmuller_flag_double = 0;
    state->boxmuller_extra = 0.0f;
    state->boxmuller_extra_double = 0.0;
    skipahead_sequence(subsequence, state);
    skipahead(offset, state);
}

inline unsigned int curand(curandStatePhilox4_32_10_t* state) {
    const unsigned word = hostcuda::word_of_four(state->output, state->STATE++);
    if (state->STATE > 3) {
        hostcuda::philox_advance(state->ctr, 1);
        state->output = hostcuda::philox4x32_10(state->ctr, state->key);
        state->STATE = 0;
    }
    return word;
}
// The next four words; the position inside a group of four is kept.
inline uint4 curand4(curandStatePhilox4_32_10_t* state) {
    const uint4 now = state->output;
    hostcuda::philox_advance(state->ctr, 1);
    const uint4 next = state->output = hostcuda::philox4x32_10(state->ctr, state->key);
    switch (state->STATE) {
        case 0: return now;
        case 1: return make_uint4(now.y, now.z, now.w, next.x);
        case 2: return make_uint4(now.z, now.w, next.x, next.y);
        default: return make_uint4(now.w, next.x, next.y, next.z);
    }
}
// Uniform in (0, 1].
inline float _curand_uniform(unsigned int x) { return static_cast<float>(x) * CURAND_2POW32_INV + CURAND_2POW32_INV / 2.0f; }
inline float curand_uniform(curandStatePhilox4_32_10_t* state) { return _curand_uniform(curand(state)); }
inline float4 curand_uniform4(curandStatePhilox4_32_10_t* state) {
    const uint4 w = curand4(state);
    return make_float4(_curand_uniform(w.x), _curand_uniform(w.y), _curand_uniform(w.z), _curand_uniform(w.w));
}
// The generator of 32-bit words gives a double from two of them.
inline double curand_uniform_double(curandStatePhilox4_32_10_t* state) {
    const unsigned x = curand(state), y = curand(state);
    return hostcuda::uniform_of_two(x, y);
}
inline double2 curand_uniform2_double(curandStatePhilox4_32_10_t* state) {
    const uint4 w = curand4(state);
    return make_double2(hostcuda::uniform_of_two(w.x, w.y), hostcuda::uniform_of_two(w.z, w.w));
}
// Two normal values come at a time: the second one waits in the state.
inline float2 curand_normal2(curandStatePhilox4_32_10_t* state) {
    const unsigned x = curand(state), y = curand(state);
    return hostcuda::box_muller(x, y);
}
inline float curand_normal(curandStatePhilox4_32_10_t* state) {
    if (state->boxmuller_flag != 0) return state->boxmuller_flag = 0, state->boxmuller_extra;
    const float2 v = curand_normal2(state);
    state->boxmuller_extra = v.y, state->boxmuller_flag = 1;
    return v.x;
}
inline float4 curand_normal4(curandStatePhilox4_32_10_t* state) {
    const uint4 w = curand4(state);
    const float2 a = hostcuda::box_muller(w.x, w.y), b = hostcuda::box_muller(w.z, w.w);
    return make_float4(a.x, a.y, b.x, b.y);
}
inline double2 curand_normal2_double(curandStatePhilox4_32_10_t* state) { return hostcuda::box_muller_double(curand4(state)); }
inline float curand_log_normal(curandStatePhilox4_32_10_t* state, float mean, float deviation) { return expf(mean + deviation * curand_normal(state)); }

#endif
