// Prefix sums over the lanes of logical warps.
#pragma once
#include "../util.cuh"

namespace cub {

template <class T, int Lanes = 32, int = 0> class WarpScan {
public:
    struct TempStorage { char unused; };
    explicit WarpScan(TempStorage&) {}
    template <class F> void InclusiveScan(T value, T& out, F combine, T& total) {
        gather(value, "cub::WarpScan");
        out = total = all_[0];
        for (unsigned i = 1; i < Lanes; ++i) {
            total = combine(total, all_[i]);
            if (i <= rank_) out = total;
        }
    }
    template <class F> void InclusiveScan(T value, T& out, F combine) { T total; InclusiveScan(value, out, combine, total); }
    template <class F> void ExclusiveScan(T value, T& out, T initial, F combine, T& total) {
        gather(value, "cub::WarpScan");
        out = initial, total = all_[0];
        for (unsigned i = 0; i < rank_; ++i) out = combine(out, all_[i]);
        for (unsigned i = 1; i < Lanes; ++i) total = combine(total, all_[i]);
    }
    template <class F> void ExclusiveScan(T value, T& out, T initial, F combine) { T total; ExclusiveScan(value, out, initial, combine, total); }
    void InclusiveSum(T value, T& out) { InclusiveScan(value, out, cub::Sum()); }
    void InclusiveSum(T value, T& out, T& total) { InclusiveScan(value, out, cub::Sum(), total); }
    void ExclusiveSum(T value, T& out) { ExclusiveScan(value, out, T(0), cub::Sum()); }
    void ExclusiveSum(T value, T& out, T& total) { ExclusiveScan(value, out, T(0), cub::Sum(), total); }
    T Broadcast(T value, unsigned source) { return gather(value, "cub::WarpScan"), all_[source]; }

private:
    void gather(T value, const char* kind, HOSTCUDA_LINE) {
        const unsigned lane = static_cast<unsigned>(hostcuda::lane_id()), first = lane - lane % Lanes;
        const unsigned mask = Lanes == 32 ? 0xffffffffu : ((1u << (Lanes & 31)) - 1u) << first;
        T warp[32];
        hostcuda::warp_collective(hostcuda::WarpOperation::exchange, mask, &value, warp, sizeof(T), 0, kind, line);
        rank_ = lane - first;
        for (unsigned i = 0; i < Lanes; ++i) all_[i] = warp[first + i];
    }
    T all_[Lanes];
    unsigned rank_ = 0;
};

}  // namespace cub
