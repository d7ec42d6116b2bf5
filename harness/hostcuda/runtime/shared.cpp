// Shared memory of a block: every __shared__ variable of every loaded module has its place in the arena, between gaps that belong to
// nobody; the dynamic part lies behind. A block's variables are filled (shared_fill) when it first touches them.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>

#include "report.h"
#include "state.h"

namespace hostcuda {

std::atomic<std::uint64_t> shared_fill{poison};

extern __thread unsigned char* shared_touched __attribute__((tls_model("initial-exec")));

namespace {

constexpr std::size_t gap_bytes = 128;
constexpr std::size_t dynamic_alignment = 1024;

std::mutex mutex;
std::vector<const VariableInfo*>& variables() {
    static auto* list = new std::vector<const VariableInfo*>();
    return *list;
}
std::size_t static_end = gap_bytes;

std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

void fill(char* memory, std::size_t bytes) {
    const std::uint64_t value = shared_fill.load(std::memory_order_relaxed);
    std::size_t i = 0;
    for (; i + 8 <= bytes; i += 8) std::memcpy(memory + i, &value, 8);
    if (i < bytes) std::memcpy(memory + i, &value, bytes - i);
}

void mark(Arena& arena, std::size_t offset, std::size_t bytes, Record value) {
    const std::size_t first = offset >> arena.granule_shift;
    const std::size_t last = (offset + bytes + (std::size_t{1} << arena.granule_shift) - 1) >> arena.granule_shift;
    for (std::size_t i = first; i < last; ++i) arena.cells[i] = Cell{value, 0, 0, 0};
}

void* map_bytes(std::size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return memory;
}

void build(Arena& arena, std::size_t static_bytes, std::size_t count) {
    if (arena.memory != nullptr) munmap(arena.memory, arena.bytes), munmap(arena.cells, arena.cells_bytes);
    arena.dynamic_offset = round_up(static_bytes, dynamic_alignment);
    arena.bytes = round_up(arena.dynamic_offset + max_dynamic_shared_bytes + gap_bytes, 4096);
    arena.memory = static_cast<char*>(map_bytes(arena.bytes));
    // room for a cell a byte; only what is touched is committed
    arena.cells_bytes = arena.bytes * sizeof(Cell);
    arena.cells = static_cast<Cell*>(map_bytes(arena.cells_bytes));
    arena.granule_shift = 2;
    arena.epoch = shadow_epoch.load();
    arena.dynamic_bytes = 0;
    arena.touched.assign(count + 1, 0);
    mark(arena, 0, arena.dynamic_offset + gap_bytes, record_unaddressable);
}

}  // namespace

void register_shared(const VariableInfo& variable) {
    std::lock_guard<std::mutex> lock(mutex);
    variable.offset = static_end;
    variable.number = static_cast<std::uint32_t>(variables().size());
    static_end = round_up(static_end + variable.bytes + gap_bytes, gap_bytes);
    variables().push_back(&variable);
}

void arena_prepare(Arena& arena, const LaunchRequest& request) {
    std::size_t end, count;
    {
        std::lock_guard<std::mutex> lock(mutex);
        end = static_end, count = variables().size();
    }
    if (arena.memory == nullptr || arena.dynamic_offset < end || arena.touched.size() < count + 1 || arena.epoch != shadow_epoch.load())
        build(arena, end, count);
    std::fill(arena.touched.begin(), arena.touched.end(), static_cast<unsigned char>(0));
    arena.static_bytes = 0;
    const std::size_t wanted = request.dynamic_shared_bytes;
    if (wanted != arena.dynamic_bytes) {
        mark(arena, arena.dynamic_offset, wanted, 0);
        mark(arena, round_up(arena.dynamic_offset + wanted, 16), gap_bytes + (arena.dynamic_bytes > wanted ? arena.dynamic_bytes - wanted : 0),
             record_unaddressable);
        arena.dynamic_bytes = wanted;
    }
    if (wanted != 0) fill(arena.memory + arena.dynamic_offset, wanted);
}

namespace {
void* first_touch(Launch& grid, Arena& arena, const VariableInfo& variable) {
    arena.touched[variable.number] = 1;
    char* place = arena.memory + variable.offset;
    fill(place, variable.bytes);
    if (arena.cells[variable.offset >> arena.granule_shift].write == record_unaddressable) mark(arena, variable.offset, variable.bytes, 0);
    arena.static_bytes += variable.bytes;
    std::atomic<std::size_t>& most = grid.static_shared_bytes;
    std::size_t seen = most.load(std::memory_order_relaxed);
    while (seen < arena.static_bytes && !most.compare_exchange_weak(seen, arena.static_bytes)) {}
    return place;
}
}  // namespace

void* shared_first_touch(const VariableInfo& variable) { return first_touch(*current_worker->launch, current_worker->block->arena, variable); }

// What other blocks write there before the block itself comes to it must stay.
void shared_touch(Launch& grid, Arena& arena, std::size_t offset) {
    if (offset >= arena.dynamic_offset) return;
    const VariableInfo* found = nullptr;
    {
        std::lock_guard<std::mutex> lock(mutex);
        for (const VariableInfo* variable : variables())
            if (offset - variable->offset < variable->bytes) found = variable;
    }
    if (found != nullptr && found->number < arena.touched.size() && !arena.touched[found->number]) first_touch(grid, arena, *found);
}

void* dynamic_shared() {
    const Arena& arena = current_worker->block->arena;
    return arena.memory + arena.dynamic_offset;
}

// Finer cells for a block that touches single bytes or halves: each old cell is copied to all of its parts.
bool arena_refine(Arena& arena, unsigned granule_shift) {
    if (granule_shift >= arena.granule_shift) return false;
    const unsigned factor_shift = arena.granule_shift - granule_shift;
    const std::size_t used = (arena.dynamic_offset + arena.dynamic_bytes + gap_bytes) >> arena.granule_shift;
    for (std::size_t i = used; i-- > 0;) {
        const Cell cell = arena.cells[i];
        for (std::size_t j = 0; j < (std::size_t{1} << factor_shift); ++j) arena.cells[(i << factor_shift) + j] = cell;
    }
    arena.granule_shift = granule_shift;
    return true;
}

// The variable at an offset, or the nearest one before it. `start` is where it begins; info is null for the dynamic part.
const char* shared_variable_at(const Arena& arena, std::size_t offset, std::size_t* start, const VariableInfo** info) {
    std::lock_guard<std::mutex> lock(mutex);
    *info = nullptr;
    if (offset + gap_bytes >= arena.dynamic_offset + gap_bytes && arena.dynamic_bytes != 0) {
        *start = arena.dynamic_offset;
        return "dynamic shared memory";
    }
    for (const VariableInfo* variable : variables()) {
        if (variable->offset > offset || !arena.touched[variable->number]) continue;
        if (*info == nullptr || variable->offset > (*info)->offset) *info = variable;
    }
    if (*info == nullptr) {
        for (const VariableInfo* variable : variables())
            if (arena.touched[variable->number] && (*info == nullptr || variable->offset < (*info)->offset)) *info = variable;
    }
    if (*info == nullptr) {
        *start = arena.dynamic_offset;
        return "dynamic shared memory";
    }
    *start = (*info)->offset;
    return (*info)->name;
}

}  // namespace hostcuda
