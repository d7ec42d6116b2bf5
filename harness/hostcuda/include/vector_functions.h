// make_<vector>() for every type of vector_types.h. Pure.
#ifndef HOSTCUDA_VECTOR_FUNCTIONS_H
#define HOSTCUDA_VECTOR_FUNCTIONS_H

#include "vector_types.h"

#define HOSTCUDA_MAKE(name, type)                                                                    \
    inline constexpr name##1 make_##name##1(type x) { return name##1{x}; }                           \
    inline constexpr name##2 make_##name##2(type x, type y) { return name##2{x, y}; }                \
    inline constexpr name##3 make_##name##3(type x, type y, type z) { return name##3{x, y, z}; }     \
    inline constexpr name##4 make_##name##4(type x, type y, type z, type w) { return name##4{x, y, z, w}; }

HOSTCUDA_MAKE(char, signed char)
HOSTCUDA_MAKE(uchar, unsigned char)
HOSTCUDA_MAKE(short, short)
HOSTCUDA_MAKE(ushort, unsigned short)
HOSTCUDA_MAKE(int, int)
HOSTCUDA_MAKE(uint, unsigned int)
HOSTCUDA_MAKE(long, long)
HOSTCUDA_MAKE(ulong, unsigned long)
HOSTCUDA_MAKE(longlong, long long)
HOSTCUDA_MAKE(ulonglong, unsigned long long)
HOSTCUDA_MAKE(float, float)
HOSTCUDA_MAKE(double, double)
#undef HOSTCUDA_MAKE

#define HOSTCUDA_MAKE_ALIGNED(name, type)                                                              \
    inline constexpr name make_##name(type x, type y, type z, type w) { return name{x, y, z, w}; }

HOSTCUDA_MAKE_ALIGNED(long4_16a, long)
HOSTCUDA_MAKE_ALIGNED(long4_32a, long)
HOSTCUDA_MAKE_ALIGNED(ulong4_16a, unsigned long)
HOSTCUDA_MAKE_ALIGNED(ulong4_32a, unsigned long)
HOSTCUDA_MAKE_ALIGNED(longlong4_16a, long long)
HOSTCUDA_MAKE_ALIGNED(longlong4_32a, long long)
HOSTCUDA_MAKE_ALIGNED(ulonglong4_16a, unsigned long long)
HOSTCUDA_MAKE_ALIGNED(ulonglong4_32a, unsigned long long)
HOSTCUDA_MAKE_ALIGNED(double4_16a, double)
HOSTCUDA_MAKE_ALIGNED(double4_32a, double)
#undef HOSTCUDA_MAKE_ALIGNED

#endif
