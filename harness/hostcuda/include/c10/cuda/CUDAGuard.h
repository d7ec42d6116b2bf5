#include "hostcuda/torch_cuda.h"
