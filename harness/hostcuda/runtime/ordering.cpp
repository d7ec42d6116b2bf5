// What happened before what. Barriers of a block and full collectives of a warp order by serial numbers and ticks alone. All else is knowledge that threads
// pass on: at places where they signal each other, at barriers of a part of a block, and at those of a cluster.
//
// A signal is an atomic or volatile write, and tells what its thread had done and known at its last fence. Who reads the place knows it from its next fence on,
// or from its next barrier. The fences of all who meet at a barrier count for each of them, as in the usual "everybody writes and fences, __syncthreads(),
// one thread signals". A fence of the scope of a block orders threads of that block only.
#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <new>

#include "checking.h"

namespace hostcuda {

namespace {

constexpr unsigned of_block = 0, of_device = 1;  // scopes

// By serial number. Only pages of serials that were handed out are committed.
std::atomic<std::uint32_t>* serial_owners() {
    static auto* const table = [] {
        void* memory = mmap(nullptr, (std::size_t{max_serial} + 2) * sizeof(std::atomic<std::uint32_t>), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
        return static_cast<std::atomic<std::uint32_t>*>(memory);
    }();
    return table;
}

std::mutex sync_mutex;
SyncPoints sync_points;                          // in global memory
std::atomic<std::size_t> sync_count{0};

Learning& learning_of(Thread& thread) {
    if (thread.learning == nullptr) thread.learning = std::make_unique<Learning>();
    return *thread.learning;
}

void note_news(Block& block, const Thread& thread) { block.told = block.warps[thread.linear / warp_lanes].told = true; }

void add_thread(Known& known, const Block& block, std::uint32_t thread, std::uint32_t tick) {
    const Record limit = limit_after(block, tick);
    if (known == nullptr || !known->includes(block.linear, thread, limit - 1)) own(known).add_thread(block.linear, thread, limit);
}

// What the thread knows of all others.
Known known_by(const Block& block, const Thread& thread) {
    Known all = thread.learning == nullptr ? nullptr : thread.learning->known;
    learn(all, block.met.known);
    if (block.barrier_tick != 0) own(all).add_block(block.linear, limit_after(block, block.barrier_tick));
    const std::uint32_t number = thread.linear / warp_lanes, lane = thread.linear % warp_lanes;
    const Warp& warp = block.warps[number];
    if (warp.sync_tick > block.barrier_tick) own(all).add_warp(block.linear, number, limit_after(block, warp.sync_tick));
    for (unsigned other = 0; warp.clocks_in_use && other < warp_lanes; ++other)
        if (const std::uint32_t tick = warp.clocks[lane * warp_lanes + other]; tick > warp.sync_tick) add_thread(all, block, number * warp_lanes + other, tick);
    if (thread.cluster_known != 0) learn(all, block.cluster->told);
    return all;
}

void look_at(const SyncPoint& point, const Block& block, Thread& thread) {
    Learning& learning = learning_of(thread);
    if (const auto near = point.near.find(block.linear); near != point.near.end()) learn(learning.seen_near, near->second);
    learn(learning.seen_far, point.far);
    if (point.cluster == block.cluster->start) thread.cluster_known = std::max(thread.cluster_known, point.cluster_known);
}

// Takes over what was released so far at the places in global memory that the thread read: a value is written after what it releases.
void look_again(const Block& block, Thread& thread) {
    if (thread.learning == nullptr || sync_count.load(std::memory_order_relaxed) == 0) return;
    std::lock_guard<std::mutex> lock(sync_mutex);
    for (const std::uintptr_t place : thread.learning->seen)
        if (const auto found = place == 0 ? sync_points.end() : sync_points.find(place); found != sync_points.end()) look_at(found->second, block, thread);
}

void remember(const Block& block, Thread& thread, std::uintptr_t address) {
    Learning& learning = learning_of(thread);
    for (const std::uintptr_t place : learning.seen)
        if (place == address) return;
    std::uintptr_t& oldest = learning.seen[learning.next_seen++ % std::size(learning.seen)];
    if (oldest != 0) look_again(block, thread);
    oldest = address;
}

void acquire(const Block& block, Thread& thread, bool far) {
    if (thread.learning == nullptr) return;
    look_again(block, thread);
    Learning& learning = *thread.learning;
    learn(learning.known, learning.seen_near);
    learning.seen_near.reset();
    if (!far) return;
    learn(learning.known, learning.seen_far);
    learning.seen_far.reset();
    std::fill(std::begin(learning.seen), std::end(learning.seen), 0);
}

bool has_fenced(const Block& block, const Thread& thread) {
    const Learning* const learning = thread.learning.get();
    return block.met.fenced[of_block] != nullptr || (learning != nullptr && (learning->fenced[of_block].own != 0 || learning->fenced[of_block].others != nullptr));
}

void note_cluster(SyncPoint& point, const Block& block, const Thread& thread) {
    if (point.cluster != block.cluster->start) point.cluster_known = 0;
    point.cluster = block.cluster->start;
    point.cluster_known = std::max(point.cluster_known, thread.cluster_known);
}

void signal(SyncPoint& point, const Block& block, const Thread& thread, bool block_scope) {
    for (const unsigned scope : {of_block, of_device}) {
        if (scope == of_device && block_scope) continue;
        Known& told = scope == of_block ? point.near[block.linear] : point.far;
        learn(told, block.met.fenced[scope]);
        if (thread.learning == nullptr) continue;
        const Fenced& fenced = thread.learning->fenced[scope];
        learn(told, fenced.others);
        if (fenced.own != 0) add_thread(told, block, thread.linear, fenced.own);
    }
    note_cluster(point, block, thread);
}

// What these lanes had done at `tick_of` each, where that is not 0: of the whole warp at once where they did it together.
template <class TickOf> void add_ticks(Known& known, const Block& block, std::uint32_t number, unsigned lanes, TickOf tick_of) {
    const Warp& warp = block.warps[number];
    std::uint32_t least = ~0u, most = 0;
    for (unsigned left = lanes; left != 0; left &= left - 1) {
        const std::uint32_t tick = tick_of(block.threads[number * warp_lanes + static_cast<unsigned>(__builtin_ctz(left))]);
        least = std::min(least, tick), most = std::max(most, tick);
    }
    if (most == 0) return;
    if (least == most && (lanes | warp.exited) == ~0u) {
        own(known).add_warp(block.linear, number, limit_after(block, most));
        return;
    }
    for (unsigned left = lanes; left != 0; left &= left - 1) {
        const std::uint32_t linear = number * warp_lanes + static_cast<unsigned>(__builtin_ctz(left));
        if (const std::uint32_t tick = tick_of(block.threads[linear]); tick != 0) add_thread(known, block, linear, tick);
    }
}

auto fenced_at(unsigned scope) {
    return [scope](const Thread& thread) { return thread.learning == nullptr ? 0 : thread.learning->fenced[scope].own; };
}

void bring(Meeting& meeting, const Block& block, Thread& thread) {
    acquire(block, thread, true);
    if (thread.learning == nullptr) return;
    learn(meeting.known, thread.learning->known);
    for (unsigned scope = 0; scope < scopes; ++scope) learn(meeting.fenced[scope], thread.learning->fenced[scope].others);
}

// The same tick of all threads of the block that have not ended; 0 where they differ.
std::uint32_t common_tick(const Block& block, unsigned scope) {
    std::uint32_t common = 0;
    for (std::uint32_t i = 0; i < block.count; ++i) {
        if (block.threads[i].state == ThreadState::exited) continue;
        const std::uint32_t tick = fenced_at(scope)(block.threads[i]);
        if (tick == 0 || (common != 0 && tick != common)) return 0;
        common = tick;
    }
    return common;
}

}  // namespace

std::uint32_t serial_owner(std::uint32_t serial) { return serial_owners()[serial].load(std::memory_order_relaxed); }
void set_serial_owner(std::uint32_t serial, std::uint32_t block) { serial_owners()[serial].store(block, std::memory_order_relaxed); }

Record limit_after(const Block& block, std::uint32_t tick) {
    const std::size_t at = tick / ticks_a_serial;
    if (at >= block.serials.size()) return Record{block.serials.back() + 1} << record_serial_shift;
    return (Record{block.serials[at]} << record_serial_shift) + (Record{tick % ticks_a_serial + 1} << record_tick_shift);
}

void synchronize_through(Worker& worker, Block* holder, std::uintptr_t address, bool reads, bool writes, bool block_scope) {
    Block& block = *worker.block;
    Thread& thread = *worker.thread;
    const bool signals = writes && has_fenced(block, thread);
    if (holder != nullptr) {
        if (const auto found = reads && !holder->points.empty() ? holder->points.find(address) : holder->points.end(); found != holder->points.end()) {
            look_at(found->second, block, thread);
            note_news(block, thread);
        }
        if (signals) signal(holder->points[address], block, thread, block_scope);
        return;
    }
    if (reads) remember(block, thread, address);
    if (!signals) return;
    std::lock_guard<std::mutex> lock(sync_mutex);
    signal(sync_points[address], block, thread, block_scope);
    sync_count = sync_points.size();
}

void fence(Scope scope, bool acquires, bool releases) {
    if (current_worker == nullptr) return;
    Worker& worker = *current_worker;
    Block& block = *worker.block;
    Thread& thread = *worker.thread;
    if (!hostcuda_checked()) return;
    if (acquires) acquire(block, thread, scope == Scope::device);
    if (releases) {
        Learning& learning = learning_of(thread);
        const Known known = known_by(block, thread);
        for (const unsigned s : {of_block, of_device}) {
            if (s == of_device && scope != Scope::device) continue;
            learn(learning.fenced[s].others, known);
            learning.fenced[s].own = thread.tick;
        }
        if (scope == Scope::device) thread.released = thread.tick;
        advance(block, thread, ++block.tick);  // what it does from here on is not behind the fence
        refresh_records(worker);
    }
    note_news(block, thread);
}

void share_in_warp(Block& block, std::uint32_t number, unsigned lanes) {
    Warp& warp = block.warps[number];
    if (!warp.told && sync_count.load(std::memory_order_relaxed) == 0) return;
    Meeting meeting;
    const auto each = [&](auto what) {
        for (unsigned left = lanes; left != 0; left &= left - 1) what(block.threads[number * warp_lanes + static_cast<unsigned>(__builtin_ctz(left))]);
    };
    each([&](Thread& thread) { bring(meeting, block, thread); });
    for (unsigned scope = 0; scope < scopes; ++scope) add_ticks(meeting.fenced[scope], block, number, lanes, fenced_at(scope));
    each([&](Thread& thread) { leave(meeting, block, thread); });
    if ((lanes | warp.exited) == ~0u) warp.told = false;
}

void share_in_block(Block& block) {
    if (!block.told && sync_count.load(std::memory_order_relaxed) == 0) return;
    for (std::uint32_t i = 0; i < block.count; ++i) bring(block.met, block, block.threads[i]);
    for (unsigned scope = 0; scope < scopes; ++scope) {
        if (const std::uint32_t tick = common_tick(block, scope); tick != 0) {
            own(block.met.fenced[scope]).add_block(block.linear, limit_after(block, tick));
            continue;
        }
        for (std::uint32_t w = 0; w * warp_lanes < block.count; ++w) add_ticks(block.met.fenced[scope], block, w, ~block.warps[w].exited, fenced_at(scope));
    }
    for (std::uint32_t i = 0; i < block.count; ++i) block.threads[i].learning.reset();
    for (std::uint32_t w = 0; w * warp_lanes < block.count; ++w) block.warps[w].told = false;
    block.told = false;
}

void share_in_cluster(Cluster& cluster) {
    Meeting all;
    for (Block* block : cluster.blocks) {
        share_in_block(*block);
        learn(all.known, block->met.known);
        for (unsigned scope = 0; scope < scopes; ++scope) learn(all.fenced[scope], block->met.fenced[scope]);
    }
    for (Block* block : cluster.blocks) block->met = all;
}

void arrive(Meeting& meeting, Worker& worker) {
    if (!hostcuda_checked()) return;
    bring(meeting, *worker.block, *worker.thread);
    learn(meeting.known, known_by(*worker.block, *worker.thread));
    for (unsigned scope = 0; scope < scopes; ++scope)
        if (const std::uint32_t tick = fenced_at(scope)(*worker.thread); tick != 0) add_thread(meeting.fenced[scope], *worker.block, worker.thread->linear, tick);
}

void add_lanes(Meeting& meeting, const Block& block, std::uint32_t warp, unsigned lanes) {
    if (hostcuda_checked()) add_ticks(meeting.known, block, warp, lanes, [](const Thread& thread) { return thread.tick; });
}

void leave(const Meeting& meeting, Block& block, Thread& thread) {
    if (meeting.known == nullptr && meeting.fenced[of_block] == nullptr) return;
    Learning& learning = learning_of(thread);
    learn(learning.known, meeting.known);
    for (unsigned scope = 0; scope < scopes; ++scope) learn(learning.fenced[scope].others, meeting.fenced[scope]);
    note_news(block, thread);
}

void forget_sync_points() {
    std::lock_guard<std::mutex> lock(sync_mutex);
    sync_points.clear();
    sync_count = 0;
}

// The memory may have been another's before, which orders nothing here.
void sync_begin(const void* place) {
    if (current_worker == nullptr || !hostcuda_checked()) return;
    const auto address = reinterpret_cast<std::uintptr_t>(place);
    if (Block* const holder = holder_of(*current_worker, address)) {
        holder->points.erase(address);
        return;
    }
    std::lock_guard<std::mutex> lock(sync_mutex);
    sync_points.erase(address);
    sync_count = sync_points.size();
}

void sync_release(const void* place, bool relaxed) {
    if (current_worker == nullptr || !hostcuda_checked()) return;
    Worker& worker = *current_worker;
    Block& block = *worker.block;
    Thread& thread = *worker.thread;
    const auto address = reinterpret_cast<std::uintptr_t>(place);
    if (relaxed) return synchronize_through(worker, holder_of(worker, address), address, false, true, false);
    const auto tell = [&](SyncPoint& point) {
        learn(point.far, known_by(block, thread));
        add_thread(point.far, block, thread.linear, thread.tick);
        note_cluster(point, block, thread);
    };
    if (Block* const holder = holder_of(worker, address)) {
        tell(holder->points[address]);
    } else {
        std::lock_guard<std::mutex> lock(sync_mutex);
        tell(sync_points[address]);
        sync_count = sync_points.size();
    }
    thread.released = thread.tick;
    advance(block, thread, ++block.tick);
    refresh_records(worker);
}

void sync_acquire(const void* place, bool relaxed) {
    if (current_worker == nullptr || !hostcuda_checked()) return;
    Worker& worker = *current_worker;
    const auto address = reinterpret_cast<std::uintptr_t>(place);
    const auto look = [&](const SyncPoints& points) {
        if (const auto found = points.find(address); found != points.end()) look_at(found->second, *worker.block, *worker.thread);
    };
    if (const Block* const holder = holder_of(worker, address)) {
        look(holder->points);
    } else {
        std::lock_guard<std::mutex> lock(sync_mutex);
        look(sync_points);
    }
    if (!relaxed) acquire(*worker.block, *worker.thread, true);
    note_news(*worker.block, *worker.thread);
}

bool of_another_block(const Block& block, Record record) { return !std::binary_search(block.serials.begin(), block.serials.end(), serial_of(record)); }

bool heard_of(const Block& block, const Thread& thread, std::uint32_t other) {
    return (block.met.known != nullptr && block.met.known->mentions(other)) ||
           (thread.learning != nullptr && thread.learning->known != nullptr && thread.learning->known->mentions(other));
}

// Did what `record` stands for happen before the calling thread's present access?
bool ordered(const Worker& worker, Record record, Record floor, bool shared) {
    if (record < floor) return true;
    if (is_arriving(record)) return false;
    const Block& block = *worker.block;
    const Thread& own = *worker.thread;
    const std::uint32_t serial = serial_of(record), thread = thread_of(record);
    if (serial == max_serial) return true;  // of a launch that used up the others: whose it is, nobody knows
    const auto knows = [&](std::uint32_t other) {
        return (own.learning != nullptr && own.learning->known != nullptr && own.learning->known->includes(other, thread, record)) ||
               (block.met.known != nullptr && block.met.known->includes(other, thread, record));
    };
    const auto place = std::lower_bound(block.serials.begin(), block.serials.end(), serial);
    if (place != block.serials.end() && *place == serial) {
        if (thread == own.linear || record < worker.barrier_limit) return true;
        if (behind_cluster_barrier(block, own, block, record) || knows(block.linear)) return true;
        if (thread / warp_lanes != own.linear / warp_lanes) return false;
        const Warp& warp = block.warps[thread / warp_lanes];
        const std::uint32_t tick = static_cast<std::uint32_t>(place - block.serials.begin()) * ticks_a_serial + tick_of(record);
        if (tick <= warp.sync_tick) return true;
        return warp.clocks_in_use && warp.clocks[own.linear % warp_lanes * warp_lanes + thread % warp_lanes] >= tick;
    }
    const auto& cluster = block.cluster->blocks;
    if (shared && cluster.size() == 1) return true;  // an earlier block in the same arena
    const std::uint32_t owner = serial_owner(serial);
    for (const Block* other : cluster)
        if (other->linear == owner && behind_cluster_barrier(block, own, *other, record)) return true;
    return knows(owner);
}

}  // namespace hostcuda
