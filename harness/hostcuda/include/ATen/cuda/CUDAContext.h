#pragma once
#include <c10/util/Logging.h>

#include "ATen/cuda/CUDAContextLight.h"
#include "ATen/cuda/Exceptions.h"
#include "c10/cuda/CUDAStream.h"
