// c10::cuda::compat: the mathematical functions by one name for float and double.
#pragma once
#include "cuda.h"

namespace c10::cuda::compat {
#define HOSTCUDA_COMPAT(name, single)                       \
    inline float name(float x) { return ::single(x); }      \
    inline double name(double x) { return ::name(x); }
HOSTCUDA_COMPAT(ceil, ceilf)
HOSTCUDA_COMPAT(exp, expf)
HOSTCUDA_COMPAT(floor, floorf)
HOSTCUDA_COMPAT(log, logf)
HOSTCUDA_COMPAT(log1p, log1pf)
HOSTCUDA_COMPAT(normcdf, normcdff)
HOSTCUDA_COMPAT(rsqrt, rsqrtf)
HOSTCUDA_COMPAT(sqrt, sqrtf)
HOSTCUDA_COMPAT(tan, tanf)
HOSTCUDA_COMPAT(tanh, tanhf)
#undef HOSTCUDA_COMPAT
inline float abs(float x) { return ::fabsf(x); }
inline double abs(double x) { return ::fabs(x); }
inline float copysign(float x, float y) { return ::copysignf(x, y); }
inline double copysign(double x, double y) { return ::copysign(x, y); }
inline float max(float x, float y) { return ::fmaxf(x, y); }
inline double max(double x, double y) { return ::fmax(x, y); }
inline float min(float x, float y) { return ::fminf(x, y); }
inline double min(double x, double y) { return ::fmin(x, y); }
inline float pow(float x, float y) { return ::powf(x, y); }
inline double pow(double x, double y) { return ::pow(x, y); }
inline void sincos(float x, float* s, float* c) { ::sincosf(x, s, c); }
inline void sincos(double x, double* s, double* c) { ::sincos(x, s, c); }
}  // namespace c10::cuda::compat
