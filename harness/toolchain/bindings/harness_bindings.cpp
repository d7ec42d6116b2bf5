// Library for `harness_bindings.h`: does what pybind11's `m.def(name, torch::wrap_pybind_function(f), doc)` does, with
// the types of `f` given as numbers. Compiled once per torch, and linked into every module that needs it.

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "harness_bindings.h"

#include <memory>
#include <new>

namespace harness_bindings {
namespace {

namespace py = pybind11;

// One argument of one call, converted from Python.
struct Slot {
  virtual ~Slot() = default;
  virtual bool load(py::handle from, bool convert) = 0;
  virtual void* value() = 0;
};

template <class T>
struct SlotOf final : Slot {
  py::detail::make_caster<T> caster;
  bool load(py::handle from, bool convert) override { return caster.load(from, convert); }
  void* value() override { return &py::detail::cast_op<T&>(caster); }
};

struct Texts {
  const char* text;
  const std::type_info* const* types;
};

template <class T>
Texts argument_text() {
  static constexpr auto name = py::detail::argument_loader<T>::arg_names;
  static constexpr auto types = std::decay_t<decltype(name)>::types();
  return {name.text, types.data()};
}

template <class R>
Texts result_text() {
  using cast_in = py::detail::argument_loader<>;
  using cast_out = py::detail::make_caster<R>;
#ifdef PYBIND11_READABLE_FUNCTION_SIGNATURE_EXPR
  using namespace py::detail;
  static constexpr auto text = PYBIND11_READABLE_FUNCTION_SIGNATURE_EXPR;
#else
  static constexpr auto text = py::detail::const_name("() -> ") + cast_out::name;
#endif
  static constexpr auto types = std::decay_t<decltype(text)>::types();
  (void)sizeof(cast_in);
  return {text.text + 6, types.data()};
}

// Functions for one type number.
struct Known {
  std::unique_ptr<Slot> (*slot)();
  Texts (*as_argument)();
  Texts (*as_result)();
  py::handle (*run)(const Function& function, void** values, py::return_value_policy policy, py::handle parent);
};

template <class R>
py::handle run(const Function& function, void** values, py::return_value_policy policy, py::handle parent) {
  alignas(R) unsigned char room[sizeof(R)];
  function.call(values, room);
  R* made = std::launder(reinterpret_cast<R*>(room));
  struct End {
    R* made;
    ~End() { made->~R(); }
  } end{made};
  return py::detail::make_caster<R>::cast(std::move(*made), policy, parent);
}

py::handle run_void(const Function& function, void** values, py::return_value_policy, py::handle) {
  function.call(values, nullptr);
  return py::none().release();
}

template <class T>
std::unique_ptr<Slot> slot_of() {
  return std::make_unique<SlotOf<T>>();
}

const Known& known(int number) {
#define HARNESS_BINDINGS_ARGUMENT(number, ...) \
  {&slot_of<__VA_ARGS__>, &argument_text<__VA_ARGS__>, &result_text<__VA_ARGS__>, &run<__VA_ARGS__>},
#define HARNESS_BINDINGS_RESULT(number, ...) {nullptr, nullptr, &result_text<__VA_ARGS__>, &run<__VA_ARGS__>},
  static const Known all[] = {{nullptr, nullptr, &result_text<py::detail::void_type>, &run_void},
                              HARNESS_BINDINGS_TYPES(HARNESS_BINDINGS_ARGUMENT)
                                  HARNESS_BINDINGS_RESULTS(HARNESS_BINDINGS_RESULT)};
  return all[number];
}

py::handle guarded(const Function& function, void** values, py::return_value_policy policy, py::handle parent) {
  auto call = [&]() -> py::handle {
    HANDLE_TH_ERRORS
    return known(function.result).run(function, values, policy, parent);
    END_HANDLE_TH_ERRORS_PYBIND
  };
  return call();
}

class Binding : public py::cpp_function {
 public:
  Binding(const Function& function, const py::module_& scope) {
    auto record = make_function_record();
    auto* rec = record.get();
    rec->data[0] = const_cast<Function*>(&function);
    rec->impl = [](py::detail::function_call& call) -> py::handle {
      const auto& function = *static_cast<const Function*>(call.func.data[0]);
      std::vector<std::unique_ptr<Slot>> slots;
      std::vector<void*> values;
      slots.reserve(function.count);
      values.reserve(function.count + 1);
      for (int i = 0; i < function.count; ++i) {
        slots.push_back(known(function.arguments[i]).slot());
        if (!slots.back()->load(call.args[i], call.args_convert[i])) return PYBIND11_TRY_NEXT_OVERLOAD;
      }
      for (auto& slot : slots) values.push_back(slot->value());
      values.push_back(nullptr);
      if (function.guarded) return guarded(function, values.data(), call.func.policy, call.parent);
      return known(function.result).run(function, values.data(), call.func.policy, call.parent);
    };
    rec->nargs_pos = static_cast<std::uint16_t>(function.count);
    rec->has_args = false;
    rec->has_kwargs = false;
    using Attributes = py::detail::process_attributes<py::name, py::scope, py::sibling, const char*>;
    Attributes::init(py::name(function.name), py::scope(scope),
                     py::sibling(py::getattr(scope, function.name, py::none())), function.doc, rec);
    std::string text = "(";
    std::vector<const std::type_info*> types;
    for (int i = 0; i < function.count; ++i) {
      if (i > 0) text += ", ";
      add(text, types, known(function.arguments[i]).as_argument());
    }
    text += ") -> ";
    add(text, types, known(function.result).as_result());
    types.push_back(nullptr);
    initialize_generic(std::move(record), text.c_str(), types.data(), static_cast<std::size_t>(function.count));
  }

 private:
  static void add(std::string& text, std::vector<const std::type_info*>& types, Texts more) {
    text += more.text;
    for (auto* type = more.types; type != nullptr && *type != nullptr; ++type) types.push_back(*type);
  }
};

}  // namespace

void* module(const char* name, const Function* functions, std::size_t count) {
  try {
    py::detail::get_internals();
    auto made = py::module_::create_extension_module(name, nullptr, new PyModuleDef());
    for (std::size_t i = 0; i < count; ++i) {
      made.add_object(functions[i].name, Binding(functions[i], made), true /* overwrite */);
    }
    return made.ptr();
  }
  PYBIND11_CATCH_INIT_EXCEPTIONS
  return nullptr;
}

}  // namespace harness_bindings
