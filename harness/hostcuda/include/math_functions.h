// An older name for what cuda_runtime.h brings.
#include "hostcuda/math_intrinsics.h"
