// c10::cuda: memory.
#pragma once
#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#include <cstddef>

#include "c10/cuda/CUDAMacros.h"
#include "c10/cuda/CUDAStream.h"
#include "hostcuda/torch_allocator.h"

namespace c10::cuda {
// Nothing is kept for later: memory that is freed is gone, and a stream has finished with it by then.
namespace CUDACachingAllocator {
inline void emptyCache() {}
inline void* raw_alloc(std::size_t bytes) { return hostcuda::TorchAllocator::take(bytes); }
inline void* raw_alloc_with_stream(std::size_t bytes, cudaStream_t) { return raw_alloc(bytes); }
inline void raw_delete(void* p) { hostcuda::TorchAllocator::give_back(p); }
inline void recordStream(const c10::DataPtr&, CUDAStream) {}
struct CUDAAllocator final : hostcuda::TorchAllocator {
    void* raw_alloc(std::size_t bytes) { return CUDACachingAllocator::raw_alloc(bytes); }
    void* raw_alloc_with_stream(std::size_t bytes, cudaStream_t) { return CUDACachingAllocator::raw_alloc(bytes); }
    void raw_delete(void* p) { CUDACachingAllocator::raw_delete(p); }
    void recordStream(const c10::DataPtr&, CUDAStream) {}
    void emptyCache() {}
};
inline CUDAAllocator* get() {
    static CUDAAllocator allocator;
    return &allocator;
}
}  // namespace CUDACachingAllocator
}  // namespace c10::cuda
