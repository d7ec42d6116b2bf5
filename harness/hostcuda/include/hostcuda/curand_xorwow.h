// cuRAND's default generator, XORWOW, bit for bit (Marsaglia: Xorshift RNGs; Journal of Statistical Software 8, 14, 2003): five words of a xorshift and
// a Weyl sequence `d`. Subsequences lie 2^67 steps apart; the jumps are the runtime's (runtime/random_jumps.cpp).
#ifndef HOSTCUDA_CURAND_XORWOW_H
#define HOSTCUDA_CURAND_XORWOW_H
#include "cuda_runtime.h"

struct curandStateXORWOW {
    unsigned int d, v[5];
    int boxmuller_flag;
    int boxmuller_flag_double;
    float boxmuller_extra;
    unsigned int hostcuda_padding;  // set like the rest: who copies a state reads these bytes too
    double boxmuller_extra_double;
};
typedef struct curandStateXORWOW curandStateXORWOW_t;
typedef struct curandStateXORWOW curandState_t;
typedef struct curandStateXORWOW curandState;

namespace hostcuda {
constexpr unsigned xorwow_weyl = 362437u, xorwow_subsequence = 67;
// The state is read and written here, where the checks see it; the jump itself is arithmetic on a copy.
inline void xorwow_skip(curandStateXORWOW* state, unsigned long long count, unsigned power) {
    if (count == 0) return;
    std::uint32_t v[5] = {state->v[0], state->v[1], state->v[2], state->v[3], state->v[4]};
    xorwow_jump(v, count, power);
    for (int i = 0; i < 5; ++i) state->v[i] = v[i];
}
}  // namespace hostcuda

inline void skipahead(unsigned long long n, curandStateXORWOW_t* state) {
    hostcuda::xorwow_skip(state, n, 0);
    state->d += hostcuda::xorwow_weyl * static_cast<unsigned>(n);
}
// `d` stays: it comes round after 2^32 steps.
inline void skipahead_sequence(unsigned long long n, curandStateXORWOW_t* state) { hostcuda::xorwow_skip(state, n, hostcuda::xorwow_subsequence); }
inline void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset, curandStateXORWOW_t* state) {
    const unsigned low = 1099087573u * (static_cast<unsigned>(seed) ^ 0xaad26b49u), high = 2591861531u * (static_cast<unsigned>(seed >> 32) ^ 0xf7dcefddu);
    state->d = 6615241u + high + low;
    state->v[0] = 123456789u + low;
    state->v[1] = 362436069u ^ low;
    state->v[2] = 521288629u + high;
    state->v[3] = 88675123u ^ high;
    state->v[4] = 5783321u + low;
    skipahead_sequence(subsequence, state);
    skipahead(offset, state);
    state->boxmuller_flag = state->boxmuller_flag_double = 0;
    state->boxmuller_extra = 0.0f;
    state->hostcuda_padding = 0;
    state->boxmuller_extra_double = 0.0;
}

inline unsigned int curand(curandStateXORWOW_t* state) {
    const unsigned first = state->v[0] ^ state->v[0] >> 2, last = state->v[4];
    for (int i = 0; i < 4; ++i) state->v[i] = state->v[i + 1];
    const unsigned next = last ^ last << 4 ^ first ^ first << 1;
    state->v[4] = next;
    return next + (state->d += hostcuda::xorwow_weyl);
}

#endif
