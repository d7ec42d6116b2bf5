// The CUDA runtime API (include/cuda_runtime_api.h): errors, the device and its properties. Memory is in memory.cpp,
// limits of a launch in limits.cpp, streams and events in streams.cpp.
#include <sys/sysinfo.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "api.h"
#include "hostcuda/capture.h"
#include "report.h"
#include "state.h"

namespace {

using hostcuda::fail;
using hostcuda::blocks_a_multiprocessor;
using hostcuda::multiprocessors;
using hostcuda::shared_a_multiprocessor;
using hostcuda::status;
using hostcuda::threads_a_multiprocessor;

thread_local cudaError_t last_error = cudaSuccess;
std::atomic<int> sticky_error{0};

}  // namespace

extern "C" int hostcuda_sticky_error() { return sticky_error; }
extern "C" void hostcuda_clear_errors() { sticky_error = 0, last_error = cudaSuccess; }

namespace hostcuda {

cudaError_t fail(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

cudaError_t status() {
    const int error = sticky_error.load();
    return error == 0 ? cudaSuccess : fail(static_cast<cudaError_t>(error));
}

void set_sticky_error(int error) { sticky_error = error; }
cudaError_t launch_status(int error) { return fail(static_cast<cudaError_t>(error)); }

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
    {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge", "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched", "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit", "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorGraphExecUpdateFailure, "cudaErrorGraphExecUpdateFailure", "the graph update was not performed because it included changes which violated constraints specific to instantiated graph update"},
    {cudaErrorInvalidClusterSize, "cudaErrorInvalidClusterSize", "cluster misconfiguration"},
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

cudaError_t cudaDeviceSynchronize() {
    const cudaError_t error = hostcuda::outside_of_captures();
    return error != cudaSuccess ? error : status();
}
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
    p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = p->managedMemory = p->cooperativeLaunch = p->clusterLaunch = 1;
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
        case cudaDevAttrManagedMemory: case cudaDevAttrCooperativeLaunch: case cudaDevAttrClusterLaunch: *value = 1; break;
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
