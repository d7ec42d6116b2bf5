// The current stream of a thread, which torch's headers for streams and for cuBLAS share.
#pragma once
#include "cuda_runtime_api.h"

namespace hostcuda {
inline cudaStream_t& torch_stream() {
    static thread_local cudaStream_t stream = nullptr;
    return stream;
}
}  // namespace hostcuda
