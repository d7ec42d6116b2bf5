// Which memory a kernel may touch: what the runtime or the torch bridge allocated or marked, and the variables of loaded modules. Regions change
// between launches only, so workers may keep what they found until the grid ends.
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "recorder.h"
#include "state.h"

namespace hostcuda {

namespace {

using Map = std::map<std::uintptr_t, std::unique_ptr<Region>>;

std::shared_mutex mutex;
Map& regions() {
    static auto* map = new Map();
    return *map;
}
Map& images() {  // segments of loaded modules: constants and statics that are no device variables; never checked for races
    static auto* map = new Map();
    return *map;
}
std::uint64_t made = 0;

Region* find_in(Map& map, std::uintptr_t address, std::size_t bytes) {
    auto after = map.upper_bound(address);
    if (after == map.begin()) return nullptr;
    Region* region = std::prev(after)->second.get();
    return address - region->base <= region->bytes && bytes <= region->bytes - (address - region->base) ? region : nullptr;
}

void drop_cells(Region& region) {
    if (Cell* cells = region.cells.exchange(nullptr)) munmap(cells, region.cells_bytes);
}

std::vector<std::uintptr_t>& solution_modules() {
    static auto* list = new std::vector<std::uintptr_t>();
    return *list;
}
bool is_solution_module(std::uintptr_t base) {
    for (std::uintptr_t each : solution_modules())
        if (each == base) return true;
    return false;
}

struct ImageSearch {
    std::uintptr_t address;
    std::uintptr_t base = 0;
    std::size_t bytes = 0;
    bool host_variable = false;  // in the writable part of a solution's module, and no device variable
};

int find_image(dl_phdr_info* info, std::size_t, void* data) {
    auto* search = static_cast<ImageSearch*>(data);
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& header = info->dlpi_phdr[i];
        if (header.p_type != PT_LOAD) continue;
        const std::uintptr_t base = info->dlpi_addr + header.p_vaddr;
        if (search->address - base < header.p_memsz) {
            search->base = base;
            search->bytes = header.p_memsz;
            search->host_variable = (header.p_flags & PF_W) != 0 && is_solution_module(info->dlpi_addr);
            for (int j = 0; j < info->dlpi_phnum; ++j) {  // constants that need relocation
                const auto& relro = info->dlpi_phdr[j];
                if (relro.p_type == PT_GNU_RELRO && search->address - (info->dlpi_addr + relro.p_vaddr) < relro.p_memsz) {
                    search->host_variable = false;
                    search->base = info->dlpi_addr + relro.p_vaddr;
                    search->bytes = relro.p_memsz;
                }
            }
            return 1;
        }
    }
    return 0;
}

}  // namespace

std::atomic<std::uint64_t> device_regions_made{0};

void region_add(const void* base, std::size_t bytes, RegionKind kind, bool fresh, std::size_t red_zone_bytes, const char* name) {
    if (bytes == 0) return;
    auto region = std::make_unique<Region>();
    region->base = reinterpret_cast<std::uintptr_t>(base);
    region->bytes = bytes;
    region->kind = kind;
    region->fresh = fresh;
    region->red_zone_bytes = red_zone_bytes;
    if (name != nullptr) std::strncpy(region->name, name, sizeof region->name - 1);
    std::unique_lock<std::shared_mutex> lock(mutex);
    region->number = region->allocation = ++made;
    if (kind == RegionKind::device || kind == RegionKind::symbol) device_regions_made.fetch_add(1);
    // Whatever is known of these addresses from before is no more: memory that others own goes without a word.
    Map& map = regions();
    auto place = map.upper_bound(region->base);
    if (place != map.begin() && std::prev(place)->second->base + std::prev(place)->second->bytes > region->base) --place;
    while (place != map.end() && place->second->base < region->base + region->bytes) {
        if (place->second->base == region->base) region->allocation = place->second->allocation;
        drop_cells(*place->second);
        place = map.erase(place);
    }
    const std::uintptr_t key = region->base;
    map.emplace(key, std::move(region));
}

bool region_remove(const void* base) {
    std::unique_lock<std::shared_mutex> lock(mutex);
    auto found = regions().find(reinterpret_cast<std::uintptr_t>(base));
    if (found == regions().end()) return false;
    drop_cells(*found->second);
    regions().erase(found);
    return true;
}

void note_solution_module(const void* address) {
    Dl_info info;
    if (dladdr(address, &info) == 0) return;
    record_module(info.dli_fname, reinterpret_cast<std::uintptr_t>(info.dli_fbase));
    std::unique_lock<std::shared_mutex> lock(mutex);
    solution_modules().push_back(reinterpret_cast<std::uintptr_t>(info.dli_fbase));
}

void register_symbol(const void* address, std::size_t bytes, const char* name, bool managed) {
    region_add(address, bytes, managed ? RegionKind::managed : RegionKind::symbol, false, 0, name);
}

Region* region_containing(std::uintptr_t address, std::size_t bytes) {
    {
        std::shared_lock<std::shared_mutex> lock(mutex);
        if (Region* region = find_in(regions(), address, bytes)) return region;
        if (Region* region = find_in(images(), address, bytes)) return region;
    }
    ImageSearch search{address};
    if (dl_iterate_phdr(find_image, &search) == 0 || bytes > search.bytes - (address - search.base)) return nullptr;
    if (search.host_variable) return nullptr;
    std::unique_lock<std::shared_mutex> lock(mutex);
    auto& slot = images()[search.base];
    if (slot == nullptr) {
        slot = std::make_unique<Region>();
        slot->base = search.base;
        slot->bytes = search.bytes;
        slot->kind = RegionKind::image;
    }
    return slot.get();
}

Region* region_nearest(std::uintptr_t address) {
    std::shared_lock<std::shared_mutex> lock(mutex);
    Region* best = nullptr;
    std::uintptr_t distance = ~std::uintptr_t{0};
    auto after = regions().upper_bound(address);
    if (after != regions().end()) best = after->second.get(), distance = best->base - address;
    if (after != regions().begin()) {
        Region* before = std::prev(after)->second.get();
        const std::uintptr_t end = before->base + before->bytes;
        if (address < end || address - end < distance) best = before;
    }
    return best;
}

const Region* region_or_gap(std::uintptr_t address, std::uintptr_t& low, std::uintptr_t& high) {
    std::shared_lock<std::shared_mutex> lock(mutex);
    low = 0, high = ~std::uintptr_t{0};
    auto after = regions().upper_bound(address);
    if (after != regions().end()) high = after->second->base;
    if (after == regions().begin()) return nullptr;
    const Region* before = std::prev(after)->second.get();
    low = before->base + before->bytes;
    if (address >= low) return nullptr;
    high = low, low = before->base;
    return before;
}

Cell* region_cells(Region& region) {
    Cell* cells = region.cells.load(std::memory_order_acquire);
    if (cells != nullptr) return cells;
    std::unique_lock<std::shared_mutex> lock(mutex);
    cells = region.cells.load(std::memory_order_acquire);
    if (cells != nullptr) return cells;
    region.cells_bytes = ((region.bytes >> region.granule_shift) + 2) * sizeof(Cell);
    void* memory = mmap(nullptr, region.cells_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;  // a limit of the sandbox's: the region goes without race checks
    cells = static_cast<Cell*>(memory);
    region.cells.store(cells, std::memory_order_release);
    return cells;
}

// Finer cells from now on. What other workers write into the old ones meanwhile is lost: a race may be missed, none invented. The old
// cells stay mapped until the region goes, because a worker may be in the middle of using them.
void region_refine(Region& region, unsigned granule_shift) {
    std::unique_lock<std::shared_mutex> lock(mutex);
    if (region.granule_shift <= granule_shift) return;
    const unsigned factor_shift = region.granule_shift - granule_shift;
    Cell* old = region.cells.load();
    const std::size_t old_count = (region.bytes >> region.granule_shift) + 2;
    const std::size_t bytes = ((region.bytes >> granule_shift) + 2 * (std::size_t{1} << factor_shift)) * sizeof(Cell);
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return;
    auto* cells = static_cast<Cell*>(memory);
    if (old != nullptr) {
        for (std::size_t i = 0; i + 2 < old_count; ++i) {
            if ((old[i].write | old[i].reader | old[i].atomic) == 0) continue;
            for (std::size_t j = 0; j < (std::size_t{1} << factor_shift); ++j) cells[(i << factor_shift) + j] = old[i];
        }
    }
    region.cells.store(cells);
    region.cells_bytes = bytes;
    region.granule_shift = granule_shift;
}

std::atomic<std::uint32_t> shadow_epoch{1};

void forget_all_shadows() {
    shadow_epoch.fetch_add(1);
    std::unique_lock<std::shared_mutex> lock(mutex);
    for (auto& entry : regions()) drop_cells(*entry.second);
}

extern "C" int hostcuda_region_known(const void* address) {
    std::shared_lock<std::shared_mutex> lock(mutex);
    return find_in(regions(), reinterpret_cast<std::uintptr_t>(address), 1) != nullptr;
}

}  // namespace hostcuda
