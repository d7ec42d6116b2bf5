// torch::cuda of torch's C++ API. torch's own say, in a build without CUDA, that there is no device; a solution's module is linked to this
// library before torch's and finds these.
#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>

#include "cuda_runtime_api.h"

// Without <torch/cuda.h>: the number of devices was a size_t in older versions and is a byte since. Its symbol is the same for both, and so is
// what the wider one gives back.
namespace torch::cuda {

std::size_t device_count() { return 1; }
bool is_available() { return true; }
void synchronize(std::int64_t device_index) {
    TORCH_CHECK(device_index < static_cast<std::int64_t>(device_count()), "Device index out of range: ", device_index);
    const cudaError_t error = cudaDeviceSynchronize();
    TORCH_CHECK(error == cudaSuccess, "CUDA error: ", cudaGetErrorString(error));
}

}  // namespace torch::cuda
