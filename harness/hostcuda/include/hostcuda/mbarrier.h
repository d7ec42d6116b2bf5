// A barrier in one 64-bit word of shared memory, as PTX's mbarrier and libcu++'s barrier of a block have it ("Parallel Thread Execution ISA", mbarrier):
// whom a phase expects, who is still to come, how many bytes are still to be brought, and the phase. Arriving releases and waiting acquires, which the
// checks of races follow. What is bound to a phase by cp.async is there at its end; bulk copies, whose bytes are counted, arrive once everybody has come.
#pragma once
#include <cstdint>

#include "interface.h"

namespace hostcuda {
namespace mbarrier {
using Word = std::uint64_t;
constexpr unsigned pending_at = 20, bytes_at = 40, phase_at = 61;
constexpr Word most = (Word{1} << pending_at) - 1, bytes_mask = (Word{1} << (phase_at - bytes_at)) - 1;
inline Word expected_of(Word word) { return word & most; }
inline Word pending_of(Word word) { return word >> pending_at & most; }
inline Word bytes_of(Word word) { return word >> bytes_at & bytes_mask; }
inline Word phase_of(Word word) { return word >> phase_at; }
inline Word look(const Word* place) { return __atomic_load_n(place, __ATOMIC_ACQUIRE); }

inline void begin(Word* place, Word expected) {
    if (expected > most) trap();
    sync_begin(place);
    __atomic_store_n(place, expected | expected << pending_at, __ATOMIC_RELAXED);
}

struct Nothing {
    void operator()() const {}
};
// Arrives `count` times, `dropped` of them for all phases to come, with `bytes` more (or, below zero, fewer) to be brought in this one. Whoever ends
// the phase calls `done` before anybody goes on. A relaxed arrival releases what a fence came behind, no more. Returns the word as it was, which tells
// the phase.
template <class Done = Nothing> inline Word come(Word* place, Word count, Word dropped = 0, long long bytes = 0, Done done = {}, bool relaxed = false) {
    wait_over();
    sync_release(place, relaxed);
    Word word = look(place);
    while (true) {
        if (count > pending_of(word)) trap();  // more than are expected: undefined on a GPU
        const Word pending = pending_of(word) - count, expected = expected_of(word) - dropped;
        const Word missing = (bytes_of(word) + static_cast<Word>(bytes)) & bytes_mask;
        const bool last = pending == 0 && missing == 0;
        if (last) {
            if (!relaxed) sync_acquire(place);
            async_arrived(place);
            done();
            if (!relaxed) sync_release(place);
        }
        const Word next = (phase_of(word) + last) << phase_at | missing << bytes_at | (last ? expected : pending) << pending_at | expected;
        Word seen = word;
        if (__atomic_compare_exchange_n(place, &seen, next, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return word;
        word = seen;
    }
}
// Bytes announced before they are brought, or brought by somebody else than a bulk copy.
inline void announce(Word* place, long long bytes) { (void)come(place, 0, 0, bytes); }

// Has the phase ended that `in_phase` knows? Who asks in vain lets bulk copies arrive. `line` is 0 where the caller goes on after some time.
template <class InPhase> inline bool passed(Word* place, InPhase in_phase, int line, bool relaxed = false) {
    for (int look_again = 0; look_again < 2; ++look_again) {
        const Word word = look(place);
        if (!in_phase(phase_of(word))) {
            wait_over();
            sync_acquire(place, relaxed);
            return true;
        }
        if (pending_of(word) != 0) break;
        const unsigned long long brought = async_bring(place);
        if (brought == 0) break;
        announce(place, -static_cast<long long>(brought));
    }
    if (line != 0 && only_own_block_reaches(place)) wait_in_vain(line);
    poll_hint();
    return false;
}
inline bool passed_since(Word* place, Word token, HOSTCUDA_LINE, bool relaxed = false) {
    return passed(place, [token](Word phase) { return phase == phase_of(token); }, line, relaxed);
}
inline bool passed_parity(Word* place, bool parity, HOSTCUDA_LINE, bool relaxed = false) {
    return passed(place, [parity](Word phase) { return (phase & 1) == parity; }, line, relaxed);
}
}  // namespace mbarrier
}  // namespace hostcuda
