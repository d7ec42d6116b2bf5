// Complex numbers of CUDA's cuComplex.h: float2 and double2 with functions. Pure. Quotients and magnitudes are scaled, so that
// they neither overflow nor lose everything when only an intermediate value would.
#ifndef HOSTCUDA_CUCOMPLEX_H
#define HOSTCUDA_CUCOMPLEX_H

#include <cmath>

#include "vector_functions.h"

#define HC_COMPLEX(type, real, f, make)                                                                     \
    inline real cuCreal##f(type x) { return x.x; }                                                          \
    inline real cuCimag##f(type x) { return x.y; }                                                          \
    inline type cuConj##f(type x) { return make(x.x, -x.y); }                                               \
    inline type cuCadd##f(type a, type b) { return make(a.x + b.x, a.y + b.y); }                            \
    inline type cuCsub##f(type a, type b) { return make(a.x - b.x, a.y - b.y); }                            \
    inline type cuCmul##f(type a, type b) { return make(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }    \
    inline type cuCdiv##f(type a, type b) {                                                                 \
        const real scale = std::fabs(b.x) + std::fabs(b.y);                                                 \
        const real ax = a.x / scale, ay = a.y / scale, bx = b.x / scale, by = b.y / scale;                  \
        const real square = bx * bx + by * by;                                                              \
        return make((ax * bx + ay * by) / square, (ay * bx - ax * by) / square);                            \
    }                                                                                                       \
    inline real cuCabs##f(type x) { return std::hypot(x.x, x.y); }                                          \
    inline type cuCfma##f(type a, type b, type c) { return cuCadd##f(cuCmul##f(a, b), c); }

using cuFloatComplex = float2;
using cuDoubleComplex = double2;
using cuComplex = cuFloatComplex;
inline cuFloatComplex make_cuFloatComplex(float x, float y) { return make_float2(x, y); }
inline cuDoubleComplex make_cuDoubleComplex(double x, double y) { return make_double2(x, y); }
inline cuComplex make_cuComplex(float x, float y) { return make_float2(x, y); }
HC_COMPLEX(cuFloatComplex, float, f, make_cuFloatComplex)
HC_COMPLEX(cuDoubleComplex, double, , make_cuDoubleComplex)
#undef HC_COMPLEX
inline cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex x) { return make_float2(static_cast<float>(x.x), static_cast<float>(x.y)); }
inline cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex x) { return make_double2(x.x, x.y); }

#endif
