// What checked mode found. Reports are counted by (kind, kernel, place, other place, array); the first of each is kept whole.
#pragma once
#include <string>

#include "state.h"

namespace hostcuda {

constexpr long long no_index = -0x7fffffffffffffffll;

struct ReportDetails {
    ReportKind kind{};
    const Block* block = nullptr;     // null: not inside a kernel
    std::uint32_t thread = 0;
    std::uintptr_t site = 0;          // return address, 0 where `line` says it
    int line = 0;
    const char* message = "";
    const char* access = "";          // "read of 4 bytes"
    std::string space;                // "shared", "global", "local"
    std::string array;
    long long index = no_index;       // element of the array, flat; may be negative
    std::string subscript;            // "[3][17]"
    bool has_other = false;
    std::uint32_t other_block = 0;
    std::uint32_t other_thread = 0;
    std::uintptr_t other_site = 0;
    int other_line = 0;
    const char* other_access = "";
    const char* kernel = nullptr;     // where no block says it
};

void report(const Worker& worker, const ReportDetails& details);
void report_again(ReportKind kind, std::uintptr_t site, std::uint64_t times);  // adds to the count of a report that is there
void report_outside(const ReportDetails& details);
// A refused launch is reported unless the program asks for the error: then it is the program's to handle.
void defer_launch_report(const ReportDetails& details);
void forget_launch_report();
// Appends `,"name":["path of the module",offset]` for a return address, for the symboliser on the Python side; nothing for one of no module.
void append_site(std::string& json, const char* name, std::uintptr_t site);
int check_launch(const LaunchRequest& request);      // 0, or the cudaError_t a GPU would give (compute capability 9.0)
int check_cluster(const LaunchRequest& request);     // the same, of the clusters that it asks for
void finish_launch(const Launch& grid, int error);   // after the last block: limits known only now, sticky errors
void note_launch(const Launch& grid);                // for the count of launches
void note_library_call(const char* routine);         // the same, with a grid of nothing: there is no kernel
void set_sticky_error(int error);

}  // namespace hostcuda
