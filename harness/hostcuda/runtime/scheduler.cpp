// Runs a grid: blocks are handed to workers (OS threads), the GPU threads of a block are fibers of one worker. A fiber carries one
// GPU thread after another until one of them has to wait; so kernels without barriers hardly switch.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <mutex>

#include "hostcuda/warp.h"
#include "recorder.h"
#include "report.h"
#include "scheduler.h"
#include "state.h"
#include "streams.h"

// What device code reads as threadIdx and kin. Declared const there.
__attribute__((tls_model("initial-exec"))) __thread hostcuda::Dim3 threadIdx = {0, 0, 0};
__attribute__((tls_model("initial-exec"))) __thread hostcuda::Dim3 blockIdx = {0, 0, 0};
__attribute__((tls_model("initial-exec"))) __thread hostcuda::Dim3 blockDim = {1, 1, 1};
__attribute__((tls_model("initial-exec"))) __thread hostcuda::Dim3 gridDim = {1, 1, 1};

namespace hostcuda {

__attribute__((tls_model("initial-exec"))) __thread Worker* current_worker = nullptr;
__attribute__((tls_model("initial-exec"))) __thread char* shared_window = nullptr;
__attribute__((tls_model("initial-exec"))) __thread unsigned char* shared_touched = nullptr;
__attribute__((tls_model("initial-exec"))) extern __thread bool launch_known;

namespace {

constexpr std::size_t stack_bytes = 640 * 1024;   // a GPU thread has 512 KiB of local memory (CUDA programming guide); frames here are larger
constexpr std::uint32_t polls_a_turn = 256;       // atomics and volatile reads between two yields
constexpr std::uint32_t turns_a_thread = 4;       // then none of those that can run seems to get on: other blocks have their turn
constexpr std::uint32_t rounds_in_vain = 64;      // that all threads of a block ask for the end of a phase, and for how long, before nobody is taken to end it
constexpr std::chrono::seconds in_vain_for{2};
constexpr std::uint32_t inline_launch_threads = 2048;
constexpr std::size_t most_spinning_blocks = 64;

std::atomic<std::uint32_t> next_serial{1};
std::atomic<int> schedule{0};

void fiber_main();

bool pop_ready(Block& block, Thread*& thread) {
    if (block.ready_head == block.ready_tail) return false;
    thread = &block.threads[block.ready[block.ready_head]];
    block.ready_head = (block.ready_head + 1) % (max_block_threads + 1);
    return true;
}

void activate(Worker& worker, Thread& thread) {
    thread.state = ThreadState::running;
    worker.thread = &thread;
    worker.fiber = thread.fiber;
    worker.stack_low = reinterpret_cast<std::uintptr_t>(thread.fiber->stack_low);
    worker.stack_bytes = thread.fiber->stack_bytes;
    worker.me = thread.record;
    threadIdx = thread.index;
}

// The calling thread ended. Whoever waited for it alone goes on.
void thread_exited(Worker& worker, Block& block, Thread& thread) {
    if (thread.copies != nullptr || thread.stores != nullptr || !block.bound.empty()) finish_copies(block, thread);
    if (worker.has_pending) flush_pending(worker);
    if (thread.doubt != 0) settle_doubt(worker);
    thread.state = ThreadState::exited;
    thread.fiber = nullptr;
    --block.live;
    warp_lane_exited(block, thread);
    wait_over();
    cluster_thread_exited(worker, block, thread);
    if (block.named_pending != 0) named_barriers_after_exit(block);
    if (block.barrier_arrived != 0 && block.barrier_arrived == block.live) release_barrier(worker, block, nullptr);
}

void fiber_main() {
    for (;;) {
        Worker& worker = *current_worker;
        Fiber* self = worker.fiber;
        Block& block = *worker.block;
        Launch& grid = *block.launch;
        while (block.started < block.count) {
            Thread& thread = block.threads[thread_at(block, block.started++)];
            thread.fiber = self;
            activate(worker, thread);
            grid.request.invoke(grid.request.closure);
            thread_exited(worker, block, *worker.thread);
            if (block.ready_head != block.ready_tail) break;
        }
        Thread* next = nullptr;
        worker.pool->give(self);
        if (pop_ready(block, next)) {
            activate(worker, *next);
            fiber_switch(*self, *next->fiber);
        } else if (block.started < block.count) {
            continue;  // not reached: the loop above ends only with ready threads or none unstarted
        } else {
            worker.thread = nullptr;
            fiber_switch(*self, worker.main);
        }
    }
}

// Where the block is that has the `turn`: clusters have theirs one after another, and their blocks in the order of their ranks.
void place_block(const Launch& grid, Block& block, std::uint32_t turn) {
    const Dim3 &extent = grid.request.grid, &size = grid.cluster;
    const Dim3 clusters{extent.x / size.x, extent.y / size.y, extent.z / size.z};
    if (grid.reversed) turn = grid.blocks - 1 - turn;
    const std::uint32_t number = turn / grid.cluster_blocks, rank = turn % grid.cluster_blocks;
    const Dim3 cluster{number % clusters.x, number / clusters.x % clusters.y, number / clusters.x / clusters.y};
    block.index = {cluster.x * size.x + rank % size.x, cluster.y * size.y + rank / size.x % size.y, cluster.z * size.z + rank / size.x / size.y};
    block.linear = block.index.x + extent.x * (block.index.y + extent.y * block.index.z);
    block.rank = rank;
    block.cluster->index = cluster;
    block.cluster->blocks[rank] = &block;
}

void prepare_block(Launch& grid, Block& block, std::uint32_t turn) {
    block.launch = &grid;
    place_block(grid, block, turn);
    block.live = grid.threads;
    block.started = 0;
    if (block.threads == nullptr || block.count != grid.threads) {
        block.threads = std::make_unique<Thread[]>(grid.threads);
        block.warps = std::make_unique<Warp[]>((grid.threads + warp_lanes - 1) / warp_lanes);
        if (block.ready == nullptr) block.ready = std::make_unique<std::uint16_t[]>(max_block_threads + 1);
    }
    block.count = grid.threads;
    block.tick = 1;
    block.barrier_tick = 0;
    block.serials.clear();
    block.told = false;
    block.met = {};
    block.points.clear();
    block.bound.clear();
    block.in_vain = block.rounds_in_vain = 0;
    forget_named_barriers(block);
    block.floor = grid.floor;
    block.ready_head = block.ready_tail = 0;
    block.barrier_arrived = 0, block.barrier_line = 0, block.barrier_place = Place::any;
    block.barrier_sum = 0, block.barrier_and = 1, block.barrier_or = 0;
    block.grid_waiting = 0, block.grid_generation = 0;
    block.waits_for_grid = block.spinning = false;
    block.cluster_waiting = 0;
    block.turns = 0;
    take_serial(block);
    const Record record = (Record{block.serials[0]} << record_serial_shift) | (Record{1} << record_tick_shift);
    const Dim3& shape = grid.request.block;
    Dim3 index{0, 0, 0};
    for (std::uint32_t i = 0; i < block.count; ++i) {
        Thread& thread = block.threads[i];
        thread.index = index;
        thread.linear = i;
        thread.tick = 1;
        thread.record = record | (Record{i} << record_thread_shift);
        thread.state = ThreadState::unstarted;
        if (thread.learning != nullptr) thread.learning.reset();
        thread.released = 0;
        thread.polls = 0;
        thread.doubt = 0;
        thread.in_vain = false;
        thread.cluster_arrivals = thread.cluster_waits = thread.cluster_known = 0;
        thread.copies.reset(), thread.stores.reset();
        thread.fiber = nullptr;
        if (++index.x == shape.x) {
            index.x = 0;
            if (++index.y == shape.y) index.y = 0, ++index.z;
        }
    }
    for (std::uint32_t w = 0; w * warp_lanes < block.count; ++w) {
        Warp& warp = block.warps[w];
        const std::uint32_t lanes = block.count - w * warp_lanes;
        warp.exited = lanes >= warp_lanes ? 0u : ~((1u << lanes) - 1u);
        warp.pending = warp.asking = 0;
        warp.sync_tick = 0;
        warp.told = false;
        warp.clocks_in_use = false;
    }
    arena_prepare(block.arena, grid.request);
}

void report_too_many(Worker& worker, const Block& block, std::uint32_t thread) {
    ReportDetails details;
    details.kind = ReportKind::not_emulated;
    details.block = &block;
    details.thread = thread;
    details.line = worker.launch->request.line;
    details.message = "more threads that wait at once than this machine has room for (memory, or vm.max_map_count)";
    report(worker, details);
    worker.launch->error = error_launch_out_of_resources;
    worker.launch->aborted = true;
}

// The calling thread can't go on, and others of its block have not begun.
void start_another(Worker& worker, Block& block) {
    Fiber* const self = worker.thread->fiber;
    Fiber* const fresh = worker.pool->take();
    if (fresh == nullptr) {
        report_too_many(worker, block, worker.thread->linear);
        fiber_switch(*self, worker.main);
    }
    worker.fiber = fresh;
    fiber_switch(*self, *fresh);
}

// Runs `block` until none of its threads can run.
void run_block(Worker& worker, Block& block) {
    enter_block(worker, block);
    Thread* next = nullptr;
    if (pop_ready(block, next)) {
        activate(worker, *next);
        fiber_switch(worker.main, *next->fiber);
    } else if (block.started < block.count) {
        Fiber* const fresh = worker.pool->take();
        if (fresh == nullptr) {
            report_too_many(worker, block, block.started);
            return;
        }
        worker.fiber = fresh;
        fiber_switch(worker.main, *fresh);
    }
}

void abandon(Worker& worker, Block& block) {
    abandon_copies(worker, block);
    for (std::uint32_t i = 0; i < block.count; ++i) {
        Thread& thread = block.threads[i];
        if (thread.fiber != nullptr && thread.state != ThreadState::exited && thread.state != ThreadState::unstarted)
            worker.pool->reset(thread.fiber);
        thread.fiber = nullptr;
        thread.state = ThreadState::exited;
    }
    block.live = 0;
    block.bound.clear();
    block.arena.epoch = ~0u;  // copies that never arrived left their marks there
    worker.has_pending = false;
}

std::unique_ptr<Block> take_block(Worker& worker) {
    if (worker.idle_blocks.empty()) return std::make_unique<Block>();
    auto block = std::move(worker.idle_blocks.back());
    worker.idle_blocks.pop_back();
    return block;
}

// All blocks of a cluster are there at once.
bool start_cluster(Worker& worker, Launch& grid) {
    const std::uint32_t turn = grid.next_block.fetch_add(grid.cluster_blocks);
    if (turn >= grid.blocks) return false;
    const auto cluster = std::make_shared<Cluster>();
    cluster->blocks.resize(grid.cluster_blocks);
    cluster->live = grid.threads * grid.cluster_blocks;
    for (std::uint32_t i = 0; i < grid.cluster_blocks; ++i) {
        worker.blocks.push_back(take_block(worker));
        Block& block = *worker.blocks.back();
        block.cluster = cluster;
        prepare_block(grid, block, turn + i);
        if (i == 0) cluster->start = Record{block.serials.front()} << record_serial_shift;
    }
    return true;
}

// The block in `place` has ended. Its shared memory is another's only when nobody of its cluster is left.
void retire(Worker& worker, std::size_t place) {
    const auto cluster = worker.blocks[place]->cluster;
    worker.ended.push_back(std::move(worker.blocks[place]));
    worker.blocks.erase(worker.blocks.begin() + static_cast<std::ptrdiff_t>(place));
    if (cluster->live != 0) return;
    std::size_t left = 0;
    for (auto& block : worker.ended) {
        if (block->cluster == cluster) worker.idle_blocks.push_back(std::move(block));
        else worker.ended[left++] = std::move(block);
    }
    worker.ended.resize(left);
}

void note_builtins(Worker& worker) {
    const std::pair<const void*, std::size_t> all[] = {{&threadIdx, sizeof threadIdx}, {&blockIdx, sizeof blockIdx}, {&blockDim, sizeof blockDim},
                                                       {&gridDim, sizeof gridDim}, {&shared_window, sizeof shared_window},
                                                       {&shared_touched, sizeof shared_touched}, {&launch_known, sizeof launch_known}};
    std::uintptr_t low = ~std::uintptr_t{0}, high = 0;
    for (const auto& [address, bytes] : all) {
        low = std::min(low, reinterpret_cast<std::uintptr_t>(address));
        high = std::max(high, reinterpret_cast<std::uintptr_t>(address) + bytes);
    }
    worker.builtins_low = low;
    worker.builtins_bytes = high - low;
}

// Some of a cluster wait at its barrier for others that can't come.
void refuse_stuck(Worker& worker, Cluster& cluster) {
    for (Block* block : cluster.blocks) {
        if (block->cluster_waiting == 0) continue;
        report_deadlock(worker, *block);
        break;
    }
    worker.launch->error = error_launch_failure;
    worker.launch->aborted = true;
}

[[noreturn]] void refuse_nested(Worker& worker, const LaunchRequest& request) {
    ReportDetails details;
    details.kind = ReportKind::not_emulated;
    details.block = worker.block;
    details.thread = worker.thread->linear;
    details.line = request.line;
    details.message = "kernel launch from device code";
    report(worker, details);
    abort_launch(worker, error_not_supported);
}

std::mutex launch_mutex;  // one grid at a time: streams are carried out in the order of their calls

}  // namespace

bool runnable(const Block& block) {
    if (block.waits_for_grid) return block.grid_generation != block.launch->grid_generation.load();
    return block.ready_head != block.ready_tail || block.started < block.count;
}

void enter_block(Worker& worker, Block& block) {
    worker.block = &block;
    worker.shared_base = reinterpret_cast<std::uintptr_t>(block.arena.memory);
    worker.shared_bytes = block.arena.bytes;
    worker.shared_cells = block.arena.cells;
    worker.shared_granule_shift = block.arena.granule_shift;
    shared_window = block.arena.memory;
    shared_touched = block.arena.touched.data();
    worker.floor = block.floor;
    worker.shared_start = block.cluster->start;
    worker.shared_floor = std::max(worker.shared_start, block.floor);
    // Of this block's records, those below the limit lie behind its last barrier: serial numbers rise within a block.
    worker.barrier_limit = (Record{block.serials[block.barrier_tick / ticks_a_serial]} << record_serial_shift) +
                           (Record{block.barrier_tick % ticks_a_serial + 1} << record_tick_shift);
    // What other blocks did there has serial numbers that say nothing about this block's barriers.
    worker.shared_limit = block.cluster->blocks.size() == 1 ? worker.barrier_limit : worker.shared_floor;
    blockIdx = block.index;
}

void work(Worker& worker, Launch& grid) {
    note_builtins(worker);
    catch_signals_here();
    worker.launch = &grid;
    worker.has_pending = false;
    for (auto& entry : worker.cache) entry = nullptr;
    current_worker = &worker;
    record_carrier(true);
    launch_known = false;
    blockDim = grid.request.block;
    gridDim = grid.request.grid;
    if (grid.request.cooperative) {
        // all blocks are resident: each worker takes its share before any runs
        const std::uint32_t clusters = grid.blocks / grid.cluster_blocks, share = (clusters + grid.workers - 1) / grid.workers * grid.cluster_blocks;
        while (worker.blocks.size() < share && start_cluster(worker, grid)) {}
    }
    std::size_t turn = 0;
    std::size_t idle_turns = 0;
    while (!grid.aborted.load(std::memory_order_relaxed)) {
        if (worker.blocks.empty() && !start_cluster(worker, grid)) break;
        if (turn >= worker.blocks.size()) turn = 0;
        Block& block = *worker.blocks[turn];
        const bool some_finished = grid.finished_blocks.load() != 0;  // read before the generation: who finished may have begun a new one
        if (!runnable(block)) {
            if (block.waits_for_grid && some_finished) {
                refuse_lost_grid(worker, block);
                break;
            }
            if (++idle_turns > worker.blocks.size()) sched_yield();
            ++turn;
            continue;
        }
        idle_turns = 0;
        if (block.waits_for_grid) release_grid(block);
        run_block(worker, block);
        if (grid.aborted.load()) break;
        if (block.live == 0) {
            grid.finished_block = block.linear;
            grid.finished_blocks.fetch_add(1);
            const auto cluster = block.cluster;
            retire(worker, turn);
            if (cluster_stuck(*cluster)) refuse_stuck(worker, *cluster);
            continue;
        }
        if (block.spinning) {
            block.spinning = false;
            resolve_activemasks(block);  // of warps in which other lanes spin
            if (worker.blocks.size() < most_spinning_blocks) start_cluster(worker, grid);
            if (++turn >= worker.blocks.size()) sched_yield();
            continue;
        }
        if (block.grid_waiting != 0 && block.grid_waiting == block.live) {
            arrive_at_grid(block);
            ++turn;
            if (cluster_stuck(*block.cluster)) refuse_stuck(worker, *block.cluster);
            continue;
        }
        if (resolve_activemasks(block)) continue;
        if (block.cluster_waiting != 0 && !cluster_stuck(*block.cluster)) {
            ++turn;
            continue;
        }
        report_deadlock(worker, block);
        grid.error = error_launch_failure;
        grid.aborted = true;
    }
    for (auto* list : {&worker.blocks, &worker.ended}) {
        for (auto& block : *list) {
            abandon(worker, *block);
            worker.idle_blocks.push_back(std::move(block));
        }
        list->clear();
    }
    flush_floods(worker);
    record_carrier(false);
    current_worker = nullptr;
    worker.launch = nullptr;
    worker.block = nullptr;
    worker.thread = nullptr;
}

std::unique_ptr<Worker> make_worker(unsigned number) {
    auto worker = std::make_unique<Worker>();
    worker->number = number;
    worker->pool = std::make_unique<FiberPool>(stack_bytes, fiber_main);
    return worker;
}

std::uint32_t newest_serial() { return std::min(next_serial.load(), max_serial); }

void make_ready(Block& block, Thread& thread) {
    thread.state = ThreadState::ready;
    block.ready[block.ready_tail] = static_cast<std::uint16_t>(thread.linear);
    block.ready_tail = (block.ready_tail + 1) % (max_block_threads + 1);
}

std::uint32_t take_serial(Block& block) {
    const std::uint32_t serial = std::min(next_serial.fetch_add(1), max_serial);
    block.serials.push_back(serial);
    set_serial_owner(serial, block.linear);
    return serial;
}

void advance(Block& block, Thread& thread, std::uint32_t tick) {
    thread.tick = tick;
    while (tick / ticks_a_serial >= block.serials.size()) take_serial(block);
    thread.record = record_at(block, thread, tick);
}

Record record_at(const Block& block, const Thread& thread, std::uint32_t tick) {
    return (Record{block.serials[tick / ticks_a_serial]} << record_serial_shift) | (Record{tick % ticks_a_serial} << record_tick_shift) |
           (Record{thread.linear} << record_thread_shift);
}

void refresh_records(Worker& worker) {
    enter_block(worker, *worker.block);
    worker.me = worker.thread->record;
}

void suspend(Worker& worker) {
    wait_over();
    if (worker.has_pending) flush_pending(worker);
    Block& block = *worker.block;
    warp_lane_waits(block, *worker.thread);
    Fiber* self = worker.thread->fiber;
    Thread* next = nullptr;
    if (pop_ready(block, next)) {
        activate(worker, *next);
        if (next->fiber != self) fiber_switch(*self, *next->fiber);
    } else if (block.started < block.count) {
        start_another(worker, block);
    } else {
        fiber_switch(*self, worker.main);
    }
}

void poll(Worker& worker) {
    Thread& thread = *worker.thread;
    if (++thread.polls < polls_a_turn) return;
    thread.polls = 0;
    if (place_is_asked_for.load(std::memory_order_relaxed)) tell_place();
    if (worker.has_pending) flush_pending(worker);
    Block& block = *worker.block;
    Fiber* self = thread.fiber;
    make_ready(block, thread);
    if (block.started < block.count) {
        start_another(worker, block);
        return;
    }
    Thread* next = nullptr;
    const std::uint32_t can_run = threads_to_run(block);
    if (can_run > 1 && ++block.turns < turns_a_thread * can_run && pop_ready(block, next)) {
        activate(worker, *next);
        fiber_switch(*self, *next->fiber);
        return;
    }
    block.turns = 0;
    block.spinning = true;  // nobody of this block gets on: other blocks may have what it waits for
    fiber_switch(*self, worker.main);
}

void wait_over() {
    if (current_worker == nullptr || !current_worker->thread->in_vain) return;
    current_worker->thread->in_vain = false;
    --current_worker->block->in_vain;
    current_worker->block->rounds_in_vain = 0;
}

void wait_in_vain(int line, const char* what) {
    Worker& worker = *current_worker;
    Block& block = *worker.block;
    Thread& thread = *worker.thread;
    thread.line = line;
    thread.kind = what;
    if (!thread.in_vain) thread.in_vain = true, ++block.in_vain, block.rounds_in_vain = 0;
    const std::uint32_t can_run = threads_to_run(block) + 1;
    if (block.in_vain < can_run || ++block.rounds_in_vain < rounds_in_vain * can_run) return;
    if (peers_may_help(block)) {
        block.rounds_in_vain = 0;
        return;
    }
    const auto now = std::chrono::steady_clock::now();
    if (block.rounds_in_vain == rounds_in_vain * can_run) block.in_vain_since = now;
    if (now - block.in_vain_since < in_vain_for) return;
    report_deadlock(worker, block);
    abort_launch(worker, error_launch_failure);
}

void poll_hint() {
    if (current_worker == nullptr) return;
    current_worker->thread->polls += polls_a_turn / 4;
    poll(*current_worker);
}

[[noreturn]] void abort_launch(Worker& worker, int error) {
    worker.launch->error = error;
    worker.launch->aborted = true;
    fiber_switch(*worker.thread->fiber, worker.main);
    __builtin_unreachable();
}

bool carry() { return current_worker != nullptr && current_worker->thread->carry; }
void set_carry(bool on) {
    if (current_worker != nullptr) current_worker->thread->carry = on;
}

bool in_kernel() noexcept { return current_worker != nullptr; }

namespace {

// What a kernel's entry told of its __cluster_dims__, where it was launched with others; `size.x` is 0 where it was not.
struct OwnCluster {
    Dim3 size{};
    const char* kernel = nullptr;
    const char* parameters = nullptr;
};

// Runs a grid. One whose kernel has clusters of its own ends before any of its threads did anything.
int carry_out(const LaunchRequest& request, OwnCluster& own) {
    Launch grid;
    grid.request = request;
    const std::uint64_t blocks = std::uint64_t{request.grid.x} * request.grid.y * request.grid.z;
    grid.blocks = static_cast<std::uint32_t>(blocks);
    grid.threads = request.block.x * request.block.y * request.block.z;
    if (request.cluster.x != 0) grid.cluster = request.cluster;
    grid.cluster_blocks = grid.cluster.x * grid.cluster.y * grid.cluster.z;
    grid.kernel = own.kernel, grid.parameters = own.parameters;
    grid.reversed = schedule.load() % 2 == 1;
    if (next_serial.load() > serials_before_reset) {
        forget_all_shadows();
        next_serial = 1;
    }
    grid.floor = Record{newest_serial()} << record_serial_shift;
    grid.workers = team_size();
    if (blocks / grid.cluster_blocks < grid.workers) grid.workers = static_cast<unsigned>(blocks / grid.cluster_blocks);
    if (blocks * grid.threads <= inline_launch_threads && !request.cooperative) grid.workers = 1;
    forget_sync_points();
    record_launch(grid);
    team_run(grid);
    record_launch_end();
    own = {};
    if (grid.has_own_cluster) {
        own = {grid.own_cluster, grid.kernel.load(), grid.parameters.load()};
        return 0;
    }
    const int error = grid.error.load();
    finish_launch(grid, error);
    return error;
}

}  // namespace

int launch(const LaunchRequest& request) {
    if (current_worker != nullptr) refuse_nested(*current_worker, request);
    const int refused = check_launch(request);
    if (refused != 0) return refused;
    if (const auto taken = captured_launch(request)) return *taken;
    std::lock_guard<std::mutex> lock(launch_mutex);
    OwnCluster own;
    const int error = carry_out(request, own);
    if (own.size.x == 0) return error;
    LaunchRequest clustered = request;
    clustered.cluster = own.size;
    const int refused_as_cluster = check_cluster(clustered);
    return refused_as_cluster != 0 ? refused_as_cluster : carry_out(clustered, own);
}

// The last bit is the order; the rest is what stands in shared memory that nobody wrote: poison, large numbers, or large negative ones, whether they
// are read as fp16, bf16, fp32, fp64 or integers.
extern "C" void hostcuda_set_schedule(int number) {
    constexpr std::uint64_t fills[] = {poison, 0x7B007B007B007B00ull, 0xFB00FB00FB00FB00ull};
    schedule = number % 2;
    shared_fill = fills[static_cast<unsigned>(number) / 2 % 3];
}
extern "C" int hostcuda_workers() { return static_cast<int>(team_size()); }

}  // namespace hostcuda
