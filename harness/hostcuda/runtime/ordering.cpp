// What happened before what: barriers and collectives by serial numbers and ticks, other blocks by what was learned through fences and atomics.
#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "checking.h"

namespace hostcuda {

namespace {

std::uint32_t serial_owners[max_serial + 2];

// ---- what one block learned of others through fences and atomics
struct SyncPoint {
    std::vector<Knowledge> known;
};
std::mutex sync_mutex;
std::unordered_map<std::uintptr_t, SyncPoint> sync_points;
std::atomic<std::size_t> sync_count{0};
const Launch* sync_launch = nullptr;

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
    }
}

}  // namespace

std::uint32_t serial_owner(std::uint32_t serial) { return serial_owners[serial]; }
void set_serial_owner(std::uint32_t serial, std::uint32_t block) { serial_owners[serial] = block; }

void synchronize_through(Worker& worker, std::uintptr_t address, bool acquires, bool releases) {
    Block& block = *worker.block;
    Thread& thread = *worker.thread;
    releases = releases && thread.fenced;
    if (!releases && sync_count.load(std::memory_order_relaxed) == 0) return;
    std::lock_guard<std::mutex> lock(sync_mutex);
    if (sync_launch != worker.launch) sync_points.clear(), sync_count = 0, sync_launch = worker.launch;
    if (acquires) {
        auto found = sync_points.find(address);
        if (found != sync_points.end()) merge(block.known, found->second.known);
    }
    if (releases) {
        SyncPoint& point = sync_points[address];
        merge(point.known, block.known);
        if (point.known.size() < worker.launch->blocks) point.known.resize(worker.launch->blocks);
        std::vector<Knowledge> mine(block.linear + 1);
        mine[block.linear] = {worker.barrier_limit, worker.me + (Record{1} << record_tick_shift), static_cast<std::int32_t>(thread.linear)};
        merge(point.known, mine);
        sync_count = sync_points.size();
        advance(block, thread, ++block.tick);
        refresh_records(worker);
    }
}

// Did what `record` stands for happen before the calling thread's present access?
bool ordered(const Worker& worker, Record record, Record floor, bool shared) {
    if (record < floor) return true;
    const Block& block = *worker.block;
    const std::uint32_t serial = serial_of(record);
    const auto place = std::lower_bound(block.serials.begin(), block.serials.end(), serial);
    const std::uint32_t thread = thread_of(record);
    if (place != block.serials.end() && *place == serial) {
        if (thread == worker.thread->linear || record < worker.barrier_limit) return true;
        if (thread / warp_lanes != worker.thread->linear / warp_lanes) return false;
        const Warp& warp = block.warps[thread / warp_lanes];
        const std::uint32_t tick = static_cast<std::uint32_t>(place - block.serials.begin()) * ticks_a_serial + tick_of(record);
        if (tick <= warp.sync_tick) return true;
        return warp.clocks_in_use && warp.clocks[worker.thread->linear % warp_lanes * warp_lanes + thread % warp_lanes] >= tick;
    }
    if (shared) return true;  // an earlier block in the same arena
    const std::uint32_t owner = serial_owner(serial);
    if (owner >= block.known.size()) return false;
    const Knowledge& k = block.known[owner];
    return record < k.barrier_limit || ((k.thread == -2 || k.thread == static_cast<std::int32_t>(thread)) && record < k.own_limit);
}

}  // namespace hostcuda
