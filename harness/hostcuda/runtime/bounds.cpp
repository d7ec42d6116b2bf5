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
struct FloatCastOverflow {
    SourceLocation location;
    const TypeDescriptor* from;
    const TypeDescriptor* to;
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

// Types below 32 bits are cut from 32 bits by both.
bool is_cut_as_on_a_gpu(const FloatCastOverflow& data, std::uintptr_t bits) {
    if ((1u << (data.to->info >> 1)) >= 32 || (data.from->info != 32 && data.from->info != 64)) return false;
    float narrow;
    double value;
    std::memcpy(&narrow, &bits, sizeof narrow);
    std::memcpy(&value, &bits, sizeof value);
    if (data.from->info == 32) value = static_cast<double>(narrow);
    const bool is_signed = (data.to->info & 1) != 0;
    return value < 2147483648.0 && value > (is_signed ? -2147483649.0 : -1.0);
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

void __ubsan_handle_float_cast_overflow(const hostcuda::FloatCastOverflow* data, std::uintptr_t bits) {
    if (hostcuda::current_worker == nullptr || data->location.file == nullptr) return;
    // Data without a place begin with the descriptor of a type, the kind of which is 0, 1 or -1.
    const auto* first = reinterpret_cast<const unsigned char*>(data->location.file);
    if (first[0] + first[1] < 2 || first[0] == 0xff || first[1] == 0xff || !hostcuda::is_solution(data->location)) return;
    if (hostcuda::is_cut_as_on_a_gpu(*data, bits)) return;
    hostcuda::report_here(hostcuda::ReportKind::not_emulated, data->location, "conversion without a cast, of a number that the integer type can't hold", "", hostcuda::no_index, "");
}

}  // extern "C"
