// What a GPU computes: conversions, shifts, division, fused operations, fast-math intrinsics, half and bfloat16.
//
// A line for each operation: its name, the kind of its results (f32, f64, f16, bf16 or int), then their bits for the operands below.
// `arithmetic_sm90.tsv` is what an H200 gave (CUDA 13.0, driver 580.159.04):
//
//     nvcc -std=c++17 -O2 -arch=sm_90 -DPROGRAM arithmetic_probe.cu -o probe && ./probe > arithmetic_sm90.tsv
//
// tests/integration/test_hostcuda_arithmetic.py runs the same kernels on the host device and compares.
#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

typedef unsigned long long u64;

static const int COUNT = 64;

// Operands: edges first, then numbers of a generator, evenly over exponents.
static const float FLOATS[] = {0.0f, -0.0f, 1.0e-45f, -1.1754942e-38f, 1.17549435e-38f, 5.9604645e-8f, 2.9802322e-8f, 6.1035156e-5f, 0.49999997f, 0.5f, -0.5f, 1.0f, -1.0f, 1.5f, -1.5f, 2.5f,
                              -3.5f, 127.5f, 128.0f, -128.5f, 255.5f, 256.0f, 448.0f, 464.0f, 2049.0f, 32767.5f, 65504.0f, 65519.996f, 65520.0f, 16777218.0f, 2147483520.0f, 2147483648.0f,
                              -2147483648.0f, 4294967296.0f, -1.0e10f, 9.223372e18f, 1.8446744e19f, 1.0e20f, 3.4028235e38f, -3.4028235e38f, INFINITY, -INFINITY, NAN, 0.33333334f, 3.1415927f, 2.7182817f, -88.5f, 89.0f};

static unsigned next(unsigned& state) { return state = state * 1664525u + 1013904223u; }

static std::vector<float> floats() {
    std::vector<float> all(FLOATS, FLOATS + sizeof FLOATS / sizeof *FLOATS);
    unsigned state = 7;
    while ((int)all.size() < COUNT) {
        const unsigned word = next(state), bits = (word & 0x807fffffu) | ((96 + (next(state) >> 26)) << 23);
        float value;
        memcpy(&value, &bits, sizeof value);
        all.push_back(value);
    }
    return all;
}
static std::vector<int> ints() {
    std::vector<int> all = {0, 1, -1, 2, -2, 7, -7, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 1000, -1000, 32767, 32768, 65535, 65536, 16777217, 0x7fffffff, (int)0x80000000, (int)0xfffffff0};
    unsigned state = 11;
    while ((int)all.size() < COUNT) all.push_back((int)next(state));
    return all;
}

// Second and third operands are the first ones in other orders.
__device__ static int second(int i) { return (i * 29 + 5) % COUNT; }
__device__ static int third(int i) { return (i * 43 + 11) % COUNT; }

__device__ static u64 bits(float v) { return __float_as_uint(v); }
__device__ static u64 bits(double v) { return (u64)__double_as_longlong(v); }
__device__ static u64 bits(int v) { return (unsigned)v; }
__device__ static u64 bits(unsigned v) { return v; }
__device__ static u64 bits(long long v) { return (u64)v; }
__device__ static u64 bits(u64 v) { return v; }
__device__ static u64 bits(__half v) { return __half_as_ushort(v); }
__device__ static u64 bits(__nv_bfloat16 v) { return __bfloat16_as_ushort(v); }
__device__ static u64 bits(bool v) { return v; }

static const char* const KINDS[] = {"int", "f32", "f64", "f16", "bf16"};
template <class T> __device__ static char kind_of(T) { return 0; }
__device__ static char kind_of(float) { return 1; }
__device__ static char kind_of(double) { return 2; }
__device__ static char kind_of(__half) { return 3; }
__device__ static char kind_of(__nv_bfloat16) { return 4; }

template <class T> __device__ static T left(T value, int n) { return value << n; }
template <class T> __device__ static T right(T value, int n) { return value >> n; }

// `x`, `y`, `z` are floats, `i`, `j` are ints, `d`, `e` doubles of `x` and `y` plus a third, `h`, `k`, `l` halves and `a`, `b`, `c` bfloat16 of `x`, `y`, `z`.
#define OPERATIONS(DO)                                                                                                    \
    /* conversions */                                                                                                                                                        \
    DO(int_of_float, (int)x) DO(unsigned_of_float, (unsigned)x) DO(longlong_of_float, (long long)x) DO(ulonglong_of_float, (unsigned long long)x) DO(char_of_float, (int)(signed char)x)     \
    DO(uchar_of_float, (int)(unsigned char)x) DO(short_of_float, (int)(short)x) DO(bool_of_float, (bool)x) DO(int_of_double, (int)d) DO(unsigned_of_double, (unsigned)d)      \
    DO(longlong_of_double, (long long)d) DO(ulonglong_of_double, (unsigned long long)d) DO(float_of_double, (float)d) DO(float_of_int, (float)i) DO(float_of_unsigned, (float)(unsigned)i)  \
    DO(double_of_int, (double)i) DO(float2int_rn, __float2int_rn(x)) DO(float2int_rz, __float2int_rz(x)) DO(float2int_ru, __float2int_ru(x)) DO(float2int_rd, __float2int_rd(x)) \
    DO(float2uint_rn, __float2uint_rn(x)) DO(float2uint_rz, __float2uint_rz(x)) DO(float2ll_rn, __float2ll_rn(x)) DO(double2int_rn, __double2int_rn(d))                      \
    DO(double2float_rz, __double2float_rz(d)) DO(int2float_rz, __int2float_rz(i)) DO(uint2float_ru, __uint2float_ru((unsigned)i)) DO(rint, rintf(x)) DO(round, roundf(x))     \
    DO(trunc, truncf(x)) DO(floor, floorf(x)) DO(ceil, ceilf(x)) DO(saturate, __saturatef(x))                                                                                 \
    /* shifts and integers */                                                                                                                                                \
    DO(shift_left, left(1u, i)) DO(shift_right, right(0xdeadbeefu, i)) DO(shift_signed, right(-8, i)) DO(shift_left_long, left(5ll, i)) DO(shift_right_long, right(0xdeadbeefcafebabeull, i))         \
    DO(funnel_left, __funnelshift_l(0x12345678u, 0x9abcdef0u, i)) DO(funnel_right_clamped, __funnelshift_rc(0x12345678u, 0x9abcdef0u, i)) DO(multiply, i * j) DO(add, i + j)   \
    DO(negate, -i) DO(absolute, abs(i)) DO(divide, i / (j ? j : 3)) DO(modulo, i % (j ? j : 3)) DO(divide_unsigned, (unsigned)i / (unsigned)(j ? j : 3))                      \
    DO(divide_by_any, i / k0) DO(modulo_by_any, i % k0) DO(divide_unsigned_by_any, (unsigned)i / (unsigned)k0) DO(modulo_unsigned_by_any, (unsigned)i % (unsigned)k0)            \
    DO(divide_long_by_any, l0 / k0) DO(modulo_long_by_any, l0 % k0) DO(divide_ulong_by_any, (unsigned long long)l0 / (unsigned)k0) DO(divide_short_by_any, (short)i / (short)k0) \
    DO(seven_by_any, -7 / k0) DO(seven_modulo_any, -7 % k0) \
    DO(divide_long, (long long)i * j / (j ? j : 3)) DO(mulhi, __mulhi(i, j)) DO(umulhi, __umulhi((unsigned)i, (unsigned)j)) DO(mul24, __mul24(i, j)) DO(sad, __sad(i, j, 7u))  \
    DO(clz, __clz(i)) DO(ffs, __ffs(i)) DO(popc, __popc(i)) DO(brev, __brev((unsigned)i)) DO(byte_perm, __byte_perm((unsigned)i, (unsigned)j, 0x3715)) DO(hadd_int, __hadd(i, j)) \
    DO(rhadd_int, __rhadd(i, j)) DO(dp4a, __dp4a(i, j, 100)) DO(vadd4, __vadd4((unsigned)i, (unsigned)j)) DO(vmaxs2, __vmaxs2((unsigned)i, (unsigned)j))                      \
    /* float32 */                                                                                                                                                            \
    DO(float_add, x + y) DO(float_multiply, x * y) DO(contracted, x * y + z) DO(contracted_minus, x - y * z) DO(fused, fmaf(x, y, z)) DO(apart, __fadd_rn(__fmul_rn(x, y), z))  \
    DO(add_rz, __fadd_rz(x, y)) DO(add_ru, __fadd_ru(x, y)) DO(multiply_rd, __fmul_rd(x, y)) DO(fma_rz, __fmaf_rz(x, y, z)) DO(float_divide, x / y) DO(divide_rz, __fdiv_rz(x, y)) \
    DO(reciprocal, 1.0f / x) DO(reciprocal_rn, __frcp_rn(x)) DO(root, sqrtf(x)) DO(root_rz, __fsqrt_rz(x)) DO(smaller, fminf(x, y)) DO(larger, fmaxf(x, y))                  \
    DO(remainder, fmodf(x, y)) DO(with_sign, copysignf(x, y)) DO(difference, fdimf(x, y)) DO(scaled, ldexpf(x, i % 200)) DO(exponent, ilogbf(x))                              \
    DO(less, x < y) DO(double_add, d + e) DO(double_fused, fma(d, e, (double)z)) DO(double_contracted, d * e + z) DO(double_divide, d / e)                                    \
    /* half and bfloat16 */                                                                                                                                                  \
    DO(half_of_float, __float2half_rn(x)) DO(half_of_float_rz, __float2half_rz(x)) DO(half_of_float_ru, __float2half_ru(x)) DO(half_of_double, __double2half(d))              \
    DO(half_of_int, __int2half_rn(i)) DO(int_of_half, __half2int_rz(h)) DO(uint_of_half, __half2uint_rn(h)) DO(ll_of_half, __half2ll_rz(h)) DO(half_add, __hadd(h, k))               \
    DO(half_multiply, __hmul(h, k)) DO(half_fused, __hfma(h, k, l)) DO(half_fused_saturated, __hfma_sat(h, k, l)) DO(half_fused_relu, __hfma_relu(h, k, l)) DO(half_divide, __hdiv(h, k))   \
    DO(half_root, hsqrt(h)) DO(half_smaller, __hmin(h, k)) DO(half_larger, __hmax(h, k)) DO(half_larger_nan, __hmax_nan(h, k)) DO(half_less, __hlt(h, k))                    \
    DO(half_unordered_less, __hltu(h, k)) DO(half_rint, hrint(h)) DO(half_floor, hfloor(h)) DO(half_negated, __hneg(h)) DO(half_saturated_add, __hadd_sat(h, k))               \
    DO(bfloat16_of_float, __float2bfloat16_rn(x)) DO(bfloat16_of_float_rz, __float2bfloat16_rz(x)) DO(bfloat16_of_double, __double2bfloat16(d))                               \
    DO(bfloat16_of_int, __int2bfloat16_rn(i)) DO(int_of_bfloat16, __bfloat162int_rz(a)) DO(bfloat16_add, __hadd(a, b)) DO(bfloat16_multiply, __hmul(a, b))                                  \
    DO(bfloat16_fused, __hfma(a, b, c)) DO(bfloat16_divide, __hdiv(a, b)) DO(bfloat16_larger, __hmax(a, b)) DO(bfloat16_rint, hrint(a))                                              \
    DO(e4m3, (int)__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3)) DO(e5m2, (int)__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2))                                     \
    DO(e5m2_infinite, (int)__nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E5M2)) DO(half_of_e4m3, __half(__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)i, __NV_E4M3)))               \
    /* approximations: equal to a tolerance */                                                                                                                               \
    DO(fast_exp, __expf(x)) DO(fast_exp10, __exp10f(x)) DO(fast_log, __logf(x)) DO(fast_log2, __log2f(x)) DO(fast_sin, __sinf(x)) DO(fast_cos, __cosf(x))                     \
    DO(fast_power, __powf(x, y)) DO(fast_divide, __fdividef(x, y)) DO(reverse_root, rsqrtf(x)) DO(frsqrt, __frsqrt_rn(x)) DO(exp, expf(x)) DO(exp2, exp2f(x))                 \
    DO(expm1, expm1f(x)) DO(log, logf(x)) DO(log1p, log1pf(x)) DO(sin, sinf(x)) DO(cos, cosf(x)) DO(tanh, tanhf(x)) DO(erf, erff(x)) DO(erfc, erfcf(x)) DO(power, powf(x, y))  \
    DO(cube_root, cbrtf(x)) DO(hypotenuse, hypotf(x, y)) DO(arctangent, atan2f(x, y)) DO(gamma, lgammaf(x)) DO(half_exp, hexp(h)) DO(half_log, hlog(h)) DO(half_rsqrt, hrsqrt(h))  \
    DO(bfloat16_exp, hexp(a)) DO(bfloat16_tanh, __float2bfloat16_rn(tanhf(__bfloat162float(a)))) DO(operand_x, x) DO(operand_y, y) DO(operand_divisor, k0)

#define NAME(name, expression) #name,
static const char* const NAMES[] = {OPERATIONS(NAME)};
static const int OPERATION_COUNT = sizeof NAMES / sizeof *NAMES;

#define COMPUTE(name, expression) kinds[at] = kind_of(expression), out[COUNT * at++ + t] = bits(expression);
__global__ void compute(const float* floats, const int* ints, u64* out, char* kinds, int zero) {
    const int t = threadIdx.x;
    const float x = floats[t], y = floats[second(t)], z = floats[third(t)];
    const int i = ints[t], j = ints[second(t)], k0 = t % 4 == 0 ? zero : t % 4 == 1 ? -1 : j;  // a zero that the compiler can't see
    const long long l0 = (long long)i * 0x100000001ll;
    const double d = (double)x * 1.0000001, e = (double)y + 1.0 / 3.0;
    const __half h = __float2half_rn(x), k = __float2half_rn(y), l = __float2half_rn(z);
    const __nv_bfloat16 a = __float2bfloat16_rn(x), b = __float2bfloat16_rn(y), c = __float2bfloat16_rn(z);
    int at = 0;
    OPERATIONS(COMPUTE)
}

// The table as text; throws nothing, says an error in its first line.
std::string table() {
    const std::vector<float> x = floats();
    const std::vector<int> i = ints();
    float* device_x;
    int* device_i;
    u64* device_out;
    char* device_kinds;
    std::vector<u64> out((size_t)OPERATION_COUNT * COUNT);
    std::vector<char> kinds(OPERATION_COUNT);
    cudaMalloc((void**)&device_x, COUNT * sizeof *device_x);
    cudaMalloc((void**)&device_i, COUNT * sizeof *device_i);
    cudaMalloc((void**)&device_out, out.size() * sizeof *device_out);
    cudaMalloc((void**)&device_kinds, kinds.size());
    cudaMemcpy(device_x, x.data(), COUNT * sizeof *device_x, cudaMemcpyHostToDevice);
    cudaMemcpy(device_i, i.data(), COUNT * sizeof *device_i, cudaMemcpyHostToDevice);
    compute<<<1, COUNT>>>(device_x, device_i, device_out, device_kinds, 0);
    cudaMemcpy(kinds.data(), device_kinds, kinds.size(), cudaMemcpyDeviceToHost);
    const cudaError_t error = cudaMemcpy(out.data(), device_out, out.size() * sizeof *device_out, cudaMemcpyDeviceToHost);
    cudaFree(device_x), cudaFree(device_i), cudaFree(device_out), cudaFree(device_kinds);
    if (error != cudaSuccess) return std::string("error: ") + cudaGetErrorString(error) + "\n";
    std::string text;
    char number[24];
    for (int row = 0; row < OPERATION_COUNT; ++row) {
        text += std::string(NAMES[row]) + "\t" + KINDS[(int)kinds[row]];
        for (int t = 0; t < COUNT; ++t) {
            snprintf(number, sizeof number, "\t%llx", out[(size_t)row * COUNT + t]);
            text += number;
        }
        text += "\n";
    }
    return text;
}

#ifdef PROGRAM
int main() {
    fputs(table().c_str(), stdout);
    return 0;
}
#endif
