// cuRAND's Philox 4x32-10 generator, bit for bit (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011). A state: the key
// is the seed, the two high counter words the subsequence, the low ones the position in it.
#ifndef HOSTCUDA_CURAND_PHILOX4X32_X_H
#define HOSTCUDA_CURAND_PHILOX4X32_X_H
#include "cuda_runtime.h"

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

inline uint4 curand_Philox4x32_10(uint4 c, uint2 k) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t a = std::uint64_t{0xD2511F53u} * c.x, b = std::uint64_t{0xCD9E8D57u} * c.z;
        c = make_uint4(static_cast<unsigned>(b >> 32) ^ c.y ^ k.x, static_cast<unsigned>(b), static_cast<unsigned>(a >> 32) ^ c.w ^ k.y, static_cast<unsigned>(a));
        k.x += 0x9E3779B9u;
        k.y += 0xBB67AE85u;
    }
    return c;
}

namespace hostcuda {
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
}  // namespace hostcuda

inline void skipahead(unsigned long long n, curandStatePhilox4_32_10_t* state) {
    state->STATE += static_cast<unsigned>(n & 3);
    n /= 4;
    if (state->STATE > 3) n += 1, state->STATE -= 4;
    hostcuda::philox_advance(state->ctr, n);
    state->output = curand_Philox4x32_10(state->ctr, state->key);
}
inline void skipahead_sequence(unsigned long long n, curandStatePhilox4_32_10_t* state) {
    hostcuda::philox_advance_high(state->ctr, n);
    state->output = curand_Philox4x32_10(state->ctr, state->key);
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
        state->output = curand_Philox4x32_10(state->ctr, state->key);
        state->STATE = 0;
    }
    return word;
}
// The next four words; the position inside a group of four is kept.
inline uint4 curand4(curandStatePhilox4_32_10_t* state) {
    const uint4 now = state->output;
    hostcuda::philox_advance(state->ctr, 1);
    const uint4 next = state->output = curand_Philox4x32_10(state->ctr, state->key);
    switch (state->STATE) {
        case 0: return now;
        case 1: return make_uint4(now.y, now.z, now.w, next.x);
        case 2: return make_uint4(now.z, now.w, next.x, next.y);
        default: return make_uint4(now.w, next.x, next.y, next.z);
    }
}

#endif
