// What crosses between a compiled solution (or the torch bridge) and the runtime library. Included by both; plain C++ only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <source_location>

// The last parameter of what reports with the line of its call.
#define HOSTCUDA_LINE int line = __builtin_LINE()
// One more where it matters which of two calls on one line it is.
#define HOSTCUDA_PLACE ::hostcuda::Place place = ::hostcuda::column_of(::std::source_location::current())

namespace hostcuda {

// Which of the barriers on a line: a number of the call's own (hostcuda/unit.h), or its column, negative.
enum class Place : int { any };
constexpr Place column_of(const std::source_location& at) { return static_cast<Place>(-static_cast<int>(at.column())); }

struct Dim3 {
    std::uint32_t x, y, z;
};

enum class RegionKind : std::uint8_t { device, host, pinned, managed, symbol, image };

enum class WarpOperation : std::uint8_t { synchronize, exchange, shuffle, ballot, match_any, match_all };

struct PointerArgument {             // a kernel argument that is a pointer: position, value, size of what it points to
    std::uint32_t position;
    const void* value;
    std::uint32_t element_bytes;
};

struct LaunchRequest {
    Dim3 grid, block;
    std::size_t dynamic_shared_bytes;
    void* stream;
    void (*invoke)(const void* closure);
    const void* closure;
    std::size_t closure_bytes;       // a graph keeps a copy, byte for byte, as CUDA copies a kernel's arguments
    void (*parameters)(void* closure, void** addresses, std::size_t* bytes);  // where each argument lies in a closure
    std::uint32_t parameter_count;
    const char* text;                // the kernel as the launch wrote it
    const char* file;
    int line;
    const PointerArgument* pointers;
    std::uint32_t pointer_count;
    bool cooperative;
    Dim3 cluster;                    // in blocks; x is 0 where the launch says nothing
};

struct VariableInfo {                // a __shared__ variable, constant-initialised in the module
    const char* name;
    std::size_t bytes;
    std::uint32_t element_bytes;
    std::uint32_t extent[4];         // of an array, outermost first; 0 where it has fewer dimensions
    int line;
    mutable std::size_t offset;      // in the arena, once registered
    mutable std::uint32_t number;
};

// cudaError_t values that the runtime itself produces (CUDA runtime API, driver_types.h).
constexpr int error_invalid_value = 1;
constexpr int error_memory_allocation = 2;
constexpr int error_invalid_configuration = 9;
constexpr int error_invalid_resource_handle = 400;
constexpr int error_illegal_address = 700;
constexpr int error_launch_out_of_resources = 701;
constexpr int error_misaligned_address = 716;
constexpr int error_assert = 710;
constexpr int error_launch_failure = 719;
constexpr int error_cooperative_launch_too_large = 720;
constexpr int error_not_supported = 801;
constexpr int error_invalid_cluster_size = 912;

int launch(const LaunchRequest& request);                 // a cudaError_t
void register_shared(const VariableInfo& variable);
void register_symbol(const void* address, std::size_t bytes, const char* name, bool managed);
// `max_threads` is 0 without __launch_bounds__, `cluster.x` without __cluster_dims__; its other dimensions may be left out.
void register_kernel(const void* kernel, int max_threads, const Dim3& cluster);
void* shared_first_touch(const VariableInfo& variable);
void* dynamic_shared();
void kernel_entry(const char* name, const char* parameters, int max_threads, const Dim3& cluster);

// Barriers, collectives and fences, called by device code.
enum class BarrierAnswer : std::uint8_t { none, count, all, any };
int barrier(int predicate, BarrierAnswer answer, int line, Place place = Place::any);
void grid_barrier(int line);
// The barrier of a cluster: each thread arrives, and waits before it arrives again. What a thread did before it arrived happened before what others do once
// they waited; not so of a relaxed arrival without a fence.
void cluster_arrive(bool relaxed, int line);
void cluster_wait(int line);
struct ClusterPlace {                    // of the calling thread's block; of a launch without clusters, each block is a cluster
    Dim3 index, count;                   // of the cluster in the grid, in clusters
    Dim3 block, extent;                  // of the block in the cluster, in blocks
    std::uint32_t rank, size;
    bool explicitly;                     // the launch or the kernel says how large clusters are
};
ClusterPlace cluster_place();
// The place in the shared memory of block `rank` of the cluster that this is in that of one of its blocks; and whose shared memory it is, ~0u where nobody's.
void* cluster_map(const void* shared, unsigned rank, int line);
unsigned cluster_rank_of(const void* place) noexcept;
// Barrier `number` of the block for `count` threads, 0 for all: bar.sync, or bar.arrive of those that don't wait.
int named_barrier(unsigned number, unsigned count, bool waits, int predicate, BarrierAnswer answer, int line);
unsigned warp_collective(WarpOperation operation, unsigned mask, const void* give, void* take, std::size_t bytes,
                         unsigned source, const char* kind, int line);
unsigned active_mask(int line);
// Of a thread: what it did before happens before what others do who read a signal that it gives after the fence. `acquires` and `releases` where it is one half.
enum class Scope : std::uint8_t { block, device };
void fence(Scope scope = Scope::device, bool acquires = true, bool releases = true);
// The memory order by which an atomic tells the checks that its scope is a block. No other use has it.
#define HOSTCUDA_BLOCK_SCOPE __ATOMIC_CONSUME
// 16 bytes at once: `value` is put in `place` where that holds `expected`, or always where that is null; `old` is what it held. Code of checked mode has no
// other hook for so many.
void atomic_wide(void* place, const void* expected, const void* value, void* old, bool checked);
bool carry();                            // of the calling thread's condition code (PTX, add.cc and kin)
void set_carry(bool on);
// A place in shared memory by which threads of a block are ordered without a barrier of all, as libcu++'s barriers are: whoever acquires there has what
// others did before they released. An atomic in shared memory by itself orders nothing.
void sync_begin(const void* place);
void sync_release(const void* place, bool relaxed = false);  // relaxed: only what a fence came behind
void sync_acquire(const void* place, bool relaxed = false);  // relaxed: once a fence follows
// cp.async: copies that a thread has begun happen at the wait that covers them, or when the thread ends. `kept` bytes come from the
// source, the rest of `bytes` is zero.
void async_copy(void* shared, const void* source, unsigned bytes, unsigned kept);
void async_commit();
void async_wait(unsigned groups_left);
void async_wait_all();                   // uncommitted copies too
// Copies that are there when the present phase of a barrier ends, which `async_arrived` is told by whoever ends it: one that begins here, and those that the
// calling thread has begun before and not waited for. A barrier outside of shared memory has its copies made at once.
void async_copy_until(const void* barrier, void* shared, const void* source, unsigned bytes);
void async_bind(const void* barrier);
bool in_shared(const void* place);       // of the calling thread's block
bool only_own_block_reaches(const void* place);  // it is in shared memory, or the grid has no other block
void async_arrived(const void* barrier);
// Bulk copies whose bytes a barrier counts: one begins, and all that have begun arrive. Returns their bytes.
void async_bulk(const void* barrier, void* shared, const void* source, unsigned bytes);
unsigned long long async_bring(const void* barrier);
// Bulk copies from shared memory, in groups of their own.
void async_bulk_store(void* to, const void* shared, unsigned bytes);
void async_bulk_commit();
void async_bulk_wait(unsigned groups_left);
// cuRAND's generators go on by `count` times 2^`power` steps (cuRAND's own jumps: no further than 2^131 and 2^191).
constexpr std::uint64_t mrg32k3a_modulus1 = 4294967087u, mrg32k3a_modulus2 = 4294944443u;
void xorwow_jump(std::uint32_t* v, unsigned long long count, unsigned power);
void mrg32k3a_jump(std::uint32_t* s1, std::uint32_t* s2, unsigned long long count, unsigned power);
void poll_hint();
// The calling thread asked in vain, at `line`, for the end of a phase that only threads of its own block can end; and no longer asks. Where all that can
// run ask in vain, the kernel ends with a barrier_error.
void wait_in_vain(int line, const char* what = "a wait for the phase of a barrier");
void wait_over();
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line, const char* function);
[[noreturn]] void trap();
bool in_kernel() noexcept;               // whether a GPU thread calls, and not the host
}  // namespace hostcuda
extern "C" void hostcuda_poison(void* memory, std::size_t bytes);
extern "C" int hostcuda_checked();
extern "C" void hostcuda_set_checked(int on);
namespace hostcuda {

// Memory the device may touch.
void region_add(const void* base, std::size_t bytes, RegionKind kind, bool fresh, std::size_t red_zone_bytes, const char* name);
bool region_remove(const void* base);

// Reports.
enum class ReportKind : std::uint8_t {
    data_race, memory_error, uninitialised_read, barrier_error, misaligned, launch_error, leak, not_emulated, assertion
};

}  // namespace hostcuda

// A library's routine (cuBLAS), which the bridge carries out between kernels: what it touches is checked like a kernel's accesses.
namespace hostcuda {
struct Operand {                         // element (i, j) lies `i + j * leading` elements behind `at`
    const char* name;                    // of the parameter, as the library's manual has it
    const void* at;
    std::uint32_t element_bytes;
    std::int64_t rows, columns, leading;
    bool reads, writes;
    bool partly = false;                 // only a triangle: bounds are checked, contents not
    bool elementwise = false;            // may be the very memory of the result, element for element
    std::int64_t number = -1;            // of the product in its batch, from 0; -1 where there is no batch
};
int library_begins(const char* routine);  // a cudaError_t that an earlier kernel or call left behind, or 0; then library_ends must follow
void library_ends();
// Reports what of this is stray, unwritten, or read and written at once; 0, or the cudaError_t that the device is left with. `site` is the
// return address of the call in the solution.
int library_touches(const char* routine, const Operand* operands, std::size_t count, std::uintptr_t site);
// Notes that the routine is asked for something that is not emulated, so that nothing is known of the program, whatever it does then.
void library_lacks(const char* routine, const char* construct, std::uintptr_t site);
// A graph runs `routine` on memory that was freed since the capture: reported, and the error that the device is left with.
void library_reports_stale(const char* routine);
// A scalar that the host reads or writes; false, and reported, if it lies where only a kernel can reach.
bool library_reads_on_host(const char* routine, const char* name, const void* scalar, std::uintptr_t site);
// The same for what a routine that runs on the host walks over, called in `line`.
bool host_reaches(const char* routine, const void* items, int line);
}  // namespace hostcuda

namespace hostcuda {
void register_module(bool checked, const void* address_inside);
void* device_malloc(std::size_t bytes);
void device_free(void* memory);
struct ModuleRegistration {
    explicit ModuleRegistration(bool checked) { register_module(checked, this); }
};
}  // namespace hostcuda
