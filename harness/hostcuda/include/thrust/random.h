// Engines and distributions of random numbers, in host and device code.
#pragma once
#include "random/linear_congruential_engine.h"
#include "random/normal_distribution.h"
#include "random/uniform_int_distribution.h"
#include "random/uniform_real_distribution.h"

namespace thrust {
namespace random {
using default_random_engine = minstd_rand;
}
using random::default_random_engine;
}  // namespace thrust
