// Python bindings for an extension's functions without pybind11 in its translation unit. The conversions are those of
// pybind11 and torch, compiled once in a library (`harness_bindings.cpp`). A function with any other type in its
// signature does not compile with this header; it is then bound by pybind11.

#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#define HARNESS_BINDINGS_TYPES(_)           \
  _(1, at::Tensor)                          \
  _(2, bool)                                \
  _(3, int)                                 \
  _(4, long)                                \
  _(5, long long)                           \
  _(6, unsigned int)                        \
  _(7, unsigned long)                       \
  _(8, unsigned long long)                  \
  _(9, float)                               \
  _(10, double)                             \
  _(11, std::string)                        \
  _(12, std::vector<at::Tensor>)            \
  _(13, std::vector<long>)                  \
  _(14, std::vector<int>)                   \
  _(15, std::vector<double>)                \
  _(16, std::vector<float>)                 \
  _(17, std::optional<at::Tensor>)          \
  _(18, std::optional<long>)                \
  _(19, std::optional<double>)

#define HARNESS_BINDINGS_RESULTS(_)                                      \
  _(20, std::tuple<at::Tensor, at::Tensor>)                              \
  _(21, std::tuple<at::Tensor, at::Tensor, at::Tensor>)                  \
  _(22, std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>)      \
  _(23, std::pair<at::Tensor, at::Tensor>)

namespace harness_bindings {

// One function. `arguments` holds a type number from the lists above for each parameter; `result` holds one, or 0 for
// void.
struct Function {
  const char* name;
  const char* doc;
  void (*call)(void** arguments, void* result);
  int result;
  int count;
  const int* arguments;
  bool guarded;  // translate torch's exceptions
};

// Creates a Python module; returns null with a Python exception set on failure. Defined in the library.
void* module(const char* name, const Function* functions, std::size_t count);

template <class T>
struct Number;
template <>
struct Number<void> {
  static constexpr int value = 0;
};
#define HARNESS_BINDINGS_NUMBER(number, ...)   \
  template <>                                  \
  struct Number<__VA_ARGS__> {                 \
    static constexpr int value = number;       \
  };
HARNESS_BINDINGS_TYPES(HARNESS_BINDINGS_NUMBER)
HARNESS_BINDINGS_RESULTS(HARNESS_BINDINGS_NUMBER)
#undef HARNESS_BINDINGS_NUMBER

template <class T>
using Plain = std::remove_cv_t<std::remove_reference_t<T>>;

template <auto F>
struct Bound;

template <class R, class... A, R (*F)(A...)>
struct Bound<F> {
  static constexpr int result = Number<Plain<R>>::value;
  static constexpr int count = sizeof...(A);
  static constexpr int arguments[] = {Number<Plain<A>>::value..., 0};
  static_assert(((Number<Plain<A>>::value < 20) && ...), "this type is supported as a result only");

  template <std::size_t... I>
  static void call_with(void** values, void* result, std::index_sequence<I...>) {
    if constexpr (std::is_void_v<R>) {
      F(static_cast<A&&>(*static_cast<Plain<A>*>(values[I]))...);
    } else {
      new (result) Plain<R>(F(static_cast<A&&>(*static_cast<Plain<A>*>(values[I]))...));
    }
  }

  static void call(void** values, void* result) { call_with(values, result, std::index_sequence_for<A...>()); }
};

template <auto F>
constexpr Function bound(const char* name, const char* doc, bool guarded) {
  return {name, doc, &Bound<F>::call, Bound<F>::result, Bound<F>::count, Bound<F>::arguments, guarded};
}

}  // namespace harness_bindings

#define HARNESS_BINDINGS_ENTRY_(name) PyInit_##name
#define HARNESS_BINDINGS_ENTRY(name) HARNESS_BINDINGS_ENTRY_(name)
#define HARNESS_BINDINGS_TEXT_(name) #name
#define HARNESS_BINDINGS_TEXT(name) HARNESS_BINDINGS_TEXT_(name)
#define HARNESS_BINDINGS_MODULE(extension, ...)                                                                \
  extern "C" __attribute__((visibility("default"))) void* HARNESS_BINDINGS_ENTRY(extension)() {                \
    static const ::harness_bindings::Function functions[] = {__VA_ARGS__};                                     \
    return ::harness_bindings::module(HARNESS_BINDINGS_TEXT(extension), functions,                             \
                                      sizeof(functions) / sizeof(functions[0]));                               \
  }
