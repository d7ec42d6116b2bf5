// Barriers of a part of a block, by number (PTX, bar and barrier): who arrives, who waits, and in what order that leaves their accesses.
#include <algorithm>
#include <cstdio>
#include <iterator>

#include "checking.h"
#include "report.h"
#include "scheduler.h"
#include "state.h"

namespace hostcuda {

namespace {

constexpr unsigned barriers_a_block = 16;

// A warp is there as a whole: its lanes that have exited, or never were, count as come once one has.
unsigned arrived(const Block& block, const NamedBarrier& named) {
    unsigned count = 0;
    for (unsigned w = 0; w * warp_lanes < block.count; ++w)
        if (named.lanes[w] != 0) count += static_cast<unsigned>(__builtin_popcount(named.lanes[w] | block.warps[w].exited));
    return count;
}

void complete(Block& block, unsigned number, Thread* except) {
    NamedBarrier& named = block.named[number];
    const auto waits = [number](const Thread& thread) { return thread.state == ThreadState::at_named && thread.source == number; };
    for (unsigned w = 0; w * warp_lanes < block.count; ++w) {
        unsigned lanes = 0;
        for (unsigned l = 0; l < warp_lanes && w * warp_lanes + l < block.count; ++l) lanes |= unsigned{waits(block.threads[w * warp_lanes + l])} << l;
        if (lanes != 0) add_lanes(named.meeting, block, w, lanes);
    }
    const std::uint32_t after = ++block.tick;
    for (std::uint32_t i = 0; i < block.count; ++i) {
        Thread& thread = block.threads[thread_at(block, i)];
        if (!waits(thread)) continue;
        leave(named.meeting, block, thread);
        advance(block, thread, after);
        thread.answer = thread.mask == static_cast<unsigned>(BarrierAnswer::count) ? named.sum : thread.mask == static_cast<unsigned>(BarrierAnswer::all) ? named.all : named.any;
        if (&thread == except) thread.state = ThreadState::running;
        else make_ready(block, thread);
    }
    std::fill(std::begin(named.lanes), std::end(named.lanes), 0u);
    named.sum = 0, named.all = true, named.any = false;
    named.expected = 0;
    --block.named_pending;
    named.meeting = {};
}

[[noreturn]] void refuse(Worker& worker, const char* text, int line) {
    ReportDetails details;
    details.kind = ReportKind::barrier_error;
    details.block = worker.block;
    details.thread = worker.thread->linear;
    details.line = line;
    details.message = text;
    report(worker, details);
    abort_launch(worker, error_launch_failure);
}

}  // namespace

int named_barrier(unsigned number, unsigned count, bool waits, int predicate, BarrierAnswer answer, int line) {
    Worker& worker = *current_worker;
    Block& block = *worker.block;
    Thread& thread = *worker.thread;
    if (worker.has_pending) flush_pending(worker);
    if (thread.doubt != 0) settle_doubt(worker);
    if (number == 0 && waits && (count == 0 || count == block.count)) return barrier(predicate, answer, line);
    const unsigned whole = (block.count + warp_lanes - 1) / warp_lanes * warp_lanes;
    if (count == 0) count = whole;
    char text[200];
    if (number >= barriers_a_block || count % warp_lanes != 0 || count > whole) {
        std::snprintf(text, sizeof text, "barrier %u for %u threads is not possible: numbers are 0 to 15, and the count is in whole warps of the block's %u threads", number, count, block.count);
        refuse(worker, text, line);
    }
    if (block.named == nullptr) block.named = std::make_unique<NamedBarrier[]>(barriers_a_block);
    NamedBarrier& named = block.named[number];
    if (named.expected == 0) {
        named.expected = count;
        ++block.named_pending;
    } else if (named.expected != count) {
        std::snprintf(text, sizeof text, "threads of one block give different counts for barrier %u: %u and %u", number, named.expected, count);
        refuse(worker, text, line);
    }
    std::uint32_t& lanes = named.lanes[thread.linear / warp_lanes];
    const std::uint32_t lane = 1u << thread.linear % warp_lanes;
    if ((lanes & lane) != 0) {
        std::snprintf(text, sizeof text, "a thread arrives at barrier %u a second time before the others have arrived", number);
        refuse(worker, text, line);
    }
    lanes |= lane;
    named.sum += predicate != 0;
    named.all = named.all && predicate != 0;
    named.any = named.any || predicate != 0;
    arrive(named.meeting, worker);
    if (!waits) {
        add_lanes(named.meeting, block, thread.linear / warp_lanes, lane);
        advance(block, thread, ++block.tick);
    }
    thread.line = line;
    thread.kind = "bar.sync";
    thread.source = number;
    thread.mask = static_cast<unsigned>(answer);
    if (waits) thread.state = ThreadState::at_named;
    const unsigned come = arrived(block, named);
    if (come > count) refuse(worker, "more warps arrive at a barrier than it waits for", line);
    if (come == count) complete(block, number, waits ? &thread : nullptr);
    else if (waits) suspend(worker);
    refresh_records(worker);
    if (!waits) return 0;
    return static_cast<int>(thread.answer);
}

void named_barriers_after_exit(Block& block) {
    for (unsigned number = 0; number < barriers_a_block; ++number)
        if (block.named[number].expected != 0 && arrived(block, block.named[number]) == block.named[number].expected) complete(block, number, nullptr);
}

void forget_named_barriers(Block& block) {
    if (block.named == nullptr) return;
    for (unsigned number = 0; number < barriers_a_block; ++number) block.named[number] = NamedBarrier{};
    block.named_pending = 0;
}

}  // namespace hostcuda
