// nvcuda::wmma for the host device: fragments of half, bfloat16, tf32, 8-bit integers and double, in the shapes CUDA has,
// with CUDA's number of elements a lane, so that loops over fragment.x run as they do on a GPU. Which element of the matrix a
// lane holds is left open by CUDA ("unspecified"); here accumulators follow the layout of mma.sync, A and B are cut into
// equal runs, and where CUDA keeps an element twice (half), it is kept twice here.
#ifndef HOSTCUDA_MMA_H
#define HOSTCUDA_MMA_H

#include <type_traits>

#include "hostcuda/matrix.h"

namespace nvcuda {
namespace wmma {

struct row_major;
struct col_major;
struct matrix_a;
struct matrix_b;
struct accumulator;
namespace precision {
struct tf32;
}
enum layout_t { mem_row_major, mem_col_major };

inline float __float_to_tf32(float value) { return ::hostcuda::to_tf32(value); }

namespace detail {
template <class T> struct Storage { using type = T; using Number = T; };
template <> struct Storage<precision::tf32> { using type = float; using Number = ::hostcuda::ptx::Tf32; };
template <> struct Storage<signed char> { using type = signed char; using Number = std::int8_t; };
template <> struct Storage<unsigned char> { using type = unsigned char; using Number = std::uint8_t; };

template <int M, int N, int K, class T> struct Shape : std::false_type {};
template <> struct Shape<16, 16, 16, __half> : std::true_type {};
template <> struct Shape<32, 8, 16, __half> : std::true_type {};
template <> struct Shape<8, 32, 16, __half> : std::true_type {};
template <> struct Shape<16, 16, 16, __nv_bfloat16> : std::true_type {};
template <> struct Shape<32, 8, 16, __nv_bfloat16> : std::true_type {};
template <> struct Shape<8, 32, 16, __nv_bfloat16> : std::true_type {};
template <> struct Shape<16, 16, 16, signed char> : std::true_type {};
template <> struct Shape<32, 8, 16, signed char> : std::true_type {};
template <> struct Shape<8, 32, 16, signed char> : std::true_type {};
template <> struct Shape<16, 16, 16, unsigned char> : std::true_type {};
template <> struct Shape<32, 8, 16, unsigned char> : std::true_type {};
template <> struct Shape<8, 32, 16, unsigned char> : std::true_type {};
template <> struct Shape<16, 16, 8, precision::tf32> : std::true_type {};
template <> struct Shape<8, 8, 4, double> : std::true_type {};

template <class T, int Distinct> struct Kept { static constexpr int count = Distinct; };
template <int Distinct> struct Kept<__half, Distinct> { static constexpr int count = 16; };

// Fragment data, and where its element e lies: `along` is the row of A or column of B, `inner` the position in the sum.
template <class T, int Along, int Inner> struct Factor {
    static constexpr int distinct = Along * Inner / 32;
    static constexpr int num_elements = Kept<T, distinct>::count;
    static constexpr int num_storage_elements = num_elements;
    using element_type = T;
    using storage_element_type = typename Storage<T>::type;
    storage_element_type x[num_elements];

    static int along(int lane, int e) { return (lane * distinct + e % distinct) / Inner; }
    static int inner(int lane, int e) { return (lane * distinct + e % distinct) % Inner; }
};
// Accumulators of M x N: tiles of 16 x 8 as mma.sync has them, side by side or below each other; 8 x 32 as the transpose of 32 x 8.
template <class T, int M, int N> struct Sum {
    static constexpr int num_elements = M * N / 32;
    static constexpr int num_storage_elements = num_elements;
    using element_type = T;
    using storage_element_type = T;
    T x[num_elements];

    static int row(int lane, int e) {
        if (M == 8) return N == 8 ? lane / 4 : 2 * (lane % 4) + e % 2;
        return (M == 32 ? 16 * (e / 4) : 0) + lane / 4 + 8 * ((e / 2) % 2);
    }
    static int column(int lane, int e) {
        if (M == 8 && N == 32) return 16 * (e / 4) + lane / 4 + 8 * ((e / 2) % 2);
        return (N == 16 ? 8 * (e / 4) : 0) + 2 * (lane % 4) + e % 2;
    }
};
inline void meet(const char* kind) {  // all lanes of the warp, as the _sync in these names says
    const char mine = 0;
    char all[32];
    ::hostcuda::warp_exchange(0xffffffffu, &mine, 1, all, kind);
}
}  // namespace detail

template <class Use, int M, int N, int K, class T, class Layout = void> struct fragment;

template <int M, int N, int K, class T, class Layout>
struct fragment<matrix_a, M, N, K, T, Layout> : detail::Factor<T, M, K> {
    static_assert(detail::Shape<M, N, K, T>::value, "CUDA has no wmma fragment of this shape and type");
    static_assert(std::is_same<Layout, row_major>::value || std::is_same<Layout, col_major>::value, "matrix_a needs a layout");
};
template <int M, int N, int K, class T, class Layout>
struct fragment<matrix_b, M, N, K, T, Layout> : detail::Factor<T, N, K> {
    static_assert(detail::Shape<M, N, K, T>::value, "CUDA has no wmma fragment of this shape and type");
    static_assert(std::is_same<Layout, row_major>::value || std::is_same<Layout, col_major>::value, "matrix_b needs a layout");
};
template <int M, int N, int K, class T> struct fragment<accumulator, M, N, K, T, void> : detail::Sum<T, M, N> {};

template <class Use, int M, int N, int K, class T, class Layout, class Value>
inline void fill_fragment(fragment<Use, M, N, K, T, Layout>& f, const Value& value) {
    for (int e = 0; e < f.num_elements; ++e) f.x[e] = static_cast<typename std::remove_reference<decltype(f.x[0])>::type>(value);
}

template <int M, int N, int K, class T, class Layout, class Memory>
inline void load_matrix_sync(fragment<matrix_a, M, N, K, T, Layout>& f, const Memory* from, unsigned stride) {
    detail::meet("wmma::load_matrix_sync");
    const int lane = ::hostcuda::lane_id();
    for (int e = 0; e < f.num_elements; ++e) {
        if (e >= f.distinct) {
            f.x[e] = f.x[e % f.distinct];
            continue;
        }
        const std::size_t row = static_cast<std::size_t>(f.along(lane, e)), k = static_cast<std::size_t>(f.inner(lane, e));
        f.x[e] = from[std::is_same<Layout, row_major>::value ? row * stride + k : k * stride + row];
    }
    detail::meet("wmma::load_matrix_sync");
}
template <int M, int N, int K, class T, class Layout, class Memory>
inline void load_matrix_sync(fragment<matrix_b, M, N, K, T, Layout>& f, const Memory* from, unsigned stride) {
    detail::meet("wmma::load_matrix_sync");
    const int lane = ::hostcuda::lane_id();
    for (int e = 0; e < f.num_elements; ++e) {
        if (e >= f.distinct) {
            f.x[e] = f.x[e % f.distinct];
            continue;
        }
        const std::size_t column = static_cast<std::size_t>(f.along(lane, e)), k = static_cast<std::size_t>(f.inner(lane, e));
        f.x[e] = from[std::is_same<Layout, row_major>::value ? k * stride + column : column * stride + k];
    }
    detail::meet("wmma::load_matrix_sync");
}
template <int M, int N, int K, class T, class Memory>
inline void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const Memory* from, unsigned stride, layout_t layout) {
    detail::meet("wmma::load_matrix_sync");
    const int lane = ::hostcuda::lane_id();
    for (int e = 0; e < f.num_elements; ++e) {
        const std::size_t row = static_cast<std::size_t>(f.row(lane, e)), column = static_cast<std::size_t>(f.column(lane, e));
        f.x[e] = from[layout == mem_row_major ? row * stride + column : column * stride + row];
    }
    detail::meet("wmma::load_matrix_sync");
}
template <int M, int N, int K, class T, class Memory>
inline void store_matrix_sync(Memory* to, const fragment<accumulator, M, N, K, T>& f, unsigned stride, layout_t layout) {
    detail::meet("wmma::store_matrix_sync");
    const int lane = ::hostcuda::lane_id();
    for (int e = 0; e < f.num_elements; ++e) {
        const std::size_t row = static_cast<std::size_t>(f.row(lane, e)), column = static_cast<std::size_t>(f.column(lane, e));
        to[layout == mem_row_major ? row * stride + column : column * stride + row] = f.x[e];
    }
    detail::meet("wmma::store_matrix_sync");
}

template <int M, int N, int K, class T, class LayoutA, class LayoutB, class D, class C>
inline void mma_sync(fragment<accumulator, M, N, K, D>& d, const fragment<matrix_a, M, N, K, T, LayoutA>& a,
                     const fragment<matrix_b, M, N, K, T, LayoutB>& b, const fragment<accumulator, M, N, K, C>& c,
                     bool saturate = false) {
    using A = fragment<matrix_a, M, N, K, T, LayoutA>;
    using B = fragment<matrix_b, M, N, K, T, LayoutB>;
    using Number = typename detail::Storage<T>::Number;
    using Total = typename ::hostcuda::Element<Number>::Sum;
    struct Mine { Number a[A::distinct]; Number b[B::distinct]; };
    Mine mine, all[32];
    for (int e = 0; e < A::distinct; ++e) mine.a[e] = Number{a.x[e]};
    for (int e = 0; e < B::distinct; ++e) mine.b[e] = Number{b.x[e]};
    ::hostcuda::warp_exchange(0xffffffffu, &mine, sizeof(mine), all, "wmma::mma_sync");
    const int lane = ::hostcuda::lane_id();
    // Rows and columns repeat among this lane's elements; each is decoded once.
    Total left[K], right[16][K];
    int row_at = -1;
    unsigned decoded = 0;
    int columns[16];
    for (int e = 0; e < d.num_elements; ++e) {
        columns[e] = -1;
        for (int before = 0; before < e; ++before) {
            if (d.column(lane, before) == d.column(lane, e)) columns[e] = columns[before];
        }
        if (columns[e] < 0) {
            columns[e] = static_cast<int>(decoded++);
            for (int k = 0; k < K; ++k) {
                const int at = d.column(lane, e) * K + k;
                right[columns[e]][k] = ::hostcuda::Element<Number>::number(all[at / B::distinct].b[at % B::distinct]);
            }
        }
        if (d.row(lane, e) != row_at) {
            row_at = d.row(lane, e);
            for (int k = 0; k < K; ++k) {
                const int at = row_at * K + k;
                left[k] = ::hostcuda::Element<Number>::number(all[at / A::distinct].a[at % A::distinct]);
            }
        }
        Total sum = 0;
        for (int k = 0; k < K; ++k) sum += left[k] * right[columns[e]][k];
        if constexpr (std::is_integral<Total>::value) {
            d.x[e] = ::hostcuda::accumulated_integer(sum + static_cast<Total>(c.x[e]), saturate);
        } else {
            d.x[e] = ::hostcuda::accumulated<D>(sum + ::hostcuda::number_of(c.x[e]));
        }
    }
}

}  // namespace wmma
}  // namespace nvcuda

#endif
