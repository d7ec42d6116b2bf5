// Which states a cuRAND function of device code takes here, for functions that several generators share.
#pragma once
#include <type_traits>

#include "../curand_globals.h"
#include "../curand_mrg32k3a.h"
#include "../curand_philox4x32_x.h"
#include "curand_xorwow.h"

namespace hostcuda {
template <class State> concept curand_philox = std::is_same_v<State, curandStatePhilox4_32_10>;
template <class State> concept curand_mrg = std::is_same_v<State, curandStateMRG32k3a>;
template <class State> concept curand_words = std::is_same_v<State, curandStateXORWOW> || curand_philox<State>;  // 32 bits at a time
template <class State> concept curand_state = curand_words<State> || curand_mrg<State>;
}  // namespace hostcuda
