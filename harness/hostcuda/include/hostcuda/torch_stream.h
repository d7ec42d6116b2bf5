// The current stream of a thread, which torch's headers for streams and for cuBLAS share with torch in Python.
#pragma once
#include "cuda_runtime_api.h"

namespace hostcuda {
cudaStream_t& torch_stream();
}  // namespace hostcuda
