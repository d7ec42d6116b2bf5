// Checked mode. The compiler (-fsanitize=thread) calls these functions at every load and store of a solution's code; they keep
// the shadow memory and find races, stray and misaligned accesses, and reads of memory that nobody wrote. Host code calls them too and
// leaves at the first test.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "report.h"
#include "state.h"

namespace hostcuda {

namespace {

constexpr std::uint32_t poison_word = static_cast<std::uint32_t>(poison);
constexpr Record site_mask = (Record{1} << record_thread_shift) - 2;
constexpr std::uint64_t described_reports = 256;  // of one place by one worker; further ones are counted

Record with_site(Record me, std::uintptr_t site) { return me | ((static_cast<Record>(site) >> 2 & 0xFFFFFu) << 1); }
std::uint32_t serial_of(Record r) { return static_cast<std::uint32_t>(r >> record_serial_shift); }
std::uint32_t tick_of(Record r) { return static_cast<std::uint32_t>(r >> record_tick_shift) % ticks_a_serial; }
std::uint32_t thread_of(Record r) { return static_cast<std::uint32_t>(r >> record_thread_shift) & 1023u; }

// The full return address of a record: the one nearest to `near` with its 22 low bits (known but for the last two).
std::uintptr_t site_of(Record r, std::uintptr_t near) {
    constexpr std::uintptr_t span = std::uintptr_t{1} << 22;
    std::uintptr_t site = (near & ~(span - 1)) | (static_cast<std::uintptr_t>(r >> 1 & 0xFFFFFu) << 2);
    if (site + span / 2 < near) site += span;
    else if (site > near + span / 2) site -= span;
    return site;
}

std::uint32_t serial_owners[max_serial + 2];

// ---- what one block learned of others through fences and atomics
struct SyncPoint {
    std::vector<Knowledge> known;
};
std::mutex sync_mutex;
std::unordered_map<std::uintptr_t, SyncPoint> sync_points;
std::atomic<std::size_t> sync_count{0};
const Launch* sync_launch = nullptr;

void merge(std::vector<Knowledge>& into, const std::vector<Knowledge>& from) {
    if (from.empty()) return;
    if (into.size() < from.size()) into.resize(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
        if (from[i].thread == -1) continue;
        Knowledge& k = into[i];
        if (k.thread == -1) k.thread = from[i].thread;
        else if (k.thread != from[i].thread) k.thread = -2;
        k.barrier_limit = std::max(k.barrier_limit, from[i].barrier_limit);
        k.own_limit = std::max(k.own_limit, from[i].own_limit);
    }
}

void synchronize_through(Worker& worker, std::uintptr_t address, bool acquires, bool releases) {
    Block& block = *worker.block;
    Thread& thread = *worker.thread;
    releases = releases && thread.fenced;
    if (!releases && sync_count.load(std::memory_order_relaxed) == 0) return;
    std::lock_guard<std::mutex> lock(sync_mutex);
    if (sync_launch != worker.launch) sync_points.clear(), sync_count = 0, sync_launch = worker.launch;
    if (acquires) {
        auto found = sync_points.find(address);
        if (found != sync_points.end()) merge(block.known, found->second.known);
    }
    if (releases) {
        SyncPoint& point = sync_points[address];
        merge(point.known, block.known);
        if (point.known.size() < worker.launch->blocks) point.known.resize(worker.launch->blocks);
        std::vector<Knowledge> mine(block.linear + 1);
        mine[block.linear] = {worker.barrier_limit, worker.me + (Record{1} << record_tick_shift), static_cast<std::int32_t>(thread.linear)};
        merge(point.known, mine);
        sync_count = sync_points.size();
        advance(block, thread, ++block.tick);
        refresh_records(worker);
    }
}

// Did what `record` stands for happen before the calling thread's present access?
bool ordered(const Worker& worker, Record record, Record floor, bool shared) {
    if (record < floor) return true;
    const Block& block = *worker.block;
    const std::uint32_t serial = serial_of(record);
    const auto place = std::lower_bound(block.serials.begin(), block.serials.end(), serial);
    const std::uint32_t thread = thread_of(record);
    if (place != block.serials.end() && *place == serial) {
        if (thread == worker.thread->linear || record < worker.barrier_limit) return true;
        if (thread / warp_lanes != worker.thread->linear / warp_lanes) return false;
        const Warp& warp = block.warps[thread / warp_lanes];
        const std::uint32_t tick = static_cast<std::uint32_t>(place - block.serials.begin()) * ticks_a_serial + tick_of(record);
        if (tick <= warp.sync_tick) return true;
        return warp.clocks_in_use && warp.clocks[worker.thread->linear % warp_lanes * warp_lanes + thread % warp_lanes] >= tick;
    }
    if (shared) return true;  // an earlier block in the same arena
    const std::uint32_t owner = serial_owner(serial);
    if (owner >= block.known.size()) return false;
    const Knowledge& k = block.known[owner];
    return record < k.barrier_limit || ((k.thread == -2 || k.thread == static_cast<std::int32_t>(thread)) && record < k.own_limit);
}

std::string access_text(bool write, std::size_t bytes) {
    return std::string(write ? "write of " : "read of ") + std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
}

// Fills in array, index and subscript for an address.
void locate(const Worker& worker, std::uintptr_t address, std::size_t bytes, ReportDetails& details) {
    const std::uintptr_t offset = address - worker.shared_base;
    if (offset < worker.shared_bytes) {
        details.space = "shared";
        std::size_t start = 0;
        const VariableInfo* info = nullptr;
        details.array = shared_variable_at(worker.block->arena, offset, &start, &info);
        const long long distance = static_cast<long long>(offset) - static_cast<long long>(start);
        const long long element = info != nullptr ? info->element_bytes : static_cast<long long>(bytes);
        details.index = distance >= 0 ? distance / element : -((element - 1 - distance) / element);
        if (info != nullptr && info->extent[0] != 0 && info->extent[1] != 0 && details.index >= 0) {
            long long rest = details.index;
            long long inner = 1;
            for (int d = 1; d < 4 && info->extent[d] != 0; ++d) inner *= info->extent[d];
            for (int d = 0; d < 4 && info->extent[d] != 0; ++d) {
                details.subscript += "[" + std::to_string(rest / inner) + "]";
                rest %= inner;
                if (d < 3 && info->extent[d + 1] != 0) inner /= info->extent[d + 1];
            }
        } else {
            details.subscript = "[" + std::to_string(details.index) + "]";
        }
        return;
    }
    details.space = "global";
    const Region* region = region_containing(address, 1);
    if (region == nullptr || region->kind == RegionKind::image) region = region_nearest(address);
    const LaunchRequest& request = worker.launch->request;
    const PointerArgument* best = nullptr;
    for (std::uint32_t i = 0; i < request.pointer_count; ++i) {
        const PointerArgument& p = request.pointers[i];
        const auto value = reinterpret_cast<std::uintptr_t>(p.value);
        if (region != nullptr && value - region->base > region->bytes) continue;
        if (best == nullptr || (value <= address && value > reinterpret_cast<std::uintptr_t>(best->value))) best = &p;
    }
    std::uintptr_t start = region != nullptr ? region->base : 0;
    long long element = static_cast<long long>(bytes);
    if (region != nullptr && region->name[0] != 0) details.array = region->name;
    if (best != nullptr) {
        start = reinterpret_cast<std::uintptr_t>(best->value);
        if (best->element_bytes != 0) element = best->element_bytes;
        const char* names = worker.launch->parameters.load();
        for (std::uint32_t i = 0; names != nullptr && i < best->position; ++i) {
            names = std::strchr(names, ',');
            if (names != nullptr) ++names;
        }
        if (names != nullptr) details.array.assign(names, std::strcspn(names, ","));
        else details.array = "argument " + std::to_string(best->position + 1);
    }
    if (start != 0) {
        const auto distance = static_cast<long long>(address - start);
        details.index = distance >= 0 ? distance / element : -((element - 1 - distance) / element);
        details.subscript = "[" + std::to_string(details.index) + "]";
    }
}

__attribute__((noinline)) void report_access(Worker& worker, ReportKind kind, std::uintptr_t address, std::size_t bytes, bool write,
                                             std::uintptr_t site, const char* message, Record other = 0, const char* other_access = "") {
    Flood& flood = worker.floods[(site >> 2 ^ site >> 8) % flood_entries];
    if (flood.site == site && flood.kind == kind) {
        if (++flood.count > described_reports) return;
    } else {
        if (flood.count > described_reports) report_again(flood.kind, flood.site, flood.count - described_reports);
        flood = {site, kind, 1};
    }
    ReportDetails details;
    details.kind = kind;
    details.block = worker.block;
    details.thread = worker.thread->linear;
    details.site = site;
    details.message = message;
    const std::string access = access_text(write, bytes);
    details.access = access.c_str();
    locate(worker, address, bytes, details);
    if (other != 0) {
        details.has_other = true;
        details.other_block = serial_owner(serial_of(other));
        details.other_thread = thread_of(other);
        details.other_site = site_of(other, site);
        details.other_access = other_access;
    }
    report(worker, details);
}

// An access outside of everything the kernel may touch. Ends the kernel where going on would do harm.
__attribute__((noinline)) void stray(Worker& worker, std::uintptr_t address, std::size_t bytes, bool write, std::uintptr_t site) {
    const Region* near = region_nearest(address);
    const bool harmless = near != nullptr && near->red_zone_bytes != 0 &&
                          address + bytes <= near->base + near->bytes + near->red_zone_bytes && address + near->red_zone_bytes >= near->base;
    const char* message = "out of bounds";
    if (near == nullptr || address + (std::uintptr_t{1} << 20) < near->base || address > near->base + near->bytes + (std::uintptr_t{1} << 20))
        message = address < 4096 ? "null pointer" : "address of no device memory (a host pointer, freed memory, or far out of bounds)";
    report_access(worker, ReportKind::memory_error, address, bytes, write, site, message);
    if (!harmless) abort_launch(worker, error_illegal_address);
}

__attribute__((noinline)) Region* find_region(Worker& worker, std::uintptr_t address, std::size_t bytes, bool write, std::uintptr_t site) {
    Region* region = region_containing(address, bytes);
    if (region == nullptr) {
        stray(worker, address, bytes, write, site);
        return nullptr;
    }
    if (region->kind == RegionKind::host) {
        report_access(worker, ReportKind::memory_error, address, bytes, write, site, "host memory, which a GPU cannot reach: the tensor is on the cpu");
        abort_launch(worker, error_illegal_address);
    }
    if (region->kind != RegionKind::image) worker.cache[address >> 12 & (region_cache_entries - 1)] = region;  // an image holds symbols, which are regions too
    return region;
}

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
    if (cell.write == record_unaddressable) {
        report_access(worker, ReportKind::memory_error, address, bytes, false, site, "out of bounds");
        return;
    }
    if (!ordered(worker, cell.write, floor, shared)) {
        report_access(worker, ReportKind::data_race, address, bytes, false, site, "read of what another thread writes, with nothing between them", cell.write, "write");
        cell.write = 0;
    } else if (shared && !ordered(worker, cell.atomic, floor, shared)) {
        // In global memory such a read is how kernels look before they update (if (v > *best) atomicMax(best, v)). In shared memory it is
        // the missing barrier, unless the thread goes on with an atomic of its own (the opening read of a compare-and-swap loop).
        Thread& thread = *worker.thread;
        if (thread.doubt != 0 && thread.doubt != address) settle_doubt(worker);
        thread.doubt = address, thread.doubt_site = site, thread.doubt_other = cell.atomic;
    }
}

__attribute__((noinline)) void slow_write(Worker& worker, Cell& cell, std::uintptr_t address, std::size_t bytes, std::uintptr_t site, Record floor, bool shared) {
    if (cell.write == record_unaddressable) {
        report_access(worker, ReportKind::memory_error, address, bytes, true, site, "out of bounds");
        const std::uintptr_t end = worker.shared_base + worker.shared_bytes;
        if (address + bytes > end) abort_launch(worker, error_illegal_address);
        return;
    }
    if (!ordered(worker, cell.write, floor, shared)) remember_conflict(worker, address, static_cast<std::uint32_t>(bytes), site, cell.write, true);
    else if (!ordered(worker, cell.atomic, floor, shared)) remember_conflict(worker, address, static_cast<std::uint32_t>(bytes), site, cell.atomic, true);
    else if (!ordered(worker, cell.reader, floor, shared)) remember_conflict(worker, address, static_cast<std::uint32_t>(bytes), site, cell.reader, false);
    else if (!ordered(worker, cell.reader2, floor, shared)) remember_conflict(worker, address, static_cast<std::uint32_t>(bytes), site, cell.reader2, false);
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
        const bool written = region != nullptr ? (cell[i].write | cell[i].atomic) != 0 : cell[i].write >= worker.shared_floor || cell[i].atomic >= worker.shared_floor;
        if (!written) {
            report_access(worker, ReportKind::uninitialised_read, address, bytes, false, site, "nobody wrote this memory");
            return;
        }
    }
}

inline __attribute__((always_inline)) void note_reader(const Worker& worker, Cell& cell, Record me, Record floor) {
    const Record r1 = cell.reader;
    if (r1 < floor || r1 < worker.barrier_limit) {
        // behind an ordering point (or another block's with an older serial, which the second slot then keeps)
        if (r1 >= floor && ((r1 ^ me) >> record_serial_shift) != 0) cell.reader2 = r1;
        else if (cell.reader2 < floor || ((cell.reader2 ^ me) >> record_serial_shift) == 0) cell.reader2 = 0;
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
    const Record me = with_site(worker.me, site);
    std::size_t cells = aligned ? (bytes >> shift) : ((offset + bytes - 1) >> shift) - (offset >> shift) + 1;
    if (aligned && cells == 0) cells = 1;
    if (write) {
        for (std::size_t i = 0; i < cells; ++i) {
            Cell& c = cell[i];
            if (__builtin_expect(((c.write >= floor) | (c.atomic >= floor) | (c.reader >= floor) | (c.reader2 >= floor)), 0)) {
                const Record mine = me >> record_thread_shift;
                // the usual case: only this very thread was here since the last barrier
                if (((c.write >> record_thread_shift) != mine && c.write >= floor) || c.atomic >= floor ||
                    (c.reader >= floor && (c.reader >> record_thread_shift) != mine) || c.reader2 >= floor)
                    slow_write(worker, c, address, bytes, site, floor, shared);
            }
            if (c.write != record_unaddressable) c.write = me;
        }
        return;
    }
    for (std::size_t i = 0; i < cells; ++i) {
        Cell& c = cell[i];
        if (__builtin_expect(((c.write >= floor) & ((c.write ^ me) >> record_thread_shift != 0)) | (c.atomic >= floor), 0))
            if (c.write >= worker.barrier_limit || !shared || c.atomic >= floor || c.write == record_unaddressable)
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
        if (__builtin_expect(suspicious, 0)) check_uninitialised(worker, cell, cells, address, bytes, site, shared ? nullptr : region);
    }
}

// An atomic update: conflicts with plain accesses, not with other atomics; may carry a release or an acquire.
template <unsigned bytes>
void check_atomic(const volatile void* p, std::uintptr_t site, bool reads, bool writes) {
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
    const std::uintptr_t offset = address - worker.shared_base;
    const bool shared = offset < worker.shared_bytes;
    Cell* cell;
    Region* region = nullptr;
    Record floor;
    std::size_t cells;
    if (shared) {
        if (bytes < (1u << worker.shared_granule_shift)) {
            arena_refine(worker.block->arena, __builtin_ctz(bytes));
            worker.shared_granule_shift = worker.block->arena.granule_shift;
        }
        cell = worker.shared_cells + (offset >> worker.shared_granule_shift);
        cells = std::max<std::size_t>(1, bytes >> worker.shared_granule_shift);
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
        if (!ordered(worker, c.write, floor, shared)) {
            report_access(worker, ReportKind::data_race, address, bytes, true, site, "atomic update of what another thread writes plainly, with nothing between them", c.write, "write");
            c.write = 0;
        }
        if (writes) c.atomic = me;
    }
    if (!shared) synchronize_through(worker, address, reads, writes);
    poll(worker);
}

template <unsigned bytes, bool write>
void check_volatile(void* p, std::uintptr_t site) {
    Worker* found = current_worker;
    if (found == nullptr) return;
    Worker& worker = *found;
    const auto address = reinterpret_cast<std::uintptr_t>(p);
    if (address - worker.stack_low < worker.stack_bytes) return;
    if (address - worker.shared_base < worker.shared_bytes) {
        check<bytes, write, false>(worker, address, site);
    } else {
        // on global memory a volatile access is how blocks signal each other: it neither races nor counts as plain
        if (worker.has_pending) flush_pending(worker);
        Region* region = find_region(worker, address, bytes, write, site);
        if (region == nullptr || region->kind == RegionKind::image) return;
        Cell* cells = region_cells(*region);
        if (write && cells != nullptr && bytes >= (1u << region->granule_shift)) cells[(address - region->base) >> region->granule_shift].atomic = with_site(worker.me, site);
        synchronize_through(worker, address, !write, write);
    }
    if (!write) poll(worker);
}

}  // namespace

void check_range(const void* p, std::size_t bytes, bool write, std::uintptr_t site) {
    Worker* worker = current_worker;
    if (worker == nullptr || bytes == 0) return;
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

std::uint32_t serial_owner(std::uint32_t serial) { return serial_owners[serial]; }
void set_serial_owner(std::uint32_t serial, std::uint32_t block) { serial_owners[serial] = block; }

// The write that conflicted has happened: one that left the value as it was is harmless.
void flush_pending(Worker& worker) {
    worker.has_pending = false;
    const Pending p = worker.pending;
    if (std::memcmp(p.before, reinterpret_cast<const void*>(p.address), p.bytes) == 0) return;
    report_access(worker, ReportKind::data_race, p.address, p.bytes, true, p.site,
                  p.other_was_write ? "write of what another thread writes, with nothing between them" : "write of what another thread reads, with nothing between them",
                  p.other, p.other_was_write ? "write" : "read");
}

void flush_floods(Worker& worker) {
    for (Flood& flood : worker.floods) {
        if (flood.count > described_reports) report_again(flood.kind, flood.site, flood.count - described_reports);
        flood = {};
    }
}

void settle_doubt(Worker& worker) {
    Thread& thread = *worker.thread;
    const std::uintptr_t address = thread.doubt;
    thread.doubt = 0;
    report_access(worker, ReportKind::data_race, address, 4, false, thread.doubt_site,
                  "plain read of what another thread updates atomically, with nothing between them", thread.doubt_other, "atomic update");
}

void fence() {
    if (current_worker != nullptr) current_worker->thread->fenced = true;
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
        if (current_worker != nullptr) hostcuda::check<n, false, n != 16>(*current_worker, reinterpret_cast<std::uintptr_t>(p), SITE);  \
    }                                                                                                                         \
    void __tsan_write##n(void* p) {                                                                                           \
        if (current_worker != nullptr) hostcuda::check<n, true, n != 16>(*current_worker, reinterpret_cast<std::uintptr_t>(p), SITE);   \
    }                                                                                                                         \
    void __tsan_unaligned_read##n(void* p) {                                                                                  \
        if (current_worker != nullptr) hostcuda::check<n, false, false>(*current_worker, reinterpret_cast<std::uintptr_t>(p), SITE); \
    }                                                                                                                         \
    void __tsan_unaligned_write##n(void* p) {                                                                                 \
        if (current_worker != nullptr) hostcuda::check<n, true, false>(*current_worker, reinterpret_cast<std::uintptr_t>(p), SITE);  \
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
    type __tsan_atomic##bits##_load(const volatile type* p, int) {                                                            \
        hostcuda::check_atomic<bits / 8>(p, SITE, true, false);                                                               \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                                          \
    }                                                                                                                         \
    void __tsan_atomic##bits##_store(volatile type* p, type v, int) {                                                         \
        hostcuda::check_atomic<bits / 8>(p, SITE, false, true);                                                               \
        __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                                             \
    }                                                                                                                         \
    type __tsan_atomic##bits##_exchange(volatile type* p, type v, int) {                                                      \
        hostcuda::check_atomic<bits / 8>(p, SITE, true, true);                                                                \
        return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                                                   \
    }                                                                                                                         \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile type* p, type* expected, type v, int, int) {                   \
        hostcuda::check_atomic<bits / 8>(p, SITE, true, true);                                                                \
        return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                        \
    }                                                                                                                         \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile type* p, type* expected, type v, int, int) {                     \
        hostcuda::check_atomic<bits / 8>(p, SITE, true, true);                                                                \
        return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                        \
    }
#define ATOMIC_UPDATE(bits, type, name)                                                                                       \
    type __tsan_atomic##bits##_##name(volatile type* p, type v, int) {                                                        \
        hostcuda::check_atomic<bits / 8>(p, SITE, true, true);                                                                \
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

void __tsan_atomic_thread_fence(int) { hostcuda::fence(); __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
