// What every CUDA unit begins with, behind torch's headers if it has them (HOSTCUDA_TORCH): CUDA's, then the compiler's words that a CUDA source may ask for (torch's
// headers ask too).
#pragma once
#include "hostcuda/headers.h"
#ifdef HOSTCUDA_TORCH
#include "hostcuda/bind.h"
#include "hostcuda/torch_unit.h"
#endif

#define __CUDACC__ 1
#define __NVCC__ 1
#define __CUDA_ARCH__ 900
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0

// The words by which the translation tells the sides, which reads the source behind the preprocessor. It puts in their place what qualifiers.h has.
#undef __host__
#undef __device__
#undef __global__
#undef __constant__
#undef __managed__
#undef __grid_constant__
#undef __launch_bounds__
#undef __cluster_dims__
#undef __maxnreg__
#ifdef HOSTCUDA_TORCH
#undef C10_HOST_DEVICE
#undef C10_DEVICE
#undef C10_HOST
#define C10_HOST_DEVICE __host__ __device__
#define C10_DEVICE __device__
#define C10_HOST __host__
#endif
