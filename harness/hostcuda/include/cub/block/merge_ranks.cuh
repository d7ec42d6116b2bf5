// The place of every item of a block after a stable sort. Threads sort their own items, then runs of threads are merged pairwise in shared memory:
// an item finds its place in the other run by bisection. Each thread keeps its items and follows where they go, so that what travels
// with them can be sent straight to its place. The runs that the sort begins with stand in reverse in the storage, so that a thread writes where another
// one may still be reading if a barrier was left out before.
#pragma once
#include "../util.cuh"

namespace cub {
namespace detail {

// After it `shared` holds the sorted keys, for all to read; `places[i]` says where this thread's item `i` went. Of the block's items the first
// `valid` are sorted; those after them stay where they are.
template <int Threads, int N, class Shared, class Key, class Before>
void merge_ranks(Shared& shared, const Key (&keys)[N], int (&places)[N], Before before, int line, int valid = Threads * N) {
    constexpr int count = Threads * N;
    const int rank = block_rank();
    const int sorted = valid - rank * N < 0 ? 0 : valid - rank * N < N ? valid - rank * N : N;
    for (int i = 0; i < N; ++i) {
        int place = i < sorted ? 0 : i;
        for (int j = 0; i < sorted && j < sorted; ++j) place += j < i ? !before(keys[i], keys[j]) : before(keys[j], keys[i]);
        places[i] = rank * N + place;
        shared[count - 1 - places[i]] = keys[i];
    }
    __syncthreads(line);
    if (Threads == 1) {
        for (int i = 0; i < N; ++i) shared[places[i]] = keys[i];
    }
    for (int run = N; run < count; run *= 2) {
        for (int i = 0; i < sorted; ++i) {
            const int own = places[i] / run * run, pair = places[i] / (2 * run) * (2 * run);
            const bool first = own == pair;
            const int other = first ? own + run : pair;
            int low = other < valid ? other : valid, high = other + run < valid ? other + run : valid;
            const int start = low;
            while (low < high) {
                const int middle = low + (high - low) / 2;
                const Key found = shared[run == N ? count - 1 - middle : middle];
                // of equals those of the first run come first
                if (first ? before(found, keys[i]) : !before(keys[i], found)) low = middle + 1;
                else high = middle;
            }
            places[i] = pair + (places[i] - own) + (low - start);
        }
        __syncthreads(line);
        for (int i = 0; i < N; ++i) shared[places[i]] = keys[i];
        __syncthreads(line);
    }
}

}  // namespace detail
}  // namespace cub
