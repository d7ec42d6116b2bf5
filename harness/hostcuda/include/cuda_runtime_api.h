// The CUDA runtime API as the host device has it: one device, memory is the machine's own, everything has happened when a call returns.
// Streams and events keep their order and their times. Names, values and meanings are those of the CUDA runtime API reference.
#ifndef HOSTCUDA_CUDA_RUNTIME_API_H
#define HOSTCUDA_CUDA_RUNTIME_API_H
#include <cstddef>
#include <cstdint>

#include "hostcuda/dim3.h"
#include "hostcuda/interface.h"
#include "hostcuda/qualifiers.h"

#define CUDART_VERSION 13000
#define CUDA_VERSION 13000
#define CUDARTAPI

enum cudaError {
    cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2, cudaErrorInitializationError = 3,
    cudaErrorInvalidConfiguration = 9, cudaErrorInvalidPitchValue = 12, cudaErrorInvalidSymbol = 13,
    cudaErrorInvalidDevicePointer = 17, cudaErrorInvalidMemcpyDirection = 21, cudaErrorInsufficientDriver = 35,
    cudaErrorInvalidDeviceFunction = 98, cudaErrorNoDevice = 100, cudaErrorInvalidDevice = 101, cudaErrorInvalidResourceHandle = 400, cudaErrorIllegalState = 401,
    cudaErrorNotReady = 600, cudaErrorIllegalAddress = 700, cudaErrorLaunchOutOfResources = 701, cudaErrorLaunchTimeout = 702,
    cudaErrorAssert = 710, cudaErrorMisalignedAddress = 716, cudaErrorLaunchFailure = 719, cudaErrorCooperativeLaunchTooLarge = 720,
    cudaErrorNotSupported = 801, cudaErrorStreamCaptureUnsupported = 900, cudaErrorStreamCaptureInvalidated = 901, cudaErrorStreamCaptureMerge = 902,
    cudaErrorStreamCaptureUnmatched = 903, cudaErrorStreamCaptureUnjoined = 904, cudaErrorStreamCaptureIsolation = 905,
    cudaErrorStreamCaptureImplicit = 906, cudaErrorCapturedEvent = 907, cudaErrorGraphExecUpdateFailure = 910, cudaErrorInvalidClusterSize = 912, cudaErrorUnknown = 999
};
typedef enum cudaError cudaError_t;

enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9,
    cudaFuncAttributeNonPortableClusterSizeAllowed = 14, cudaFuncAttributeClusterSchedulingPolicyPreference = 15 };
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
enum cudaSharedMemConfig { cudaSharedMemBankSizeDefault, cudaSharedMemBankSizeFourByte, cudaSharedMemBankSizeEightByte };
enum cudaSharedCarveout { cudaSharedmemCarveoutDefault = -1, cudaSharedmemCarveoutMaxShared = 100, cudaSharedmemCarveoutMaxL1 = 0 };
enum cudaLimit { cudaLimitStackSize, cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize };
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1, cudaDevAttrMaxBlockDimX, cudaDevAttrMaxBlockDimY, cudaDevAttrMaxBlockDimZ, cudaDevAttrMaxGridDimX,
    cudaDevAttrMaxGridDimY, cudaDevAttrMaxGridDimZ, cudaDevAttrMaxSharedMemoryPerBlock, cudaDevAttrTotalConstantMemory,
    cudaDevAttrWarpSize, cudaDevAttrMaxRegistersPerBlock = 12, cudaDevAttrClockRate = 13, cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrL2CacheSize = 38, cudaDevAttrMaxThreadsPerMultiProcessor = 39, cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76, cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81, cudaDevAttrMaxRegistersPerMultiprocessor = 82,
    cudaDevAttrManagedMemory = 83, cudaDevAttrCooperativeLaunch = 95, cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
    cudaDevAttrMaxBlocksPerMultiprocessor = 106, cudaDevAttrClusterLaunch = 120
};

typedef struct hostcuda_stream* cudaStream_t;
typedef struct hostcuda_event* cudaEvent_t;
typedef void (*cudaHostFn_t)(void*);
typedef void (*cudaStreamCallback_t)(cudaStream_t, cudaError_t, void*);
typedef struct hostcuda_pool* cudaMemPool_t;
#define cudaStreamLegacy ((cudaStream_t)0x1)
#define cudaStreamPerThread ((cudaStream_t)0x2)
#define cudaStreamDefault 0x00
#define cudaStreamNonBlocking 0x01
#define cudaEventDefault 0x00
#define cudaEventBlockingSync 0x01
#define cudaEventDisableTiming 0x02
#define cudaHostAllocDefault 0x00
#define cudaHostAllocPortable 0x01
#define cudaHostAllocMapped 0x02
#define cudaHostAllocWriteCombined 0x04
#define cudaHostRegisterDefault 0x00
#define cudaHostRegisterPortable 0x01
#define cudaHostRegisterMapped 0x02
#define cudaHostRegisterIoMemory 0x04
#define cudaHostRegisterReadOnly 0x08
#define cudaMemAttachGlobal 0x01
#define cudaMemAttachHost 0x02
#define cudaMemAttachSingle 0x04
#define cudaCpuDeviceId (-1)
#define cudaOccupancyDefault 0x00

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock;
    int regsPerBlock, warpSize;
    size_t memPitch;
    int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate;
    size_t totalConstMem;
    int major, minor, deviceOverlap, multiProcessorCount, integrated, canMapHostMemory, concurrentKernels, ECCEnabled;
    int asyncEngineCount, unifiedAddressing, memoryClockRate, memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize, maxThreadsPerMultiProcessor;
    size_t sharedMemPerMultiprocessor;
    int regsPerMultiprocessor, managedMemory, cooperativeLaunch;
    size_t sharedMemPerBlockOptin;
    int maxBlocksPerMultiProcessor, accessPolicyMaxWindowSize;
    size_t reservedSharedMemPerBlock;
    int clusterLaunch;
};
struct cudaFuncAttributes {
    size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes, preferredShmemCarveout;
    int clusterDimMustBeSet, requiredClusterWidth, requiredClusterHeight, requiredClusterDepth, clusterSchedulingPolicyPreference, nonPortableClusterSizeAllowed;
};

// ---- launches with attributes. What is a hint to a GPU changes no result here, and kernels run one after another as it is; attributes that are not listed
// (events) are not emulated.
enum cudaClusterSchedulingPolicy { cudaClusterSchedulingPolicyDefault, cudaClusterSchedulingPolicySpread, cudaClusterSchedulingPolicyLoadBalancing };
enum cudaLaunchAttributeID {
    cudaLaunchAttributeIgnore = 0, cudaLaunchAttributeCooperative = 2, cudaLaunchAttributeClusterDimension = 4,
    cudaLaunchAttributeClusterSchedulingPolicyPreference = 5, cudaLaunchAttributeProgrammaticStreamSerialization = 6, cudaLaunchAttributePriority = 8,
    cudaLaunchAttributePreferredSharedMemoryCarveout = 14
};
union cudaLaunchAttributeValue {
    char pad[64];
    int cooperative;
    struct {
        unsigned x, y, z;
    } clusterDim;
    cudaClusterSchedulingPolicy clusterSchedulingPolicyPreference;
    int programmaticStreamSerializationAllowed;
    int priority;
    unsigned sharedMemCarveout;
};
typedef struct cudaLaunchAttribute_st {
    cudaLaunchAttributeID id;
    cudaLaunchAttributeValue val;
} cudaLaunchAttribute;
typedef struct cudaLaunchConfig_st {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute* attrs;
    unsigned numAttrs;
} cudaLaunchConfig_t;

struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
    void* devicePointer;
    void* hostPointer;
};

cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
const char* cudaGetErrorString(cudaError_t);
const char* cudaGetErrorName(cudaError_t);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceReset();
cudaError_t cudaGetDevice(int*);
cudaError_t cudaSetDevice(int);
cudaError_t cudaGetDeviceCount(int*);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp*, int);
cudaError_t cudaDeviceGetAttribute(int*, cudaDeviceAttr, int);
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t);
cudaError_t cudaDeviceGetLimit(size_t*, cudaLimit);
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache);
cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig);
cudaError_t cudaDeviceGetStreamPriorityRange(int*, int*);
cudaError_t cudaDriverGetVersion(int*);
cudaError_t cudaRuntimeGetVersion(int*);
cudaError_t cudaMemGetInfo(size_t*, size_t*);

cudaError_t cudaMalloc(void**, size_t);
cudaError_t cudaMallocAsync(void**, size_t, cudaStream_t);
cudaError_t cudaMallocManaged(void**, size_t, unsigned flags = cudaMemAttachGlobal);
cudaError_t cudaMallocHost(void**, size_t, unsigned flags = 0);
cudaError_t cudaHostAlloc(void**, size_t, unsigned);
cudaError_t cudaMallocPitch(void**, size_t* pitch, size_t width, size_t height);
cudaError_t cudaHostGetDevicePointer(void**, void*, unsigned);
cudaError_t cudaHostRegister(void*, size_t, unsigned);
cudaError_t cudaHostUnregister(void*);
cudaError_t cudaFree(void*);
cudaError_t cudaFreeAsync(void*, cudaStream_t);
cudaError_t cudaFreeHost(void*);
cudaError_t cudaMemcpy(void*, const void*, size_t, cudaMemcpyKind);
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy2D(void*, size_t, const void*, size_t, size_t, size_t, cudaMemcpyKind);
cudaError_t cudaMemcpy2DAsync(void*, size_t, const void*, size_t, size_t, size_t, cudaMemcpyKind, cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void*, int, size_t);
cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t stream = nullptr);
cudaError_t cudaMemset2D(void*, size_t, int, size_t, size_t);
cudaError_t cudaMemset2DAsync(void*, size_t, int, size_t, size_t, cudaStream_t stream = nullptr);
cudaError_t cudaMemPrefetchAsync(const void*, size_t, int, cudaStream_t stream = nullptr);
enum cudaMemLocationType {
    cudaMemLocationTypeInvalid = 0, cudaMemLocationTypeDevice, cudaMemLocationTypeHost, cudaMemLocationTypeHostNuma, cudaMemLocationTypeHostNumaCurrent
};
struct cudaMemLocation {
    cudaMemLocationType type;
    int id;
};
inline cudaError_t cudaMemPrefetchAsync(const void* p, size_t n, cudaMemLocation at, unsigned, cudaStream_t stream = nullptr) { return cudaMemPrefetchAsync(p, n, at.id, stream); }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes*, const void*);
inline cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t n) { return cudaMemcpy(to, from, n, cudaMemcpyDeviceToDevice); }
inline cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t n, cudaStream_t s = nullptr) { return cudaMemcpyAsync(to, from, n, cudaMemcpyDeviceToDevice, s); }

// Advice that changes no result.
enum cudaMemoryAdvise {
    cudaMemAdviseSetReadMostly = 1, cudaMemAdviseUnsetReadMostly, cudaMemAdviseSetPreferredLocation, cudaMemAdviseUnsetPreferredLocation,
    cudaMemAdviseSetAccessedBy, cudaMemAdviseUnsetAccessedBy
};
template <class Location> inline cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, Location) { return cudaSuccess; }
inline cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
inline cudaError_t cudaGetDeviceFlags(unsigned* flags) { *flags = 0; return cudaSuccess; }
inline cudaError_t cudaInitDevice(int, unsigned, unsigned) { return cudaSuccess; }
inline cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { *can = 0; return cudaSuccess; }
inline cudaError_t cudaCtxResetPersistingL2Cache() { return cudaSuccess; }

cudaError_t cudaStreamCreate(cudaStream_t*);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t*, unsigned, int);
cudaError_t cudaStreamDestroy(cudaStream_t);
inline cudaError_t cudaStreamGetFlags(cudaStream_t, unsigned* flags) { *flags = cudaStreamDefault; return cudaSuccess; }
inline cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) { *priority = 0; return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamQuery(cudaStream_t);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned flags = 0);
cudaError_t cudaStreamAddCallback(cudaStream_t, cudaStreamCallback_t, void*, unsigned);
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t, void*);
cudaError_t cudaEventCreate(cudaEvent_t*);
cudaError_t cudaEventCreate(cudaEvent_t*, unsigned);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned);
cudaError_t cudaEventDestroy(cudaEvent_t);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t stream = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t);
cudaError_t cudaEventQuery(cudaEvent_t);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t);

#include "hostcuda/graph_api.h"

namespace hostcuda {
cudaError_t set_function_attribute(const void* kernel, cudaFuncAttribute attribute, int value);
cudaError_t function_attributes(cudaFuncAttributes* attributes, const void* kernel);
cudaError_t occupancy(int* blocks, int threads, std::size_t dynamic_shared_bytes);
struct LaunchShape {                     // what a configuration with its attributes asks for
    Dim3 cluster{0, 0, 0};
    bool cooperative = false, has_cluster = false;
    int threads = 0;
    std::size_t dynamic_shared_bytes = 0;
};
inline LaunchShape shape_of(const cudaLaunchConfig_t& c) {
    LaunchShape shape;
    shape.threads = static_cast<int>(c.blockDim.x * c.blockDim.y * c.blockDim.z);
    shape.dynamic_shared_bytes = c.dynamicSmemBytes;
    for (unsigned i = 0; i < c.numAttrs; ++i) {
        const cudaLaunchAttributeValue& value = c.attrs[i].val;
        if (c.attrs[i].id == cudaLaunchAttributeClusterDimension) shape.cluster = {value.clusterDim.x, value.clusterDim.y, value.clusterDim.z}, shape.has_cluster = true;
        if (c.attrs[i].id == cudaLaunchAttributeCooperative) shape.cooperative = value.cooperative != 0;
    }
    return shape;
}
cudaError_t largest_cluster_of(int* blocks);
cudaError_t active_clusters(int* clusters, const void* kernel, const LaunchShape& shape);
cudaError_t copy_symbol(void* to, const void* from, std::size_t bytes, std::size_t offset, std::size_t symbol_bytes, cudaStream_t stream = nullptr);
cudaError_t launch_status(int error);  // records it as the last error
}  // namespace hostcuda

// Inlined, so that the place of an allocation is the author's.
#define HOSTCUDA_INLINED inline __attribute__((always_inline))
template <class T> HOSTCUDA_INLINED cudaError_t cudaMalloc(T** p, size_t n) { return cudaMalloc(reinterpret_cast<void**>(p), n); }
template <class T> HOSTCUDA_INLINED cudaError_t cudaMallocAsync(T** p, size_t n, cudaStream_t s) { return cudaMallocAsync(reinterpret_cast<void**>(p), n, s); }
template <class T> HOSTCUDA_INLINED cudaError_t cudaMallocManaged(T** p, size_t n, unsigned f = cudaMemAttachGlobal) { return cudaMallocManaged(reinterpret_cast<void**>(p), n, f); }
template <class T> inline cudaError_t cudaMallocHost(T** p, size_t n, unsigned f = 0) { return cudaMallocHost(reinterpret_cast<void**>(p), n, f); }
template <class T> inline cudaError_t cudaHostAlloc(T** p, size_t n, unsigned f) { return cudaHostAlloc(reinterpret_cast<void**>(p), n, f); }
template <class T> HOSTCUDA_INLINED cudaError_t cudaMallocPitch(T** p, size_t* pitch, size_t width, size_t height) { return cudaMallocPitch(reinterpret_cast<void**>(p), pitch, width, height); }
template <class T> inline cudaError_t cudaHostGetDevicePointer(T** p, void* h, unsigned f) { return cudaHostGetDevicePointer(reinterpret_cast<void**>(p), h, f); }

template <class F> inline cudaError_t cudaFuncSetAttribute(F* f, cudaFuncAttribute a, int v) { return hostcuda::set_function_attribute(reinterpret_cast<const void*>(f), a, v); }
template <class F> inline cudaError_t cudaFuncSetCacheConfig(F*, cudaFuncCache) { return cudaSuccess; }
template <class F> inline cudaError_t cudaFuncSetSharedMemConfig(F*, cudaSharedMemConfig) { return cudaSuccess; }
template <class F> inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, F* f) { return hostcuda::function_attributes(a, reinterpret_cast<const void*>(f)); }
template <class F> inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, F*, int t, size_t s) { return hostcuda::occupancy(n, t, s); }
template <class F> inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, F*, int t, size_t s, unsigned) { return hostcuda::occupancy(n, t, s); }
template <class F> inline cudaError_t cudaOccupancyMaxPotentialClusterSize(int* n, F*, const cudaLaunchConfig_t*) { return hostcuda::largest_cluster_of(n); }
template <class F> inline cudaError_t cudaOccupancyMaxActiveClusters(int* n, F* f, const cudaLaunchConfig_t* c) {
    return hostcuda::active_clusters(n, reinterpret_cast<const void*>(f), hostcuda::shape_of(*c));
}
template <class F> inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, F*, size_t s = 0, int limit = 0) {
    *block = limit > 0 && limit < 1024 ? limit : 1024;
    int per = 0;
    const cudaError_t error = hostcuda::occupancy(&per, *block, s);
    *grid = per * 132;
    return error;
}
template <class F, class S> inline cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int* grid, int* block, F* kernel, S shared_bytes, int limit = 0) {
    int at_most = limit > 0 && limit < 1024 ? limit : 1024;
    for (*block = at_most; *block > 32; *block -= 32) {
        int per = 0;
        if (hostcuda::occupancy(&per, *block, shared_bytes(*block)) == cudaSuccess && per > 0) break;
    }
    return cudaOccupancyMaxPotentialBlockSize(grid, block, kernel, shared_bytes(*block), *block);
}
template <class T> inline cudaError_t cudaMemcpyToSymbol(const T& symbol, const void* from, size_t n, size_t offset = 0, cudaMemcpyKind = cudaMemcpyHostToDevice) {
    return hostcuda::copy_symbol(const_cast<char*>(reinterpret_cast<const volatile char*>(&symbol)) + offset, from, n, offset, sizeof(T));
}
template <class T> inline cudaError_t cudaMemcpyToSymbolAsync(const T& symbol, const void* from, size_t n, size_t offset, cudaMemcpyKind, cudaStream_t stream = nullptr) {
    return hostcuda::copy_symbol(const_cast<char*>(reinterpret_cast<const volatile char*>(&symbol)) + offset, from, n, offset, sizeof(T), stream);
}
template <class T> inline cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t n, size_t offset = 0, cudaMemcpyKind = cudaMemcpyDeviceToHost) {
    return hostcuda::copy_symbol(to, const_cast<const char*>(reinterpret_cast<const volatile char*>(&symbol)) + offset, n, offset, sizeof(T));
}
template <class T> inline cudaError_t cudaMemcpyFromSymbolAsync(void* to, const T& symbol, size_t n, size_t offset, cudaMemcpyKind, cudaStream_t stream = nullptr) {
    return hostcuda::copy_symbol(to, const_cast<const char*>(reinterpret_cast<const volatile char*>(&symbol)) + offset, n, offset, sizeof(T), stream);
}
template <class T> inline cudaError_t cudaGetSymbolAddress(void** p, const T& symbol) {
    *p = const_cast<char*>(reinterpret_cast<const volatile char*>(&symbol));
    return cudaSuccess;
}
template <class T> inline cudaError_t cudaGetSymbolSize(size_t* n, const T&) { *n = sizeof(T); return cudaSuccess; }

#endif
