// What every unit begins with, behind all of torch's headers: CUDA's, then the compiler's words that a CUDA source may ask for (torch's
// headers ask too).
#pragma once
#include "hostcuda/headers.h"

#define __CUDACC__ 1
#define __NVCC__ 1
#define __CUDA_ARCH__ 900
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
