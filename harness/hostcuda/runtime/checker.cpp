// Checked mode. The compiler (-fsanitize=thread) calls these functions at every load and store of a solution's code; they keep
// the shadow memory and find races, stray and misaligned accesses, and reads of memory that nobody wrote. Host code calls them too:
// see host_access.cpp.
#include <algorithm>
#include <cstring>

#include "checking.h"

namespace hostcuda {

namespace {

constexpr std::uint32_t poison_word = static_cast<std::uint32_t>(poison);

void remember_conflict(Worker& worker, std::uintptr_t address, std::uint32_t bytes, std::uintptr_t site, Record other, bool other_was_write) {
    if (worker.has_pending) return;
    Pending& p = worker.pending;
    p.address = address;
    p.bytes = std::min<std::uint32_t>(bytes, sizeof p.before);
    std::memcpy(p.before, reinterpret_cast<const void*>(address), p.bytes);
    p.site = site;
    p.other = other;
    p.other_was_write = other_was_write;
    worker.has_pending = true;
}

__attribute__((noinline)) void slow_read(Worker& worker, Cell& cell, std::uintptr_t address, std::size_t bytes, std::uintptr_t site, Record floor, bool shared) {
    const Record before = cell.write, atomic = cell.atomic;  // once: other workers change them
    if (before == record_unaddressable) {
        report_access(worker, ReportKind::memory_error, address, bytes, false, site, "out of bounds");
        return;
    }
    if (is_arriving(before)) {
        report_access(worker, ReportKind::data_race, address, bytes, false, site, "read of memory that an unfinished asynchronous copy writes: nothing waited for the copy", before, "asynchronous copy");
    } else if (!ordered(worker, before, floor, shared)) {
        report_access(worker, ReportKind::data_race, address, bytes, false, site, "read of memory that another thread writes, without synchronisation between the two", before, "write");
        cell.write = 0;
    } else if (shared && !ordered(worker, atomic, floor, shared)) {
        // In global memory such a read is how kernels look before they update (if (v > *best) atomicMax(best, v)). In shared memory it is
        // the missing barrier, unless the thread goes on with an atomic of its own (the opening read of a compare-and-swap loop).
        Thread& thread = *worker.thread;
        if (thread.doubt != 0 && thread.doubt != address) settle_doubt(worker);
        thread.doubt = address, thread.doubt_site = site, thread.doubt_other = atomic;
    }
}

__attribute__((noinline)) void slow_write(Worker& worker, const Cell& cell, std::uintptr_t address, std::size_t bytes, std::uintptr_t site, Record floor, bool shared) {
    const Record before[] = {cell.write, cell.atomic, cell.reader, cell.reader2};  // once: other workers change them
    if (before[0] == record_unaddressable) {
        report_access(worker, ReportKind::memory_error, address, bytes, true, site, "out of bounds");
        const Block* holder = holder_of(worker, address);
        if (holder == nullptr || holder_of(worker, address + bytes - 1) != holder) abort_launch(worker, error_illegal_address);
        return;
    }
    for (unsigned k = 0; k < 4; ++k) {
        if (ordered(worker, before[k], floor, shared)) continue;
        remember_conflict(worker, address, static_cast<std::uint32_t>(bytes), site, before[k], k < 2);
        return;
    }
}

// Not written by anybody: poison still stands there and no record says that a kernel put it there.
__attribute__((noinline)) void check_uninitialised(Worker& worker, Cell* cell, std::size_t cells, std::uintptr_t address, std::size_t bytes,
                                                   std::uintptr_t site, const Region* region) {
    if (region != nullptr && !region->fresh) return;
    if (bytes < 4) {  // a byte or a half may look like poison by chance: the eight bytes around it must too
        const std::uintptr_t around = address & ~std::uintptr_t{7};
        if (region != nullptr && (around < region->base || around + 8 > region->base + region->bytes)) return;
        std::uint64_t value;
        std::memcpy(&value, reinterpret_cast<const void*>(around), 8);
        if (value != poison) return;
    }
    for (std::size_t i = 0; i < cells; ++i) {
        const bool written = region != nullptr ? (cell[i].write | cell[i].atomic) != 0 : cell[i].write >= worker.shared_start || cell[i].atomic >= worker.shared_start;
        if (!written) {
            report_access(worker, ReportKind::uninitialised_read, address, bytes, false, site, "this memory was never written");
            return;
        }
    }
}

inline __attribute__((always_inline)) void note_reader(const Worker& worker, Cell& cell, Record me, Record floor) {
    const Record r1 = cell.reader;
    if (r1 < floor || r1 < worker.barrier_limit) {
        // behind an ordering point (or another block's with an older serial, which the second slot then keeps)
        const Record r2 = cell.reader2;
        if (r1 >= floor && ((r1 ^ me) >> record_serial_shift) != 0) cell.reader2 = r1;
        else if (r2 < floor || ((r2 ^ me) >> record_serial_shift) == 0) cell.reader2 = 0;
        cell.reader = me;
        return;
    }
    if (((r1 ^ me) >> record_thread_shift) == 0) return;
    const Record r2 = cell.reader2;
    if (r2 < floor) {
        cell.reader2 = me;
        return;
    }
    if (((r2 ^ me) >> record_thread_shift) == 0) return;
    // prefer variety: a reader of another block, or of another warp, than the two that are there
    constexpr int warp_shift = record_thread_shift + 5;
    const bool same_block = ((r1 ^ r2) >> record_serial_shift) == 0;
    if (same_block && (((r1 ^ me) >> record_serial_shift) != 0 || ((((r1 ^ r2) >> warp_shift) & 31u) == 0 && (((r1 ^ me) >> warp_shift) & 31u) != 0)))
        cell.reader2 = me;
}

// An access to these cells. In shared memory (`region` is null) plain writes below `limit` are behind a barrier.
template <unsigned bytes, bool write>
inline __attribute__((always_inline)) void check_cells(Worker& worker, Cell* cell, std::size_t cells, Record floor, Record limit, std::uintptr_t address, std::uintptr_t site, const Region* region) {
    const bool shared = region == nullptr;
    const Record me = with_site(worker.me, site);
    if (write) {
        for (std::size_t i = 0; i < cells; ++i) {
            Cell& c = cell[i];
            const Record before = c.write, atomic = c.atomic, reader = c.reader, reader2 = c.reader2;
            if (__builtin_expect(((before >= floor) | (atomic >= floor) | (reader >= floor) | (reader2 >= floor)), 0)) {
                const Record mine = me >> record_thread_shift;
                // the usual case: only this very thread was here since the last barrier
                if (((before >> record_thread_shift) != mine && before >= floor) || atomic >= floor ||
                    (reader >= floor && (reader >> record_thread_shift) != mine) || reader2 >= floor)
                    slow_write(worker, c, address, bytes, site, floor, shared);
            }
            if (before != record_unaddressable) c.write = me;
        }
        return;
    }
    for (std::size_t i = 0; i < cells; ++i) {
        Cell& c = cell[i];
        const Record before = c.write, atomic = c.atomic;
        if (__builtin_expect(((before >= floor) & ((before ^ me) >> record_thread_shift != 0)) | (atomic >= floor), 0))
            if (before >= limit || !shared || atomic >= floor || before == record_unaddressable)
                slow_read(worker, c, address, bytes, site, floor, shared);
        note_reader(worker, c, me, floor);
    }
    if (shared || region->fresh) {
        bool suspicious;
        if (bytes >= 4) {
            suspicious = false;
            for (unsigned i = 0; i + 4 <= bytes; i += 4) {
                std::uint32_t word;
                std::memcpy(&word, reinterpret_cast<const char*>(address) + i, 4);
                suspicious |= word == poison_word;
            }
        } else {
            unsigned char byte;
            std::memcpy(&byte, reinterpret_cast<const char*>(address), 1);
            suspicious = byte == static_cast<unsigned char>(poison >> (8 * (address & 1)));
        }
        if (__builtin_expect(suspicious, 0)) check_uninitialised(worker, cell, cells, address, bytes, site, region);
    }
}

// Finer cells of a block's shared memory, where an access needs them.
void refine_for(Worker& worker, Block& holder, unsigned bytes) {
    if (bytes >= (1u << holder.arena.granule_shift)) return;
    arena_refine(holder.arena, __builtin_ctz(bytes));
    if (&holder == worker.block) worker.shared_granule_shift = holder.arena.granule_shift;
}

// An access to another block's shared memory.
template <unsigned bytes, bool write>
__attribute__((noinline)) void check_distributed(Worker& worker, Block& holder, std::uintptr_t address, std::uintptr_t site) {
    note_touch(worker, holder, address, bytes, write, false, site);
    refine_for(worker, holder, bytes);
    const Arena& arena = holder.arena;
    const unsigned shift = arena.granule_shift;
    const std::uintptr_t offset = address - reinterpret_cast<std::uintptr_t>(arena.memory);
    if ((address & (bytes - 1)) != 0) report_access(worker, ReportKind::misaligned, address, bytes, write, site, "misaligned address");
    check_cells<bytes, write>(worker, arena.cells + (offset >> shift), ((offset + bytes - 1) >> shift) - (offset >> shift) + 1, worker.shared_floor, worker.shared_floor,
                                       address, site, nullptr);
}

template <unsigned bytes, bool write, bool aligned>
inline __attribute__((always_inline)) void check(Worker& worker, std::uintptr_t address, std::uintptr_t site) {
    if (__builtin_expect(worker.has_pending, 0)) flush_pending(worker);
    if (address - worker.stack_low < worker.stack_bytes) return;
    std::uintptr_t offset = address - worker.shared_base;
    Cell* cell;
    Record floor;
    Region* region = nullptr;
    unsigned shift;
    const bool shared = offset < worker.shared_bytes;
    if (shared) {
        shift = worker.shared_granule_shift;
        if (bytes < 4 && __builtin_expect(bytes < (1u << shift), 0)) {
            arena_refine(worker.block->arena, __builtin_ctz(bytes));
            shift = worker.shared_granule_shift = worker.block->arena.granule_shift;
        }
        cell = worker.shared_cells + (offset >> shift);
        floor = worker.shared_floor;
    } else {
        if (address - worker.builtins_low < worker.builtins_bytes) return;
        region = worker.cache[address >> 12 & (region_cache_entries - 1)];
        if (__builtin_expect(region == nullptr || address - region->base >= region->bytes || region->bytes - (address - region->base) < bytes, 0)) {
            if (Block* holder = holder_of(worker, address)) return check_distributed<bytes, write>(worker, *holder, address, site);
            region = find_region(worker, address, bytes, write, site);
            if (region == nullptr) return;
        }
        if (region->kind == RegionKind::image) return;
        offset = address - region->base;
        shift = region->granule_shift;
        if (bytes < 4 && __builtin_expect(bytes < (1u << shift), 0)) {
            region_refine(*region, __builtin_ctz(bytes));
            shift = region->granule_shift;
        }
        __asm__ volatile("" ::: "memory");  // the shift is read before the cells: see region_refine
        cell = region->cells.load(std::memory_order_relaxed);
        if (__builtin_expect(cell == nullptr, 0)) cell = region_cells(*region);
        if (__builtin_expect(cell == nullptr || bytes < (1u << shift), 0)) return;
        cell += offset >> shift;
        floor = worker.floor;
    }
    if (!aligned && __builtin_expect((address & (bytes - 1)) != 0, 0)) {
        report_access(worker, ReportKind::misaligned, address, bytes, write, site, "misaligned address");
    }
    std::size_t cells = aligned ? (bytes >> shift) : ((offset + bytes - 1) >> shift) - (offset >> shift) + 1;
    if (aligned && cells == 0) cells = 1;
    check_cells<bytes, write>(worker, cell, cells, floor, worker.shared_limit, address, site, region);
}

template <unsigned bytes, bool write, bool aligned>
inline __attribute__((always_inline)) void check_anywhere(std::uintptr_t address, std::uintptr_t site) {
    Worker* worker = current_worker;
    if (worker != nullptr) check<bytes, write, aligned>(*worker, address, site);
    else check_host(address, bytes, write, site);
}

// An atomic update: conflicts with plain accesses, not with other atomics; may carry a release or an acquire.
template <unsigned bytes>
void check_atomic(const volatile void* p, std::uintptr_t site, bool reads, bool writes, int order) {
    Worker* found = current_worker;
    if (found == nullptr) return;
    Worker& worker = *found;
    const auto address = reinterpret_cast<std::uintptr_t>(p);
    if (worker.has_pending) flush_pending(worker);
    if (address - worker.stack_low < worker.stack_bytes) return;
    if ((address & (bytes - 1)) != 0) {
        report_access(worker, ReportKind::misaligned, address, bytes, true, site, "misaligned address of an atomic");
        abort_launch(worker, error_misaligned_address);
    }
    if (worker.thread->doubt == address) worker.thread->doubt = 0;
    Block* const holder = holder_of(worker, address);
    const bool shared = holder != nullptr;
    Cell* cell;
    Region* region = nullptr;
    Record floor;
    std::size_t cells;
    if (shared) {
        if (holder != worker.block) note_touch(worker, *holder, address, bytes, writes, writes, site);
        refine_for(worker, *holder, bytes);
        const Arena& arena = holder->arena;
        cell = arena.cells + ((address - reinterpret_cast<std::uintptr_t>(arena.memory)) >> arena.granule_shift);
        cells = std::max<std::size_t>(1, bytes >> arena.granule_shift);
        floor = worker.shared_floor;
    } else {
        region = worker.cache[address >> 12 & (region_cache_entries - 1)];
        if (region == nullptr || address - region->base >= region->bytes || region->bytes - (address - region->base) < bytes)
            region = find_region(worker, address, bytes, true, site);
        if (region == nullptr || region->kind == RegionKind::image) return;
        if (bytes < (1u << region->granule_shift)) region_refine(*region, __builtin_ctz(bytes));
        cell = region_cells(*region);
        if (cell == nullptr || bytes < (1u << region->granule_shift)) return;
        cell += (address - region->base) >> region->granule_shift;
        cells = std::max<std::size_t>(1, bytes >> region->granule_shift);
        floor = worker.floor;
    }
    if (reads) {
        std::uint32_t word = 0;
        std::memcpy(&word, reinterpret_cast<const void*>(address), std::min(bytes, 4u));
        if (bytes >= 4 && word == poison_word) check_uninitialised(worker, cell, cells, address, bytes, site, shared ? nullptr : region);
    }
    const Record me = with_site(worker.me, site);
    for (std::size_t i = 0; i < cells; ++i) {
        Cell& c = cell[i];
        if (c.write == record_unaddressable) {
            report_access(worker, ReportKind::memory_error, address, bytes, true, site, "out of bounds");
            break;
        }
        if (const Record before = c.write; !ordered(worker, before, floor, shared)) {
            report_access(worker, ReportKind::data_race, address, bytes, true, site, "atomic update of memory that another thread writes non-atomically, without synchronisation between the two", before, "write");
            c.write = 0;
        }
        const bool of_the_block = order == HOSTCUDA_BLOCK_SCOPE && region != nullptr;
        if (const Record before = c.atomic; of_the_block && !ordered(worker, before, floor, shared) && of_another_block(*worker.block, before))
            report_access(worker, ReportKind::data_race, address, bytes, true, site, "atomic update with the scope of a block of memory that another block updates", before, "atomic update");
        if (writes) c.atomic = me;
    }
    poll(worker);  // first: whoever has its turn meanwhile may release what is about to be read
    synchronize_through(worker, holder, address, reads, writes, order == HOSTCUDA_BLOCK_SCOPE);
}

template <unsigned bytes, bool write>
void check_volatile(void* p, std::uintptr_t site) {
    Worker* found = current_worker;
    const auto address = reinterpret_cast<std::uintptr_t>(p);
    if (found == nullptr) return check_host(address, bytes, write, site);
    Worker& worker = *found;
    if (address - worker.stack_low < worker.stack_bytes) return;
    if (holder_of(worker, address) != nullptr) {
        check<bytes, write, false>(worker, address, site);
    } else {
        // on global memory a volatile access is how blocks signal each other: it neither races nor counts as plain
        if (worker.has_pending) flush_pending(worker);
        Region* region = find_region(worker, address, bytes, write, site);
        if (region == nullptr || region->kind == RegionKind::image) return;
        Cell* cells = region_cells(*region);
        if (cells != nullptr && bytes >= (1u << region->granule_shift)) {
            Cell& cell = cells[(address - region->base) >> region->granule_shift];
            if (const Record before = cell.write; before != record_unaddressable && !ordered(worker, before, worker.floor, false)) {
                report_access(worker, ReportKind::data_race, address, bytes, write, site, "volatile access to memory that another thread writes plainly, without synchronisation between the two", before, "write");
                cell.write = 0;
            }
        }
        if (write && cells != nullptr && bytes >= (1u << region->granule_shift)) cells[(address - region->base) >> region->granule_shift].atomic = with_site(worker.me, site);
        if (!write) poll(worker);  // first: whoever has its turn meanwhile may release what is about to be read
        synchronize_through(worker, nullptr, address, !write, write, false);
        return;
    }
    if (!write) poll(worker);
}

}  // namespace

void check_range(const void* p, std::size_t bytes, bool write, std::uintptr_t site) {
    Worker* worker = current_worker;
    if (bytes == 0) return;
    if (worker == nullptr) return check_host(reinterpret_cast<std::uintptr_t>(p), bytes, write, site);
    auto address = reinterpret_cast<std::uintptr_t>(p);
    if (address - worker->stack_low < worker->stack_bytes) return;
    while (bytes >= 4 && (address & 3) == 0) {
        if (write) check<4, true, true>(*worker, address, site);
        else check<4, false, true>(*worker, address, site);
        address += 4, bytes -= 4;
    }
    for (; bytes != 0; ++address, --bytes) {
        if (write) check<1, true, true>(*worker, address, site);
        else check<1, false, true>(*worker, address, site);
    }
}

namespace {

// The cells of one end of a copy, as fine as it needs them; none where nobody keeps any.
struct End {
    Cell* cell = nullptr;
    std::size_t cells = 0, granule = 4;
};
unsigned granule_of(std::uintptr_t address, std::size_t bytes) { return ((address | bytes) & 1) != 0 ? 1 : ((address | bytes) & 2) != 0 ? 2 : 4; }
End end_of(Worker& worker, const void* at, std::size_t bytes) {
    const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(at);
    Block* const holder = holder_of(worker, address);
    if (bytes == 0 || holder == nullptr || holder_of(worker, address + bytes - 1) != holder) return {};
    refine_for(worker, *holder, granule_of(address, bytes));
    const unsigned shift = holder->arena.granule_shift;
    const std::uintptr_t offset = address - reinterpret_cast<std::uintptr_t>(holder->arena.memory);
    return {holder->arena.cells + (offset >> shift), bytes >> shift, std::size_t{1} << shift};
}
// The same of what is only read, which may lie in global memory.
End source_of(Worker& worker, const void* at, std::size_t bytes) {
    const End shared = end_of(worker, at, bytes);
    if (shared.cells != 0 || bytes == 0) return shared;
    const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(at);
    Region* region = worker.cache[address >> 12 & (region_cache_entries - 1)];
    if (region == nullptr || address - region->base >= region->bytes || region->bytes - (address - region->base) < bytes) region = region_containing(address, bytes);
    if (region == nullptr || region->kind == RegionKind::image) return {};
    const unsigned granule = granule_of(address - region->base, bytes);
    if (granule < 1u << region->granule_shift) region_refine(*region, __builtin_ctz(granule));
    Cell* const cells = region_cells(*region);
    const unsigned shift = region->granule_shift;
    if (cells == nullptr || granule < 1u << shift) return {};
    return {cells + ((address - region->base) >> shift), bytes >> shift, std::size_t{1} << shift};
}

}  // namespace

// From here on the copy may read and write at any time: what others wrote or read where it writes must be in order with it now, unless it brings what
// stands there.
void mark_arriving(Worker& worker, const AsyncCopy& copy) {
    const End to = end_of(worker, copy.to, copy.bytes), from = source_of(worker, copy.from, copy.kept);
    const Record mark = with_site(Record{arriving_serial} << record_serial_shift | Record{worker.thread->linear} << record_thread_shift, copy.site);
    const Record floor = worker.shared_floor, source_floor = holder_of(worker, reinterpret_cast<std::uintptr_t>(copy.from)) != nullptr ? floor : worker.floor;
    for (std::size_t i = 0; i < to.cells; ++i) {
        Cell& cell = to.cell[i];
        if (cell.write == record_unaddressable) continue;  // told when it arrives
        const std::size_t at = i * to.granule;
        const auto* place = static_cast<const char*>(copy.to) + at;
        if (!is_arriving(cell.write)) {
            const Record before[] = {cell.write, cell.atomic, cell.reader, cell.reader2};
            for (unsigned k = 0; k < 4; ++k) {
                if (ordered(worker, before[k], floor, true)) continue;
                char brought[4] = {};
                if (at < copy.kept) std::memcpy(brought, static_cast<const char*>(copy.from) + at, std::min(to.granule, copy.kept - at));
                if (std::memcmp(place, brought, to.granule) == 0) break;
                report_access(worker, ReportKind::data_race, reinterpret_cast<std::uintptr_t>(place), to.granule, true, copy.site,
                              k < 2 ? "asynchronous copy to memory that another thread writes, without synchronisation between the two"
                                    : "asynchronous copy to memory that another thread reads, without synchronisation between the two",
                              before[k], k < 2 ? "write" : "read");
                break;
            }
        }
        cell.write = mark;
    }
    for (std::size_t i = 0; i < from.cells; ++i) {
        Cell& cell = from.cell[i];
        const Record reader = cell.reader;
        if (reader >= source_floor && !is_arriving(reader)) cell.reader2 = reader;
        cell.reader = mark;
    }
}

void unmark_source(Worker& worker, const AsyncCopy& copy) {
    const End from = source_of(worker, copy.from, copy.kept);
    for (std::size_t i = 0; i < from.cells; ++i)
        if (is_arriving(from.cell[i].reader)) from.cell[i].reader = 0;
}

void unmark_arriving(Worker& worker, const AsyncCopy& copy) {
    const End to = end_of(worker, copy.to, copy.bytes);
    for (std::size_t i = 0; i < to.cells; ++i)
        if (is_arriving(to.cell[i].write)) to.cell[i].write = 0;
    unmark_source(worker, copy);
}

// The write that conflicted has happened: one that left the value as it was is harmless.
void flush_pending(Worker& worker) {
    worker.has_pending = false;
    const Pending p = worker.pending;
    if (std::memcmp(p.before, reinterpret_cast<const void*>(p.address), p.bytes) == 0) return;
    if (is_arriving(p.other)) {
        report_access(worker, ReportKind::data_race, p.address, p.bytes, true, p.site,
                      p.other_was_write ? "write to memory that an unfinished asynchronous copy writes" : "write to memory that an unfinished asynchronous copy reads", p.other, "asynchronous copy");
        return;
    }
    report_access(worker, ReportKind::data_race, p.address, p.bytes, true, p.site,
                  p.other_was_write ? "write to memory that another thread writes, without synchronisation between the two"
                                    : "write to memory that another thread reads, without synchronisation between the two",
                  p.other, p.other_was_write ? "write" : "read");
}

void settle_doubt(Worker& worker) {
    Thread& thread = *worker.thread;
    const std::uintptr_t address = thread.doubt;
    thread.doubt = 0;
    report_access(worker, ReportKind::data_race, address, 4, false, thread.doubt_site,
                  "non-atomic read of memory that another thread updates atomically, without synchronisation between the two", thread.doubt_other, "atomic update");
}

#if defined(__x86_64__)
__attribute__((target("cx16")))
#endif
static unsigned __int128 exchange_wide(unsigned __int128* place, const unsigned __int128* expected, unsigned __int128 value) {
    if (expected != nullptr) return __sync_val_compare_and_swap(place, *expected, value);
    unsigned __int128 before = 0;  // a guess, as good as any: what it held is what the first try says
    for (;;) {
        const unsigned __int128 found = __sync_val_compare_and_swap(place, before, value);
        if (found == before) return found;
        before = found;
    }
}

void atomic_wide(void* place, const void* expected, const void* value, void* old, bool checked) {
    if (checked) check_atomic<16>(place, reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)), true, true, __ATOMIC_RELAXED);
    unsigned __int128 wanted = 0, given;
    if (expected != nullptr) std::memcpy(&wanted, expected, sizeof wanted);
    std::memcpy(&given, value, sizeof given);
    const unsigned __int128 found = exchange_wide(static_cast<unsigned __int128*>(place), expected == nullptr ? nullptr : &wanted, given);
    std::memcpy(old, &found, sizeof found);
}

}  // namespace hostcuda

using hostcuda::current_worker;
#define SITE reinterpret_cast<std::uintptr_t>(__builtin_return_address(0))

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define HOOKS(n)                                                                                                              \
    void __tsan_read##n(void* p) {                                                                                            \
        hostcuda::check_anywhere<n, false, n != 16>(reinterpret_cast<std::uintptr_t>(p), SITE);                                \
    }                                                                                                                         \
    void __tsan_write##n(void* p) {                                                                                           \
        hostcuda::check_anywhere<n, true, n != 16>(reinterpret_cast<std::uintptr_t>(p), SITE);                                 \
    }                                                                                                                         \
    void __tsan_unaligned_read##n(void* p) {                                                                                  \
        hostcuda::check_anywhere<n, false, false>(reinterpret_cast<std::uintptr_t>(p), SITE);                                  \
    }                                                                                                                         \
    void __tsan_unaligned_write##n(void* p) {                                                                                 \
        hostcuda::check_anywhere<n, true, false>(reinterpret_cast<std::uintptr_t>(p), SITE);                                   \
    }                                                                                                                         \
    void __tsan_volatile_read##n(void* p) { hostcuda::check_volatile<n, false>(p, SITE); }                                    \
    void __tsan_volatile_write##n(void* p) { hostcuda::check_volatile<n, true>(p, SITE); }                                    \
    void __tsan_unaligned_volatile_read##n(void* p) { hostcuda::check_volatile<n, false>(p, SITE); }                          \
    void __tsan_unaligned_volatile_write##n(void* p) { hostcuda::check_volatile<n, true>(p, SITE); }

HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

void __tsan_read_range(void* p, std::size_t bytes) { hostcuda::check_range(p, bytes, false, SITE); }
void __tsan_write_range(void* p, std::size_t bytes) { hostcuda::check_range(p, bytes, true, SITE); }

// What -fsanitize=thread makes of the __atomic builtins.
#define ATOMICS(bits, type)                                                                                                   \
    type __tsan_atomic##bits##_load(const volatile type* p, int order) {                                                            \
        hostcuda::check_atomic<bits / 8>(p, SITE, true, false, order);                                                               \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                                          \
    }                                                                                                                         \
    void __tsan_atomic##bits##_store(volatile type* p, type v, int order) {                                                         \
        hostcuda::check_atomic<bits / 8>(p, SITE, false, true, order);                                                               \
        __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                                             \
    }                                                                                                                         \
    type __tsan_atomic##bits##_exchange(volatile type* p, type v, int order) {                                                      \
        hostcuda::check_atomic<bits / 8>(p, SITE, true, true, order);                                                                \
        return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                                                   \
    }                                                                                                                         \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile type* p, type* expected, type v, int order, int) {                   \
        hostcuda::check_atomic<bits / 8>(p, SITE, true, true, order);                                                                \
        return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                        \
    }                                                                                                                         \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile type* p, type* expected, type v, int order, int) {                     \
        hostcuda::check_atomic<bits / 8>(p, SITE, true, true, order);                                                                \
        return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                        \
    }
#define ATOMIC_UPDATE(bits, type, name)                                                                                       \
    type __tsan_atomic##bits##_##name(volatile type* p, type v, int order) {                                                        \
        hostcuda::check_atomic<bits / 8>(p, SITE, true, true, order);                                                                \
        return __atomic_##name(p, v, __ATOMIC_SEQ_CST);                                                                       \
    }
#define ATOMICS_ALL(bits, type)         \
    ATOMICS(bits, type)                 \
    ATOMIC_UPDATE(bits, type, fetch_add) \
    ATOMIC_UPDATE(bits, type, fetch_sub) \
    ATOMIC_UPDATE(bits, type, fetch_and) \
    ATOMIC_UPDATE(bits, type, fetch_or)  \
    ATOMIC_UPDATE(bits, type, fetch_xor) \
    ATOMIC_UPDATE(bits, type, fetch_nand)

ATOMICS_ALL(8, std::uint8_t)
ATOMICS_ALL(16, std::uint16_t)
ATOMICS_ALL(32, std::uint32_t)
ATOMICS_ALL(64, std::uint64_t)

void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }  // whoever means one of CUDA's calls hostcuda::fence too
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
