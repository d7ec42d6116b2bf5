#include "fiber.h"

#include <sys/mman.h>

#include <atomic>

namespace hostcuda {

#ifdef HOSTCUDA_USES_UCONTEXT

void fiber_prepare(Fiber& fiber, void (*entry)()) {
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack_low;
    fiber.context.uc_stack.ss_size = fiber.stack_bytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, entry, 0);
}

void fiber_switch(Fiber& from, Fiber& to) { swapcontext(&from.context, &to.context); }

#else

// Saves what the System V ABI asks a callee to keep, swaps stacks, restores. The control words of x87 and SSE are not
// saved: no kernel changes them.
asm(R"(
    .text
    .align 16
    .type hostcuda_fiber_switch, @function
hostcuda_fiber_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size hostcuda_fiber_switch, .-hostcuda_fiber_switch
)");

extern "C" void hostcuda_fiber_switch(void** save, void* load);

void fiber_prepare(Fiber& fiber, void (*entry)()) {
    auto top = reinterpret_cast<std::uintptr_t>(fiber.stack_low + fiber.stack_bytes) & ~std::uintptr_t{63};
    auto* slot = reinterpret_cast<std::uintptr_t*>(top);
    *--slot = 0;                                         // a return address for entry, so that unwinders stop
    *--slot = reinterpret_cast<std::uintptr_t>(entry);   // popped by ret; leaves the stack 8 off 16, as after a call
    for (int i = 0; i < 6; ++i) *--slot = 0;
    fiber.stack_pointer = slot;
}

void fiber_switch(Fiber& from, Fiber& to) { hostcuda_fiber_switch(&from.stack_pointer, to.stack_pointer); }

#endif

namespace {
constexpr std::size_t page_bytes = 4096;
constexpr std::size_t fibers_a_slab = 32;
// A guard splits a mapping in two. A process may have some 65,000 (vm.max_map_count), and others need them, too.
constexpr std::size_t most_guarded_stacks = 16384;
std::atomic<std::size_t> guarded_stacks{0};
}  // namespace

struct FiberPool::Slab {
    Slab* next;
    char* memory;
    std::size_t bytes;
    Fiber fibers[fibers_a_slab];
};

FiberPool::~FiberPool() {
    while (slabs_ != nullptr) {
        Slab* slab = slabs_;
        slabs_ = slab->next;
        munmap(slab->memory, slab->bytes);
        delete slab;
    }
}

bool FiberPool::grow() {
    const std::size_t stride = stack_bytes_ + page_bytes, bytes = stride * fibers_a_slab;
    void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return false;
    auto* const memory = static_cast<char*>(mapped);
    const bool guarded = guarded_stacks.load() < most_guarded_stacks && guarded_stacks.fetch_add(fibers_a_slab) < most_guarded_stacks;
    for (std::size_t i = 0; i < fibers_a_slab && guarded; ++i)
        if (mprotect(memory + i * stride, page_bytes, PROT_NONE) != 0) break;
    slabs_ = new Slab{slabs_, memory, bytes, {}};
    for (std::size_t i = fibers_a_slab; i-- > 0;) {
        Fiber& fiber = slabs_->fibers[i];
        fiber.stack_low = memory + i * stride + page_bytes;
        fiber.stack_bytes = stack_bytes_;
        reset(&fiber);
    }
    return true;
}

Fiber* FiberPool::take() {
    if (free_ == nullptr && !grow()) return nullptr;
    Fiber* fiber = free_;
    free_ = fiber->next_free;
    return fiber;
}

void FiberPool::give(Fiber* fiber) {
    fiber->next_free = free_;
    free_ = fiber;
}

void FiberPool::reset(Fiber* fiber) {
    fiber_prepare(*fiber, entry_);
    give(fiber);
}

}  // namespace hostcuda
