#pragma once
#include "cuda_runtime.h"

// There is no profiler to tell.
inline cudaError_t cudaProfilerStart() { return cudaSuccess; }
inline cudaError_t cudaProfilerStop() { return cudaSuccess; }
