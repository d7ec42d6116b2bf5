/*
summary: Thrust's union of two sorted ranges, into memory for the longer one of them
inputs:
  a: torch.arange(0, 600, 2, dtype=torch.int32)
  b: torch.arange(0, 300, 3, dtype=torch.int32)
outputs:
  either: new(300, dtype=torch.int32)
sizes: [300, 100]
twin: thrust_sets
defect:
  status: memory_error
  kernel: thrust::set_union
  tool: memcheck
*/
#include <cuda_runtime.h>
#include <thrust/device_ptr.h>
#include <thrust/set_operations.h>

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const thrust::device_ptr<const int> a((const int*)in[0]), b((const int*)in[1]);
    thrust::set_union(a, a + size[0], b, b + size[1], thrust::device_pointer_cast((int*)out[0]));  // defect
}
