#include "util.cuh"
