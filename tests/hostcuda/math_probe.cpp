// Array versions of the pure device functions, for tests/unit/hostcuda/test_math.py to call through ctypes and compare with torch,
// numpy and exact rationals. HALF is 0 for the portable conversions and 1 with -mf16c.
#include <cstddef>
#include <type_traits>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_fp8.h"
#include "hostcuda/math_intrinsics.h"
#include "math_constants.h"

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned;
using u64 = unsigned long long;
using s16 = short;
using s32 = int;
using s64 = long long;
static __half h(u16 bits) { return __ushort_as_half(bits); }
static u16 h(__half value) { return __half_as_ushort(value); }
static __nv_bfloat16 b(u16 bits) { return __ushort_as_bfloat16(bits); }
static u16 b(__nv_bfloat16 value) { return __bfloat16_as_ushort(value); }

#define MAP1(name, out, in, expression)                                             \
    extern "C" void name(out* o, const in* p, std::size_t n) {                      \
        for (std::size_t i = 0; i < n; ++i) { const in x = p[i]; o[i] = expression; } \
    }
#define MAP2(name, out, in, expression)                                                                        \
    extern "C" void name(out* o, const in* p, const in* q, std::size_t n) {                                    \
        for (std::size_t i = 0; i < n; ++i) { const in x = p[i], y = q[i]; o[i] = expression; }                \
    }
#define MAP3(name, out, in, expression)                                                                        \
    extern "C" void name(out* o, const in* p, const in* q, const in* r, std::size_t n) {                       \
        for (std::size_t i = 0; i < n; ++i) { const in x = p[i], y = q[i], z = r[i]; o[i] = expression; }      \
    }

// ---- 16-bit and 8-bit formats
MAP1(half_to_float, float, u16, __half2float(h(x)))
MAP1(bfloat16_to_float, float, u16, __bfloat162float(b(x)))
#define NARROWINGS(suffix)                                                      \
    MAP1(float_to_half_##suffix, u16, float, h(__float2half_##suffix(x)))       \
    MAP1(float_to_bfloat16_##suffix, u16, float, b(__float2bfloat16_##suffix(x))) \
    MAP1(half_to_int_##suffix, s32, u16, __half2int_##suffix(h(x)))             \
    MAP1(bfloat16_to_int_##suffix, s32, u16, __bfloat162int_##suffix(b(x)))     \
    MAP1(ll_to_bfloat16_##suffix, u16, s64, b(__ll2bfloat16_##suffix(x)))       \
    MAP1(int_to_half_##suffix, u16, s32, h(__int2half_##suffix(x)))
NARROWINGS(rn)
NARROWINGS(rz)
NARROWINGS(ru)
NARROWINGS(rd)
MAP1(double_to_half, u16, double, h(__double2half(x)))
MAP1(double_to_bfloat16, u16, double, b(__double2bfloat16(x)))
MAP1(e4m3_nosat, u8, float, __nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E4M3))
MAP1(e5m2_nosat, u8, float, __nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E5M2))
MAP1(e4m3_sat, u8, float, __nv_fp8_e4m3(x).__x)
MAP1(e5m2_sat, u8, float, __nv_fp8_e5m2(x).__x)
MAP1(e4m3_to_float, float, u8, hostcuda::fp8_to_float(x, __NV_E4M3))
MAP1(e5m2_to_float, float, u8, hostcuda::fp8_to_float(x, __NV_E5M2))
#define ARITHMETIC(prefix, f)                                                       \
    MAP2(prefix##_add, u16, u16, f(__hadd(f(x), f(y))))                             \
    MAP2(prefix##_sub, u16, u16, f(f(x) - f(y)))                                    \
    MAP2(prefix##_mul, u16, u16, f(__hmul(f(x), f(y))))                             \
    MAP2(prefix##_div, u16, u16, f(f(x) / f(y)))                                    \
    MAP3(prefix##_fma, u16, u16, f(__hfma(f(x), f(y), f(z))))                       \
    MAP3(prefix##_fma_sat, u16, u16, f(__hfma_sat(f(x), f(y), f(z))))               \
    MAP3(prefix##_fma_relu, u16, u16, f(__hfma_relu(f(x), f(y), f(z))))             \
    MAP2(prefix##_max, u16, u16, f(__hmax(f(x), f(y))))                             \
    MAP2(prefix##_min, u16, u16, f(__hmin(f(x), f(y))))                             \
    MAP2(prefix##_max_nan, u16, u16, f(__hmax_nan(f(x), f(y))))                     \
    MAP2(prefix##_compare, u32, u16,                                                \
         u32(__heq(f(x), f(y))) | u32(__hne(f(x), f(y))) << 1 | u32(__hlt(f(x), f(y))) << 2 | u32(__hle(f(x), f(y))) << 3 | \
             u32(__hgt(f(x), f(y))) << 4 | u32(__hge(f(x), f(y))) << 5 | u32(__hequ(f(x), f(y))) << 6 |                     \
             u32(__hneu(f(x), f(y))) << 7 | u32(__hltu(f(x), f(y))) << 8 | u32(f(x) < f(y)) << 9 | u32(f(x) != f(y)) << 10) \
    MAP1(prefix##_exp, u16, u16, f(hexp(f(x))))                                     \
    MAP1(prefix##_log2, u16, u16, f(hlog2(f(x))))                                   \
    MAP1(prefix##_sqrt, u16, u16, f(hsqrt(f(x))))                                   \
    MAP1(prefix##_rsqrt, u16, u16, f(hrsqrt(f(x))))                                 \
    MAP1(prefix##_rint, u16, u16, f(hrint(f(x))))                                   \
    MAP1(prefix##_tanh, u16, u16, f(htanh(f(x))))
ARITHMETIC(half, h)
ARITHMETIC(bfloat16, b)
MAP2(half2_fma, u32, u32,
     hostcuda::bits_cast<u32>(__hfma2(hostcuda::bits_cast<__half2>(x), hostcuda::bits_cast<__half2>(y), __float2half2_rn(1.0f))))
MAP2(half2_lt_mask, u32, u32, __hlt2_mask(hostcuda::bits_cast<__half2>(x), hostcuda::bits_cast<__half2>(y)))

// ---- named roundings
#define ROUNDED(suffix)                                                    \
    MAP2(fadd_##suffix, float, float, __fadd_##suffix(x, y))               \
    MAP2(fmul_##suffix, float, float, __fmul_##suffix(x, y))               \
    MAP2(fdiv_##suffix, float, float, __fdiv_##suffix(x, y))               \
    MAP3(fmaf_##suffix, float, float, __fmaf_##suffix(x, y, z))            \
    MAP2(dadd_##suffix, double, double, __dadd_##suffix(x, y))             \
    MAP3(fma_##suffix, double, double, __fma_##suffix(x, y, z))            \
    MAP1(float_to_int_##suffix, s32, float, __float2int_##suffix(x))       \
    MAP1(float_to_uint_##suffix, u32, float, __float2uint_##suffix(x))     \
    MAP1(double_to_ll_##suffix, s64, double, __double2ll_##suffix(x))      \
    MAP1(int_to_float_##suffix, float, s32, __int2float_##suffix(x))       \
    MAP1(ll_to_float_##suffix, float, s64, __ll2float_##suffix(x))         \
    MAP1(ull_to_double_##suffix, double, u64, __ull2double_##suffix(x))    \
    MAP1(double_to_float_##suffix, float, double, __double2float_##suffix(x))
ROUNDED(rn)
ROUNDED(rz)
ROUNDED(ru)
ROUNDED(rd)
MAP3(multiply_then_add, float, float, __fadd_rn(__fmul_rn(x, y), z))
MAP1(tf32, float, float, hostcuda::to_tf32(x))

// ---- functions
MAP1(erfinv_, double, double, erfinv(x))
MAP1(erfcinv_, double, double, erfcinv(x))
MAP1(erfcx_, double, double, erfcx(x))
MAP1(normcdf_, double, double, normcdf(x))
MAP1(normcdfinv_, double, double, normcdfinv(x))
MAP1(bessel_i0, double, double, cyl_bessel_i0(x))
MAP1(bessel_i1, double, double, cyl_bessel_i1(x))
MAP1(sinpi_, double, double, sinpi(x))
MAP1(cospi_, double, double, cospi(x))
MAP1(rsqrtf_, float, float, rsqrtf(x))
MAP1(saturatef, float, float, __saturatef(x))
MAP2(fdividef_, float, float, __fdividef(x, y))
MAP2(powf_, float, float, __powf(x, y))
MAP1(exp10f_, float, float, __exp10f(x))

// ---- integers
MAP1(popc, s32, u32, __popc(x))
MAP1(clz, s32, u32, __clz(int(x)))
MAP1(ffs_, s32, u32, __ffs(int(x)))
MAP1(brev, u32, u32, __brev(x))
MAP1(brevll, u64, u64, __brevll(x))
MAP1(clzll, s32, u64, __clzll(s64(x)))
MAP3(byte_perm, u32, u32, __byte_perm(x, y, z))
MAP3(funnel_l, u32, u32, __funnelshift_l(x, y, z))
MAP3(funnel_lc, u32, u32, __funnelshift_lc(x, y, z))
MAP3(funnel_r, u32, u32, __funnelshift_r(x, y, z))
MAP3(funnel_rc, u32, u32, __funnelshift_rc(x, y, z))
MAP2(mul24, u32, u32, u32(__mul24(int(x), int(y))))
MAP2(umul24, u32, u32, __umul24(x, y))
MAP2(mulhi, u32, u32, u32(__mulhi(int(x), int(y))))
MAP2(umulhi, u32, u32, __umulhi(x, y))
MAP2(mul64hi, u64, u64, u64(__mul64hi(s64(x), s64(y))))
MAP2(umul64hi, u64, u64, __umul64hi(x, y))
MAP2(hadd_, u32, u32, u32(__hadd(int(x), int(y))))
MAP2(urhadd, u32, u32, __urhadd(x, y))
MAP3(sad, u32, u32, __sad(int(x), int(y), z))
MAP3(dp4a, u32, u32, u32(__dp4a(int(x), int(y), int(z))))
MAP3(udp4a, u32, u32, __dp4a(x, y, z))
MAP3(dp2a_lo, u32, u32, u32(__dp2a_lo(int(x), int(y), int(z))))
MAP3(udp2a_hi, u32, u32, __dp2a_hi(x, y, z))
MAP3(fns, u32, u32, __fns(x, y & 31u, int(z % 65u) - 32))
MAP3(viaddmax, u32, u32, u32(__viaddmax_s32(int(x), int(y), int(z))))
MAP3(vimax3_relu, u32, u32, u32(__vimax3_s32_relu(int(x), int(y), int(z))))
MAP3(viaddmax_s16x2, u32, u32, __viaddmax_s16x2(x, y, z))
MAP2(max_mixed, u32, u32, max(int(x), y))
#define PACKED2(name) MAP2(name##2_, u32, u32, __##name##2(x, y)) MAP2(name##4_, u32, u32, __##name##4(x, y))
#define PACKED1(name) MAP1(name##2_, u32, u32, __##name##2(x)) MAP1(name##4_, u32, u32, __##name##4(x))
PACKED2(vadd)
PACKED2(vsub)
PACKED2(vaddss)
PACKED2(vaddus)
PACKED2(vsubss)
PACKED2(vsubus)
PACKED2(vavgs)
PACKED2(vavgu)
PACKED2(vhaddu)
PACKED2(vmaxs)
PACKED2(vmaxu)
PACKED2(vmins)
PACKED2(vminu)
PACKED2(vabsdiffs)
PACKED2(vabsdiffu)
PACKED2(vcmpeq)
PACKED2(vcmpgts)
PACKED2(vcmpleu)
PACKED2(vsetges)
PACKED2(vsetltu)
PACKED2(vsads)
PACKED2(vsadu)
PACKED1(vabs)
PACKED1(vabsss)
PACKED1(vneg)
PACKED1(vnegss)

// ---- sizes and alignments, as "name size alignment" lines
#define LAYOUT(type) {#type, sizeof(type), alignof(type)},
struct Layout { const char* name; std::size_t size, alignment; };
static const Layout layouts[] = {
    LAYOUT(char1) LAYOUT(char2) LAYOUT(char3) LAYOUT(char4) LAYOUT(uchar4) LAYOUT(short2) LAYOUT(short3) LAYOUT(short4)
    LAYOUT(ushort4) LAYOUT(int1) LAYOUT(int2) LAYOUT(int3) LAYOUT(int4) LAYOUT(uint4) LAYOUT(long2) LAYOUT(longlong2)
    LAYOUT(longlong4) LAYOUT(float1) LAYOUT(float2) LAYOUT(float3) LAYOUT(float4) LAYOUT(double2) LAYOUT(double3) LAYOUT(double4)
    LAYOUT(double4_16a) LAYOUT(double4_32a) LAYOUT(__half) LAYOUT(__half2) LAYOUT(__nv_bfloat16) LAYOUT(__nv_bfloat162)
    LAYOUT(__nv_fp8_e4m3) LAYOUT(__nv_fp8x2_e5m2) LAYOUT(__nv_fp8x4_e4m3)
};
extern "C" std::size_t layout_count() { return sizeof(layouts) / sizeof(layouts[0]); }
extern "C" const Layout* layout_at(std::size_t i) { return &layouts[i]; }

static_assert(std::is_trivially_copyable<__half2>::value && std::is_trivially_copyable<__nv_bfloat162>::value, "unions and shared arrays");
static_assert(std::is_trivially_default_constructible<__half>::value, "shared memory is not initialised");

// ---- torch's scalars convert from and to CUDA's, as its CUDA headers let them
struct FakeTorchHalf {
    u16 x;
    struct from_bits_t {};
    static constexpr from_bits_t from_bits() { return from_bits_t(); }
    FakeTorchHalf(u16 bits, from_bits_t) : x(bits) {}
};
namespace std {
template <> class numeric_limits<FakeTorchHalf> { public: static constexpr int digits = 11; };
}
extern "C" u16 torch_half_round_trip(u16 bits) {
    const FakeTorchHalf before(bits, FakeTorchHalf::from_bits());
    const __half middle = before;
    const FakeTorchHalf after = middle;
    return after.x;
}
