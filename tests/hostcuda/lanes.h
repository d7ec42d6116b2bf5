// A warp of 32 operating-system threads: just enough of hostcuda/warp.h to test the warp-wide headers without the fiber runtime.
#pragma once
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "hostcuda/interface.h"
#include "hostcuda/warp.h"

namespace lanes {
inline thread_local int lane = 0;
inline std::mutex mutex;
inline std::condition_variable changed;
inline int arrived = 0;
inline int round = 0;
inline char slots[2][32 * 128];
alignas(128) inline char window[65536];

template <class Body> void run(Body body) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 32; ++i) {
        threads.emplace_back([i, &body] {
            lane = i;
            body(i);
        });
    }
    for (auto& thread : threads) thread.join();
}
}  // namespace lanes

namespace hostcuda {
int lane_id() noexcept { return lanes::lane; }
int warp_id() noexcept { return 0; }
unsigned warp_exchange(unsigned mask, const void* mine, std::size_t size, void* all32, const char*) {
    if (mask != 0xffffffffu || size > 128) std::abort();
    std::unique_lock<std::mutex> lock(lanes::mutex);
    char* slots = lanes::slots[lanes::round % 2];
    std::memcpy(slots + static_cast<std::size_t>(lanes::lane) * size, mine, size);
    const int round = lanes::round;
    if (++lanes::arrived == 32) {
        lanes::arrived = 0;
        ++lanes::round;
        lanes::changed.notify_all();
    } else {
        lanes::changed.wait(lock, [&] { return lanes::round != round; });
    }
    std::memcpy(all32, slots, 32 * size);
    return mask;
}
unsigned shared_address(const void* pointer) noexcept {
    return static_cast<unsigned>(static_cast<const char*>(pointer) - lanes::window);
}
void* shared_pointer(unsigned address) noexcept { return lanes::window + address; }
// Copies wait in a list, as in the runtime, so that one that nobody waits for is seen to be missing.
struct PendingCopy {
    void* to;
    const void* from;
    unsigned bytes, kept, group;
};
inline thread_local std::vector<PendingCopy> pending_copies;
inline thread_local unsigned open_group = 0;
void async_copy(void* shared, const void* source, unsigned bytes, unsigned kept) {
    pending_copies.push_back({shared, source, bytes, kept, open_group});
}
void async_commit() { ++open_group; }
void async_wait(unsigned groups_left) {
    std::vector<PendingCopy> later;
    for (const PendingCopy& copy : pending_copies) {
        if (copy.group + groups_left >= open_group) {
            later.push_back(copy);
            continue;
        }
        std::memset(copy.to, 0, copy.bytes);
        std::memcpy(copy.to, copy.from, copy.kept);
    }
    pending_copies = later;
}
inline thread_local bool carry_flag = false;
bool carry() { return carry_flag; }
void set_carry(bool on) { carry_flag = on; }
void async_wait_all() {
    async_commit();
    async_wait(0);
}
[[noreturn]] void not_emulated(const char* construct) {
    std::fprintf(stderr, "not emulated: %s\n", construct);
    std::abort();
}
}  // namespace hostcuda
