// CUDA's headers that every unit has with nvcc, and what the translated source calls. The author's switches (__CUDA_NO_HALF_OPERATORS__ and
// the like) decide what they declare. No other header of CUDA or torch belongs here: a source that uses its names must include it.
#pragma once
#include "assert.h"
#include "cuda_runtime.h"
#include "hostcuda/ptx_table.h"
