// The state of a running grid: launch, block, warp, GPU thread, and the OS thread ("worker") that carries them.
// Internal to the runtime library; nothing here is seen by a solution's code.
#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "fiber.h"
#include "hostcuda/interface.h"
#include "knowledge.h"

namespace hostcuda {

constexpr unsigned warp_lanes = 32;
constexpr unsigned max_block_threads = 1024;                      // CUDA programming guide, compute capability 9.0
constexpr std::size_t max_dynamic_shared_bytes = 227 * 1024;      // the same; opt-in above 48 KiB
constexpr unsigned largest_portable_cluster = 8, largest_cluster = 16;  // blocks; the latter where the kernel's attribute allows it
constexpr std::size_t default_shared_bytes = 48 * 1024;
constexpr std::uint64_t poison = 0x7FBF7FBF7FBF7FBFull;           // NaN as fp16, bf16 and fp32
extern std::atomic<std::uint64_t> shared_fill;                    // what stands in shared memory that nobody wrote: poison, or another of fills

// ---- what the shadow memory remembers of one granule. A record is
//   serial:26 | tick:8 | thread:10 | site:20
// Serial numbers are handed to blocks in rising order. A block takes a further one every 256 ticks and at every barrier of the grid; a tick
// passes at every barrier or warp collective. The site is the return address inside the module's text, in units of 4 bytes.
using Record = std::uint64_t;
constexpr int record_serial_shift = 38;
constexpr int record_tick_shift = 30;
constexpr int record_thread_shift = 20;
constexpr Record record_unaddressable = ~Record{0};
constexpr std::uint32_t max_serial = (1u << 26) - 2;              // a launch that needs more goes on with this one, and without further findings of races
constexpr std::uint32_t arriving_serial = max_serial + 1;         // of the write that an asynchronous copy is still to make
constexpr std::uint32_t ticks_a_serial = 1u << 8;
constexpr std::uint32_t serials_before_reset = 1u << 21;          // a launch begins with fewer handed out

// A record that workers read and write at once, in any order: what one of them overwrites is a race that may be missed.
class SharedRecord {
public:
    SharedRecord() = default;
    SharedRecord(Record value) : value_(value) {}
    SharedRecord(const SharedRecord& other) : value_(other) {}
    SharedRecord& operator=(const SharedRecord& other) { return *this = static_cast<Record>(other); }
    SharedRecord& operator=(Record value) {
        __atomic_store_n(&value_, value, __ATOMIC_RELAXED);
        return *this;
    }
    operator Record() const { return __atomic_load_n(&value_, __ATOMIC_RELAXED); }

private:
    Record value_ = 0;
};

struct Cell {
    SharedRecord write;    // last plain write
    SharedRecord atomic;   // last atomic update
    SharedRecord reader;   // first reader since the last ordering point
    SharedRecord reader2;  // another one, of another block or warp where there was one
};

struct Region {
    std::uintptr_t base = 0;
    std::size_t bytes = 0;
    RegionKind kind = RegionKind::device;
    std::atomic<unsigned> granule_shift{2};
    std::atomic<Cell*> cells{nullptr};
    std::size_t cells_bytes = 0;
    bool fresh = false;              // its content was never set by anybody: filled with poison
    std::size_t red_zone_bytes = 0;  // writable bytes on either side that belong to nobody
    std::uint64_t number = 0;
    std::uint64_t allocation = 0;    // the same for all regions that marked the same memory one after another, without a free in between
    char name[64] = {};
};

enum class ThreadState : std::uint8_t { unstarted, ready, running, at_barrier, at_warp, at_activemask, at_grid, at_named, at_cluster, exited };

struct AsyncCopy {
    void* to;
    const void* from;
    unsigned bytes, kept, group;
    std::uintptr_t site;
};
struct BoundCopy {                   // there when a phase of the barrier ends
    const void* barrier;
    bool counted;                    // in bytes: a bulk copy
    AsyncCopy copy;
};
struct AsyncCopies {
    std::vector<AsyncCopy> list;
    unsigned group = 0;              // the one that is being filled
};

constexpr unsigned scopes = 2;       // of a fence: 0 a block, 1 the device

// What the signals of a thread tell: what it knew of others at its last fence, and what it had done itself up to a tick. 0: it met no fence.
struct Fenced {
    Known others;
    std::uint32_t own = 0;
};

struct Learning {                    // by a thread, since it last met its whole block
    Known known;                     // what happened before
    Known seen_near, seen_far;       // the same once a fence or a barrier follows: what was told at places that it read
    std::uintptr_t seen[4] = {};     // such places in global memory, the last ones
    unsigned next_seen = 0;
    Fenced fenced[scopes];
};

struct Meeting {                     // what those who meet at a barrier tell each other
    Known known, fenced[scopes];
};

// A place by which threads signal each other. `near` is what threads of one block, by linear index, tell others of theirs.
struct SyncPoint {
    Known far;
    std::unordered_map<std::uint32_t, Known> near;
    Record cluster = 0;              // of whoever released last: where its records of shared memory begin, which no other's do
    std::uint32_t cluster_known = 0; // and the most phases of its barrier that anybody of it knew of
};
using SyncPoints = std::unordered_map<std::uintptr_t, SyncPoint>;

struct Thread {
    Fiber* fiber = nullptr;
    Dim3 index{};
    std::uint32_t linear = 0;
    std::uint32_t tick = 0;
    Record record = 0;               // serial, tick and thread, ready to be completed with a site
    ThreadState state = ThreadState::unstarted;
    bool carry = false;
    bool in_vain = false;            // it asked for the end of a phase, and has done nothing since
    std::uint32_t cluster_arrivals = 0, cluster_waits = 0;  // at the barrier of its cluster, over all phases
    std::uint32_t cluster_known = 0; // phases of it that ended before what it does now, as far as it waited or met others who had
    std::unique_ptr<Learning> learning;
    std::uint32_t released = 0;      // the tick of its last release, or fence of more than a block
    std::uint32_t polls = 0;         // atomics and volatile reads since it last gave way; barriers in a waiting loop change nothing
    int line = 0;                    // where it waits
    Place place = Place::any;        // which of the barriers on that line
    const char* kind = nullptr;      // for what
    unsigned mask = 0;
    const void* give = nullptr;      // its part of the collective
    void* take = nullptr;
    unsigned source = 0;
    unsigned answer = 0;
    std::uintptr_t doubt = 0;        // a plain read of what others update atomically: harmless if an atomic of its own follows
    std::uintptr_t doubt_site = 0;
    Record doubt_other = 0;
    std::unique_ptr<AsyncCopies> copies;
    std::unique_ptr<AsyncCopies> stores;  // bulk copies out of shared memory
};

struct Collective {
    unsigned mask = 0;
    unsigned arrived = 0;
    WarpOperation operation{};
    std::size_t bytes = 0;
    const char* kind = nullptr;
    int line = 0;
};

struct Warp {
    unsigned exited = 0;
    unsigned pending = 0;            // which of the collectives wait
    unsigned asking = 0;             // lanes that wait for __activemask()
    std::uint32_t sync_tick = 0;     // every lane's accesses up to this tick are ordered
    bool told = false;               // a lane has learned, seen or fenced what the others have not
    Collective collectives[warp_lanes];
    std::unique_ptr<std::uint32_t[]> clocks;  // [lane][other]: other's tick that lane knows of; only for partial masks
    bool clocks_in_use = false;
};

struct NamedBarrier {
    std::uint32_t expected = 0;      // threads, in whole warps; 0 while nobody has come
    std::uint32_t lanes[max_block_threads / warp_lanes] = {};
    unsigned sum = 0;
    bool all = true, any = false;
    Meeting meeting;
};

struct Launch;

// One block's shared memory: static variables, each between gaps, then the dynamic part.
struct Arena {
    char* memory = nullptr;
    std::size_t bytes = 0;
    std::size_t dynamic_offset = 0;
    std::size_t dynamic_bytes = 0;
    Cell* cells = nullptr;
    std::size_t cells_bytes = 0;
    unsigned granule_shift = 2;
    std::uint32_t epoch = 0;
    std::vector<unsigned char> touched;
    std::size_t static_bytes = 0;    // of the variables touched by this block
};

struct Block;

struct Touch {                       // an access to another block's shared memory
    Record record = 0;               // 0: there was none
    std::uintptr_t address = 0, site = 0;
    std::uint32_t bytes = 0;
    bool write = false;
};

// Blocks that reach each other's shared memory and share a barrier. One worker carries all of them, so none of this is shared between OS threads.
struct Cluster {
    std::vector<Block*> blocks;      // by rank
    Dim3 index{};
    std::uint32_t live = 0;          // threads
    std::uint32_t arrived = 0;       // at the phase that is under way
    std::uint32_t phase = 0;         // which that is
    Record start = 0;                // records of shared memory below this are of blocks that had it before
    // What each thread (by rank and linear index) did below this happened before the end of a phase, which has its turn of three: some may still be at the
    // one before the last. Checked builds only.
    std::vector<Record> released[3];
    Known told;                      // what all threads had released when the last phase ended, for who hears of it from outside
    std::vector<std::vector<Touch>> touches;  // by the rank of the block whose memory it is: the last access of each thread of another one
};

struct Block {
    Launch* launch = nullptr;
    std::shared_ptr<Cluster> cluster;
    std::uint32_t rank = 0;          // in it
    std::uint32_t cluster_waiting = 0;
    Dim3 index{};
    std::uint32_t linear = 0;
    std::uint32_t count = 0;
    std::uint32_t live = 0;
    std::uint32_t started = 0;
    std::unique_ptr<Thread[]> threads;
    std::unique_ptr<Warp[]> warps;
    std::unique_ptr<std::uint16_t[]> ready;  // ring of max_block_threads + 1
    std::uint32_t ready_head = 0, ready_tail = 0;
    std::uint32_t barrier_arrived = 0;
    int barrier_line = 0;
    Place barrier_place = Place::any;
    int barrier_sum = 0, barrier_and = 1, barrier_or = 0;
    int result_sum = 0, result_and = 0, result_or = 0;
    std::uint32_t grid_waiting = 0;
    std::uint32_t grid_generation = 0;
    bool waits_for_grid = false;
    bool spinning = false;
    std::uint32_t turns = 0;         // in which its threads gave way to each other since it did to other blocks
    Arena arena;
    std::uint32_t tick = 0, barrier_tick = 0;
    std::vector<std::uint32_t> serials;
    Record floor = 0;
    bool told = false;               // a thread has learned, seen or fenced what the others have not
    Meeting met;                     // what all its threads know of others, and what the signals of any tell
    SyncPoints points;               // in its shared memory
    std::vector<BoundCopy> bound;
    std::uint32_t in_vain = 0;       // threads that ask for the end of a phase
    std::uint32_t rounds_in_vain = 0;
    std::chrono::steady_clock::time_point in_vain_since;
    std::unique_ptr<NamedBarrier[]> named;
    std::uint32_t named_pending = 0;
};

struct Launch {
    LaunchRequest request;
    std::uint32_t blocks = 0;
    std::uint32_t threads = 0;
    Dim3 cluster{1, 1, 1};           // in blocks
    std::uint32_t cluster_blocks = 1;
    unsigned workers = 1;
    bool reversed = false;
    std::atomic<bool> has_own_cluster{false};  // the kernel's __cluster_dims__ differ from what it was launched with: `own_cluster`
    Dim3 own_cluster{};
    std::atomic<std::uint32_t> next_block{0};
    std::atomic<bool> aborted{false};
    std::atomic<int> error{0};
    std::atomic<std::uint32_t> grid_arrived{0};
    std::atomic<std::uint32_t> grid_generation{0};
    std::atomic<std::uint32_t> grid_floor{0};
    std::atomic<std::uint32_t> finished_blocks{0};
    std::atomic<std::uint32_t> finished_block{0};  // one of them, by linear index
    std::atomic<std::uint32_t> reads_of_exited{0};  // shuffles that read such a lane, reported up to a limit
    Record floor = 0;
    std::atomic<const char*> kernel{nullptr};
    std::atomic<const char*> parameters{nullptr};
    std::atomic<std::size_t> static_shared_bytes{0};
};

struct Pending {                     // a conflicting write whose value is compared once it has happened
    std::uintptr_t address = 0;
    std::uint32_t bytes = 0;
    unsigned char before[16];
    std::uintptr_t site = 0;
    Record other = 0;
    bool other_was_write = false;
    Region* region = nullptr;
};

constexpr unsigned region_cache_entries = 1024;

struct Flood {                       // how often one place was reported, so that the thousandth time costs nothing
    std::uintptr_t site = 0;
    ReportKind kind{};
    std::uint64_t count = 0;
};
constexpr unsigned flood_entries = 64;

struct Worker {
    // touched at every checked access
    std::uintptr_t stack_low = 0;
    std::size_t stack_bytes = 0;
    std::uintptr_t shared_base = 0;
    std::size_t shared_bytes = 0;
    std::uintptr_t builtins_low = 0;  // threadIdx and kin: thread-local variables of this library
    std::size_t builtins_bytes = 0;
    Cell* shared_cells = nullptr;
    unsigned shared_granule_shift = 2;
    bool has_pending = false;
    Record me = 0;
    Record floor = 0;                // records below this are of earlier grids, or behind a grid barrier
    Record shared_floor = 0;         // the same for shared memory: of earlier blocks
    Record shared_start = 0;         // nobody of the cluster wrote what has no record from here on
    Record shared_limit = 0;         // in own shared memory, records below this are behind a barrier
    Record barrier_limit = 0;        // own block's records below this are behind a barrier
    Thread* thread = nullptr;
    Block* block = nullptr;
    Launch* launch = nullptr;
    Region* cache[region_cache_entries] = {};

    Pending pending;
    Flood floods[flood_entries] = {};
    Fiber main;
    Fiber* fiber = nullptr;
    std::unique_ptr<FiberPool> pool;
    std::vector<std::unique_ptr<Block>> blocks;      // in use
    std::vector<std::unique_ptr<Block>> ended;       // of clusters that go on: their shared memory may still be reached
    std::vector<std::unique_ptr<Block>> idle_blocks;
    unsigned number = 0;
};

extern __thread Worker* current_worker;              // null outside of a kernel

// scheduler.cpp
void suspend(Worker& worker);                        // the calling thread can't go on; returns when it can
void make_ready(Block& block, Thread& thread);
void poll(Worker& worker);                           // the calling thread may be spinning
[[noreturn]] void abort_launch(Worker& worker, int error);
void refresh_records(Worker& worker);                // after the calling thread's tick changed
std::uint32_t take_serial(Block& block);
void advance(Block& block, Thread& thread, std::uint32_t tick);

// async.cpp
void finish_copies(Block& block, Thread& thread);    // the thread ends
void abandon_copies(Worker& worker, Block& block);   // the launch ends in the middle

// cluster.cpp
Block* holder_of(const Worker& worker, std::uintptr_t address);  // the block of the running cluster whose shared memory this is, or null
void cluster_thread_exited(Worker& worker, Block& block, Thread& thread);
bool behind_cluster_barrier(const Block& block, const Thread& thread, const Block& other, Record record);
// Of another block's shared memory. An atomic one that signals is over for whoever reads it: as early as what it tells.
void note_touch(Worker& worker, Block& holder, std::uintptr_t address, std::size_t bytes, bool write, bool signals, std::uintptr_t site);
Record record_at(const Block& block, const Thread& thread, std::uint32_t tick);
bool cluster_stuck(const Cluster& cluster);          // some wait at its barrier, and nobody of it can run
bool peers_may_help(const Block& block);             // another block of the cluster can run, and does not only ask in vain
inline std::uint32_t threads_to_run(const Block& block) {
    return (block.ready_tail + max_block_threads + 1 - block.ready_head) % (max_block_threads + 1) + block.count - block.started;
}

// warp.cpp
void warp_lane_exited(Block& block, Thread& thread);
void warp_lane_waits(Block& block, const Thread& thread);  // or has ended
bool resolve_activemasks(Block& block);              // whether any lane asked

// shared.cpp
void arena_prepare(Arena& arena, const LaunchRequest& request);
void shared_touch(Launch& grid, Arena& arena, std::size_t offset);  // the variable there exists from now on, as if the block had named it
const char* shared_variable_at(const Arena& arena, std::size_t offset, std::size_t* start, const VariableInfo** info);
bool arena_refine(Arena& arena, unsigned granule_shift);

// regions.cpp
Region* region_containing(std::uintptr_t address, std::size_t bytes);
Region* region_nearest(std::uintptr_t address);
// The region at an address, or null; the stretch of addresses around it that is known to be as harmless or harmful to the host.
const Region* region_or_gap(std::uintptr_t address, std::uintptr_t& low, std::uintptr_t& high);
extern std::atomic<std::uint64_t> device_regions_made;  // regions that only kernels may touch, so far
Cell* region_cells(Region& region);
void region_refine(Region& region, unsigned granule_shift);
void forget_all_shadows();
extern std::atomic<std::uint32_t> shadow_epoch;      // rises when all records become meaningless
bool inside_module_image(std::uintptr_t address);
void note_solution_module(const void* address_inside);

// checker.cpp
void flush_pending(Worker& worker);
void settle_doubt(Worker& worker);
void flush_floods(Worker& worker);
void check_range(const void* p, std::size_t bytes, bool write, std::uintptr_t site);  // as if the calling thread accessed it
std::uint32_t serial_owner(std::uint32_t serial);
void set_serial_owner(std::uint32_t serial, std::uint32_t block);

}  // namespace hostcuda
