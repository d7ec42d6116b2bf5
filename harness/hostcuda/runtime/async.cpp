// cp.async: what a thread has begun to copy arrives when it waits for it, no earlier, so that a missing wait shows.
#include <cstring>

#include "report.h"
#include "state.h"

namespace hostcuda {

namespace {

void carry_out(const AsyncCopy& copy) {
    if (hostcuda_checked()) {
        check_range(copy.from, copy.kept, false, copy.site);
        check_range(copy.to, copy.bytes, true, copy.site);
    }
    std::memcpy(copy.to, copy.from, copy.kept);
    std::memset(static_cast<char*>(copy.to) + copy.kept, 0, copy.bytes - copy.kept);
}

void arrive(Thread& thread, unsigned before_group) {
    if (thread.copies == nullptr) return;
    auto& list = thread.copies->list;
    std::size_t left = 0;
    for (const AsyncCopy& copy : list) {
        if (copy.group < before_group) carry_out(copy);
        else list[left++] = copy;
    }
    list.resize(left);
}

}  // namespace

void async_copy(void* shared, const void* source, unsigned bytes, unsigned kept) {
    if (current_worker == nullptr) {
        std::memcpy(shared, source, kept);
        std::memset(static_cast<char*>(shared) + kept, 0, bytes - kept);
        return;
    }
    Thread& thread = *current_worker->thread;
    if (thread.copies == nullptr) thread.copies = std::make_unique<AsyncCopies>();
    thread.copies->list.push_back({shared, source, bytes, kept, thread.copies->group, reinterpret_cast<std::uintptr_t>(__builtin_return_address(0))});
}

void async_commit() {
    if (current_worker == nullptr) return;
    Thread& thread = *current_worker->thread;
    if (thread.copies != nullptr) ++thread.copies->group;
}

void async_wait(unsigned groups_left) {
    if (current_worker == nullptr || current_worker->thread->copies == nullptr) return;
    Thread& thread = *current_worker->thread;
    const unsigned committed = thread.copies->group;
    if (committed > groups_left) arrive(thread, committed - groups_left);
}

void async_wait_all() {
    if (current_worker == nullptr || current_worker->thread->copies == nullptr) return;
    arrive(*current_worker->thread, ~0u);
}

}  // namespace hostcuda
