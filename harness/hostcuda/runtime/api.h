// What the files of the runtime API share: the error a call leaves behind, and an H200's limits.
#pragma once
#include <cstddef>

#include "cuda_runtime_api.h"

namespace hostcuda {

// An H200's limits (CUDA programming guide, table of compute capability 9.0), as a kernel author would meet them.
constexpr int multiprocessors = 132;
constexpr int multiprocessor_groups = 8;   // GPCs: a cluster's blocks run in one
constexpr int threads_a_multiprocessor = 2048;
constexpr int blocks_a_multiprocessor = 32;
constexpr std::size_t shared_a_multiprocessor = 228 * 1024;

cudaError_t fail(cudaError_t error);  // makes it the last error
cudaError_t status();                 // the error a kernel left behind, or success

}  // namespace hostcuda
