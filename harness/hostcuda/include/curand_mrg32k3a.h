// cuRAND's MRG32k3a generator, bit for bit (L'Ecuyer: Good parameters and implementations for combined multiple recursive random number generators;
// Operations Research 47, 1999), in integers. Subsequences lie 2^76 steps apart and sequences 2^127; the jumps are the runtime's (runtime/random_jumps.cpp).
#ifndef HOSTCUDA_CURAND_MRG32K3A_H
#define HOSTCUDA_CURAND_MRG32K3A_H
#include "cuda_runtime.h"

#define MRG32K3A_NORM (2.3283065498378288e-10)
#define MRG32K3A_BITS_NORM 1.000000048662

struct curandStateMRG32k3a {
    unsigned int s1[3];
    unsigned int s2[3];
    int boxmuller_flag;
    int boxmuller_flag_double;
    float boxmuller_extra;
    unsigned int hostcuda_padding;  // set like the rest: who copies a state reads these bytes too
    double boxmuller_extra_double;
};
typedef struct curandStateMRG32k3a curandStateMRG32k3a_t;

namespace hostcuda {
constexpr unsigned mrg32k3a_subsequence = 76, mrg32k3a_sequence = 127;
// The state is read and written here, where the checks see it; the jump itself is arithmetic on a copy.
inline void mrg32k3a_skip(curandStateMRG32k3a* state, unsigned long long count, unsigned power) {
    if (count == 0) return;
    std::uint32_t s1[3] = {state->s1[0], state->s1[1], state->s1[2]}, s2[3] = {state->s2[0], state->s2[1], state->s2[2]};
    mrg32k3a_jump(s1, s2, count, power);
    for (int i = 0; i < 3; ++i) state->s1[i] = s1[i], state->s2[i] = s2[i];
}
}  // namespace hostcuda

inline void skipahead(unsigned long long n, curandStateMRG32k3a_t* state) { hostcuda::mrg32k3a_skip(state, n, 0); }
inline void skipahead_subsequence(unsigned long long n, curandStateMRG32k3a_t* state) { hostcuda::mrg32k3a_skip(state, n, hostcuda::mrg32k3a_subsequence); }
inline void skipahead_sequence(unsigned long long n, curandStateMRG32k3a_t* state) { hostcuda::mrg32k3a_skip(state, n, hostcuda::mrg32k3a_sequence); }
inline void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset, curandStateMRG32k3a_t* state) {
    const std::uint64_t low = static_cast<unsigned>(seed) ^ 0x55555555u, high = static_cast<unsigned>(seed >> 32) ^ 0xAAAAAAAAu;
    for (int i = 0; i < 3; ++i) {
        const std::uint64_t one = i == 1 ? high : low, two = i == 1 ? low : high;
        state->s1[i] = seed == 0 ? 12345u : static_cast<unsigned>(one * 12345u % hostcuda::mrg32k3a_modulus1);
        state->s2[i] = seed == 0 ? 12345u : static_cast<unsigned>(two * 12345u % hostcuda::mrg32k3a_modulus2);
    }
    skipahead_subsequence(subsequence, state);
    skipahead(offset, state);
    state->boxmuller_flag = state->boxmuller_flag_double = 0;
    state->boxmuller_extra = 0.0f;
    state->hostcuda_padding = 0;
    state->boxmuller_extra_double = 0.0;
}

// A whole number in 1 ... 4294967087.
inline double curand_MRG32k3a(curandStateMRG32k3a_t* state) {
    using namespace hostcuda;
    const std::uint64_t one = (std::uint64_t{1403580} * state->s1[1] + std::uint64_t{810728} * (mrg32k3a_modulus1 - state->s1[0])) % mrg32k3a_modulus1;
    const std::uint64_t two = (std::uint64_t{527612} * state->s2[2] + std::uint64_t{1370589} * (mrg32k3a_modulus2 - state->s2[0])) % mrg32k3a_modulus2;
    state->s1[0] = state->s1[1], state->s1[1] = state->s1[2], state->s1[2] = static_cast<unsigned>(one);
    state->s2[0] = state->s2[1], state->s2[1] = state->s2[2], state->s2[2] = static_cast<unsigned>(two);
    return static_cast<double>(one <= two ? one + mrg32k3a_modulus1 - two : one - two);
}
inline unsigned int curand(curandStateMRG32k3a_t* state) { return static_cast<unsigned>(curand_MRG32k3a(state) * MRG32K3A_BITS_NORM); }

#endif
