// What happened before what: barriers and collectives by serial numbers and ticks, other blocks by what was learned through fences and atomics.
#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <unordered_map>

#include "checking.h"

namespace hostcuda {

namespace {

// By serial number. Only pages of serials that were handed out are committed.
std::atomic<std::uint32_t>* serial_owners() {
    static auto* const table = [] {
        void* memory = mmap(nullptr, (std::size_t{max_serial} + 2) * sizeof(std::atomic<std::uint32_t>), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
        return static_cast<std::atomic<std::uint32_t>*>(memory);
    }();
    return table;
}

// ---- what one block learned of others through fences and atomics
struct SyncPoint {
    std::vector<Knowledge> known;
    Record cluster = 0;                  // of whoever released last: where its records of shared memory begin, which no other's do
    std::uint32_t cluster_known = 0;     // and the most phases of its barrier that anybody of it knew of
};
std::mutex sync_mutex;
std::unordered_map<std::uintptr_t, SyncPoint> sync_points;
std::atomic<std::size_t> sync_count{0};

void merge(std::vector<Knowledge>& into, const std::vector<Knowledge>& from) {
    if (from.empty()) return;
    if (into.size() < from.size()) into.resize(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
        if (from[i].thread == -1) continue;
        Knowledge& k = into[i];
        if (k.thread == -1) k.thread = from[i].thread;
        else if (k.thread != from[i].thread) k.thread = -2;
        k.barrier_limit = std::max(k.barrier_limit, from[i].barrier_limit);
        k.own_limit = std::max(k.own_limit, from[i].own_limit);
        if (k.warp == -1) k.warp = from[i].warp;
        else if (k.warp != from[i].warp) k.warp = -2;
        k.warp_limit = std::max(k.warp_limit, from[i].warp_limit);
    }
}

// Records of a thread's warp below this happened before it met all of them the last time; 0 where it never did.
Record met_by_warp(const Block& block, const Thread& thread) {
    const std::uint32_t tick = block.warps[thread.linear / warp_lanes].sync_tick;
    if (tick == 0 || tick / ticks_a_serial >= block.serials.size()) return 0;
    const Record serial = block.serials[tick / ticks_a_serial];
    return (serial << record_serial_shift) + (Record{tick % ticks_a_serial + 1} << record_tick_shift);
}

// Of its own block only the thread that looked has learned; the others do at a barrier.
void learn_of_own_block(Thread& thread, const std::vector<Knowledge>& known, std::uint32_t block) {
    if (block >= known.size() || known[block].thread == -1) return;
    thread.learned_of = thread.learned_of == -1 || thread.learned_of == known[block].thread ? known[block].thread : -2;
    thread.learned = std::max(thread.learned, known[block].own_limit);
}

}  // namespace

std::uint32_t serial_owner(std::uint32_t serial) { return serial_owners()[serial].load(std::memory_order_relaxed); }
void set_serial_owner(std::uint32_t serial, std::uint32_t block) { serial_owners()[serial].store(block, std::memory_order_relaxed); }

void synchronize_through(Worker& worker, std::uintptr_t address, bool acquires, bool releases) {
    Block& block = *worker.block;
    Thread& thread = *worker.thread;
    releases = releases && thread.fenced;
    if (!releases && sync_count.load(std::memory_order_relaxed) == 0) return;
    std::lock_guard<std::mutex> lock(sync_mutex);
    if (acquires) {
        auto found = sync_points.find(address);
        if (found != sync_points.end()) {
            merge(block.known, found->second.known);
            if (found->second.cluster == block.cluster->start) thread.cluster_known = std::max(thread.cluster_known, found->second.cluster_known);
            learn_of_own_block(thread, found->second.known, block.linear);
        }
    }
    if (releases) {
        SyncPoint& point = sync_points[address];
        merge(point.known, block.known);
        if (point.known.size() < worker.launch->blocks) point.known.resize(worker.launch->blocks);
        const Cluster& cluster = *block.cluster;
        if (point.cluster != cluster.start) point.cluster_known = 0;
        point.cluster = cluster.start;
        point.cluster_known = std::max(point.cluster_known, thread.cluster_known);
        std::vector<Knowledge> mine(block.linear + 1);
        for (std::size_t rank = 0; thread.cluster_known != 0 && rank < cluster.told.size(); ++rank) {
            const std::uint32_t other = cluster.blocks[rank]->linear;
            if (mine.size() <= other) mine.resize(other + 1);
            mine[other] = {cluster.told[rank], 0, -2, 0, -2};
        }
        mine[block.linear] = {std::max(worker.barrier_limit, mine[block.linear].barrier_limit), worker.me + (Record{1} << record_tick_shift), static_cast<std::int32_t>(thread.linear),
                              met_by_warp(block, thread), static_cast<std::int32_t>(thread.linear / warp_lanes)};
        merge(point.known, mine);
        sync_count = sync_points.size();
        advance(block, thread, ++block.tick);
        refresh_records(worker);
    }
}

void share_knowledge(Cluster& cluster) {
    std::vector<Knowledge> all;
    for (const Block* block : cluster.blocks) merge(all, block->known);
    if (all.empty()) return;
    for (Block* block : cluster.blocks) block->known = all;
}

void forget_sync_points() {
    std::lock_guard<std::mutex> lock(sync_mutex);
    sync_points.clear();
    sync_count = 0;
}

// The memory may have been another block's before, which orders nothing here.
void sync_begin(const void* place) {
    if (current_worker == nullptr || !hostcuda_checked()) return;
    std::lock_guard<std::mutex> lock(sync_mutex);
    sync_points.erase(reinterpret_cast<std::uintptr_t>(place));
    sync_count = sync_points.size();
}

void sync_release(const void* place) {
    if (current_worker == nullptr || !hostcuda_checked()) return;
    current_worker->thread->fenced = true;
    synchronize_through(*current_worker, reinterpret_cast<std::uintptr_t>(place), false, true);
}

void sync_acquire(const void* place) {
    if (current_worker == nullptr || !hostcuda_checked()) return;
    synchronize_through(*current_worker, reinterpret_cast<std::uintptr_t>(place), true, false);
}

// Did what `record` stands for happen before the calling thread's present access?
bool ordered(const Worker& worker, Record record, Record floor, bool shared) {
    if (record < floor) return true;
    if (is_arriving(record)) return false;
    const Block& block = *worker.block;
    const std::uint32_t serial = serial_of(record);
    if (serial == max_serial) return true;  // of a launch that used up the others: whose it is, nobody knows
    const auto place = std::lower_bound(block.serials.begin(), block.serials.end(), serial);
    const std::uint32_t thread = thread_of(record);
    if (place != block.serials.end() && *place == serial) {
        if (thread == worker.thread->linear || record < worker.barrier_limit) return true;
        const Thread& own = *worker.thread;
        if (record < own.learned && (own.learned_of == -2 || own.learned_of == static_cast<std::int32_t>(thread))) return true;
        if (behind_cluster_barrier(block, own, block, record)) return true;
        if (thread / warp_lanes != worker.thread->linear / warp_lanes) return false;
        const Warp& warp = block.warps[thread / warp_lanes];
        const std::uint32_t tick = static_cast<std::uint32_t>(place - block.serials.begin()) * ticks_a_serial + tick_of(record);
        if (tick <= warp.sync_tick) return true;
        return warp.clocks_in_use && warp.clocks[worker.thread->linear % warp_lanes * warp_lanes + thread % warp_lanes] >= tick;
    }
    const auto& cluster = block.cluster->blocks;
    if (shared && cluster.size() == 1) return true;  // an earlier block in the same arena
    const std::uint32_t owner = serial_owner(serial);
    for (const Block* other : cluster)
        if (other->linear == owner && behind_cluster_barrier(block, *worker.thread, *other, record)) return true;
    if (owner >= block.known.size()) return false;
    const Knowledge& k = block.known[owner];
    const bool own = k.thread == -2 || k.thread == static_cast<std::int32_t>(thread);
    const bool met = k.warp == -2 || k.warp == static_cast<std::int32_t>(thread / warp_lanes);
    return record < k.barrier_limit || (own && record < k.own_limit) || (met && record < k.warp_limit);
}

}  // namespace hostcuda
