// c10::cuda: the one device.
#pragma once
#include <c10/core/Device.h>

#include "c10/cuda/CUDAException.h"
#include "c10/cuda/CUDAMacros.h"
#include "cuda_runtime_api.h"

namespace c10::cuda {
inline c10::DeviceIndex device_count() { return 1; }
inline c10::DeviceIndex current_device() { return 0; }
inline void set_device(c10::DeviceIndex) {}
inline void device_synchronize() { cudaDeviceSynchronize(); }
}  // namespace c10::cuda
