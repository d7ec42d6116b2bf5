#pragma once
#include "ATen/cuda/CUDAContext.h"
#include "ATen/cuda/Exceptions.h"
#include "c10/cuda/CUDAEvent.h"
#include "c10/cuda/CUDAGuard.h"
#include "cuda_fp16.h"
