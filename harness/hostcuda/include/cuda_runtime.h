// CUDA's main header on the host device: the runtime API, the built-ins of device code, vector types, math.
#ifndef HOSTCUDA_CUDA_RUNTIME_H
#define HOSTCUDA_CUDA_RUNTIME_H
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_runtime_api.h"
#include "hostcuda/device.h"
#include "hostcuda/launch.h"
#include "hostcuda/math_intrinsics.h"
#include "library_types.h"
#include "vector_functions.h"
#include "vector_types.h"
#endif
