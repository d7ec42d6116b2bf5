// What a launch may ask for: block, grid and shared memory, and the queries and attributes about kernels.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "api.h"
#include "hostcuda/capture.h"
#include "recorder.h"
#include "report.h"
#include "state.h"

namespace hostcuda {

__attribute__((tls_model("initial-exec"))) __thread bool launch_known = false;

namespace {
std::mutex mutex;
std::set<const void*>& kernels_of_larger_clusters() {
    static auto* set = new std::set<const void*>();
    return *set;
}
bool larger_clusters_allowed() {  // on one kernel is on all: a launch by <<<>>> does not tell which one it is of
    std::lock_guard<std::mutex> lock(mutex);
    return !kernels_of_larger_clusters().empty();
}
std::atomic<int> largest_dynamic_allowed{static_cast<int>(default_shared_bytes)};
}  // namespace

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
    if (const cudaError_t left = status(); left != cudaSuccess) return left;
    char text[200];
    const std::uint64_t threads = std::uint64_t{r.block.x} * r.block.y * r.block.z;
    const bool bad_block = threads == 0 || threads > max_block_threads || r.block.x > 1024 || r.block.y > 1024 || r.block.z > 64;
    if (bad_block) {
        std::snprintf(text, sizeof text, "a block of (%u, %u, %u) threads exceeds the limits: 1 to 1024 in all, at most 1024 in x and y, 64 in z", r.block.x, r.block.y, r.block.z);
        return refuse(r, error_invalid_configuration, text);
    }
    const std::uint64_t blocks = std::uint64_t{r.grid.x} * r.grid.y * r.grid.z;
    if (blocks == 0 || r.grid.x > 0x7fffffffu || r.grid.y > 65535 || r.grid.z > 65535) {
        std::snprintf(text, sizeof text, "a grid of (%u, %u, %u) blocks exceeds the limits: at least 1, at most 2147483647 in x, 65535 in y and z", r.grid.x, r.grid.y, r.grid.z);
        return refuse(r, error_invalid_configuration, text);
    }
    if (blocks > 0x7fffffffu) return refuse(r, error_not_supported, "a grid of more than 2147483647 blocks in all");
    if (r.dynamic_shared_bytes > max_dynamic_shared_bytes) {
        std::snprintf(text, sizeof text, "%zu bytes of dynamic shared memory exceed the limit of 232448", r.dynamic_shared_bytes);
        return refuse(r, error_invalid_value, text);
    }
    if (r.dynamic_shared_bytes > static_cast<std::size_t>(largest_dynamic_allowed.load())) {
        std::snprintf(text, sizeof text, "%zu bytes of dynamic shared memory: more than 49152 need cudaFuncSetAttribute(MaxDynamicSharedMemorySize) first", r.dynamic_shared_bytes);
        return refuse(r, error_invalid_value, text);
    }
    if (r.cluster.x != 0) {
        if (const int refused = check_cluster(r)) return refused;
    }
    if (r.cooperative) {
        int per = 0;
        occupancy(&per, static_cast<int>(threads), r.dynamic_shared_bytes);
        if (blocks > std::uint64_t(per) * multiprocessors) return refuse(r, error_cooperative_launch_too_large, "too many blocks for a cooperative launch: all must be resident at once");
    }
    return 0;
}

int check_cluster(const LaunchRequest& r) {
    char text[200];
    const Dim3& c = r.cluster;
    const std::uint64_t blocks = std::uint64_t{c.x} * c.y * c.z;
    const bool allowed = larger_clusters_allowed();
    if (blocks == 0 || blocks > (allowed ? largest_cluster : largest_portable_cluster)) {
        std::snprintf(text, sizeof text, "a cluster of (%u, %u, %u) blocks exceeds the limits: at least 1, at most %u in all%s", c.x, c.y, c.z, allowed ? largest_cluster : largest_portable_cluster,
                      allowed ? "" : " (16 after cudaFuncSetAttribute(NonPortableClusterSizeAllowed))");
        return refuse(r, error_invalid_cluster_size, text);
    }
    if (r.grid.x % c.x != 0 || r.grid.y % c.y != 0 || r.grid.z % c.z != 0) {
        std::snprintf(text, sizeof text, "a grid of (%u, %u, %u) blocks is not a multiple of its clusters of (%u, %u, %u)", r.grid.x, r.grid.y, r.grid.z, c.x, c.y, c.z);
        return refuse(r, error_invalid_cluster_size, text);
    }
    return 0;
}

void finish_launch(const Launch& grid, int error) {
    note_launch(grid);
    const std::size_t fixed = grid.static_shared_bytes.load();
    ReportDetails details;
    details.kind = ReportKind::launch_error;
    details.kernel = grid.kernel.load() != nullptr ? grid.kernel.load() : grid.request.text;
    details.line = grid.request.line;
    if (fixed > default_shared_bytes) {
        details.message = "more than 49152 bytes of static shared memory: nvcc refuses this kernel";
        report_outside(details);
    } else if (fixed + grid.request.dynamic_shared_bytes > max_dynamic_shared_bytes) {
        details.message = "static and dynamic shared memory together exceed 232448 bytes";
        report_outside(details);
    }
    if (error != 0 && error != error_launch_out_of_resources && error != error_invalid_cluster_size) set_sticky_error(error);
}

namespace {
Dim3 whole(const Dim3& cluster) { return {cluster.x, std::max(cluster.y, 1u), std::max(cluster.z, 1u)}; }  // what is left out is 1
}  // namespace

void kernel_entry(const char* name, const char* parameters, int max_threads, const Dim3& own) {
    launch_known = true;
    if (current_worker == nullptr) return;
    Worker& worker = *current_worker;
    Launch& grid = *worker.launch;
    const char* expected = nullptr;
    if (grid.kernel.compare_exchange_strong(expected, name)) {
        grid.parameters = parameters;
        record_launch(grid);
    }
    if (own.x != 0) {
        const Dim3 cluster = whole(own);
        const Dim3& asked = grid.request.cluster;
        if (asked.x == 0) {
            bool expected_none = false;
            if (grid.has_own_cluster.compare_exchange_strong(expected_none, true)) grid.own_cluster = cluster;
            abort_launch(worker, 0);
        }
        if (asked.x != cluster.x || asked.y != cluster.y || asked.z != cluster.z) {
            char text[160];
            std::snprintf(text, sizeof text, "clusters of (%u, %u, %u) blocks, but the kernel's __cluster_dims__ are (%u, %u, %u)", asked.x, asked.y, asked.z, cluster.x, cluster.y, cluster.z);
            refuse(grid.request, error_invalid_cluster_size, text);
            abort_launch(worker, error_invalid_cluster_size);
        }
    }
    if (max_threads > 0 && grid.threads > static_cast<std::uint32_t>(max_threads)) {
        char text[120];
        std::snprintf(text, sizeof text, "%u threads per block, but the kernel's __launch_bounds__ allow at most %d", grid.threads, max_threads);
        refuse(grid.request, error_launch_out_of_resources, text);
        abort_launch(worker, error_launch_out_of_resources);
    }
}

cudaError_t untyped_launch() { return fail(cudaErrorInvalidDeviceFunction); }

cudaError_t set_function_attribute(const void* kernel, cudaFuncAttribute attribute, int value) {
    if (attribute == cudaFuncAttributeNonPortableClusterSizeAllowed) {
        std::lock_guard<std::mutex> lock(mutex);
        if (value != 0) kernels_of_larger_clusters().insert(kernel);
        else kernels_of_larger_clusters().erase(kernel);
    }
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return status();
    if (value < 0 || value > static_cast<int>(max_dynamic_shared_bytes)) return fail(cudaErrorInvalidValue);
    if (value > largest_dynamic_allowed.load()) largest_dynamic_allowed = value;
    return status();
}

namespace {
struct Registered {
    int max_threads = 0;
    Dim3 cluster{};
};
std::map<const void*, Registered>& kernels() {
    static auto* map = new std::map<const void*, Registered>();
    return *map;
}
Registered registered(const void* kernel) {
    std::lock_guard<std::mutex> lock(mutex);
    const auto found = kernels().find(kernel);
    return found != kernels().end() ? found->second : Registered{};
}
}  // namespace

void register_kernel(const void* kernel, int max_threads, const Dim3& cluster) {
    std::lock_guard<std::mutex> lock(mutex);
    kernels()[kernel] = {max_threads, cluster.x == 0 ? cluster : whole(cluster)};
}

cudaError_t function_attributes(cudaFuncAttributes* a, const void* kernel) {
    std::memset(a, 0, sizeof *a);
    const Registered known = registered(kernel);
    a->maxThreadsPerBlock = known.max_threads > 0 ? known.max_threads : 1024;
    a->clusterDimMustBeSet = known.cluster.x != 0;
    a->requiredClusterWidth = static_cast<int>(known.cluster.x), a->requiredClusterHeight = static_cast<int>(known.cluster.y);
    a->requiredClusterDepth = static_cast<int>(known.cluster.z);
    a->nonPortableClusterSizeAllowed = larger_clusters_allowed();
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

cudaError_t largest_cluster_of(int* blocks) {  // whatever dimensions the kernel has of its own: seen on an H100
    *blocks = static_cast<int>(larger_clusters_allowed() ? largest_cluster : largest_portable_cluster);
    return status();
}

cudaError_t active_clusters(int* clusters, const void* kernel, const LaunchShape& shape) {
    const Dim3 own = registered(kernel).cluster;
    Dim3 size = shape.cluster;
    if (own.x != 0 && size.x == 0) size = own;
    if (size.x == 0) size = {1, 1, 1};
    const std::uint64_t blocks = std::uint64_t{size.x} * size.y * size.z;
    if (blocks == 0 || blocks > (larger_clusters_allowed() ? largest_cluster : largest_portable_cluster)) return fail(cudaErrorInvalidClusterSize);
    if (own.x != 0 && (size.x != own.x || size.y != own.y || size.z != own.z)) return fail(cudaErrorInvalidClusterSize);
    int per = 0;
    if (const cudaError_t error = occupancy(&per, shape.threads, shape.dynamic_shared_bytes)) return error;
    // a cluster lies in one group of multiprocessors
    const int in_group = per * (multiprocessors / multiprocessor_groups) / static_cast<int>(blocks);
    *clusters = blocks == 1 ? per * multiprocessors : in_group * multiprocessor_groups;
    return status();
}

cudaError_t copy_symbol(void* to, const void* from, std::size_t bytes, std::size_t offset, std::size_t symbol_bytes, cudaStream_t stream) {
    if (offset + bytes > symbol_bytes) return fail(cudaErrorInvalidValue);
    const auto copy = [=] { return std::memcpy(to, from, bytes), status(); };
    if (const auto taken = captured(stream, cudaGraphNodeTypeMemcpy, copy)) return *taken;
    return copy();
}

}  // namespace hostcuda
