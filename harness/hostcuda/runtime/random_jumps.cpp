// Jumps ahead in the generators of cuRAND that are linear: one step is a product with a matrix, so that 2^k steps are one with its k-th square. The squares
// are computed at the first jump of a process and shared by its threads from then on. The headers with the generators themselves are curand_*.h.
#include <array>
#include <cstdint>
#include <vector>

#include "hostcuda/interface.h"

namespace hostcuda {

namespace {

// ---- XORWOW: 160 bits, matrices over the field of two elements
constexpr unsigned xorwow_words = 5, xorwow_bits = 32 * xorwow_words, nibbles = xorwow_bits / 4;
constexpr unsigned xorwow_powers = 67 + 64;  // the subsequences' distance, and a 64-bit number of them

using Bits = std::array<std::uint32_t, xorwow_words>;

// What each value of each four bits of the state contributes to the product: 40 loads for one instead of 160 tests, for a million threads that each
// begin a subsequence of their own.
class XorwowJump {
    typedef std::uint32_t Four __attribute__((vector_size(16)));
    Four low_[nibbles][16];
    std::uint32_t high_[nibbles][16];

public:
    Bits operator()(const Bits& v) const {
        Four low{};
        std::uint32_t high = 0;
        for (unsigned w = 0; w < xorwow_words; ++w) {
            std::uint32_t word = v[w];
            for (unsigned n = w * 8; n < w * 8 + 8; ++n, word >>= 4) low ^= low_[n][word & 15], high ^= high_[n][word & 15];
        }
        return {low[0], low[1], low[2], low[3], high};
    }
    // `image(v)` of every state with a single bit set says everything.
    template <class Image> void set(Image image) {
        for (unsigned n = 0; n < nibbles; ++n) {
            low_[n][0] = Four{}, high_[n][0] = 0;
            for (unsigned value = 1; value < 16; ++value) {
                const unsigned one = value & -value, others = value ^ one;
                if (others == 0) {
                    Bits v{};
                    v[n / 8] = value << n % 8 * 4;
                    v = image(v);
                    low_[n][value] = Four{v[0], v[1], v[2], v[3]}, high_[n][value] = v[4];
                } else {
                    low_[n][value] = low_[n][one] ^ low_[n][others], high_[n][value] = high_[n][one] ^ high_[n][others];
                }
            }
        }
    }
};

Bits xorwow_step(const Bits& v) {
    const std::uint32_t first = v[0] ^ v[0] >> 2;
    return {v[1], v[2], v[3], v[4], v[4] ^ v[4] << 4 ^ first ^ first << 1};
}

std::vector<XorwowJump> xorwow_squares() {
    std::vector<XorwowJump> jumps(xorwow_powers);
    jumps[0].set(xorwow_step);
    for (unsigned k = 1; k < xorwow_powers; ++k) jumps[k].set([&half = jumps[k - 1]](const Bits& v) { return half(half(v)); });
    return jumps;
}

// ---- MRG32k3a: two recurrences of three words, modulo two primes below 2^32
constexpr unsigned mrg32k3a_powers = 127 + 64;

using Row = std::array<std::uint64_t, 3>;
using Matrix = std::array<Row, 3>;

Row product(const Matrix& m, const Row& v, std::uint64_t modulus) {
    Row result{};
    for (unsigned i = 0; i < 3; ++i)
        for (unsigned k = 0; k < 3; ++k) result[i] = (result[i] + m[i][k] * v[k] % modulus) % modulus;
    return result;
}

Matrix square(const Matrix& m, std::uint64_t modulus) {
    Matrix result{};
    for (unsigned j = 0; j < 3; ++j) {
        const Row column = product(m, {m[0][j], m[1][j], m[2][j]}, modulus);
        for (unsigned i = 0; i < 3; ++i) result[i][j] = column[i];
    }
    return result;
}

std::vector<Matrix> squares(const Row& recurrence, std::uint64_t modulus) {
    std::vector<Matrix> jumps{Matrix{Row{0, 1, 0}, Row{0, 0, 1}, recurrence}};
    while (jumps.size() < mrg32k3a_powers) jumps.push_back(square(jumps.back(), modulus));
    return jumps;
}

void jump(const std::vector<Matrix>& jumps, std::uint64_t modulus, std::uint32_t* s, unsigned long long count, unsigned power) {
    Row v{s[0], s[1], s[2]};
    for (; count != 0; count >>= 1, ++power)
        if (count & 1) v = product(jumps[power], v, modulus);
    for (unsigned i = 0; i < 3; ++i) s[i] = static_cast<std::uint32_t>(v[i]);
}

}  // namespace

void xorwow_jump(std::uint32_t* v, unsigned long long count, unsigned power) {
    static const std::vector<XorwowJump> jumps = xorwow_squares();
    Bits state{v[0], v[1], v[2], v[3], v[4]};
    for (; count != 0; count >>= 1, ++power)
        if (count & 1) state = jumps[power](state);
    for (unsigned w = 0; w < xorwow_words; ++w) v[w] = state[w];
}

void mrg32k3a_jump(std::uint32_t* s1, std::uint32_t* s2, unsigned long long count, unsigned power) {
    static const std::vector<Matrix> first = squares({mrg32k3a_modulus1 - 810728, 1403580, 0}, mrg32k3a_modulus1);
    static const std::vector<Matrix> second = squares({mrg32k3a_modulus2 - 1370589, 0, 527612}, mrg32k3a_modulus2);
    jump(first, mrg32k3a_modulus1, s1, count, power);
    jump(second, mrg32k3a_modulus2, s2, count, power);
}

}  // namespace hostcuda
