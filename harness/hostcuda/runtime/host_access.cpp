// What host code reads and writes itself. Device memory is ordinary memory here, so that an access by the host would pass in silence; on a
// GPU it ends the process, and what the host stores in a variable of the device is in a copy that no kernel sees.
#include "checking.h"

namespace hostcuda {

namespace {

// Stretches of addresses without device memory that this thread has looked up, so that a loop over host memory asks once.
struct Harmless {
    std::uintptr_t low, high;
};
constexpr unsigned remembered = 4;
__thread Harmless known[remembered];
__thread std::uint64_t known_at;
__thread unsigned oldest;

bool is_known(std::uintptr_t address) {
    for (const Harmless& each : known)
        if (address >= each.low && address < each.high) return true;
    return false;
}

void tell(const Region& region, std::uintptr_t address, std::size_t bytes, bool write, std::uintptr_t site) {
    const std::string access = describe_access(write, bytes);
    ReportDetails details;
    details.kind = ReportKind::memory_error;
    details.site = site;
    details.access = access.c_str();
    details.space = "global";
    details.array = region.name;
    if (region.kind == RegionKind::symbol) details.message = "host code writes a device variable: kernels do not see the value; use cudaMemcpyToSymbol";
    else details.message = write ? "host code writes device memory, which only kernels and copies can access"
                               : "host code reads device memory, which only kernels and copies can access";
    if (region.name[0] == 0) details.index = static_cast<long long>(address - region.base) / static_cast<long long>(bytes);
    report_outside(details);
}

}  // namespace

void check_host(std::uintptr_t address, std::size_t bytes, bool write, std::uintptr_t site) {
    const std::uint64_t now = device_regions_made.load(std::memory_order_relaxed);
    if (now == 0) return;
    if (known_at != now) {
        for (Harmless& each : known) each = {};
        known_at = now;
    }
    if (is_known(address)) return;
    Harmless around{};
    const Region* region = region_or_gap(address, around.low, around.high);
    if (region != nullptr && (region->kind == RegionKind::device || region->kind == RegionKind::symbol)) {
        if (region->kind == RegionKind::device || write) tell(*region, address, bytes, write, site);
        return;
    }
    known[oldest++ % remembered] = around;
}

}  // namespace hostcuda
