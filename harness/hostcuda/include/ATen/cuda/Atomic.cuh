// torch's atomics that CUDA has not. NaN spreads through the extremes, as in torch.
#pragma once
#include "hostcuda/torch_cuda.h"

template <class T> inline T gpuAtomicMul(T* p, T v) {
    return hostcuda::atomic_update(p, [v](T old) { return static_cast<T>(old * v); });
}
template <class T> inline T gpuAtomicMax(T* p, T v) {
    return hostcuda::atomic_update(p, [v](T old) { return old != old || old > v ? old : v; });
}
template <class T> inline T gpuAtomicMin(T* p, T v) {
    return hostcuda::atomic_update(p, [v](T old) { return old != old || old < v ? old : v; });
}
