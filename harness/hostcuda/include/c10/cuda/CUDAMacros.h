// Visibility macros of torch's CUDA library, which this device does not have.
#pragma once
#define C10_CUDA_EXPORT
#define C10_CUDA_IMPORT
#define C10_CUDA_API
