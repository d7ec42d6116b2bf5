// Asynchronous copies from global to shared memory by their C++ names (CUDA programming guide, "Pipeline Primitives"), on
// the same footing as cp.async in hostcuda/ptx_table.h.
#ifndef HOSTCUDA_CUDA_PIPELINE_H
#define HOSTCUDA_CUDA_PIPELINE_H

#include "cuda_awbarrier_primitives.h"
#include "hostcuda/ptx_table.h"

inline void __pipeline_memcpy_async(void* __restrict__ shared, const void* __restrict__ global, std::size_t size,
                                    std::size_t zero_filled = 0) {
    hostcuda::ptx::cp_async(static_cast<char*>(shared), static_cast<const char*>(global), static_cast<int>(size),
                            static_cast<int>(size) - static_cast<int>(zero_filled), 0);
}
inline void __pipeline_commit() { hostcuda::ptx::cp_async_commit(); }
inline void __pipeline_arrive_on(__mbarrier_t* barrier) { hostcuda::async_bind(barrier); }
inline void __pipeline_wait_prior(std::size_t groups) { hostcuda::ptx::cp_async_wait(static_cast<int>(groups)); }

#endif
