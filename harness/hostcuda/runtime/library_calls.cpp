// Routines of a library between the kernels: what they touch is checked like a kernel's accesses, matrix by matrix instead of load by load.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "api.h"
#include "recorder.h"
#include "report.h"
#include "state.h"

extern "C" void hostcuda_record_launch(const char* name);

namespace hostcuda {

namespace {

std::uintptr_t address_of(const Operand& o) { return reinterpret_cast<std::uintptr_t>(o.at); }
std::int64_t element(const Operand& o, std::int64_t row, std::int64_t column) { return row + column * o.leading; }
// One past the last byte.
std::uintptr_t end_of(const Operand& o) {
    return address_of(o) + static_cast<std::uintptr_t>(element(o, o.rows - 1, o.columns - 1) + 1) * o.element_bytes;
}

void tell(ReportKind kind, const char* routine, const Operand& o, const char* message, std::int64_t row, std::int64_t column, std::uintptr_t site) {
    ReportDetails details;
    details.kind = kind;
    details.kernel = routine;
    details.site = site;
    const std::string said = o.number < 0 ? message : std::string(message) + " (product " + std::to_string(o.number) + " of the batch)";
    details.message = said.c_str();
    const std::string access = std::string(o.writes ? "write of " : "read of ") + std::to_string(o.element_bytes) + (o.element_bytes == 1 ? " byte" : " bytes");
    details.access = access.c_str();
    details.space = "global";
    details.array = o.name;
    details.index = element(o, row, column);
    details.subscript = o.rows == 1 || o.columns == 1 ? "[" + std::to_string(details.index) + "]" : "[" + std::to_string(row) + ", " + std::to_string(column) + "]";
    report_outside(details);
}

// The first element, down the columns, that does not end within `bytes` behind the operand's begin.
void first_outside(const Operand& o, std::uintptr_t bytes, std::int64_t& row, std::int64_t& column) {
    const auto fit = static_cast<std::int64_t>(bytes / o.element_bytes);  // elements 0 to fit - 1 do
    column = o.columns == 1 ? 0 : std::min(fit / o.leading, o.columns - 1);
    row = fit - column * o.leading;
    if (row >= o.rows && column + 1 < o.columns) row = 0, ++column;
}

// 0, or what the device is left with.
int check_bounds(const char* routine, const Operand& o, std::uintptr_t site) {
    const std::uintptr_t address = address_of(o);
    if (address < 4096) return tell(ReportKind::memory_error, routine, o, "null pointer", 0, 0, site), error_illegal_address;
    if (address % o.element_bytes != 0) return tell(ReportKind::misaligned, routine, o, "misaligned address", 0, 0, site), error_misaligned_address;
    const Region* region = region_containing(address, 1);
    const bool known = region != nullptr && region->kind != RegionKind::image;
    if (!known && hostcuda_checked() == 0) return 0;  // what torch allocated is not tracked then
    if (region == nullptr || address >= region->base + region->bytes) {
        const Region* near = region_nearest(address);
        constexpr std::uintptr_t far = std::uintptr_t{1} << 20;
        const bool close = near != nullptr && address + far >= near->base && address <= near->base + near->bytes + far;
        const char* message = close ? "out of bounds" : "address outside device memory (a host pointer, freed memory, or far out of bounds)";
        return tell(ReportKind::memory_error, routine, o, message, 0, 0, site), error_illegal_address;
    }
    if (region->kind == RegionKind::host) {
        const char* message = "host memory, which a GPU cannot access: the tensor is on the cpu";
        return tell(ReportKind::memory_error, routine, o, message, 0, 0, site), error_illegal_address;
    }
    const std::uintptr_t left = region->base + region->bytes - address;
    if (end_of(o) - address <= left) return 0;
    std::int64_t row = 0, column = 0;
    first_outside(o, left, row, column);
    return tell(ReportKind::memory_error, routine, o, "out of bounds", row, column, site), error_illegal_address;
}

bool poisoned(const Region& region, std::uintptr_t address, std::uint32_t bytes) {
    // a byte or a half may look like poison by chance: the eight bytes around it must too
    const std::uintptr_t from = bytes < 4 ? address & ~std::uintptr_t{7} : address;
    const std::uint32_t span = bytes < 4 ? 8 : std::min(bytes, 8u);
    if (from < region.base || from + span > region.base + region.bytes) return false;
    if (std::memcmp(reinterpret_cast<const void*>(from), &poison, span) != 0) return false;
    const Cell* cells = region.cells.load();
    if (cells == nullptr) return true;
    const Cell& cell = cells[(address - region.base) >> region.granule_shift];
    return (cell.write | cell.atomic) == 0;  // a kernel that wrote such a value has been told of already
}

void check_contents(const char* routine, const Operand& o, std::uintptr_t site) {
    const Region* region = region_containing(address_of(o), 1);
    if (region == nullptr || !region->fresh) return;
    for (std::int64_t column = 0; column < o.columns; ++column)
        for (std::int64_t row = 0; row < o.rows; ++row)
            if (poisoned(*region, address_of(o) + static_cast<std::uintptr_t>(element(o, row, column)) * o.element_bytes, o.element_bytes)) {
                Operand read = o;
                read.writes = false;
                return tell(ReportKind::uninitialised_read, routine, read, "this memory was never written", row, column, site);
            }
}

// Whether two matrices have a byte in common: their columns, in rising order, against each other.
bool overlap(const Operand& a, const Operand& b) {
    std::int64_t i = 0, j = 0;
    const auto begin = [](const Operand& o, std::int64_t column) { return address_of(o) + static_cast<std::uintptr_t>(column * o.leading) * o.element_bytes; };
    const auto height = [](const Operand& o) { return static_cast<std::uintptr_t>(o.rows) * o.element_bytes; };
    while (i < a.columns && j < b.columns) {
        const std::uintptr_t left = begin(a, i), right = begin(b, j);
        if (left < right + height(b) && right < left + height(a)) return true;
        if (left < right) ++i;
        else ++j;
    }
    return false;
}

bool same_place(const Operand& a, const Operand& b) {
    return a.at == b.at && a.rows == b.rows && a.columns == b.columns && (a.columns == 1 || a.leading == b.leading) && a.element_bytes == b.element_bytes;
}

// What a routine reads while it writes it, or writes twice, comes out one way or another. Reports the first such pair.
void check_overlap(const char* routine, std::vector<Operand> all, std::uintptr_t site) {
    std::sort(all.begin(), all.end(), [](const Operand& a, const Operand& b) {
        return a.at != b.at ? address_of(a) < address_of(b) : std::strcmp(a.name, b.name) < 0;
    });
    // a factor that all products of a batch share
    all.erase(std::unique(all.begin(), all.end(), [](const Operand& a, const Operand& b) { return !a.writes && !b.writes && same_place(a, b) && a.elementwise == b.elementwise; }), all.end());
    for (std::size_t i = 0; i < all.size(); ++i) {
        for (std::size_t j = i + 1; j < all.size() && address_of(all[j]) < end_of(all[i]); ++j) {
            const Operand& a = all[i];
            const Operand& b = all[j];
            if ((!a.writes && !b.writes) || !overlap(a, b)) continue;
            if ((a.elementwise || b.elementwise) && same_place(a, b)) continue;
            const std::string message = a.writes && b.writes ? std::string("two results of one call overlap: their values are undefined")
                                                             : std::string("overlaps ") + (a.writes ? b.name : a.name) + ", which the same call reads: the result is undefined";
            return tell(ReportKind::data_race, routine, a.writes ? a : b, message.c_str(), 0, 0, site);
        }
    }
}

}  // namespace

int library_begins(const char* routine) {
    if (const cudaError_t left = status(); left != cudaSuccess) return left;
    hostcuda_record_launch(routine);
    note_library_call(routine);
    return 0;
}

void library_ends() { record_launch_end(); }

int library_touches(const char* routine, const Operand* operands, std::size_t count, std::uintptr_t site) {
    std::vector<Operand> touched;
    for (std::size_t i = 0; i < count; ++i) {
        const Operand& o = operands[i];
        if (o.rows <= 0 || o.columns <= 0) continue;
        if (const int error = check_bounds(routine, o, site); error != 0) {
            set_sticky_error(error);
            return error;
        }
        touched.push_back(o);
    }
    if (hostcuda_checked() == 0) return 0;
    for (const Operand& o : touched)
        if (o.reads && !o.partly) check_contents(routine, o, site);
    check_overlap(routine, std::move(touched), site);
    return 0;
}

void library_lacks(const char* routine, const char* construct, std::uintptr_t site) {
    ReportDetails details;
    details.kind = ReportKind::not_emulated;
    details.kernel = routine;
    details.site = site;
    details.message = construct;
    report_outside(details);
}

void library_reports_stale(const char* routine) {
    ReportDetails details;
    details.kind = ReportKind::memory_error;
    details.kernel = routine;
    details.message = "a graph runs it on a tensor whose memory was freed since the capture";
    report_outside(details);
    set_sticky_error(error_illegal_address);
}

bool library_reads_on_host(const char* routine, const char* name, const void* scalar, std::uintptr_t site) {
    const Region* region = region_containing(reinterpret_cast<std::uintptr_t>(scalar), 1);
    if (region == nullptr || (region->kind != RegionKind::device && region->kind != RegionKind::symbol)) return true;
    const Operand told{name, scalar, 4, 1, 1, 1, true, false};
    tell(ReportKind::memory_error, routine, told, "device memory, which the host cannot access: the pointer mode is CUBLAS_POINTER_MODE_HOST", 0, 0, site);
    return false;
}

bool host_reaches(const char* routine, const void* items, int line) {
    const Region* region = region_containing(reinterpret_cast<std::uintptr_t>(items), 1);
    if (region == nullptr || (region->kind != RegionKind::device && region->kind != RegionKind::symbol)) return true;
    ReportDetails details;
    details.kind = ReportKind::memory_error;
    details.kernel = routine;
    details.line = line;
    details.message = "a host algorithm gets a plain pointer to device memory: pass the policy thrust::device, or a thrust::device_ptr";
    report_outside(details);
    return false;
}

}  // namespace hostcuda
