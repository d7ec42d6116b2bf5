// CUDA's built-in vector types for the host device: char1 .. double4 with the sizes and alignments that a
// GPU gives them (CUDA C++ Programming Guide, "Built-in Vector Types"), so that casting a float* to float4* moves
// the same bytes and a misaligned cast is as visible here as there. Pure: includes nothing. dim3 is not here; it belongs
// to the launch headers.
#ifndef HOSTCUDA_VECTOR_TYPES_H
#define HOSTCUDA_VECTOR_TYPES_H

enum cudaRoundMode { cudaRoundNearest, cudaRoundZero, cudaRoundPosInf, cudaRoundMinInf };

#define HOSTCUDA_VECTORS(name, type, align2, align4) \
    struct name##1 { type x; };                      \
    struct alignas(align2) name##2 { type x, y; };   \
    struct name##3 { type x, y, z; };                \
    struct alignas(align4) name##4 { type x, y, z, w; };

HOSTCUDA_VECTORS(char, signed char, 2, 4)
HOSTCUDA_VECTORS(uchar, unsigned char, 2, 4)
HOSTCUDA_VECTORS(short, short, 4, 8)
HOSTCUDA_VECTORS(ushort, unsigned short, 4, 8)
HOSTCUDA_VECTORS(int, int, 8, 16)
HOSTCUDA_VECTORS(uint, unsigned int, 8, 16)
HOSTCUDA_VECTORS(long, long, 16, 16)
HOSTCUDA_VECTORS(ulong, unsigned long, 16, 16)
HOSTCUDA_VECTORS(longlong, long long, 16, 16)
HOSTCUDA_VECTORS(ulonglong, unsigned long long, 16, 16)
HOSTCUDA_VECTORS(float, float, 8, 16)
HOSTCUDA_VECTORS(double, double, 16, 16)
#undef HOSTCUDA_VECTORS

// CUDA 13 names the alignment of the 32-byte vectors; the plain names above keep the older 16.
#define HOSTCUDA_VECTOR4_ALIGNED(name, type)                 \
    struct alignas(16) name##4_16a { type x, y, z, w; };     \
    struct alignas(32) name##4_32a { type x, y, z, w; };

HOSTCUDA_VECTOR4_ALIGNED(long, long)
HOSTCUDA_VECTOR4_ALIGNED(ulong, unsigned long)
HOSTCUDA_VECTOR4_ALIGNED(longlong, long long)
HOSTCUDA_VECTOR4_ALIGNED(ulonglong, unsigned long long)
HOSTCUDA_VECTOR4_ALIGNED(double, double)
#undef HOSTCUDA_VECTOR4_ALIGNED

#endif
