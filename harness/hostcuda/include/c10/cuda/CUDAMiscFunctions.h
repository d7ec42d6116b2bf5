#pragma once
#include "c10/cuda/CUDAMacros.h"
#include "cuda_runtime.h"
