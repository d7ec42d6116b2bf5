// CUB as its documentation has it: the same results where it defines them, temporary storage in shared memory with the barriers it documents,
// so that reusing it too early is found. What is not here does not compile, and is reported as not emulated.
#ifndef HOSTCUDA_CUB_H
#define HOSTCUDA_CUB_H
#include "block/block_adjacent_difference.cuh"
#include "block/block_discontinuity.cuh"
#include "block/block_exchange.cuh"
#include "block/block_histogram.cuh"
#include "block/block_load.cuh"
#include "block/block_merge_sort.cuh"
#include "block/block_radix_sort.cuh"
#include "block/block_reduce.cuh"
#include "block/block_scan.cuh"
#include "block/block_shuffle.cuh"
#include "block/block_store.cuh"
#include "device/device_radix_sort.cuh"
#include "device/device_reduce.cuh"
#include "device/device_run_length_encode.cuh"
#include "device/device_scan.cuh"
#include "device/device_segmented_radix_sort.cuh"
#include "device/device_segmented_reduce.cuh"
#include "device/device_select.cuh"
#include "iterator/iterators.cuh"
#include "util.cuh"
#include "warp/warp_reduce.cuh"
#include "warp/warp_scan.cuh"
#endif
