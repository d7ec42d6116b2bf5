// A fiber: a stack of its own and the point where it stopped. Switching costs a dozen instructions on x86-64; elsewhere
// ucontext does it. Knows nothing of GPU threads.
#pragma once
#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__) || defined(HOSTCUDA_UCONTEXT)
#include <ucontext.h>
#define HOSTCUDA_USES_UCONTEXT 1
#endif

namespace hostcuda {

struct Fiber {
#ifdef HOSTCUDA_USES_UCONTEXT
    ucontext_t context;
#else
    void* stack_pointer = nullptr;
#endif
    char* stack_low = nullptr;
    std::size_t stack_bytes = 0;
    Fiber* next_free = nullptr;
    void* owner = nullptr;
};

// Prepares `fiber` (whose stack is set) so that the first switch to it calls entry(), which must never return.
void fiber_prepare(Fiber& fiber, void (*entry)());
void fiber_switch(Fiber& from, Fiber& to);

// Stacks come in one mapping of several, committed by the kernel as they are touched. The first 16,384 of a process have a page below them that
// nobody may touch.
class FiberPool {
public:
    FiberPool(std::size_t stack_bytes, void (*entry)()) : stack_bytes_(stack_bytes), entry_(entry) {}
    ~FiberPool();
    FiberPool(const FiberPool&) = delete;
    FiberPool& operator=(const FiberPool&) = delete;
    Fiber* take();            // prepared, ready to be switched to; null where the machine has no room for more
    void give(Fiber* fiber);  // stopped inside its entry loop, may be switched to again
    void reset(Fiber* fiber); // abandoned in the middle of something: starts anew when taken next

private:
    struct Slab;
    bool grow();
    std::size_t stack_bytes_;
    void (*entry_)();
    Fiber* free_ = nullptr;
    Slab* slabs_ = nullptr;
};

}  // namespace hostcuda
