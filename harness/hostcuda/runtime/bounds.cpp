// What g++'s checks report (-fsanitize=alignment,bounds,shift-exponent,float-cast-overflow). They see what the shadow memory
// can't: a misaligned vector access that the optimiser split, an index past a local array, arithmetic unlike a GPU's that the
// translation could not write as a GPU does it (hostcuda/arithmetic.h).
#include <cstdio>
#include <cstring>
#include <string>

#include "report.h"
#include "state.h"

namespace hostcuda {

namespace {

// GCC's and clang's layouts of what the checks pass (ubsan_handlers.h of either).
struct SourceLocation {
    const char* file;
    std::uint32_t line, column;
};
struct TypeDescriptor {
    std::uint16_t kind, info;
    char name[1];
};
struct TypeMismatch {
    SourceLocation location;
    const TypeDescriptor* type;
    unsigned char log_alignment, access_kind;
};
struct OutOfBounds {
    SourceLocation location;
    const TypeDescriptor* array_type;
    const TypeDescriptor* index_type;
};

bool is_solution(const SourceLocation& l) { return l.file != nullptr && (std::strcmp(l.file, "cuda.cu") == 0 || std::strcmp(l.file, "main.cpp") == 0); }

void report_here(ReportKind kind, const SourceLocation& location, const char* message, const std::string& array, long long index, const std::string& access) {
    Worker& worker = *current_worker;
    ReportDetails details;
    details.kind = kind;
    details.block = worker.block;
    details.thread = worker.thread->linear;
    details.line = static_cast<int>(location.line);
    details.message = message;
    details.access = access.c_str();
    details.array = array;
    details.index = index;
    if (index != no_index) details.space = "local", details.subscript = "[" + std::to_string(index) + "]";
    report(worker, details);
}

}  // namespace

void register_module(bool checked, const void* address_inside) {
    if (checked) hostcuda_set_checked(1);
    note_solution_module(address_inside);
}

}  // namespace hostcuda

extern "C" {

void __ubsan_handle_type_mismatch_v1(const hostcuda::TypeMismatch* data, std::uintptr_t pointer) {
    if (hostcuda::current_worker == nullptr || pointer == 0) return;
    const std::uintptr_t alignment = std::uintptr_t{1} << data->log_alignment;
    if ((pointer & (alignment - 1)) == 0 || !hostcuda::is_solution(data->location)) return;
    char text[160];
    std::snprintf(text, sizeof text, "misaligned address: a %.80s must lie at a multiple of %zu bytes", data->type->name, static_cast<std::size_t>(alignment));
    hostcuda::report_here(hostcuda::ReportKind::misaligned, data->location, text, "", hostcuda::no_index, data->type->name);
    hostcuda::abort_launch(*hostcuda::current_worker, hostcuda::error_misaligned_address);
}

void __ubsan_handle_out_of_bounds(const hostcuda::OutOfBounds* data, std::uintptr_t index) {
    if (hostcuda::current_worker == nullptr || !hostcuda::is_solution(data->location)) return;
    long long value = static_cast<long long>(index);
    if (data->index_type->kind == 0 && (data->index_type->info & 1) != 0 && (data->index_type->info >> 1) == 5) value = static_cast<std::int32_t>(index);
    hostcuda::report_here(hostcuda::ReportKind::memory_error, data->location, "index out of bounds", data->array_type->name, value, "index");
    hostcuda::abort_launch(*hostcuda::current_worker, hostcuda::error_illegal_address);
}

void __ubsan_handle_shift_out_of_bounds(const hostcuda::SourceLocation* location, std::uintptr_t, std::uintptr_t) {
    if (hostcuda::current_worker == nullptr || !hostcuda::is_solution(*location)) return;
    hostcuda::report_here(hostcuda::ReportKind::not_emulated, *location, "shift by as many bits as its operand has, or more", "", hostcuda::no_index, "");
}

void __ubsan_handle_float_cast_overflow(const hostcuda::SourceLocation* location, std::uintptr_t) {
    if (hostcuda::current_worker == nullptr || location->file == nullptr) return;
    // Data without a place begin with the descriptor of a type, the kind of which is 0, 1 or -1.
    const auto* first = reinterpret_cast<const unsigned char*>(location->file);
    if (first[0] + first[1] < 2 || first[0] == 0xff || first[1] == 0xff || !hostcuda::is_solution(*location)) return;
    hostcuda::report_here(hostcuda::ReportKind::not_emulated, *location, "conversion without a cast, of a number that the integer type can't hold", "", hostcuda::no_index, "");
}

}  // extern "C"
