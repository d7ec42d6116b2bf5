// Asynchronous copies: what a thread has begun to copy arrives when it waits for it, or when the phase of the barrier ends that it is bound to, no
// earlier, so that a missing wait shows. Meanwhile what it is bringing is marked: no other access is in order with it.
#include <cstring>

#include "checking.h"
#include "report.h"
#include "state.h"

#define SITE reinterpret_cast<std::uintptr_t>(__builtin_return_address(0))

namespace hostcuda {

namespace {

void carry_out(const AsyncCopy& copy) {
    if (hostcuda_checked()) {
        unmark_arriving(*current_worker, copy);
        check_range(copy.to, copy.bytes, true, copy.site);
    }
    std::memcpy(copy.to, copy.from, copy.kept);
    std::memset(static_cast<char*>(copy.to) + copy.kept, 0, copy.bytes - copy.kept);
}

// Those of groups before one.
void arrive(AsyncCopies* copies, unsigned before_group) {
    if (copies == nullptr) return;
    auto& list = copies->list;
    std::size_t left = 0;
    for (const AsyncCopy& copy : list) {
        if (copy.group < before_group) carry_out(copy);
        else list[left++] = copy;
    }
    list.resize(left);
}
void arrive_but(AsyncCopies* copies, unsigned groups_left) {
    if (copies != nullptr && copies->group > groups_left) arrive(copies, copies->group - groups_left);
}

void begin(const AsyncCopy& copy) {
    if (!hostcuda_checked()) return;
    check_range(copy.from, copy.kept, false, copy.site);
    mark_arriving(*current_worker, copy);
}

void add(std::unique_ptr<AsyncCopies>& copies, AsyncCopy copy) {
    if (copies == nullptr) copies = std::make_unique<AsyncCopies>();
    copy.group = copies->group;
    begin(copy);
    copies->list.push_back(copy);
}

void bind(const void* barrier, bool counted, const AsyncCopy& copy) {
    Worker& worker = *current_worker;
    begin(copy);
    if (Block* holder = holder_of(worker, reinterpret_cast<std::uintptr_t>(barrier))) holder->bound.push_back({barrier, counted, copy});
    else carry_out(copy);
}

// Those of a block that `chosen` names, and how many bytes they brought.
template <class Chosen> unsigned long long arrive_at(Block& block, Chosen chosen) {
    unsigned long long bytes = 0;
    std::size_t left = 0;
    for (std::size_t i = 0; i < block.bound.size(); ++i) {
        if (chosen(block.bound[i])) carry_out(block.bound[i].copy), bytes += block.bound[i].copy.bytes;
        else block.bound[left++] = block.bound[i];
    }
    block.bound.resize(left);
    return bytes;
}

}  // namespace

void async_copy(void* shared, const void* source, unsigned bytes, unsigned kept) {
    if (current_worker == nullptr) {
        std::memcpy(shared, source, kept);
        std::memset(static_cast<char*>(shared) + kept, 0, bytes - kept);
        return;
    }
    add(current_worker->thread->copies, {shared, source, bytes, kept, 0, SITE});
}

void async_commit() {
    if (current_worker != nullptr && current_worker->thread->copies != nullptr) ++current_worker->thread->copies->group;
}

void async_wait(unsigned groups_left) {
    if (current_worker != nullptr) arrive_but(current_worker->thread->copies.get(), groups_left);
}

void async_wait_all() {
    if (current_worker != nullptr) arrive(current_worker->thread->copies.get(), ~0u);
}

void async_copy_until(const void* barrier, void* shared, const void* source, unsigned bytes) { bind(barrier, false, {shared, source, bytes, bytes, 0, SITE}); }

void async_bind(const void* barrier) {
    Worker& worker = *current_worker;
    if (worker.thread->copies == nullptr) return;
    for (const AsyncCopy& copy : worker.thread->copies->list) worker.block->bound.push_back({barrier, false, copy});
    worker.thread->copies->list.clear();
}

bool in_shared(const void* place) {
    const Worker& worker = *current_worker;
    return reinterpret_cast<std::uintptr_t>(place) - worker.shared_base < worker.shared_bytes;
}

bool only_own_block_reaches(const void* place) { return current_worker != nullptr && (in_shared(place) || current_worker->launch->blocks == 1); }

void async_arrived(const void* barrier) {
    Block* holder = holder_of(*current_worker, reinterpret_cast<std::uintptr_t>(barrier));
    if (holder != nullptr) arrive_at(*holder, [barrier](const BoundCopy& it) { return it.barrier == barrier && !it.counted; });
}

void async_bulk(const void* barrier, void* shared, const void* source, unsigned bytes) { bind(barrier, true, {shared, source, bytes, bytes, 0, SITE}); }

unsigned long long async_bring(const void* barrier) {
    Block* holder = holder_of(*current_worker, reinterpret_cast<std::uintptr_t>(barrier));
    return holder == nullptr ? 0 : arrive_at(*holder, [barrier](const BoundCopy& it) { return it.barrier == barrier && it.counted; });
}

void async_bulk_store(void* to, const void* shared, unsigned bytes) { add(current_worker->thread->stores, {to, shared, bytes, bytes, 0, SITE}); }

void async_bulk_commit() {
    if (current_worker->thread->stores != nullptr) ++current_worker->thread->stores->group;
}

void async_bulk_wait(unsigned groups_left) { arrive_but(current_worker->thread->stores.get(), groups_left); }

// Marks in shared memory go with the arena's records; those in global memory would convict the next launch.
void abandon_copies(Worker& worker, Block& block) {
    if (!hostcuda_checked()) return;
    worker.block = &block;
    for (std::uint32_t i = 0; i < block.count; ++i)
        for (const auto* copies : {block.threads[i].copies.get(), block.threads[i].stores.get()})
            for (std::size_t at = 0; copies != nullptr && at < copies->list.size(); ++at) unmark_source(worker, copies->list[at]);
    for (const BoundCopy& it : block.bound) unmark_source(worker, it.copy);
}

void finish_copies(Block& block, Thread& thread) {
    arrive(thread.copies.get(), ~0u);
    arrive(thread.stores.get(), ~0u);
    if (block.live == 1 && !block.bound.empty()) arrive_at(block, [](const BoundCopy&) { return true; });
}

}  // namespace hostcuda
