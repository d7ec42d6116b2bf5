// "cuda" tensors over CPU memory.
#pragma once
#include <ATen/core/Tensor.h>

namespace hostcuda::bridge {

void activate();                              // registers the device; once a process
bool activated();
void add_hooks();                             // autograd finds the device
std::size_t allocated_bytes();                // of "cuda" tensors now
at::Tensor as_device(const at::Tensor& t);    // the same memory as a "cuda" tensor, and known to checked mode as device memory
at::Tensor relabelled(const at::Tensor& t);   // the same where checked mode knows the memory already
at::Tensor as_host(const at::Tensor& t);      // the same memory as a "cpu" tensor

}  // namespace hostcuda::bridge
