#include "../lean/index_list.h"

#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

#include <new>
#include <utility>

namespace hostcuda::index_list {

namespace {
using List = c10::List<std::optional<at::Tensor>>;
static_assert(sizeof(List) == bytes, "torch's list is laid out otherwise than the lean headers say");
const List& list(const void* place) { return *static_cast<const List*>(place); }
}  // namespace

void make(void* place) { new (place) List(); }
void copy(void* place, const void* from) { new (place) List(list(from)); }
void destroy(void* place) noexcept { static_cast<List*>(place)->~List(); }
void reserve(const void* place, std::size_t count) { list(place).reserve(count); }
void append(const void* place, std::optional<at::Tensor>&& item) { list(place).push_back(std::move(item)); }
std::size_t size(const void* place) { return list(place).size(); }
std::optional<at::Tensor> item(const void* place, std::size_t position) { return list(place).get(position); }

}  // namespace hostcuda::index_list
