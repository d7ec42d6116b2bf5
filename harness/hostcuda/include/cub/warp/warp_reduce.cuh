// Reductions over the lanes of logical warps; the first lane of each has the result.
#pragma once
#include "../util.cuh"

namespace cub {

template <class T, int Lanes = 32, int = 0> class WarpReduce {
public:
    struct TempStorage { char unused; };
    explicit WarpReduce(TempStorage&) {}
    // The result is defined in the first lane of each logical warp.
    template <class F> T Reduce(T value, F combine, int valid, HOSTCUDA_LINE) {
        const unsigned lane = static_cast<unsigned>(hostcuda::lane_id()), first = lane - lane % Lanes;
        const unsigned mask = Lanes == 32 ? 0xffffffffu : ((1u << (Lanes & 31)) - 1u) << first;
        T all[32];
        hostcuda::warp_collective(hostcuda::WarpOperation::exchange, mask, &value, all, sizeof(T), 0, "cub::WarpReduce", line);
        T result = all[first];
        for (int i = 1; i < valid; ++i) result = combine(result, all[first + static_cast<unsigned>(i)]);
        return result;
    }
    template <class F> T Reduce(T value, F combine) { return Reduce(value, combine, Lanes); }
    T Sum(T value) { return Reduce(value, cub::Sum(), Lanes); }
    T Sum(T value, int valid) { return Reduce(value, cub::Sum(), valid); }
};

}  // namespace cub
