// What the build precompiles: torch and the standard library, before CUDA's words are defined. CUDA's own headers (unit.h) are read anew by
// every unit, because the author's switches decide what they declare.
#pragma once
#include <Python.h>
#include <torch/types.h>
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#ifdef HOSTCUDA_FULL
#include <torch/extension.h>
#endif
#include <algorithm>
#include <array>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <vector>
