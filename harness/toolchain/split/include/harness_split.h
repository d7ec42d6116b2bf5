// Included before the first line of a CUDA source's host part, which g++ compiles: launches, and the templates and
// functions of CUDA's headers that only nvcc sees. Every translation unit has one fatbin, which the two symbols that
// `harness/toolchain/split/symbols.py` writes describe.

#pragma once
#include <cuda_runtime.h>
#include <cstdlib>
#include <type_traits>

#ifndef __launch_bounds__
#define __launch_bounds__(...)
#endif

extern "C" {
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block = 1, size_t shared = 0, struct CUstream_st* stream = 0);
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream);
void** __cudaRegisterFatBinary(void* fatbin);
void __cudaRegisterFatBinaryEnd(void** handle);
void __cudaUnregisterFatBinary(void** handle);
void __cudaRegisterFunction(void** handle, const char* host, char* device, const char* name, int threads, uint3* tid,
                            uint3* bid, dim3* block, dim3* grid, int* warp);
void __cudaRegisterVar(void** handle, char* host, char* device, const char* name, int ext, size_t size, int constant,
                       int global);
#if CUDART_VERSION >= 13000
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                               cudaStream_t stream);
#endif

struct harness_split_symbol {
  void* host;
  const char* name;
  size_t bytes;  // 0: a kernel
  size_t constant;
};
extern __attribute__((visibility("hidden"))) char harness_split_fatbin[];
extern __attribute__((visibility("hidden"))) const harness_split_symbol harness_split_symbols[];
}

namespace harness_split {

// A parameter's type as it appears in the function's type. `decltype` of a parameter keeps `restrict` in g++.
template <class T>
struct Passed {
  using type = std::remove_cv_t<T>;
};
template <class T>
struct Passed<T* __restrict__> {
  using type = T*;
};
template <class T>
struct Passed<T* __restrict__ const> {
  using type = T*;
};
template <class T>
using passed = typename Passed<T>::type;

[[noreturn]] inline void never() { std::abort(); }

// Launches as nvcc's stubs of this toolkit do.
class Kernel {
 public:
  template <class F>
  explicit Kernel(F* function) {
#if CUDART_VERSION >= 13000
    (void)__cudaGetKernel(&handle_, reinterpret_cast<const void*>(function));
#else
    handle_ = reinterpret_cast<const void*>(function);
#endif
  }

  void launch(void** arguments) {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
    if (__cudaPopCallConfiguration(&grid, &block, &shared, &stream) != cudaSuccess) return;
#if CUDART_VERSION >= 13000
    (void)__cudaLaunchKernel(handle_, grid, block, arguments, shared, stream);
#else
    (void)cudaLaunchKernel(handle_, grid, block, arguments, shared, stream);
#endif
  }

 private:
#if CUDART_VERSION >= 13000
  cudaKernel_t handle_ = nullptr;
#else
  const void* handle_ = nullptr;
#endif
};

static void** fatbin_handle;
static void unregister_fatbin() { __cudaUnregisterFatBinary(fatbin_handle); }

__attribute__((constructor(200))) static void register_fatbin() {
  fatbin_handle = __cudaRegisterFatBinary(harness_split_fatbin);
  for (const harness_split_symbol* symbol = harness_split_symbols; symbol->host != nullptr; ++symbol) {
    char* name = const_cast<char*>(symbol->name);
    if (symbol->bytes == 0) {
      __cudaRegisterFunction(fatbin_handle, static_cast<const char*>(symbol->host), name, name, -1, nullptr, nullptr,
                             nullptr, nullptr, nullptr);
    } else {
      __cudaRegisterVar(fatbin_handle, static_cast<char*>(symbol->host), name, name, 0, symbol->bytes,
                        static_cast<int>(symbol->constant), 0);
    }
  }
  __cudaRegisterFatBinaryEnd(fatbin_handle);
  atexit(unregister_fatbin);
}

}  // namespace harness_split

template <class T>
inline cudaError_t cudaMemcpyToSymbol(const T& symbol, const void* from, size_t count, size_t offset = 0,
                                      cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
  return ::cudaMemcpyToSymbol((const void*)&symbol, from, count, offset, kind);
}

template <class T>
inline cudaError_t cudaMemcpyToSymbolAsync(const T& symbol, const void* from, size_t count, size_t offset = 0,
                                           cudaMemcpyKind kind = cudaMemcpyHostToDevice, cudaStream_t stream = 0) {
  return ::cudaMemcpyToSymbolAsync((const void*)&symbol, from, count, offset, kind, stream);
}

template <class T>
inline cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t count, size_t offset = 0,
                                        cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
  return ::cudaMemcpyFromSymbol(to, (const void*)&symbol, count, offset, kind);
}

template <class T>
inline cudaError_t cudaMemcpyFromSymbolAsync(void* to, const T& symbol, size_t count, size_t offset = 0,
                                             cudaMemcpyKind kind = cudaMemcpyDeviceToHost, cudaStream_t stream = 0) {
  return ::cudaMemcpyFromSymbolAsync(to, (const void*)&symbol, count, offset, kind, stream);
}

template <class T>
inline cudaError_t cudaGetSymbolAddress(void** address, const T& symbol) {
  return ::cudaGetSymbolAddress(address, (const void*)&symbol);
}

template <class T>
inline cudaError_t cudaGetSymbolSize(size_t* size, const T& symbol) {
  return ::cudaGetSymbolSize(size, (const void*)&symbol);
}

template <class T>
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, T* function) {
  return ::cudaFuncGetAttributes(attributes, (const void*)function);
}

template <class T>
inline cudaError_t cudaFuncSetAttribute(T* function, cudaFuncAttribute attribute, int value) {
  return ::cudaFuncSetAttribute((const void*)function, attribute, value);
}

template <class T>
inline cudaError_t cudaFuncSetCacheConfig(T* function, cudaFuncCache config) {
  return ::cudaFuncSetCacheConfig((const void*)function, config);
}

// CUDA's headers also declare these for host code, but only for nvcc.
#define HARNESS_SPLIT_SMALLER_LARGER(R, A, B) \
  inline R min(A a, B b) {                    \
    const R x = a, y = b;                     \
    return x < y ? x : y;                     \
  }                                           \
  inline R max(A a, B b) {                    \
    const R x = a, y = b;                     \
    return x > y ? x : y;                     \
  }
HARNESS_SPLIT_SMALLER_LARGER(int, int, int)
HARNESS_SPLIT_SMALLER_LARGER(unsigned int, unsigned int, unsigned int)
HARNESS_SPLIT_SMALLER_LARGER(unsigned int, int, unsigned int)
HARNESS_SPLIT_SMALLER_LARGER(unsigned int, unsigned int, int)
HARNESS_SPLIT_SMALLER_LARGER(long, long, long)
HARNESS_SPLIT_SMALLER_LARGER(unsigned long, unsigned long, unsigned long)
HARNESS_SPLIT_SMALLER_LARGER(unsigned long, long, unsigned long)
HARNESS_SPLIT_SMALLER_LARGER(unsigned long, unsigned long, long)
HARNESS_SPLIT_SMALLER_LARGER(long long, long long, long long)
HARNESS_SPLIT_SMALLER_LARGER(unsigned long long, unsigned long long, unsigned long long)
HARNESS_SPLIT_SMALLER_LARGER(unsigned long long, long long, unsigned long long)
HARNESS_SPLIT_SMALLER_LARGER(unsigned long long, unsigned long long, long long)
HARNESS_SPLIT_SMALLER_LARGER(float, float, float)
HARNESS_SPLIT_SMALLER_LARGER(double, double, double)
HARNESS_SPLIT_SMALLER_LARGER(double, float, double)
HARNESS_SPLIT_SMALLER_LARGER(double, double, float)
#undef HARNESS_SPLIT_SMALLER_LARGER
