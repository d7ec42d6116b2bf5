// The CUDA runtime API (include/cuda_runtime_api.h) and the checks of a launch.
#include "cuda_runtime_api.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "report.h"
#include "state.h"

namespace hostcuda {
__attribute__((tls_model("initial-exec"))) extern __thread bool launch_known;
}

struct hostcuda_event {
    std::chrono::steady_clock::time_point at;
    bool recorded = false;
};
struct hostcuda_stream {
    int number;
};

namespace {

using hostcuda::RegionKind;

// An H200's limits (CUDA programming guide, table of compute capability 9.0), as a kernel author would meet them.
constexpr int multiprocessors = 132;
constexpr int threads_a_multiprocessor = 2048;
constexpr int blocks_a_multiprocessor = 32;
constexpr std::size_t shared_a_multiprocessor = 228 * 1024;
constexpr std::size_t red_zone_bytes = 512;
constexpr std::size_t allocation_alignment = 256;

std::mutex mutex;
thread_local cudaError_t last_error = cudaSuccess;
std::atomic<int> sticky_error{0};
std::atomic<bool> checked{false};
std::atomic<int> largest_dynamic_allowed{static_cast<int>(hostcuda::default_shared_bytes)};

struct Allocation {
    void* block;
    std::size_t bytes;
    RegionKind kind;
};
std::map<void*, Allocation>& allocations() {
    static auto* map = new std::map<void*, Allocation>();
    return *map;
}

cudaError_t fail(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

cudaError_t status() {
    const int error = sticky_error.load();
    return error == 0 ? cudaSuccess : fail(static_cast<cudaError_t>(error));
}

cudaError_t allocate(void** p, std::size_t bytes, RegionKind kind) {
    if (p == nullptr) return fail(cudaErrorInvalidValue);
    *p = nullptr;
    if (bytes == 0) return status();
    const std::size_t total = (bytes + 2 * red_zone_bytes + allocation_alignment - 1) / allocation_alignment * allocation_alignment;
    void* block = total < bytes ? nullptr : std::aligned_alloc(allocation_alignment, total);
    if (block == nullptr) return fail(cudaErrorMemoryAllocation);
    char* user = static_cast<char*>(block) + red_zone_bytes;
    if (checked) hostcuda_poison(block, total);
    hostcuda::region_add(user, bytes, kind, checked.load(), red_zone_bytes, nullptr);
    std::lock_guard<std::mutex> lock(mutex);
    allocations()[user] = {block, bytes, kind};
    *p = user;
    return status();
}

cudaError_t release(void* p) {
    if (p == nullptr) return status();
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
    details.message = "the range passes the end of an allocation";
    hostcuda::report_outside(details);
    return false;
}

}  // namespace

extern "C" void hostcuda_poison(void* memory, std::size_t bytes) {
    auto* bytes_of = static_cast<char*>(memory);
    std::size_t i = 0;
    for (; i + 8 <= bytes; i += 8) std::memcpy(bytes_of + i, &hostcuda::poison, 8);
    if (i < bytes) std::memcpy(bytes_of + i, &hostcuda::poison, bytes - i);
}
extern "C" int hostcuda_checked() { return checked; }
extern "C" void hostcuda_set_checked(int on) { checked = on != 0; }
extern "C" int hostcuda_sticky_error() { return sticky_error; }
extern "C" void hostcuda_clear_errors() { sticky_error = 0, last_error = cudaSuccess; }
extern "C" std::size_t hostcuda_live_allocations(std::size_t* bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    *bytes = 0;
    std::size_t count = 0;
    for (const auto& entry : allocations())
        if (entry.second.kind == RegionKind::device || entry.second.kind == RegionKind::managed) *bytes += entry.second.bytes, ++count;
    return count;
}

namespace hostcuda {

__attribute__((tls_model("initial-exec"))) __thread bool launch_known = false;

namespace {
int refuse(const LaunchRequest& request, int error, const char* message) {
    ReportDetails details;
    details.kind = ReportKind::launch_error;
    details.kernel = request.text;
    details.line = request.line;
    details.message = message;
    defer_launch_report(details);
    return error;
}
}  // namespace

int check_launch(const LaunchRequest& r) {
    if (sticky_error != 0) return sticky_error;
    char text[200];
    const std::uint64_t threads = std::uint64_t{r.block.x} * r.block.y * r.block.z;
    const bool bad_block = threads == 0 || threads > max_block_threads || r.block.x > 1024 || r.block.y > 1024 || r.block.z > 64;
    if (bad_block) {
        std::snprintf(text, sizeof text, "a block of (%u, %u, %u) threads: at most 1024 in all, 1024 in x and y, 64 in z, and at least 1", r.block.x, r.block.y, r.block.z);
        return refuse(r, error_invalid_configuration, text);
    }
    const std::uint64_t blocks = std::uint64_t{r.grid.x} * r.grid.y * r.grid.z;
    if (blocks == 0 || r.grid.x > 0x7fffffffu || r.grid.y > 65535 || r.grid.z > 65535) {
        std::snprintf(text, sizeof text, "a grid of (%u, %u, %u) blocks: at most 2147483647 in x, 65535 in y and z, and at least 1", r.grid.x, r.grid.y, r.grid.z);
        return refuse(r, error_invalid_configuration, text);
    }
    if (blocks > 0x7fffffffu) return refuse(r, error_not_supported, "more than 2147483647 blocks in all");
    if (r.dynamic_shared_bytes > max_dynamic_shared_bytes) {
        std::snprintf(text, sizeof text, "%zu bytes of dynamic shared memory: at most 232448", r.dynamic_shared_bytes);
        return refuse(r, error_invalid_value, text);
    }
    if (r.dynamic_shared_bytes > static_cast<std::size_t>(largest_dynamic_allowed.load())) {
        std::snprintf(text, sizeof text, "%zu bytes of dynamic shared memory: above 49152 cudaFuncSetAttribute(MaxDynamicSharedMemorySize) must allow it first", r.dynamic_shared_bytes);
        return refuse(r, error_invalid_value, text);
    }
    if (r.cooperative) {
        int per = 0;
        occupancy(&per, static_cast<int>(threads), r.dynamic_shared_bytes);
        if (blocks > std::uint64_t(per) * multiprocessors) return refuse(r, error_cooperative_launch_too_large, "a cooperative grid must be resident at once: too many blocks");
    }
    return 0;
}

void finish_launch(const Launch& grid, int error) {
    const std::size_t fixed = grid.static_shared_bytes.load();
    ReportDetails details;
    details.kind = ReportKind::launch_error;
    details.kernel = grid.kernel.load() != nullptr ? grid.kernel.load() : grid.request.text;
    details.line = grid.request.line;
    if (fixed > default_shared_bytes) {
        details.message = "more than 49152 bytes of static shared memory: nvcc refuses this kernel";
        report_outside(details);
    } else if (fixed + grid.request.dynamic_shared_bytes > max_dynamic_shared_bytes) {
        details.message = "static and dynamic shared memory together pass 232448 bytes";
        report_outside(details);
    }
    if (error != 0 && error != error_launch_out_of_resources) sticky_error = error;
}

void set_sticky_error(int error) { sticky_error = error; }

void kernel_entry(const char* name, const char* parameters, int max_threads) {
    launch_known = true;
    if (current_worker == nullptr) return;
    Worker& worker = *current_worker;
    Launch& grid = *worker.launch;
    const char* expected = nullptr;
    if (grid.kernel.compare_exchange_strong(expected, name)) grid.parameters = parameters;
    if (max_threads > 0 && grid.threads > static_cast<std::uint32_t>(max_threads)) {
        char text[120];
        std::snprintf(text, sizeof text, "%u threads a block: the kernel's __launch_bounds__ says at most %d", grid.threads, max_threads);
        refuse(grid.request, error_launch_out_of_resources, text);
        abort_launch(worker, error_launch_out_of_resources);
    }
}

cudaError_t launch_status(int error) { return fail(static_cast<cudaError_t>(error)); }
cudaError_t untyped_launch() { return fail(cudaErrorInvalidDeviceFunction); }

cudaError_t set_function_attribute(cudaFuncAttribute attribute, int value) {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return status();
    if (value < 0 || value > static_cast<int>(max_dynamic_shared_bytes)) return fail(cudaErrorInvalidValue);
    if (value > largest_dynamic_allowed.load()) largest_dynamic_allowed = value;
    return status();
}

namespace {
std::map<const void*, int>& kernels() {
    static auto* map = new std::map<const void*, int>();
    return *map;
}
}  // namespace

void register_kernel(const void* kernel, int max_threads) {
    std::lock_guard<std::mutex> lock(mutex);
    kernels()[kernel] = max_threads;
}

cudaError_t function_attributes(cudaFuncAttributes* a, const void* kernel) {
    std::memset(a, 0, sizeof *a);
    a->maxThreadsPerBlock = 1024;
    {
        std::lock_guard<std::mutex> lock(mutex);
        const auto found = kernels().find(kernel);
        if (found != kernels().end() && found->second > 0) a->maxThreadsPerBlock = found->second;
    }
    a->numRegs = 32, a->ptxVersion = a->binaryVersion = 90;
    a->maxDynamicSharedSizeBytes = largest_dynamic_allowed;
    return status();
}

cudaError_t occupancy(int* blocks, int threads, std::size_t dynamic_shared_bytes) {
    if (threads <= 0 || threads > 1024) return fail(cudaErrorInvalidValue);
    const int rounded = (threads + 31) / 32 * 32;
    int most = std::min(blocks_a_multiprocessor, threads_a_multiprocessor / rounded);
    most = std::min(most, static_cast<int>(shared_a_multiprocessor / (dynamic_shared_bytes + 1024)));
    *blocks = most;
    return status();
}

cudaError_t copy_symbol(void* to, const void* from, std::size_t bytes, std::size_t offset, std::size_t symbol_bytes) {
    if (offset + bytes > symbol_bytes) return fail(cudaErrorInvalidValue);
    std::memcpy(to, from, bytes);
    return status();
}

unsigned shared_address(const void* p) noexcept {
    if (current_worker == nullptr) return ~0u;
    const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(p) - current_worker->shared_base;
    return offset < current_worker->shared_bytes ? static_cast<unsigned>(offset) : ~0u;
}
void* shared_pointer(unsigned address) noexcept {
    return current_worker == nullptr ? nullptr : reinterpret_cast<void*>(current_worker->shared_base + address);
}

}  // namespace hostcuda

cudaError_t cudaGetLastError() {
    const cudaError_t error = sticky_error != 0 ? static_cast<cudaError_t>(sticky_error.load()) : last_error;
    if (error != cudaSuccess) hostcuda::forget_launch_report();  // the program looked, and may act on it
    last_error = cudaSuccess;
    return error;
}
cudaError_t cudaPeekAtLastError() {
    if (last_error != cudaSuccess) hostcuda::forget_launch_report();
    return sticky_error != 0 ? static_cast<cudaError_t>(sticky_error.load()) : last_error;
}

namespace {
struct ErrorText { cudaError_t error; const char* name; const char* text; };
const ErrorText error_texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidSymbol, "cudaErrorInvalidSymbol", "invalid device symbol"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {cudaErrorAssert, "cudaErrorAssert", "device-side assert triggered"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorCooperativeLaunchTooLarge, "cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
};
}  // namespace

const char* cudaGetErrorString(cudaError_t error) {
    for (const auto& e : error_texts) if (e.error == error) return e.text;
    return "unrecognized error code";
}
extern "C" const char* hostcuda_error_string(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }
const char* cudaGetErrorName(cudaError_t error) {
    for (const auto& e : error_texts) if (e.error == error) return e.name;
    return "unrecognized error code";
}

cudaError_t cudaDeviceSynchronize() { return status(); }
cudaError_t cudaDeviceReset() { return status(); }
cudaError_t cudaGetDevice(int* d) { *d = 0; return status(); }
cudaError_t cudaSetDevice(int d) { return d == 0 ? status() : fail(cudaErrorInvalidDevice); }
cudaError_t cudaGetDeviceCount(int* n) { *n = 1; return status(); }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
    if (device != 0) return fail(cudaErrorInvalidDevice);
    std::memset(p, 0, sizeof *p);
    std::strcpy(p->name, "host device (CUDA on the CPU)");
    struct sysinfo info;
    p->totalGlobalMem = sysinfo(&info) == 0 ? info.totalram * info.mem_unit : std::size_t{8} << 30;
    p->sharedMemPerBlock = hostcuda::default_shared_bytes, p->regsPerBlock = 65536, p->warpSize = 32, p->memPitch = 0x7fffffff;
    p->maxThreadsPerBlock = 1024, p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 0x7fffffff, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->clockRate = 1980000, p->totalConstMem = 65536, p->major = 9, p->minor = 0, p->multiProcessorCount = multiprocessors;
    p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = p->managedMemory = p->cooperativeLaunch = 1;
    p->asyncEngineCount = 3, p->memoryClockRate = 3201000, p->memoryBusWidth = 6144, p->l2CacheSize = 62914560;
    p->maxThreadsPerMultiProcessor = threads_a_multiprocessor, p->sharedMemPerMultiprocessor = shared_a_multiprocessor;
    p->regsPerMultiprocessor = 65536, p->sharedMemPerBlockOptin = hostcuda::max_dynamic_shared_bytes;
    p->maxBlocksPerMultiProcessor = blocks_a_multiprocessor, p->reservedSharedMemPerBlock = 1024;
    return status();
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    cudaDeviceProp p;
    if (cudaError_t error = cudaGetDeviceProperties(&p, device); error != cudaSuccess) return error;
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
        case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: *value = 1024; break;
        case cudaDevAttrMaxBlockDimZ: *value = 64; break;
        case cudaDevAttrMaxGridDimX: *value = p.maxGridSize[0]; break;
        case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: *value = 65535; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = static_cast<int>(p.sharedMemPerBlock); break;
        case cudaDevAttrTotalConstantMemory: *value = 65536; break;
        case cudaDevAttrWarpSize: *value = 32; break;
        case cudaDevAttrMaxRegistersPerBlock: case cudaDevAttrMaxRegistersPerMultiprocessor: *value = 65536; break;
        case cudaDevAttrClockRate: *value = p.clockRate; break;
        case cudaDevAttrMultiProcessorCount: *value = multiprocessors; break;
        case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: *value = threads_a_multiprocessor; break;
        case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
        case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = static_cast<int>(shared_a_multiprocessor); break;
        case cudaDevAttrManagedMemory: case cudaDevAttrCooperativeLaunch: *value = 1; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(hostcuda::max_dynamic_shared_bytes); break;
        case cudaDevAttrMaxBlocksPerMultiprocessor: *value = blocks_a_multiprocessor; break;
        default: return fail(cudaErrorInvalidValue);
    }
    return status();
}
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return status(); }
cudaError_t cudaDeviceGetLimit(size_t* n, cudaLimit) { *n = 1 << 20; return status(); }
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return status(); }
cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return status(); }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { *least = 0, *greatest = -5; return status(); }
cudaError_t cudaDriverGetVersion(int* v) { *v = CUDART_VERSION; return status(); }
cudaError_t cudaRuntimeGetVersion(int* v) { *v = CUDART_VERSION; return status(); }
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
    struct sysinfo info;
    if (sysinfo(&info) != 0) return fail(cudaErrorUnknown);
    *free_bytes = info.freeram * info.mem_unit, *total = info.totalram * info.mem_unit;
    return status();
}

cudaError_t cudaMalloc(void** p, size_t n) { return allocate(p, n, RegionKind::device); }
cudaError_t cudaMallocAsync(void** p, size_t n, cudaStream_t) { return allocate(p, n, RegionKind::device); }
cudaError_t cudaMallocManaged(void** p, size_t n, unsigned) { return allocate(p, n, RegionKind::managed); }
cudaError_t cudaMallocHost(void** p, size_t n, unsigned) { return allocate(p, n, RegionKind::pinned); }
cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) { return allocate(p, n, RegionKind::pinned); }
cudaError_t cudaMallocPitch(void** p, size_t* pitch, size_t width, size_t height) {
    *pitch = (width + 511) / 512 * 512;
    return allocate(p, *pitch * height, RegionKind::device);
}
cudaError_t cudaHostGetDevicePointer(void** p, void* host, unsigned) { *p = host; return status(); }
cudaError_t cudaHostRegister(void* p, size_t n, unsigned) { hostcuda::region_add(p, n, RegionKind::pinned, false, 0, nullptr); return status(); }
cudaError_t cudaHostUnregister(void* p) { return hostcuda::region_remove(p) ? status() : fail(cudaErrorInvalidValue); }
cudaError_t cudaFree(void* p) { return release(p); }
cudaError_t cudaFreeAsync(void* p, cudaStream_t) { return release(p); }
cudaError_t cudaFreeHost(void* p) { return release(p); }
cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind kind) {
    if (n != 0 && (to == nullptr || from == nullptr)) return fail(cudaErrorInvalidValue);
    if (static_cast<int>(kind) < 0 || kind > cudaMemcpyDefault) return fail(cudaErrorInvalidMemcpyDirection);
    if (!covers(to, n, "cudaMemcpy") || !covers(from, n, "cudaMemcpy")) return fail(cudaErrorInvalidValue);
    std::memmove(to, from, n);
    return status();
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind kind, cudaStream_t) { return cudaMemcpy(to, from, n, kind); }
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind) {
    if (width > to_pitch || width > from_pitch) return fail(cudaErrorInvalidPitchValue);
    for (size_t row = 0; row < height; ++row) {
        const cudaError_t error = cudaMemcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width, kind);
        if (error != cudaSuccess) return error;
    }
    return status();
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t tp, const void* from, size_t fp, size_t w, size_t h, cudaMemcpyKind k, cudaStream_t) {
    return cudaMemcpy2D(to, tp, from, fp, w, h, k);
}
cudaError_t cudaMemset(void* p, int value, size_t n) {
    if (p == nullptr && n != 0) return fail(cudaErrorInvalidValue);
    if (!covers(p, n, "cudaMemset")) return fail(cudaErrorInvalidValue);
    std::memset(p, value, n);
    return status();
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t n, cudaStream_t) { return cudaMemset(p, value, n); }
cudaError_t cudaMemset2D(void* p, size_t pitch, int value, size_t width, size_t height) {
    for (size_t row = 0; row < height; ++row)
        if (cudaError_t error = cudaMemset(static_cast<char*>(p) + row * pitch, value, width); error != cudaSuccess) return error;
    return status();
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

cudaError_t cudaStreamCreate(cudaStream_t* s) {
    static std::atomic<int> number{1};
    *s = new hostcuda_stream{number++};
    return status();
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) { return cudaStreamCreate(s); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned, int) { return cudaStreamCreate(s); }
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    if (reinterpret_cast<std::uintptr_t>(s) > 2) delete s;
    return status();
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return status(); }
cudaError_t cudaStreamQuery(cudaStream_t) { return status(); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return status(); }
cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t f, void* data, unsigned) { f(s, status(), data); return status(); }
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t f, void* data) { f(data); return status(); }
cudaError_t cudaEventCreate(cudaEvent_t* e) { *e = new hostcuda_event; return status(); }
cudaError_t cudaEventCreate(cudaEvent_t* e, unsigned) { return cudaEventCreate(e); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return cudaEventCreate(e); }
cudaError_t cudaEventDestroy(cudaEvent_t e) { delete e; return status(); }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t) {
    if (e == nullptr) return fail(cudaErrorInvalidResourceHandle);
    e->at = std::chrono::steady_clock::now();
    e->recorded = true;
    return status();
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return status(); }
cudaError_t cudaEventQuery(cudaEvent_t) { return status(); }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
    if (from == nullptr || to == nullptr || !from->recorded || !to->recorded) return fail(cudaErrorInvalidResourceHandle);
    *ms = std::chrono::duration<float, std::milli>(to->at - from->at).count();
    return status();
}

namespace hostcuda {
// The device's heap: what a kernel allocates stays until the grid ends even if freed, because other workers may still look at its shadow.
void* device_malloc(std::size_t bytes) {
    if (current_worker == nullptr) return std::malloc(bytes);
    void* p = nullptr;
    return allocate(&p, bytes, RegionKind::managed) == cudaSuccess ? p : nullptr;
}
void device_free(void* memory) {
    if (current_worker == nullptr) std::free(memory);
}
}  // namespace hostcuda
