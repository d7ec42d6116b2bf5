// Random numbers in device code, as cuRAND has them: the generators XORWOW (`curandState`), Philox 4x32-10 and MRG32k3a with their distributions. Words
// and uniform numbers are a GPU's bit for bit; what goes through logarithms, sines or exponentials differs from it in the last bits.
#ifndef HOSTCUDA_CURAND_KERNEL_H
#define HOSTCUDA_CURAND_KERNEL_H
#include "curand_globals.h"
#include "curand_lognormal.h"
#include "curand_mrg32k3a.h"
#include "curand_normal.h"
#include "curand_philox4x32_x.h"
#include "curand_poisson.h"
#include "curand_uniform.h"
#include "hostcuda/curand_xorwow.h"

#endif
