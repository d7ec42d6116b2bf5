// Clusters of blocks: their barrier, whose shared memory an address is, and whether a block is there while others reach into its own.
#include <algorithm>
#include <cstdio>

#include "checking.h"
#include "report.h"
#include "scheduler.h"
#include "state.h"

namespace hostcuda {

namespace {

// 32-bit addresses of shared memory: below this they are the own block's; above, the number of the block's rank and one stands in the upper bits.
constexpr unsigned rank_shift = 24;

std::uint32_t slot(const Block& block, std::uint32_t thread) { return block.rank * block.count + thread; }

[[noreturn]] void refuse(Worker& worker, ReportKind kind, const char* text, int line, int error) {
    ReportDetails details;
    details.kind = kind;
    details.block = worker.block;
    details.thread = worker.thread->linear;
    details.line = line;
    details.message = text;
    report(worker, details);
    abort_launch(worker, error);
}

// All that the thread did so far, or up to its last release, has happened before the phase that is under way ends.
void release(Block& block, Thread& thread, bool relaxed) {
    Cluster& cluster = *block.cluster;
    if (!hostcuda_checked() || (relaxed && thread.released == 0)) return;
    if (!relaxed) {
        thread.released = thread.tick;
        advance(block, thread, thread.tick + 1);
        block.tick = std::max(block.tick, thread.tick);
    }
    if (cluster.released[0].empty()) {
        for (auto& phase : cluster.released) phase.assign(cluster.blocks.size() * block.count, 0);
        for (const Block* other : cluster.blocks)
            for (std::uint32_t i = 0; i < other->count; ++i)
                if (other->threads[i].state == ThreadState::exited) cluster.released[cluster.phase % 3][slot(*other, i)] = other->threads[i].record + (Record{1} << record_tick_shift);
    }
    cluster.released[cluster.phase % 3][slot(block, thread.linear)] = limit_after(block, thread.released);
}

// Of a whole block or warp at once where its threads released at one time.
Known released_by(const Cluster& cluster, const std::vector<Record>& limits) {
    const auto known = std::make_shared<Knowledge>();
    const auto same = [&](std::size_t first, std::size_t count) {
        return std::all_of(&limits[first], &limits[first] + count, [&](Record limit) { return limit == limits[first]; });
    };
    for (const Block* block : cluster.blocks) {
        if (same(slot(*block, 0), block->count)) {
            known->add_block(block->linear, limits[slot(*block, 0)]);
            continue;
        }
        for (std::uint32_t first = 0; first < block->count; first += warp_lanes) {
            const std::uint32_t count = std::min(warp_lanes, block->count - first);
            if (same(slot(*block, first), count)) known->add_warp(block->linear, first / warp_lanes, limits[slot(*block, first)]);
            else
                for (std::uint32_t i = first; i < first + count; ++i) known->add_thread(block->linear, i, limits[slot(*block, i)]);
        }
    }
    return known;
}

void end_phase(Cluster& cluster) {
    const auto& ended = cluster.released[cluster.phase % 3];
    ++cluster.phase;
    cluster.arrived = 0;
    cluster.released[cluster.phase % 3] = ended;  // who has exited, or comes without releasing, has still released this much
    if (cluster.blocks.size() > 1 && !ended.empty()) {
        share_in_cluster(cluster);
        cluster.told = released_by(cluster, ended);
    }
    for (Block* block : cluster.blocks) {
        if (block->cluster_waiting == 0) continue;
        block->cluster_waiting = 0;
        for (std::uint32_t i = 0; i < block->count; ++i) {
            Thread& thread = block->threads[thread_at(*block, i)];
            if (thread.state == ThreadState::at_cluster) make_ready(*block, thread);
        }
    }
}

const char* const may_be_gone = "access to shared memory of another block that may have exited: no cluster barrier keeps that block alive";

// The last thread of the block ended. Whoever reached into its shared memory must have done so before.
void check_touches(Worker& worker, Block& block, Thread& last) {
    share_in_block(block);
    for (std::uint32_t i = 0; i < block.count; ++i) last.cluster_known = std::max(last.cluster_known, block.threads[i].cluster_known);
    const auto& touches = block.cluster->touches[block.rank];
    const Block* told_of = nullptr;
    for (std::size_t i = 0; i < touches.size(); ++i) {
        const Touch& touch = touches[i];
        Block* by = block.cluster->blocks[i / block.count];
        if (by == told_of || ordered(worker, touch.record, worker.shared_floor, true)) continue;
        told_of = by;
        ReportDetails details;
        details.kind = ReportKind::memory_error;
        details.block = by;
        details.thread = static_cast<std::uint32_t>(i % block.count);
        details.site = touch.site;
        details.message = may_be_gone;
        const std::string access = describe_access(touch.write, touch.bytes);
        details.access = access.c_str();
        locate(worker, touch.address, touch.bytes, details);
        details.has_other = true;
        details.other_block = block.linear;
        details.other_thread = last.linear;
        details.other_access = "exit";
        report(worker, details);
    }
}

}  // namespace

void cluster_arrive(bool relaxed, int line) {
    Worker& worker = *current_worker;
    Block& block = *worker.block;
    Thread& thread = *worker.thread;
    Cluster& cluster = *block.cluster;
    if (worker.has_pending) flush_pending(worker);
    if (thread.doubt != 0) settle_doubt(worker);
    if (thread.cluster_arrivals != thread.cluster_waits)
        refuse(worker, ReportKind::barrier_error, "a thread arrives twice at the cluster barrier without waiting in between", line, error_launch_failure);
    ++thread.cluster_arrivals;
    release(block, thread, relaxed);
    if (++cluster.arrived == cluster.live) end_phase(cluster);
    refresh_records(worker);
}

void cluster_wait(int line) {
    Worker& worker = *current_worker;
    Block& block = *worker.block;
    Thread& thread = *worker.thread;
    if (thread.cluster_arrivals == thread.cluster_waits)
        refuse(worker, ReportKind::barrier_error, "a thread waits at the cluster barrier without having arrived there", line, error_launch_failure);
    if (worker.has_pending) flush_pending(worker);
    if (thread.doubt != 0) settle_doubt(worker);
    thread.line = line;
    thread.kind = "the cluster barrier";
    if (block.cluster->phase < ++thread.cluster_waits) {
        thread.state = ThreadState::at_cluster;
        ++block.cluster_waiting;
        suspend(worker);
    }
    thread.cluster_known = std::max(thread.cluster_known, thread.cluster_waits);
    refresh_records(worker);
}

void cluster_thread_exited(Worker& worker, Block& block, Thread& thread) {
    Cluster& cluster = *block.cluster;
    if (!cluster.touches.empty() && block.live == 0) check_touches(worker, block, thread);
    if (cluster.blocks.size() > 1 || !cluster.released[0].empty()) release(block, thread, false);
    --cluster.live;
    if (thread.cluster_arrivals > cluster.phase) --cluster.arrived;
    if (cluster.arrived != 0 && cluster.arrived == cluster.live) end_phase(cluster);
}

bool behind_cluster_barrier(const Block& block, const Thread& thread, const Block& other, Record record) {
    const Cluster& cluster = *block.cluster;
    if (thread.cluster_known == 0 || cluster.released[0].empty()) return false;
    return record < cluster.released[(thread.cluster_known - 1) % 3][slot(other, thread_of(record))];
}

bool cluster_stuck(const Cluster& cluster) {
    bool waiting = false;
    for (const Block* block : cluster.blocks) {
        if (block->live == 0) continue;
        if (runnable(*block)) return false;
        waiting |= block->cluster_waiting != 0;
    }
    return waiting;
}

bool peers_may_help(const Block& block) {
    for (const Block* other : block.cluster->blocks)
        if (other != &block && other->live != 0 && runnable(*other) && other->in_vain < threads_to_run(*other)) return true;
    return false;
}

Block* holder_of(const Worker& worker, std::uintptr_t address) {
    for (Block* block : worker.block->cluster->blocks)
        if (address - reinterpret_cast<std::uintptr_t>(block->arena.memory) < block->arena.bytes) return block;
    return nullptr;
}

void note_touch(Worker& worker, Block& holder, std::uintptr_t address, std::size_t bytes, bool write, bool signals, std::uintptr_t site) {
    const Block& block = *worker.block;
    const Thread& thread = *worker.thread;
    Cluster& cluster = *block.cluster;
    if (holder.live == 0) {
        report_access(worker, ReportKind::memory_error, address, bytes, write, site, may_be_gone);
        return;
    }
    if (thread.cluster_known == 0 && !heard_of(block, thread, holder.linear) && block.floor <= cluster.start) {
        report_access(worker, ReportKind::memory_error, address, bytes, write, site,
                      "access to shared memory of another block that may not have started: no cluster barrier comes before the access");
    }
    if (cluster.touches.empty()) cluster.touches.assign(cluster.blocks.size(), std::vector<Touch>(cluster.blocks.size() * block.count));
    const Record record = signals && thread.released != 0 ? record_at(block, thread, thread.released) : thread.record;
    cluster.touches[holder.rank][slot(block, thread.linear)] = {with_site(record, site), address, site, static_cast<std::uint32_t>(bytes), write};
}

ClusterPlace cluster_place() {
    const Block& block = *current_worker->block;
    const Launch& grid = *block.launch;
    const Dim3 &all = grid.request.grid, &size = grid.cluster, &index = block.cluster->index;
    return {index, {all.x / size.x, all.y / size.y, all.z / size.z}, {block.index.x % size.x, block.index.y % size.y, block.index.z % size.z}, size,
            block.rank, grid.cluster_blocks, grid.request.cluster.x != 0};
}

void* cluster_map(const void* shared, unsigned rank, int line) {
    Worker& worker = *current_worker;
    const auto& blocks = worker.block->cluster->blocks;
    const auto address = reinterpret_cast<std::uintptr_t>(shared);
    const Block* holder = holder_of(worker, address);
    char text[160];
    if (holder == nullptr)
        refuse(worker, ReportKind::memory_error, "an address outside the cluster's shared memory is mapped to another block's shared memory", line, error_illegal_address);
    if (rank >= blocks.size()) {
        std::snprintf(text, sizeof text, "shared memory of block %u is requested, but the cluster has %zu blocks", rank, blocks.size());
        refuse(worker, ReportKind::memory_error, text, line, error_illegal_address);
    }
    const std::size_t offset = address - reinterpret_cast<std::uintptr_t>(holder->arena.memory);
    Arena& arena = blocks[rank]->arena;
    shared_touch(*worker.launch, arena, offset);
    return arena.memory + offset;
}

unsigned cluster_rank_of(const void* place) noexcept {
    if (current_worker == nullptr) return ~0u;
    const Block* holder = holder_of(*current_worker, reinterpret_cast<std::uintptr_t>(place));
    return holder == nullptr ? ~0u : holder->rank;
}

unsigned shared_address(const void* place) noexcept {
    if (current_worker == nullptr) return ~0u;
    const auto address = reinterpret_cast<std::uintptr_t>(place);
    const Block* holder = holder_of(*current_worker, address);
    if (holder == nullptr) return ~0u;
    const auto offset = static_cast<unsigned>(address - reinterpret_cast<std::uintptr_t>(holder->arena.memory));
    return holder == current_worker->block ? offset : (holder->rank + 1) << rank_shift | offset;
}

unsigned shared_cluster_address(const void* place) noexcept {
    const unsigned address = shared_address(place);
    return address == ~0u || address >> rank_shift != 0 ? address : (current_worker->block->rank + 1) << rank_shift | address;
}

void* shared_pointer(unsigned address) noexcept {
    if (current_worker == nullptr) return nullptr;
    const auto& blocks = current_worker->block->cluster->blocks;
    const unsigned number = address >> rank_shift;
    if (number == 0 || number > blocks.size()) return reinterpret_cast<void*>(current_worker->shared_base + address);
    return blocks[number - 1]->arena.memory + (address & ((1u << rank_shift) - 1u));
}

}  // namespace hostcuda
