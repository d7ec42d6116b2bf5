// A list of optional tensors, as torch's indexing takes it, for units that don't see torch's own: `place` is memory for one
// c10::List<std::optional<at::Tensor>>. Implemented by the bridge library.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace hostcuda::index_list {

constexpr std::size_t bytes = sizeof(void*);

void make(void* place);
void copy(void* place, const void* from);
void destroy(void* place) noexcept;
void reserve(const void* place, std::size_t count);
void append(const void* place, std::optional<at::Tensor>&& item);
std::size_t size(const void* place);
std::optional<at::Tensor> item(const void* place, std::size_t position);

}  // namespace hostcuda::index_list
