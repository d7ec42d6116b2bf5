// Differences of a block's items to their left or right neighbours.
#pragma once
#include "../util.cuh"

namespace cub {

template <class T, int X, int Y = 1, int Z = 1, int = 0> class BlockAdjacentDifference {
    static constexpr int threads = X * Y * Z;

public:
    struct TempStorage { detail::Raw<T, threads> first, last; };
    BlockAdjacentDifference() : storage_(detail::own_storage<BlockAdjacentDifference, TempStorage>()) {}
    explicit BlockAdjacentDifference(TempStorage& storage) : storage_(storage) {}

    // An item at the edge of the tile, without a neighbour beyond, stays as it is. `in` and `out` may be the same array.
    template <int N, class U, class Op> void SubtractLeft(T (&in)[N], U (&out)[N], Op difference, HOSTCUDA_AT) {
        left(in, out, difference, threads * N, nullptr, at);
    }
    template <int N, class U, class Op> void SubtractLeft(T (&in)[N], U (&out)[N], Op difference, T before, HOSTCUDA_AT) {
        left(in, out, difference, threads * N, &before, at);
    }
    template <int N, class U, class Op> void SubtractLeftPartialTile(T (&in)[N], U (&out)[N], Op difference, int valid, HOSTCUDA_AT) {
        left(in, out, difference, valid, nullptr, at);
    }
    template <int N, class U, class Op> void SubtractRight(T (&in)[N], U (&out)[N], Op difference, HOSTCUDA_AT) {
        right(in, out, difference, threads * N, nullptr, at);
    }
    template <int N, class U, class Op> void SubtractRight(T (&in)[N], U (&out)[N], Op difference, T after, HOSTCUDA_AT) {
        right(in, out, difference, threads * N, &after, at);
    }
    template <int N, class U, class Op> void SubtractRightPartialTile(T (&in)[N], U (&out)[N], Op difference, int valid, HOSTCUDA_AT) {
        right(in, out, difference, valid, nullptr, at);
    }

private:
    template <int N, class U, class Op> void left(T (&in)[N], U (&out)[N], Op difference, int valid, const T* before, detail::At at) {
        const int rank = detail::block_rank();
        storage_.last[rank] = in[N - 1];
        __syncthreads(at.line);
        for (int i = N - 1; i >= 0; --i) {
            const int place = rank * N + i;
            if (place >= valid || (place == 0 && before == nullptr)) out[i] = in[i];
            else if (i != 0) out[i] = difference(in[i], in[i - 1]);
            else out[0] = difference(in[0], place == 0 ? *before : storage_.last[rank - 1]);
        }
    }
    template <int N, class U, class Op> void right(T (&in)[N], U (&out)[N], Op difference, int valid, const T* after, detail::At at) {
        const int rank = detail::block_rank();
        storage_.first[rank] = in[0];
        __syncthreads(at.line);
        for (int i = 0; i < N; ++i) {
            const int next = rank * N + i + 1;
            if (next > valid || (next == valid && (after == nullptr || valid != threads * N))) out[i] = in[i];
            else if (i != N - 1) out[i] = difference(in[i], in[i + 1]);
            else out[i] = difference(in[i], next == threads * N ? *after : storage_.first[rank + 1]);
        }
    }
    TempStorage& storage_;
};

}  // namespace cub
