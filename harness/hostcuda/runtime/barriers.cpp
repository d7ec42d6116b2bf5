// Barriers of a block and of a grid, and what is said where they can never complete.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "checking.h"
#include "report.h"
#include "scheduler.h"
#include "state.h"

namespace hostcuda {

namespace {

void complete_barrier(Block& block) {
    block.result_sum = block.barrier_sum;
    block.result_and = block.barrier_and;
    block.result_or = block.barrier_or;
    block.barrier_sum = 0, block.barrier_and = 1, block.barrier_or = 0;
    block.barrier_arrived = 0;
    block.barrier_line = 0;
    block.barrier_place = Place::any;
    block.barrier_tick = block.tick;
    ++block.tick;
}

}  // namespace

void release_barrier(Worker& worker, Block& block, Thread* except) {
    complete_barrier(block);
    if (hostcuda_checked()) share_in_block(block);
    std::uint32_t known = 0;
    for (std::uint32_t i = 0; i < block.count; ++i)
        if (block.threads[i].state == ThreadState::at_barrier) known = std::max(known, block.threads[i].cluster_known);
    for (std::uint32_t i = 0; i < block.count; ++i) {
        Thread& thread = block.threads[thread_at(block, i)];
        if (thread.state != ThreadState::at_barrier) continue;
        thread.cluster_known = known;
        advance(block, thread, block.tick);
        if (&thread != except) make_ready(block, thread);
    }
    if (except != nullptr) except->state = ThreadState::running;
    enter_block(worker, block);
    if (except != nullptr) worker.me = except->record;
}

void release_grid(Block& block) {
    block.floor = Record{block.launch->grid_floor.load()} << record_serial_shift;
    block.grid_waiting = 0;
    block.waits_for_grid = false;
    block.barrier_tick = block.tick;
    block.tick = (block.tick / ticks_a_serial + 1) * ticks_a_serial;   // a fresh serial
    for (std::uint32_t i = 0; i < block.count; ++i) {
        Thread& thread = block.threads[i];
        if (thread.state != ThreadState::at_grid) continue;
        advance(block, thread, block.tick);
        make_ready(block, thread);
    }
}

void arrive_at_grid(Block& block) {
    Launch& grid = *block.launch;
    block.waits_for_grid = true;
    block.grid_generation = grid.grid_generation.load();
    if (grid.grid_arrived.fetch_add(1) + 1 == grid.blocks) {
        grid.grid_arrived = 0;
        grid.grid_floor = newest_serial();
        grid.grid_generation.fetch_add(1);
    }
}

void refuse_lost_grid(Worker& worker, const Block& block) {
    Launch& grid = *block.launch;
    ReportDetails details;
    details.kind = ReportKind::barrier_error;
    details.block = &block;
    for (std::uint32_t i = block.count; i-- > 0;)
        if (block.threads[i].state == ThreadState::at_grid) details.thread = i, details.line = block.threads[i].line;
    details.message = "grid.sync() can never complete: a block has exited without it";
    details.access = "grid.sync()";
    details.has_other = true;
    details.other_block = grid.finished_block;
    details.other_access = "exit";
    report(worker, details);
    grid.error = error_launch_failure;
    grid.aborted = true;
}

void report_deadlock(Worker& worker, Block& block) {
    const Thread* first = nullptr;
    const Thread* second = nullptr;
    const Block* seconds_block = &block;
    if (block.cluster_waiting != 0) {
        // whoever waits for the cluster, and one that does not, of this block or of another
        for (std::uint32_t i = 0; i < block.count && first == nullptr; ++i)
            if (block.threads[i].state == ThreadState::at_cluster) first = &block.threads[i];
        for (const Block* other : block.cluster->blocks) {
            for (std::uint32_t i = 0; i < other->count && second == nullptr; ++i) {
                const ThreadState state = other->threads[i].state;
                if (state != ThreadState::exited && state != ThreadState::at_cluster) second = &other->threads[i], seconds_block = other;
            }
        }
    }
    for (std::uint32_t i = 0; i < block.count; ++i) {
        const Thread& thread = block.threads[i];
        if (thread.state == ThreadState::exited) continue;
        if (first == nullptr) first = &thread;
        else if (second == nullptr && (thread.state != first->state || thread.line != first->line)) second = &thread;
    }
    if (first == nullptr) return;
    if (second != nullptr && first->state == ThreadState::at_barrier && second->state != ThreadState::at_barrier) std::swap(first, second);
    ReportDetails details;
    details.kind = ReportKind::barrier_error;
    details.block = &block;
    details.thread = first->linear;
    details.line = first->line;
    char text[400];
    if (first->state == ThreadState::at_warp)
        std::snprintf(text, sizeof text, "%s with mask 0x%08x can never complete: some lanes of the mask do not arrive", first->kind, first->mask);
    else
        std::snprintf(text, sizeof text, "%s can never complete: other threads of the %s do not arrive", first->kind,
                      block.cluster_waiting != 0 || (first->in_vain && block.cluster->blocks.size() > 1) ? "cluster" : "block");
    details.message = text;
    if (second != nullptr) {
        details.has_other = true;
        details.other_block = seconds_block->linear;
        details.other_thread = second->linear;
        details.other_line = second->line;
        details.other_access = second->kind;
    }
    report(worker, details);
}

int barrier(int predicate, BarrierAnswer answer, int line, Place place) {
    Worker& worker = *current_worker;
    Block& block = *worker.block;
    Thread& thread = *worker.thread;
    if (worker.has_pending) flush_pending(worker);
    if (thread.doubt != 0) settle_doubt(worker);
    if (block.barrier_arrived == 0) {
        block.barrier_line = line;
        block.barrier_place = place;
    } else if (block.barrier_line != line || block.barrier_place != place) {
        for (std::uint32_t i = 0; i < block.count; ++i) {
            const Thread& other = block.threads[i];
            if (other.state != ThreadState::at_barrier || (other.line == line && other.place == place)) continue;
            ReportDetails details;
            details.kind = ReportKind::barrier_error;
            details.block = &block;
            details.thread = thread.linear;
            details.line = line;
            details.message = "threads of one block wait at different barriers";
            details.has_other = true;
            details.other_block = block.linear;
            details.other_thread = other.linear;
            details.other_line = other.line;
            details.other_access = other.kind;
            report(worker, details);
            break;
        }
    }
    ++block.barrier_arrived;
    block.barrier_sum += predicate != 0;
    block.barrier_and &= predicate != 0;
    block.barrier_or |= predicate != 0;
    thread.state = ThreadState::at_barrier;
    thread.line = line;
    thread.place = place;
    thread.kind = "__syncthreads()";
    if (block.barrier_arrived == block.live) release_barrier(worker, block, &thread);
    else suspend(worker);
    switch (answer) {
        case BarrierAnswer::count: return block.result_sum;
        case BarrierAnswer::all: return block.result_and;
        case BarrierAnswer::any: return block.result_or;
        case BarrierAnswer::none: break;
    }
    return 0;
}

void grid_barrier(int line) {
    Worker& worker = *current_worker;
    Block& block = *worker.block;
    Thread& thread = *worker.thread;
    if (!worker.launch->request.cooperative) {
        ReportDetails details;
        details.kind = ReportKind::barrier_error;
        details.block = &block;
        details.thread = thread.linear;
        details.line = line;
        details.message = "grid synchronisation in a kernel that was not launched with cudaLaunchCooperativeKernel";
        report(worker, details);
        abort_launch(worker, error_launch_failure);
    }
    thread.state = ThreadState::at_grid;
    thread.line = line;
    thread.kind = "grid.sync()";
    ++block.grid_waiting;
    suspend(worker);
}

}  // namespace hostcuda
