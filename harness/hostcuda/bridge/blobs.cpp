// Tensors over memory that a solution has of its own (torch::from_blob). torch asks a driver where device memory lies; a solution's module is
// linked to this library before torch's and finds this.
#include <ATen/ATen.h>
#include <dlfcn.h>

#include "cuda_runtime_api.h"
#include "device.h"
#include "hostcuda/interface.h"

namespace at {

Tensor TensorMaker::make_tensor() {
    using Make = Tensor (*)(TensorMaker*);
    static const auto make = reinterpret_cast<Make>(dlsym(RTLD_NEXT, "_ZN2at11TensorMaker11make_tensorEv"));
    TORCH_CHECK(make != nullptr, "torch has no at::TensorMaker::make_tensor");
    const Device asked = device_.value_or(opts_.device());
    if (!asked.is_cuda()) return make(this);
    if (!device_.has_value() && data_ != nullptr && hostcuda_checked()) {  // else torch's own memory is not known
        cudaPointerAttributes found{};
        TORCH_CHECK(cudaPointerGetAttributes(&found, data_) == cudaSuccess && found.type != cudaMemoryTypeUnregistered,
                    "The specified pointer resides on host memory and is not registered with any CUDA device.");
    }
    opts_ = opts_.device(kCPU);
    device_ = Device(kCPU);
    return hostcuda::bridge::relabelled(make(this));
}

}  // namespace at
