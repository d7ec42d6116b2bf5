// What the files of checked mode ask of each other: checker.cpp (the hooks), ordering.cpp (what happened before what), finding.cpp (reports),
// host_access.cpp (what is no kernel's).
#pragma once
#include "report.h"
#include "state.h"

namespace hostcuda {

inline Record with_site(Record me, std::uintptr_t site) { return me | (static_cast<Record>(site) >> 2 & 0xFFFFFu); }
inline std::uint32_t serial_of(Record r) { return static_cast<std::uint32_t>(r >> record_serial_shift); }
inline std::uint32_t tick_of(Record r) { return static_cast<std::uint32_t>(r >> record_tick_shift) % ticks_a_serial; }
inline std::uint32_t thread_of(Record r) { return static_cast<std::uint32_t>(r >> record_thread_shift) & 1023u; }

// The full return address of a record: the one nearest to `near` with its 22 low bits (known but for the last two).
inline std::uintptr_t site_of(Record r, std::uintptr_t near) {
    constexpr std::uintptr_t span = std::uintptr_t{1} << 22;
    std::uintptr_t site = (near & ~(span - 1)) | (static_cast<std::uintptr_t>(r & 0xFFFFFu) << 2);
    if (site + span / 2 < near) site += span;
    else if (site > near + span / 2) site -= span;
    return site;
}

// What an asynchronous copy is bringing: a record above all others but `record_unaddressable`, which no access is in order with.
inline bool is_arriving(Record r) { return serial_of(r) == arriving_serial && r != record_unaddressable; }

// ordering.cpp
bool ordered(const Worker& worker, Record record, Record floor, bool shared);  // did it happen before the calling thread's present access?
// An atomic or volatile access: in shared memory of `holder`, or in global memory where that is null. One whose scope is a block signals no other.
void synchronize_through(Worker& worker, Block* holder, std::uintptr_t address, bool reads, bool writes, bool block_scope);
Record limit_after(const Block& block, std::uint32_t tick);  // the block's records of all ticks up to this one are below it
bool of_another_block(const Block& block, Record record);
bool heard_of(const Block& block, const Thread& thread, std::uint32_t other);  // of what block `other` did

// What those who meet know or have fenced, all of them do: of a block at its barrier (who went on knows nothing more of its own), of a cluster, of a warp's
// lanes, and at a barrier of a part of the block, where each arrives and leaves by itself.
void share_in_block(Block& block);
void share_in_cluster(Cluster& cluster);
void share_in_warp(Block& block, std::uint32_t warp, unsigned lanes);
void arrive(Meeting& meeting, Worker& worker);
void add_lanes(Meeting& meeting, const Block& block, std::uint32_t warp, unsigned lanes);  // what they did until now
void leave(const Meeting& meeting, Block& block, Thread& thread);

// checker.cpp: where a copy into shared memory begins, and where it ends
void mark_arriving(Worker& worker, const AsyncCopy& copy);
void unmark_arriving(Worker& worker, const AsyncCopy& copy);
void unmark_source(Worker& worker, const AsyncCopy& copy);  // what it reads, where nobody waits for it any more

// host_access.cpp: what host code reads or writes itself
void check_host(std::uintptr_t address, std::size_t bytes, bool write, std::uintptr_t site);

// finding.cpp
std::string describe_access(bool write, std::size_t bytes);
void locate(const Worker& worker, std::uintptr_t address, std::size_t bytes, ReportDetails& details);  // array, index and subscript of an address
void report_access(Worker& worker, ReportKind kind, std::uintptr_t address, std::size_t bytes, bool write, std::uintptr_t site,
                   const char* message, Record other = 0, const char* other_access = "");
// The region of an access; null where it is stray, which is reported, and ends the kernel where going on would do harm.
Region* find_region(Worker& worker, std::uintptr_t address, std::size_t bytes, bool write, std::uintptr_t site);

}  // namespace hostcuda
