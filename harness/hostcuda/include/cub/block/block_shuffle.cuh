// Items shifted or rotated by a distance over a block's threads.
#pragma once
#include "../util.cuh"

namespace cub {

template <class T, int X, int Y = 1, int Z = 1, int = 0> class BlockShuffle {
    static constexpr int threads = X * Y * Z;

public:
    struct TempStorage { detail::Raw<T, threads> values; };
    BlockShuffle() : storage_(detail::own_storage<BlockShuffle, TempStorage>()) {}
    explicit BlockShuffle(TempStorage& storage) : storage_(storage) {}

    // What would come from beyond the block leaves `out` as it was.
    void Offset(T in, T& out, int distance = 1, HOSTCUDA_AT) {
        give(in, at);
        const int from = detail::block_rank() + distance;
        if (from >= 0 && from < threads) out = storage_.values[from];
    }
    void Rotate(T in, T& out, unsigned distance = 1, HOSTCUDA_AT) {
        give(in, at);
        out = storage_.values[static_cast<int>((static_cast<unsigned>(detail::block_rank()) + distance) % threads)];
    }
    template <int N> void Up(T (&in)[N], T (&previous)[N], HOSTCUDA_AT) {
        give(in[N - 1], at);
        for (int i = N - 1; i > 0; --i) previous[i] = in[i - 1];
        if (detail::block_rank() > 0) previous[0] = storage_.values[detail::block_rank() - 1];
    }
    template <int N> void Up(T (&in)[N], T (&previous)[N], T& last_of_block, HOSTCUDA_AT) {
        Up(in, previous, at);
        last_of_block = storage_.values[threads - 1];
    }
    template <int N> void Down(T (&in)[N], T (&next)[N], HOSTCUDA_AT) {
        give(in[0], at);
        for (int i = 0; i < N - 1; ++i) next[i] = in[i + 1];
        if (detail::block_rank() < threads - 1) next[N - 1] = storage_.values[detail::block_rank() + 1];
    }
    template <int N> void Down(T (&in)[N], T (&next)[N], T& first_of_block, HOSTCUDA_AT) {
        Down(in, next, at);
        first_of_block = storage_.values[0];
    }

private:
    void give(const T& value, detail::At at) {
        storage_.values[detail::block_rank()] = value;
        __syncthreads(at.line);
    }
    TempStorage& storage_;
};

}  // namespace cub
