#include "iterators.cuh"
