// Reports of accesses: which array and element an address is, and how bad an access outside of all arrays is.
#include <algorithm>
#include <cstring>
#include <string>

#include "checking.h"

namespace hostcuda {

namespace {

constexpr std::uint64_t described_reports = 256;  // of one place by one worker; further ones are counted

}  // namespace

std::string describe_access(bool write, std::size_t bytes) {
    return std::string(write ? "write of " : "read of ") + std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
}

void locate(const Worker& worker, std::uintptr_t address, std::size_t bytes, ReportDetails& details) {
    if (const Block* holder = holder_of(worker, address)) {
        const std::uintptr_t offset = address - reinterpret_cast<std::uintptr_t>(holder->arena.memory);
        // which block's it is needs saying where it is not that of the thread that is told of
        details.space = holder == details.block ? "shared" : "distributed shared";
        std::size_t start = 0;
        const VariableInfo* info = nullptr;
        details.array = shared_variable_at(holder->arena, offset, &start, &info);
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
    // Far from everything there is no array that the address would be an element of.
    constexpr std::uintptr_t far = std::uintptr_t{1} << 20;
    if (best == nullptr && (region == nullptr || address + far < region->base || address > region->base + region->bytes + far)) return;
    if (start != 0) {
        const auto distance = static_cast<long long>(address - start);
        details.index = distance >= 0 ? distance / element : -((element - 1 - distance) / element);
        details.subscript = "[" + std::to_string(details.index) + "]";
    }
}

void report_access(Worker& worker, ReportKind kind, std::uintptr_t address, std::size_t bytes, bool write,
                   std::uintptr_t site, const char* message, Record other, const char* other_access) {
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
    const std::string access = describe_access(write, bytes);
    details.access = access.c_str();
    locate(worker, address, bytes, details);
    if (other != 0) {
        details.has_other = true;
        details.other_block = is_arriving(other) ? worker.block->linear : serial_owner(serial_of(other));
        details.other_thread = thread_of(other);
        details.other_site = site_of(other, site);
        details.other_access = other_access;
    }
    report(worker, details);
}

namespace {

// An access outside of everything the kernel may touch. Ends the kernel where going on would do harm.
void stray(Worker& worker, std::uintptr_t address, std::size_t bytes, bool write, std::uintptr_t site) {
    const Region* near = region_nearest(address);
    const bool harmless = near != nullptr && near->red_zone_bytes != 0 &&
                          address + bytes <= near->base + near->bytes + near->red_zone_bytes && address + near->red_zone_bytes >= near->base;
    const char* message = "out of bounds";
    if (near == nullptr || address + (std::uintptr_t{1} << 20) < near->base || address > near->base + near->bytes + (std::uintptr_t{1} << 20))
        message = address < 4096 ? "null pointer" : "address outside device memory (a host pointer, freed memory, or far out of bounds)";
    report_access(worker, ReportKind::memory_error, address, bytes, write, site, message);
    if (!harmless) abort_launch(worker, error_illegal_address);
}

}  // namespace

Region* find_region(Worker& worker, std::uintptr_t address, std::size_t bytes, bool write, std::uintptr_t site) {
    Region* region = region_containing(address, bytes);
    if (region == nullptr) {
        stray(worker, address, bytes, write, site);
        return nullptr;
    }
    if (region->kind == RegionKind::host) {
        report_access(worker, ReportKind::memory_error, address, bytes, write, site, "host memory, which a GPU cannot access: the tensor is on the cpu");
        abort_launch(worker, error_illegal_address);
    }
    if (region->kind != RegionKind::image) worker.cache[address >> 12 & (region_cache_entries - 1)] = region;  // an image holds symbols, which are regions too
    return region;
}

void flush_floods(Worker& worker) {
    for (Flood& flood : worker.floods) {
        if (flood.count > described_reports) report_again(flood.kind, flood.site, flood.count - described_reports);
        flood = {};
    }
}

}  // namespace hostcuda
