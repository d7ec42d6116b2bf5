// The compiler's words that a CUDA source may ask for, once torch's headers (which ask too) are behind.
#pragma once
#define __CUDACC__ 1
#define __NVCC__ 1
#define __CUDA_ARCH__ 900
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
