#include "hostcuda/torch_blas.h"
