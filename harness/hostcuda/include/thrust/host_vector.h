// A vector of the host's.
#pragma once
#include <vector>

#include "device_vector.h"
