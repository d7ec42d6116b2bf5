// The device's memory as torch's allocators give it. No name of torch's CUDA library is declared here.
#pragma once
#include <c10/core/Allocator.h>

#include <cstddef>

#include "c10/cuda/CUDAException.h"

namespace hostcuda {
struct TorchAllocator : c10::Allocator {
    static void* take(std::size_t bytes) {
        void* p = nullptr;
        c10::cuda::check_error(cudaMalloc(&p, bytes));
        return p;
    }
    static void give_back(void* p) { c10::cuda::check_error(cudaFree(p)); }
    c10::DataPtr allocate(std::size_t bytes) override {
        void* p = bytes == 0 ? nullptr : take(bytes);
        return {p, p, &give_back, c10::Device(c10::kCUDA, 0)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
    void copy_data(void* to, const void* from, std::size_t bytes) const override {
        c10::cuda::check_error(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice));
    }
};
}  // namespace hostcuda
