// Waiting at a word of memory as libcu++'s latches and semaphores have it: who releases there has what came before put in order with what follows in
// whoever acquires, and a wait that nobody can end is a barrier_error.
#pragma once
#include <chrono>

#include "interface.h"

namespace hostcuda {
namespace waiting {
// `ready()` looks once, and acquires where it is true.
template <class Ready> inline void until(const void* place, Ready ready, const char* what, int line) {
    while (!ready()) {
        if (only_own_block_reaches(place)) wait_in_vain(line, what);
        poll_hint();
    }
    wait_over();
}
// For callers with a loop of their own, where others have to get on.
template <class Ready> inline bool once(Ready ready) {
    if (!ready()) return poll_hint(), false;
    wait_over();
    return true;
}
template <class Clock, class Duration, class Ready> inline bool before(const std::chrono::time_point<Clock, Duration>& end, Ready ready) {
    while (!ready()) {
        if (Clock::now() >= end) return false;
        poll_hint();
    }
    wait_over();
    return true;
}
}  // namespace waiting
}  // namespace hostcuda
