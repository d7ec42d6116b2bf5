// Warp collectives. A lane that arrives is parked until the last live lane of its mask has come; that one computes
// every lane's answer, straight into the places the lanes left, and goes on without a switch.
#include "hostcuda/warp.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "checking.h"
#include "report.h"
#include "state.h"

namespace hostcuda {

namespace {

Thread& lane(Block& block, std::uint32_t warp, unsigned number) { return block.threads[warp * warp_lanes + number]; }

void order_lanes(Block& block, std::uint32_t number, Warp& warp, unsigned mask) {
    if (hostcuda_checked()) share_in_warp(block, number, mask);
    const std::uint32_t before = block.tick;
    const std::uint32_t after = ++block.tick;
    if ((mask | warp.exited) == ~0u) {
        warp.sync_tick = before;
    } else {
        if (warp.clocks == nullptr) warp.clocks = std::make_unique<std::uint32_t[]>(warp_lanes * warp_lanes);
        if (!warp.clocks_in_use) std::fill_n(warp.clocks.get(), warp_lanes * warp_lanes, 0u), warp.clocks_in_use = true;
        std::uint32_t joined[warp_lanes] = {};
        for (unsigned l = 0; l < warp_lanes; ++l) {
            if (!(mask >> l & 1u)) continue;
            const std::uint32_t* clock = &warp.clocks[l * warp_lanes];
            for (unsigned o = 0; o < warp_lanes; ++o) joined[o] = std::max(joined[o], clock[o]);
        }
        for (unsigned l = 0; l < warp_lanes; ++l)
            if (mask >> l & 1u) joined[l] = before;
        for (unsigned l = 0; l < warp_lanes; ++l)
            if (mask >> l & 1u) std::copy_n(joined, warp_lanes, &warp.clocks[l * warp_lanes]);
    }
    std::uint32_t known = 0;
    for (unsigned l = 0; l < warp_lanes; ++l)
        if (mask >> l & 1u) known = std::max(known, lane(block, number, l).cluster_known);
    for (unsigned l = 0; l < warp_lanes; ++l) {
        if (!(mask >> l & 1u)) continue;
        lane(block, number, l).cluster_known = known;
        advance(block, lane(block, number, l), after);
    }
}

void report_lane(Worker& worker, const Thread& thread, const char* message, const Thread* other) {
    ReportDetails details;
    details.kind = ReportKind::barrier_error;
    details.block = worker.block;
    details.thread = thread.linear;
    details.line = thread.line;
    details.message = message;
    details.access = thread.kind == nullptr ? "" : thread.kind;
    if (other != nullptr) {
        details.has_other = true;
        details.other_block = worker.block->linear;
        details.other_thread = other->linear;
        details.other_line = other->line;
        details.other_access = other->kind == nullptr ? "" : other->kind;
    }
    report(worker, details);
}

// The collective completes without lanes that have exited, but what is read of them is undefined. Named by the mask they were meant to
// take part: usually an early return before a full-mask shuffle.
void report_exited_source(Block& block, const Thread& reader, const Thread& exited) {
    constexpr std::uint32_t most = 256;
    if (block.launch->reads_of_exited.fetch_add(1, std::memory_order_relaxed) >= most) return;
    char text[160];
    std::snprintf(text, sizeof text, "%s with mask 0x%08x reads lane %u, which has exited: the value is undefined", reader.kind, reader.mask,
                  exited.linear % warp_lanes);
    report_lane(*current_worker, reader, text, &exited);
}

void answer_lanes(Block& block, std::uint32_t number, const Collective& c) {
    const unsigned mask = c.arrived;
    unsigned lanes[warp_lanes];
    unsigned count = 0;
    for (unsigned l = 0; l < warp_lanes; ++l)
        if (mask >> l & 1u) lanes[count++] = l;
    switch (c.operation) {
        case WarpOperation::synchronize: break;
        case WarpOperation::exchange:
            for (unsigned i = 0; i < count; ++i) {
                auto* out = static_cast<char*>(lane(block, number, lanes[i]).take);
                for (unsigned l = 0; l < warp_lanes; ++l) {
                    if (mask >> l & 1u) std::memcpy(out + l * c.bytes, lane(block, number, l).give, c.bytes);
                    else std::memset(out + l * c.bytes, 0, c.bytes);
                }
            }
            break;
        case WarpOperation::shuffle:
            for (unsigned i = 0; i < count; ++i) {
                Thread& thread = lane(block, number, lanes[i]);
                const unsigned source = thread.source;
                if (!(mask >> source & 1u)) {
                    // the value is undefined: poison, so that a kernel that depends on it gives wrong values
                    const std::uint32_t from = number * warp_lanes + source;
                    if (c.mask >> source & 1u && from < block.count) report_exited_source(block, thread, block.threads[from]);
                    for (std::size_t at = 0; at < c.bytes; ++at) static_cast<unsigned char*>(thread.take)[at] = static_cast<unsigned char>(poison >> (8 * (at % 8)));
                    continue;
                }
                std::memcpy(thread.take, lane(block, number, source).give, c.bytes);
            }
            break;
        case WarpOperation::ballot: {
            unsigned votes = 0;
            for (unsigned i = 0; i < count; ++i) votes |= lane(block, number, lanes[i]).source != 0 ? 1u << lanes[i] : 0u;
            for (unsigned i = 0; i < count; ++i) lane(block, number, lanes[i]).source = votes;
            break;
        }
        case WarpOperation::match_any:
        case WarpOperation::match_all: {
            unsigned equal[warp_lanes] = {};
            for (unsigned i = 0; i < count; ++i)
                for (unsigned j = 0; j < count; ++j)
                    if (std::memcmp(lane(block, number, lanes[i]).give, lane(block, number, lanes[j]).give, c.bytes) == 0)
                        equal[i] |= 1u << lanes[j];
            for (unsigned i = 0; i < count; ++i)
                lane(block, number, lanes[i]).source =
                    c.operation == WarpOperation::match_any ? equal[i] : (equal[i] == mask ? mask : 0u);
            break;
        }
    }
    for (unsigned i = 0; i < count; ++i) lane(block, number, lanes[i]).answer = mask;
}

void complete(Block& block, std::uint32_t number, Collective& c, Thread* except) {
    Warp& warp = block.warps[number];
    warp.pending &= ~(1u << (&c - warp.collectives));
    answer_lanes(block, number, c);
    order_lanes(block, number, warp, c.arrived);
    for (unsigned l = 0; l < warp_lanes; ++l) {
        if (!(c.arrived >> l & 1u)) continue;
        Thread& thread = lane(block, number, l);
        if (&thread != except) make_ready(block, thread);
        else thread.state = ThreadState::running;
    }
    c.mask = c.arrived = 0;
}

}  // namespace

unsigned warp_collective(WarpOperation operation, unsigned mask, const void* give, void* take, std::size_t bytes,
                         unsigned source, const char* kind, int line) {
    Worker& worker = *current_worker;
    Block& block = *worker.block;
    Thread& thread = *worker.thread;
    if (worker.has_pending) flush_pending(worker);
    const std::uint32_t number = thread.linear / warp_lanes;
    const unsigned me = 1u << (thread.linear % warp_lanes);
    Warp& warp = block.warps[number];
    thread.line = line;
    thread.kind = kind;
    thread.mask = mask;
    if (!(mask & me)) {
        report_lane(worker, thread, "the mask does not include the calling lane", nullptr);
        if (take != nullptr && operation == WarpOperation::shuffle) std::memcpy(take, give, bytes);
        return operation == WarpOperation::shuffle ? me : 0u;
    }
    const unsigned beyond = block.count < (number + 1) * warp_lanes ? ~((1u << (block.count % warp_lanes)) - 1u) : 0u;
    mask &= ~beyond;  // a mask may name lanes that the block does not have
    // Lanes that run ahead may already wait under another mask, so several collectives can be pending; each is found by its mask.
    unsigned slot = 0;
    for (unsigned waiting = warp.pending; waiting != 0; waiting &= waiting - 1) {
        slot = static_cast<unsigned>(__builtin_ctz(waiting));
        if (warp.collectives[slot].mask == mask) break;
        slot = warp_lanes;
    }
    if (warp.pending == 0 || slot == warp_lanes) {
        slot = static_cast<unsigned>(__builtin_ctz(~warp.pending));
        warp.collectives[slot] = Collective{mask, 0, operation, bytes, kind, line};
        warp.pending |= 1u << slot;
    }
    Collective& c = warp.collectives[slot];
    if (c.operation != operation || c.bytes != bytes) {
        const Thread& other = lane(block, number, static_cast<unsigned>(__builtin_ctz(c.arrived)));
        report_lane(worker, thread, "lanes of one warp call different collectives", &other);
        abort_launch(worker, error_launch_failure);
    }
    c.arrived |= me;
    thread.give = give;
    thread.take = take;
    thread.source = source;
    thread.state = ThreadState::at_warp;
    if (c.arrived == (mask & ~warp.exited)) {
        complete(block, number, c, &thread);
        refresh_records(worker);
    } else {
        suspend(worker);
        refresh_records(worker);
    }
    return operation == WarpOperation::exchange || operation == WarpOperation::shuffle ? thread.answer : thread.source;
}

void warp_lane_exited(Block& block, Thread& thread) {
    const std::uint32_t number = thread.linear / warp_lanes;
    Warp& warp = block.warps[number];
    warp.exited |= 1u << (thread.linear % warp_lanes);
    for (unsigned waiting = warp.pending; waiting != 0; waiting &= waiting - 1) {
        Collective& c = warp.collectives[__builtin_ctz(waiting)];
        if (c.arrived == (c.mask & ~warp.exited)) complete(block, number, c, nullptr);
    }
    warp_lane_waits(block, thread);
}

namespace {

void resolve_activemasks_of(Block& block, std::uint32_t number) {
    Warp& warp = block.warps[number];
    while (warp.asking != 0) {
        const Thread& first = lane(block, number, static_cast<unsigned>(__builtin_ctz(warp.asking)));
        unsigned mask = 0;
        for (unsigned waiting = warp.asking; waiting != 0; waiting &= waiting - 1) {
            const unsigned l = static_cast<unsigned>(__builtin_ctz(waiting));
            if (lane(block, number, l).line == first.line) mask |= 1u << l;
        }
        warp.asking &= ~mask;
        for (unsigned l = 0; l < warp_lanes; ++l) {
            if (!(mask >> l & 1u)) continue;
            lane(block, number, l).answer = mask;
            make_ready(block, lane(block, number, l));
        }
    }
}

}  // namespace

// A lane that asks for the active lanes waits until no other of its warp can run, or all that can only spin; then those that ask at the same
// line are active together, which is as much convergence as a GPU would give.
unsigned active_mask(int line) {
    Worker& worker = *current_worker;
    Thread& thread = *worker.thread;
    thread.line = line;
    thread.kind = "__activemask()";
    thread.state = ThreadState::at_activemask;
    worker.block->warps[thread.linear / warp_lanes].asking |= 1u << thread.linear % warp_lanes;
    suspend(worker);
    return thread.answer;
}

void warp_lane_waits(Block& block, const Thread& thread) {
    const std::uint32_t number = thread.linear / warp_lanes;
    if (block.warps[number].asking == 0) return;
    const std::uint32_t end = std::min((number + 1) * warp_lanes, block.count);
    for (std::uint32_t i = number * warp_lanes; i < end; ++i) {
        const ThreadState state = block.threads[i].state;
        if (state == ThreadState::unstarted || state == ThreadState::ready || state == ThreadState::running) return;
    }
    resolve_activemasks_of(block, number);
}

bool resolve_activemasks(Block& block) {
    bool any = false;
    for (std::uint32_t w = 0; w * warp_lanes < block.count; ++w) {
        any = any || block.warps[w].asking != 0;
        resolve_activemasks_of(block, w);
    }
    return any;
}

int lane_id() noexcept { return current_worker == nullptr ? 0 : static_cast<int>(current_worker->thread->linear % warp_lanes); }
int warp_id() noexcept { return current_worker == nullptr ? 0 : static_cast<int>(current_worker->thread->linear / warp_lanes); }

unsigned warp_exchange(unsigned mask, const void* mine, std::size_t size, void* all32, const char* kind) {
    return warp_collective(WarpOperation::exchange, mask, mine, all32, size, 0, kind, 0);
}

}  // namespace hostcuda
