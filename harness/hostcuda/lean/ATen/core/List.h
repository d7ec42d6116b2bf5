// Stands in for torch's lists of boxed values, which bring along the interpreter's types: every unit would instantiate thousands of
// functions of theirs. A lean unit makes no boxed list but that of an indexing expression; whatever else needs one does not compile, and is
// compiled again with the real header.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <iterator>
#include <optional>

#include "../../index_list.h"

namespace hostcuda::lean {

[[noreturn]] inline void no_boxed_list() { TORCH_CHECK(false, "hostcuda: a boxed list in a unit compiled with the lean headers"); }

// What torch's references to lists, boxed or not, ask of a boxed one.
struct BoxedValue {
    bool isNone() const { no_boxed_list(); }
    const at::Tensor& toTensor() const { no_boxed_list(); }
};
struct BoxedElement {
    const BoxedValue& get() const { no_boxed_list(); }
    operator const at::Tensor&() const { no_boxed_list(); }
};
struct BoxedIterator {
    using iterator_category = std::random_access_iterator_tag;
    using value_type = BoxedElement;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = BoxedElement;
    BoxedElement operator*() const { no_boxed_list(); }
    BoxedIterator& operator++() { no_boxed_list(); }
    BoxedIterator& operator--() { no_boxed_list(); }
    bool operator==(const BoxedIterator&) const { no_boxed_list(); }
    bool operator!=(const BoxedIterator&) const { no_boxed_list(); }
};
struct BoxedList {
    using const_iterator = BoxedIterator;
    const_iterator begin() const { no_boxed_list(); }
    const_iterator end() const { no_boxed_list(); }
    std::size_t size() const { no_boxed_list(); }
    bool empty() const { no_boxed_list(); }
    BoxedElement operator[](std::size_t) const { no_boxed_list(); }
};


// The items of an indexing expression's list.
struct IndexItem {
    const void* list;
    std::size_t position;
    operator std::optional<at::Tensor>() const { return index_list::item(list, position); }
    const BoxedValue& get() const { no_boxed_list(); }
};
struct IndexIterator {
    using iterator_category = std::random_access_iterator_tag;
    using value_type = IndexItem;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = IndexItem;
    const void* list = nullptr;
    std::size_t position = 0;
    IndexItem operator*() const { return {list, position}; }
    IndexIterator& operator++() { return ++position, *this; }
    IndexIterator& operator--() { return --position, *this; }
    bool operator==(const IndexIterator& other) const { return position == other.position; }
    bool operator!=(const IndexIterator& other) const { return position != other.position; }
};

}  // namespace hostcuda::lean

namespace c10 {

template <class T> class List : public hostcuda::lean::BoxedList {
  public:
    List() = delete;
    List(const List&) = delete;
    List& operator=(const List&) = delete;
};

template <> class List<std::optional<at::Tensor>> {
  public:
    using const_iterator = hostcuda::lean::IndexIterator;
    List() { hostcuda::index_list::make(place_); }
    List(const List& other) { hostcuda::index_list::copy(place_, other.place_); }
    List& operator=(const List&) = delete;
    ~List() { hostcuda::index_list::destroy(place_); }
    void reserve(std::size_t count) const { hostcuda::index_list::reserve(place_, count); }
    void push_back(std::optional<at::Tensor>&& item) const { hostcuda::index_list::append(place_, std::move(item)); }
    std::size_t size() const { return hostcuda::index_list::size(place_); }
    bool empty() const { return size() == 0; }
    const_iterator begin() const { return {place_, 0}; }
    const_iterator end() const { return {place_, size()}; }
    hostcuda::lean::IndexItem operator[](std::size_t position) const { return {place_, position}; }
    std::optional<at::Tensor> get(std::size_t position) const { return hostcuda::index_list::item(place_, position); }

  private:
    alignas(void*) unsigned char place_[hostcuda::index_list::bytes];
};

}  // namespace c10

namespace torch {

template <class T> using List = c10::List<T>;

}  // namespace torch
