// Cooperative groups: thread blocks, tiles, coalesced groups, clusters, the grid. After the CUDA programming guide's chapter of that name.
#ifndef HOSTCUDA_COOPERATIVE_GROUPS_H
#define HOSTCUDA_COOPERATIVE_GROUPS_H
#include "cuda/atomic"
#include "cuda/std/cassert"
#include "cuda/std/chrono"
#include "cuda/std/limits"
#include "cuda/std/type_traits"
#include "cuda_runtime.h"

namespace cooperative_groups {

struct thread_block {
    static void sync(HOSTCUDA_LINE, HOSTCUDA_PLACE) { hostcuda::barrier(0, hostcuda::BarrierAnswer::none, line, place); }
    // Nobody may pass the wait before all have arrived; that nobody passes the arrival either is one of the orders allowed.
    struct arrival_token {};
    arrival_token barrier_arrive() const { return {}; }
    void barrier_wait(HOSTCUDA_LINE) const { sync(line); }
    void barrier_wait(arrival_token&&, HOSTCUDA_LINE) const { sync(line); }
    static unsigned thread_rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
    static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
    static unsigned num_threads() { return size(); }
    static dim3 group_index() { return dim3(blockIdx); }
    static dim3 thread_index() { return dim3(threadIdx); }
    static dim3 group_dim() { return blockDim; }
    static dim3 dim_threads() { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }
template <unsigned Threads = 1024> struct block_tile_memory {
    unsigned long long place[Threads / 32 + 1];
};
template <unsigned Threads> inline thread_block this_thread_block(block_tile_memory<Threads>&) { return {}; }

struct grid_group {
    static bool is_valid() { return true; }
    static void sync(HOSTCUDA_LINE) { hostcuda::grid_barrier(line); }
    struct arrival_token {};
    arrival_token barrier_arrive() const { return {}; }
    void barrier_wait(arrival_token&&, HOSTCUDA_LINE) const { sync(line); }
    static unsigned long long block_rank() { return blockIdx.x + static_cast<unsigned long long>(gridDim.x) * (blockIdx.y + static_cast<unsigned long long>(gridDim.y) * blockIdx.z); }
    static unsigned long long num_blocks() { return static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z; }
    static unsigned long long thread_rank() { return block_rank() * thread_block::size() + thread_block::thread_rank(); }
    static unsigned long long size() { return num_blocks() * thread_block::size(); }
    static unsigned long long num_threads() { return size(); }
    static dim3 group_dim() { return gridDim; }
    static dim3 dim_blocks() { return gridDim; }
    static dim3 block_index() { return dim3(blockIdx); }
    static dim3 dim_clusters() { return __clusterGridDimInClusters(); }
    static dim3 cluster_index() { return __clusterIdx(); }
    static unsigned long long num_clusters() { const dim3 d = dim_clusters(); return static_cast<unsigned long long>(d.x) * d.y * d.z; }
    static unsigned long long cluster_rank() {
        const dim3 at = cluster_index(), d = dim_clusters();
        return at.x + static_cast<unsigned long long>(d.x) * (at.y + static_cast<unsigned long long>(d.y) * at.z);
    }
};
inline grid_group this_grid() { return {}; }

struct cluster_group {
    static void sync(HOSTCUDA_LINE) {
        hostcuda::cluster_arrive(false, line);
        hostcuda::cluster_wait(line);
    }
    struct arrival_token {};
    static arrival_token barrier_arrive(HOSTCUDA_LINE) {
        hostcuda::cluster_arrive(false, line);
        return {};
    }
    static void barrier_wait(HOSTCUDA_LINE) { hostcuda::cluster_wait(line); }
    static void barrier_wait(arrival_token&&, HOSTCUDA_LINE) { hostcuda::cluster_wait(line); }
    static unsigned query_shared_rank(const void* p) { return hostcuda::cluster_rank_of(p); }
    template <class T> static T* map_shared_rank(T* p, int rank, HOSTCUDA_LINE) {
        return static_cast<T*>(hostcuda::cluster_map(const_cast<const void*>(static_cast<const volatile void*>(p)), static_cast<unsigned>(rank), line));
    }
    static dim3 block_index() { return __clusterRelativeBlockIdx(); }
    static unsigned block_rank() { return __clusterRelativeBlockRank(); }
    static dim3 dim_blocks() { return __clusterDim(); }
    static unsigned num_blocks() { return __clusterSizeInBlocks(); }
    static dim3 dim_threads() { const dim3 d = dim_blocks(); return dim3(d.x * blockDim.x, d.y * blockDim.y, d.z * blockDim.z); }
    static dim3 thread_index() {
        const dim3 at = block_index();
        return dim3(at.x * blockDim.x + threadIdx.x, at.y * blockDim.y + threadIdx.y, at.z * blockDim.z + threadIdx.z);
    }
    static unsigned thread_rank() { return block_rank() * thread_block::size() + thread_block::thread_rank(); }
    static unsigned num_threads() { return num_blocks() * thread_block::size(); }
    static unsigned size() { return num_threads(); }
};
inline cluster_group this_cluster() { return {}; }

// A set of lanes of one warp; `width` threads in rank order.
struct lanes_group {
    unsigned mask = 0;
    unsigned rank = 0;
    unsigned count = 0;
    unsigned lane_of_rank(unsigned r) const {
        unsigned rest = mask;
        for (unsigned i = 0; i < r; ++i) rest &= rest - 1;
        return rest == 0 ? static_cast<unsigned>(hostcuda::lane_id()) : static_cast<unsigned>(__builtin_ctz(rest));
    }
    unsigned thread_rank() const { return rank; }
    unsigned size() const { return count; }
    unsigned num_threads() const { return count; }
    unsigned pack(unsigned lanes) const {
        unsigned out = 0, i = 0;
        for (unsigned rest = mask; rest != 0; rest &= rest - 1, ++i) out |= (lanes >> __builtin_ctz(rest) & 1u) << i;
        return out;
    }
    void sync(HOSTCUDA_LINE) const { __syncwarp(mask, line); }
    template <class T> T shfl(T v, unsigned source, HOSTCUDA_LINE) const { return hostcuda::shuffle(mask, v, lane_of_rank(source % count), "shfl", line); }
    template <class T> T shfl_down(T v, unsigned d, HOSTCUDA_LINE) const { return hostcuda::shuffle(mask, v, rank + d < count ? lane_of_rank(rank + d) : lane_of_rank(rank), "shfl_down", line); }
    template <class T> T shfl_up(T v, unsigned d, HOSTCUDA_LINE) const { return hostcuda::shuffle(mask, v, rank >= d ? lane_of_rank(rank - d) : lane_of_rank(rank), "shfl_up", line); }
    template <class T> T shfl_xor(T v, unsigned x, HOSTCUDA_LINE) const { return hostcuda::shuffle(mask, v, (rank ^ x) < count ? lane_of_rank(rank ^ x) : lane_of_rank(rank), "shfl_xor", line); }
    int any(int p, HOSTCUDA_LINE) const { return __any_sync(mask, p, line); }
    int all(int p, HOSTCUDA_LINE) const { return __all_sync(mask, p, line); }
    unsigned ballot(int p, HOSTCUDA_LINE) const { return pack(__ballot_sync(mask, p, line)); }
    template <class T> unsigned match_any(T v, HOSTCUDA_LINE) const { return pack(__match_any_sync(mask, v, line)); }
    template <class T> unsigned match_all(T v, int& p, HOSTCUDA_LINE) const { return pack(__match_all_sync(mask, v, &p, line)); }
};

template <unsigned Size, class Parent = void> struct thread_block_tile : lanes_group {
    static_assert(Size >= 1 && (Size & (Size - 1)) == 0, "the size of a tile is a power of two");
    thread_block_tile() {
        if (Size > 32) hostcuda::not_emulated("cooperative groups: tiles of more than 32 threads");
        const unsigned lane = static_cast<unsigned>(hostcuda::lane_id()), first = lane & ~(Size - 1);
        mask = Size >= 32 ? 0xffffffffu : ((1u << (Size & 31u)) - 1u) << first;
        rank = lane - first;
        count = Size;
    }
    template <class Other> thread_block_tile(const thread_block_tile<Size, Other>& other) : lanes_group(other) {}
    static constexpr unsigned size() { return Size; }
    static constexpr unsigned num_threads() { return Size; }
    unsigned meta_group_rank() const { return thread_block::thread_rank() / Size; }
    unsigned meta_group_size() const { return (thread_block::size() + Size - 1) / Size; }
};
struct coalesced_group : lanes_group {
    unsigned meta_rank = 0;
    unsigned meta_size = 1;
    unsigned meta_group_rank() const { return meta_rank; }
    unsigned meta_group_size() const { return meta_size; }
    explicit coalesced_group(unsigned lanes, unsigned place = 0, unsigned groups = 1) : meta_rank(place), meta_size(groups) {
        mask = lanes;
        count = static_cast<unsigned>(__builtin_popcount(lanes));
        rank = static_cast<unsigned>(__builtin_popcount(lanes & ((1u << hostcuda::lane_id()) - 1u)));
    }
};
inline coalesced_group coalesced_threads(HOSTCUDA_LINE) { return coalesced_group(hostcuda::active_mask(line)); }
template <unsigned Size, class Parent> inline thread_block_tile<Size, Parent> tiled_partition(const Parent&) { return {}; }
inline lanes_group tiled_partition(const thread_block&, unsigned size) {
    const unsigned lane = static_cast<unsigned>(hostcuda::lane_id()), first = lane & ~(size - 1);
    lanes_group group;
    group.mask = size >= 32 ? 0xffffffffu : ((1u << size) - 1u) << first;
    group.rank = lane - first, group.count = size;
    return group;
}

// Groups of `size` members in rank order; the last has what is left.
inline coalesced_group tiled_partition(const coalesced_group& parent, unsigned size) {
    const unsigned place = parent.rank / size;
    unsigned mask = 0;
    for (unsigned r = place * size; r < parent.count && r < (place + 1) * size; ++r) mask |= 1u << parent.lane_of_rank(r);
    return coalesced_group(mask, place, (parent.count + size - 1) / size);
}
inline thread_block_tile<1> this_thread() { return {}; }

// Any group, its kind known at run time.
struct thread_group {
    thread_group(const thread_block&) : whole_block_(true) {}
    thread_group(const lanes_group& lanes) : lanes_(lanes) {}
    void sync(HOSTCUDA_LINE) const {
        if (whole_block_) thread_block::sync(line);
        else lanes_.sync(line);
    }
    unsigned long long size() const { return whole_block_ ? thread_block::size() : lanes_.size(); }
    unsigned long long num_threads() const { return size(); }
    unsigned long long thread_rank() const { return whole_block_ ? thread_block::thread_rank() : lanes_.thread_rank(); }
    bool is_valid() const { return true; }

private:
    lanes_group lanes_;
    bool whole_block_ = false;
};
inline thread_group tiled_partition(const thread_group& parent, unsigned size) {
    const auto first = parent.thread_rank() / size * size;
    if (parent.size() <= 32 && first + size > parent.size()) hostcuda::not_emulated("tiled_partition of a partial tile");
    return tiled_partition(this_thread_block(), size);
}
template <class G> inline coalesced_group binary_partition(const G& group, bool predicate, HOSTCUDA_LINE) {
    const unsigned yes = __ballot_sync(group.mask, predicate, line);
    if (yes == 0 || yes == group.mask) return coalesced_group(group.mask);
    return coalesced_group(predicate ? yes : group.mask & ~yes, predicate ? 1 : 0, 2);
}
// One group for each value of `label`, in the order in which the values first occur.
template <class G, class L> inline coalesced_group labeled_partition(const G& group, L label, HOSTCUDA_LINE) {
    const unsigned same = __match_any_sync(group.mask, label, line);
    const unsigned firsts = __ballot_sync(group.mask, __builtin_ctz(same) == hostcuda::lane_id(), line);
    const unsigned before = firsts & ((1u << __builtin_ctz(same)) - 1u);
    return coalesced_group(same, static_cast<unsigned>(__builtin_popcount(before)), static_cast<unsigned>(__builtin_popcount(firsts)));
}
template <class G> inline auto thread_rank(const G& group) { return group.thread_rank(); }
template <class G> inline auto group_size(const G& group) { return group.size(); }

// One thread of the group calls `work`: rank 0, of which CUDA promises nothing.
template <class G, class F, class... A> inline void invoke_one(const G& group, F&& work, A&&... arguments) {
    if (group.thread_rank() == 0) static_cast<F&&>(work)(static_cast<A&&>(arguments)...);
}
template <class F, class... A, class R = std::remove_cv_t<std::remove_reference_t<std::invoke_result_t<F, A...>>>>
inline R invoke_one_broadcast(const lanes_group& group, F&& work, A&&... arguments) {
    union {
        R result;
        char raw[sizeof(R)] = {};
    };
    if (group.thread_rank() == 0) result = static_cast<F&&>(work)(static_cast<A&&>(arguments)...);
    return group.shfl(result, 0);
}
template <class G> inline void sync(const G& group, HOSTCUDA_LINE) { group.sync(line); }
inline void sync(const thread_block&, HOSTCUDA_LINE, HOSTCUDA_PLACE) { thread_block::sync(line, place); }

}  // namespace cooperative_groups
#endif
