// at::cuda: the device's properties, its allocator, torch's cuBLAS handle.
#pragma once
#include <c10/core/Allocator.h>

#include <cstdint>

#include "c10/cuda/CUDAFunctions.h"
#include "cublas_v2.h"
#include "cuda_runtime_api.h"
#include "hostcuda/torch_allocator.h"
#include "hostcuda/torch_stream.h"

namespace at::cuda {
inline cudaDeviceProp* getDeviceProperties(c10::DeviceIndex) {
    static cudaDeviceProp* properties = [] { auto* p = new cudaDeviceProp; cudaGetDeviceProperties(p, 0); return p; }();
    return properties;
}
inline cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(0); }
inline c10::Allocator* getCUDADeviceAllocator() {
    static hostcuda::TorchAllocator allocator;
    return &allocator;
}
inline int warp_size() { return 32; }
inline bool is_available() { return true; }
inline cublasHandle_t getCurrentCUDABlasHandle() {
    const cublasHandle_t handle = hostcuda::blas::torch_handle();
    cublasSetStream(handle, hostcuda::torch_stream());
    return handle;
}
}  // namespace at::cuda
