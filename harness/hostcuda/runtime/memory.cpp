// Device memory of the runtime API: allocations with red zones and poison, copies, fills, and which allocations were never freed.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "api.h"
#include "hostcuda/capture.h"
#include "report.h"
#include "state.h"

#define CALLER __builtin_return_address(0)

namespace {

using hostcuda::RegionKind;
using hostcuda::fail;
using hostcuda::status;

constexpr std::size_t red_zone_bytes = 512;
constexpr std::size_t allocation_alignment = 256;

std::mutex mutex;
std::atomic<bool> checked{false};
std::uint64_t asked = 0;       // allocations so far
std::uint64_t mark = 0;        // allocations up to this one are the solution's set-up

struct Allocation {
    void* block;
    std::size_t bytes;
    RegionKind kind;
    std::uintptr_t site;   // who asked for it: a return address
    std::uint64_t number;  // in the order of asking, from 1
    bool heap;             // by malloc() in a kernel: the device's own heap
};
std::map<void*, Allocation>& allocations() {
    static auto* map = new std::map<void*, Allocation>();
    return *map;
}

cudaError_t allocate(void** p, std::size_t bytes, RegionKind kind, void* site, bool heap = false) {
    if (p == nullptr) return fail(cudaErrorInvalidValue);
    *p = nullptr;
    if (!heap) {
        if (const cudaError_t error = hostcuda::outside_of_captures(); error != cudaSuccess) return error;
    }
    if (bytes == 0) return status();
    const std::size_t total = (bytes + 2 * red_zone_bytes + allocation_alignment - 1) / allocation_alignment * allocation_alignment;
    void* block = total < bytes ? nullptr : std::aligned_alloc(allocation_alignment, total);
    if (block == nullptr) return fail(cudaErrorMemoryAllocation);
    char* user = static_cast<char*>(block) + red_zone_bytes;
    if (checked) hostcuda_poison(block, total);
    hostcuda::region_add(user, bytes, kind, checked.load(), red_zone_bytes, nullptr);
    std::lock_guard<std::mutex> lock(mutex);
    allocations()[user] = {block, bytes, kind, reinterpret_cast<std::uintptr_t>(site), ++asked, heap};
    *p = user;
    return status();
}

cudaError_t release(void* p) {
    if (p == nullptr) return status();
    if (const cudaError_t error = hostcuda::outside_of_captures(); error != cudaSuccess) return error;
    Allocation found{};
    {
        std::lock_guard<std::mutex> lock(mutex);
        auto place = allocations().find(p);
        if (place == allocations().end()) return fail(cudaErrorInvalidValue);
        found = place->second;
        allocations().erase(place);
    }
    hostcuda::region_remove(p);
    std::free(found.block);
    return status();
}

// A copy or a fill that leaves its allocation is what compute-sanitizer reports too.
bool covers(const void* p, std::size_t bytes, const char* call) {
    if (bytes == 0) return true;
    const auto address = reinterpret_cast<std::uintptr_t>(p);
    const hostcuda::Region* first = hostcuda::region_containing(address, 1);
    if (first == nullptr || first->kind == RegionKind::image) return true;  // host memory: not ours to judge
    if (hostcuda::region_containing(address, bytes) != nullptr) return true;
    hostcuda::ReportDetails details;
    details.kind = hostcuda::ReportKind::memory_error;
    
    details.kernel = call;
    details.message = "the range exceeds its allocation";
    hostcuda::report_outside(details);
    return false;
}

cudaError_t in_capture(const char* call) {
    hostcuda::library_lacks(call, "memory that a CUDA graph allocates (cudaMallocAsync and cudaFreeAsync in a capture)", 0);
    return fail(cudaErrorNotSupported);
}

bool leaks(const Allocation& a) { return !a.heap && (a.kind == RegionKind::device || a.kind == RegionKind::managed); }

}  // namespace

extern "C" void hostcuda_poison(void* memory, std::size_t bytes) {
    auto* bytes_of = static_cast<char*>(memory);
    std::size_t i = 0;
    for (; i + 8 <= bytes; i += 8) std::memcpy(bytes_of + i, &hostcuda::poison, 8);
    if (i < bytes) std::memcpy(bytes_of + i, &hostcuda::poison, bytes - i);
}
extern "C" int hostcuda_checked() { return checked; }
extern "C" void hostcuda_set_checked(int on) { checked = on != 0; }

// What is allocated from here on and not freed counts as leaked; what lives already is set-up.
extern "C" void hostcuda_mark_allocations() {
    std::lock_guard<std::mutex> lock(mutex);
    mark = asked;
}

// Allocations that were not freed, by the place that asked for them: `since_mark` leaves out those before the mark.
extern "C" char* hostcuda_leaks_json(int since_mark) {
    struct Place { std::size_t count = 0, bytes = 0; };
    std::map<std::uintptr_t, Place> places;
    {
        std::lock_guard<std::mutex> lock(mutex);
        for (const auto& entry : allocations()) {
            const Allocation& a = entry.second;
            if (!leaks(a) || (since_mark != 0 && a.number <= mark)) continue;
            Place& place = places[a.site];
            ++place.count, place.bytes += a.bytes;
        }
    }
    std::string out = "[";
    for (const auto& [site, place] : places) {
        if (out.size() > 1) out += ',';
        out += "{\"kind\":\"leak\",\"kernel\":\"\",\"count\":" + std::to_string(place.count) + ",\"bytes\":" + std::to_string(place.bytes);
        hostcuda::append_site(out, "site", site);
        out += '}';
    }
    out += ']';
    return strdup(out.c_str());
}

cudaError_t cudaMalloc(void** p, size_t n) { return allocate(p, n, RegionKind::device, CALLER); }
cudaError_t cudaMallocAsync(void** p, size_t n, cudaStream_t s) {
    if (hostcuda::is_capturing(s)) return in_capture("cudaMallocAsync");
    return allocate(p, n, RegionKind::device, CALLER);
}
cudaError_t cudaMallocManaged(void** p, size_t n, unsigned) { return allocate(p, n, RegionKind::managed, CALLER); }
cudaError_t cudaMallocHost(void** p, size_t n, unsigned) { return allocate(p, n, RegionKind::pinned, CALLER); }
cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) { return allocate(p, n, RegionKind::pinned, CALLER); }
cudaError_t cudaMallocPitch(void** p, size_t* pitch, size_t width, size_t height) {
    *pitch = (width + 511) / 512 * 512;
    return allocate(p, *pitch * height, RegionKind::device, CALLER);
}
cudaError_t cudaHostGetDevicePointer(void** p, void* host, unsigned) { *p = host; return status(); }
cudaError_t cudaHostRegister(void* p, size_t n, unsigned) { hostcuda::region_add(p, n, RegionKind::pinned, false, 0, nullptr); return status(); }
cudaError_t cudaHostUnregister(void* p) { return hostcuda::region_remove(p) ? status() : fail(cudaErrorInvalidValue); }
cudaError_t cudaFree(void* p) { return release(p); }
cudaError_t cudaFreeAsync(void* p, cudaStream_t s) { return hostcuda::is_capturing(s) ? in_capture("cudaFreeAsync") : release(p); }
cudaError_t cudaFreeHost(void* p) { return release(p); }
namespace {
cudaError_t copy(void* to, const void* from, size_t n, cudaMemcpyKind kind) {
    if (n != 0 && (to == nullptr || from == nullptr)) return fail(cudaErrorInvalidValue);
    if (static_cast<int>(kind) < 0 || kind > cudaMemcpyDefault) return fail(cudaErrorInvalidMemcpyDirection);
    if (!covers(to, n, "cudaMemcpy") || !covers(from, n, "cudaMemcpy")) return fail(cudaErrorInvalidValue);
    std::memmove(to, from, n);
    return status();
}
cudaError_t copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind) {
    if (width > to_pitch || width > from_pitch) return fail(cudaErrorInvalidPitchValue);
    for (size_t row = 0; row < height; ++row) {
        const cudaError_t error = copy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width, kind);
        if (error != cudaSuccess) return error;
    }
    return status();
}
cudaError_t fill(void* p, size_t pitch, int value, size_t width, size_t height) {
    if (p == nullptr && width != 0 && height != 0) return fail(cudaErrorInvalidValue);
    for (size_t row = 0; row < height; ++row) {
        char* at = static_cast<char*>(p) + row * pitch;
        if (!covers(at, width, "cudaMemset")) return fail(cudaErrorInvalidValue);
        std::memset(at, value, width);
    }
    return status();
}

// Those with a stream: done now, or by the graph that the stream captures. Those without wait, which no capture allows.
template <class Body> cudaError_t on_stream(cudaStream_t stream, cudaGraphNodeType type, Body body) {
    if (const auto taken = hostcuda::captured(stream, type, body)) return *taken;
    return body();
}
template <class Body> cudaError_t now(Body body) {
    if (const cudaError_t error = hostcuda::outside_of_captures(); error != cudaSuccess) return error;
    return body();
}
}  // namespace

cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind kind) {
    return now([=] { return copy(to, from, n, kind); });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind kind, cudaStream_t s) {
    return on_stream(s, cudaGraphNodeTypeMemcpy, [=] { return copy(to, from, n, kind); });
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind) {
    return now([=] { return copy_rows(to, to_pitch, from, from_pitch, width, height, kind); });
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t tp, const void* from, size_t fp, size_t w, size_t h, cudaMemcpyKind k, cudaStream_t s) {
    return on_stream(s, cudaGraphNodeTypeMemcpy, [=] { return copy_rows(to, tp, from, fp, w, h, k); });
}
cudaError_t cudaMemset(void* p, int value, size_t n) {
    return now([=] { return fill(p, n, value, n, 1); });
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t n, cudaStream_t s) {
    return on_stream(s, cudaGraphNodeTypeMemset, [=] { return fill(p, n, value, n, 1); });
}
cudaError_t cudaMemset2D(void* p, size_t pitch, int value, size_t width, size_t height) {
    return now([=] { return fill(p, pitch, value, width, height); });
}
cudaError_t cudaMemset2DAsync(void* p, size_t pitch, int value, size_t width, size_t height, cudaStream_t s) {
    return on_stream(s, cudaGraphNodeTypeMemset, [=] { return fill(p, pitch, value, width, height); });
}
cudaError_t cudaMemPrefetchAsync(const void*, size_t, int, cudaStream_t) { return status(); }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
    const hostcuda::Region* region = hostcuda::region_containing(reinterpret_cast<std::uintptr_t>(p), 1);
    *a = {cudaMemoryTypeUnregistered, 0, nullptr, const_cast<void*>(p)};
    if (region != nullptr && region->kind != RegionKind::image && region->kind != RegionKind::host) {
        a->type = region->kind == RegionKind::pinned ? cudaMemoryTypeHost : region->kind == RegionKind::managed ? cudaMemoryTypeManaged : cudaMemoryTypeDevice;
        a->devicePointer = const_cast<void*>(p);
        if (a->type == cudaMemoryTypeDevice) a->hostPointer = nullptr;
    }
    return status();
}

namespace hostcuda {
// The device's heap: what a kernel allocates stays until the grid ends even if freed, because other workers may still look at its shadow.
void* device_malloc(std::size_t bytes) {
    if (current_worker == nullptr) return std::malloc(bytes);
    void* p = nullptr;
    return allocate(&p, bytes, RegionKind::managed, CALLER, true) == cudaSuccess ? p : nullptr;
}
void device_free(void* memory) {
    if (current_worker == nullptr) std::free(memory);
}
}  // namespace hostcuda
