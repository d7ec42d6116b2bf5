// Warp-wide matrix products for the host device: what mma.sync (hostcuda/ptx_table.h) and nvcuda::wmma (mma.h) share.
// Every lane publishes its fragments through warp_exchange() and computes the elements of the result that it
// holds. Products are exact and summed in double (integers: in 64 bits, wrapped), rounded once into the accumulator:
// a GPU sums in float with truncation, so results agree to float precision, not to the last bit.
#ifndef HOSTCUDA_MATRIX_H
#define HOSTCUDA_MATRIX_H

#include <cstdint>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_fp8.h"
#include "hostcuda/float_bits.h"
#include "hostcuda/warp.h"

namespace hostcuda {
namespace ptx {
struct Tf32 { float value; };  // the lower 13 bits don't count
}

// The number a matrix element stands for, and the type its products are summed in.
template <class T> struct Element;
template <> struct Element<__half> { using Sum = double; static double number(__half v) { return widen(v); } };
template <> struct Element<__nv_bfloat16> { using Sum = double; static double number(__nv_bfloat16 v) { return widen(v); } };
template <> struct Element<ptx::Tf32> { using Sum = double; static double number(ptx::Tf32 v) { return truncated_tf32(v.value); } };
template <> struct Element<__nv_fp8_e4m3> { using Sum = double; static double number(__nv_fp8_e4m3 v) { return static_cast<float>(v); } };
template <> struct Element<__nv_fp8_e5m2> { using Sum = double; static double number(__nv_fp8_e5m2 v) { return static_cast<float>(v); } };
template <> struct Element<double> { using Sum = double; static double number(double v) { return v; } };
template <> struct Element<std::int8_t> { using Sum = std::int64_t; static std::int64_t number(std::int8_t v) { return v; } };
template <> struct Element<std::uint8_t> { using Sum = std::int64_t; static std::int64_t number(std::uint8_t v) { return v; } };

inline double number_of(float value) { return value; }
inline double number_of(double value) { return value; }
inline double number_of(__half value) { return widen(value); }
template <class D> inline D accumulated(double sum) { return static_cast<D>(sum); }
template <> inline __half accumulated<__half>(double sum) { return half_of<Round::nearest>(sum); }
inline std::int32_t accumulated_integer(std::int64_t sum, bool saturate) {
    if (saturate) {
        return static_cast<std::int32_t>(sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum);
    }
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(sum));
}

namespace ptx {
// mma.sync.m*n8k*: with g = lane / 4, t = lane % 4 and P elements of A in a 32-bit word,
//   A word i, element j:  row g + 8 (i % 2), column 4 P (i / 2) + P t + j
//   B word i, element j:  row 4 P i + P t + j, column g
//   C, D element e:       row g + 8 (e / 2), column 2 t + e % 2
// (PTX ISA, "Matrix Fragments for mma.m16n8k*"). For f64 a "word" is one double and there are 8 rows.
template <int M, int N, int K, class A, class B, class D, bool Saturated, class Word, int Sums, int WordsA, int WordsB>
inline void mma(Word (&d)[Sums], const Word (&a)[WordsA], const Word (&b)[WordsB], const Word (&c)[Sums]) {
    constexpr int per_word = static_cast<int>(sizeof(Word) / sizeof(A));
    static_assert(sizeof(A) == sizeof(B) && N == 8 && K == per_word * 4 * WordsB, "a shape of mma.sync");
    struct Fragments { Word a[WordsA]; Word b[WordsB]; };
    Fragments mine, all[32];
    for (int i = 0; i < WordsA; ++i) mine.a[i] = a[i];
    for (int i = 0; i < WordsB; ++i) mine.b[i] = b[i];
    warp_exchange(0xffffffffu, &mine, sizeof(mine), all, "mma.sync");
    using Sum = typename Element<A>::Sum;
    const int g = lane_id() / 4, t = lane_id() % 4;
    constexpr int rows = M / 8;
    Sum left[rows][K], right[2][K];
    const auto decode_a = [](Word word, int j) {
        A element;
        __builtin_memcpy(&element, reinterpret_cast<const char*>(&word) + j * sizeof(A), sizeof(A));
        return Element<A>::number(element);
    };
    const auto decode_b = [](Word word, int j) {
        B element;
        __builtin_memcpy(&element, reinterpret_cast<const char*>(&word) + j * sizeof(B), sizeof(B));
        return Element<B>::number(element);
    };
    for (int k = 0; k < K; ++k) {
        const int half = k / (4 * per_word), lane = (k / per_word) % 4, j = k % per_word;
        for (int r = 0; r < rows; ++r) left[r][k] = decode_a(all[4 * g + lane].a[rows * half + r], j);
        for (int n = 0; n < 2; ++n) right[n][k] = decode_b(all[4 * (2 * t + n) + lane].b[half], j);
    }
    D start[2 * rows], end[2 * rows];
    static_assert(sizeof(start) == sizeof(d), "accumulators fill their registers");
    __builtin_memcpy(start, c, sizeof(start));
    for (int e = 0; e < 2 * rows; ++e) {
        Sum sum = 0;
        for (int k = 0; k < K; ++k) sum += left[e / 2][k] * right[e % 2][k];
        if constexpr (std::is_integral<Sum>::value) {
            end[e] = accumulated_integer(sum + static_cast<Sum>(start[e]), Saturated);
        } else {
            end[e] = accumulated<D>(sum + number_of(start[e]));
        }
    }
    __builtin_memcpy(d, end, sizeof(end));
}
}  // namespace ptx
}  // namespace hostcuda

#endif
