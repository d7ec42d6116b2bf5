#include "device_select.cuh"
