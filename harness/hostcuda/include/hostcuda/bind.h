// Python bindings without pybind11: one C function a bound function, converted by type. Accepts and refuses what torch's pybind11 casters
// accept and refuse for the types that solutions use; whatever else does not compile, and the build falls back to pybind11.
#pragma once
#include <Python.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace hostcuda::bind {

// Implemented by the bridge library, which alone is compiled against torch's Python headers.
bool tensor_from(PyObject* object, at::Tensor& out);
PyObject* tensor_to(const at::Tensor& tensor);
bool dtype_from(PyObject* object, at::ScalarType& out);
PyObject* dtype_to(at::ScalarType dtype);
bool device_from(PyObject* object, at::Device& out);
bool scalar_from(PyObject* object, at::Scalar& out);
void raise_current_exception();  // of C++, as a Python one

template <class T, class = void> struct Converter;

template <> struct Converter<at::Tensor> {
    static constexpr const char* name = "torch.Tensor";
    static bool from(PyObject* o, at::Tensor& out) { return tensor_from(o, out); }
    static PyObject* to(const at::Tensor& v) { return tensor_to(v); }
};
template <> struct Converter<bool> {
    static constexpr const char* name = "bool";
    static bool from(PyObject* o, bool& out) {
        if (o != Py_True && o != Py_False) return false;
        out = o == Py_True;
        return true;
    }
    static PyObject* to(bool v) { return PyBool_FromLong(v); }
};
template <class T> struct Converter<T, std::enable_if_t<std::is_integral_v<T>>> {
    static constexpr const char* name = "int";
    static bool from(PyObject* o, T& out) {
        if (PyFloat_Check(o)) return false;
        PyObject* index = PyNumber_Index(o);
        if (index == nullptr) return PyErr_Clear(), false;
        const long long value = PyLong_AsLongLong(index);
        const bool failed = value == -1 && PyErr_Occurred() != nullptr;
        Py_DECREF(index);
        if (failed) return PyErr_Clear(), false;
        out = static_cast<T>(value);
        return static_cast<long long>(out) == value && (value >= 0 || std::is_signed_v<T>);
    }
    static PyObject* to(T v) {
        if constexpr (std::is_signed_v<T>) return PyLong_FromLongLong(v);
        else return PyLong_FromUnsignedLongLong(v);
    }
};
template <class T> struct Converter<T, std::enable_if_t<std::is_floating_point_v<T>>> {
    static constexpr const char* name = "float";
    static bool from(PyObject* o, T& out) {
        const double value = PyFloat_AsDouble(o);
        if (value == -1.0 && PyErr_Occurred() != nullptr) return PyErr_Clear(), false;
        out = static_cast<T>(value);
        return true;
    }
    static PyObject* to(T v) { return PyFloat_FromDouble(v); }
};
template <> struct Converter<std::string> {
    static constexpr const char* name = "str";
    static bool from(PyObject* o, std::string& out) {
        if (!PyUnicode_Check(o)) return false;
        Py_ssize_t size = 0;
        const char* text = PyUnicode_AsUTF8AndSize(o, &size);
        if (text == nullptr) return PyErr_Clear(), false;
        out.assign(text, static_cast<std::size_t>(size));
        return true;
    }
    static PyObject* to(const std::string& v) { return PyUnicode_FromStringAndSize(v.data(), static_cast<Py_ssize_t>(v.size())); }
};
template <> struct Converter<at::ScalarType> {
    static constexpr const char* name = "torch.dtype";
    static bool from(PyObject* o, at::ScalarType& out) { return dtype_from(o, out); }
    static PyObject* to(at::ScalarType v) { return dtype_to(v); }
};
template <> struct Converter<at::Scalar> {
    static constexpr const char* name = "Number";
    static bool from(PyObject* o, at::Scalar& out) { return scalar_from(o, out); }
};
template <class T> struct Converter<std::optional<T>> {
    static constexpr const char* name = Converter<T>::name;
    static bool from(PyObject* o, std::optional<T>& out) {
        if (o == Py_None) return out.reset(), true;
        T value{};
        if (!Converter<T>::from(o, value)) return false;
        out = std::move(value);
        return true;
    }
    static PyObject* to(const std::optional<T>& v) {
        if (!v.has_value()) Py_RETURN_NONE;
        return Converter<T>::to(*v);
    }
};
template <class T> struct Converter<std::vector<T>> {
    static constexpr const char* name = "list";
    static bool from(PyObject* o, std::vector<T>& out) {
        if (PyUnicode_Check(o) || PyBytes_Check(o) || !PySequence_Check(o)) return false;
        PyObject* fast = PySequence_Fast(o, "");
        if (fast == nullptr) return PyErr_Clear(), false;
        const Py_ssize_t size = PySequence_Fast_GET_SIZE(fast);
        bool good = true;
        out.clear();
        for (Py_ssize_t i = 0; good && i < size; ++i) {
            T value{};
            good = Converter<T>::from(PySequence_Fast_GET_ITEM(fast, i), value);
            out.push_back(std::move(value));
        }
        Py_DECREF(fast);
        return good;
    }
    static PyObject* to(const std::vector<T>& v) {
        PyObject* list = PyList_New(static_cast<Py_ssize_t>(v.size()));
        for (std::size_t i = 0; list != nullptr && i < v.size(); ++i) {
            PyObject* item = Converter<T>::to(v[i]);
            if (item == nullptr) { Py_DECREF(list); return nullptr; }
            PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), item);
        }
        return list;
    }
};
template <class... T> struct TupleConverter {
    template <class Tuple, std::size_t... I> static PyObject* pack(const Tuple& v, std::index_sequence<I...>) {
        PyObject* items[] = {Converter<T>::to(std::get<I>(v))...};
        PyObject* tuple = PyTuple_New(sizeof...(T));
        bool good = tuple != nullptr;
        for (PyObject* item : items) good = good && item != nullptr;
        for (std::size_t i = 0; i < sizeof...(T); ++i) {
            if (good) PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), items[i]);
            else Py_XDECREF(items[i]);
        }
        if (!good) { Py_XDECREF(tuple); return nullptr; }
        return tuple;
    }
};
template <class... T> struct Converter<std::tuple<T...>> {
    static constexpr const char* name = "tuple";
    static PyObject* to(const std::tuple<T...>& v) { return TupleConverter<T...>::pack(v, std::index_sequence_for<T...>{}); }
};
template <class A, class B> struct Converter<std::pair<A, B>> {
    static constexpr const char* name = "tuple";
    static PyObject* to(const std::pair<A, B>& v) { return TupleConverter<A, B>::pack(v, std::index_sequence<0, 1>{}); }
};

// What an argument is held in: values, and owners for views.
template <class T> struct Held { using type = std::decay_t<T>; };
template <> struct Held<at::TensorList> { using type = std::vector<at::Tensor>; };
template <> struct Held<at::IntArrayRef> { using type = std::vector<std::int64_t>; };

template <class... A> PyObject* refused(const char* name, PyObject* const* given, Py_ssize_t count) {
    std::string text = std::string(name) + "(): incompatible function arguments. The following argument types are supported:\n    1. (";
    const char* types[] = {Converter<typename Held<std::decay_t<A>>::type>::name..., ""};
    for (std::size_t i = 0; i < sizeof...(A); ++i) text += (i ? ", arg" : "arg") + std::to_string(i) + ": " + types[i];
    text += ")\n\nInvoked with types: ";
    for (Py_ssize_t i = 0; i < count; ++i) text += (i ? ", " : "") + std::string(Py_TYPE(given[i])->tp_name);
    PyErr_SetString(PyExc_TypeError, text.c_str());
    return nullptr;
}

template <class R, class... A, std::size_t... I>
PyObject* apply(const char* name, R (*function)(A...), PyObject* const* given, Py_ssize_t count, std::index_sequence<I...>) {
    std::tuple<typename Held<std::decay_t<A>>::type...> values;
    bool good = count == static_cast<Py_ssize_t>(sizeof...(A));
    if (good) good = (Converter<typename Held<std::decay_t<A>>::type>::from(given[I], std::get<I>(values)) && ...);
    if (!good) return refused<A...>(name, given, count);
    try {
        if constexpr (std::is_void_v<R>) {
            function(static_cast<A>(std::get<I>(values))...);
            Py_RETURN_NONE;
        } else {
            return Converter<std::decay_t<R>>::to(function(static_cast<A>(std::get<I>(values))...));
        }
    } catch (...) {
        raise_current_exception();
        return nullptr;
    }
}
template <class R, class... A> PyObject* apply(const char* name, R (*function)(A...), PyObject* const* given, Py_ssize_t count) {
    return apply(name, function, given, count, std::index_sequence_for<A...>{});
}

// An argument that can be given by its name; `make` gives what it is where it is left out, and is null where it may not be.
struct Named {
    const char* name;
    PyObject* (*make)();
};
inline PyObject* made(bool v) { return PyBool_FromLong(v); }
inline PyObject* made(int v) { return PyLong_FromLong(v); }
inline PyObject* made(double v) { return PyFloat_FromDouble(v); }
inline PyObject* made(float v) { return PyFloat_FromDouble(v); }
inline PyObject* made(std::nullptr_t) { return Py_NewRef(Py_None); }

// `given` are `count` by their places, and behind them those whose names are in `names`, a tuple or null.
template <std::size_t N, class R, class... A>
PyObject* apply_named(const char* name, R (*function)(A...), const Named (&named)[N], PyObject* const* given, Py_ssize_t count, PyObject* names) {
    static_assert(N == sizeof...(A), "number of argument annotations does not match the number of arguments of the function");
    PyObject* places[N] = {};
    PyObject* ours[N] = {};
    const Py_ssize_t more = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
    bool good = count <= static_cast<Py_ssize_t>(N);
    for (Py_ssize_t i = 0; good && i < count; ++i) places[i] = given[i];
    for (Py_ssize_t k = 0; good && k < more; ++k) {
        std::size_t i = 0;
        while (i < N && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, k), named[i].name) != 0) ++i;
        good = i < N && places[i] == nullptr;
        if (good) places[i] = given[count + k];
    }
    for (std::size_t i = 0; good && i < N; ++i) {
        if (places[i] == nullptr && named[i].make != nullptr) places[i] = ours[i] = named[i].make();
        good = places[i] != nullptr;
    }
    // Refused as what it is, whatever it has too few or too many of.
    PyObject* result = good ? apply(name, function, places, static_cast<Py_ssize_t>(N)) : refused<A...>(name, given, count + more);
    for (PyObject* each : ours) Py_XDECREF(each);
    return result;
}

}  // namespace hostcuda::bind

#define HOSTCUDA_METHOD(function, name)                                                                             \
    {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(                                              \
               +[](PyObject*, PyObject* const* given, Py_ssize_t count) -> PyObject* {                              \
                   return hostcuda::bind::apply(name, &function, given, count);                                     \
               })), METH_FASTCALL, name}
#define HOSTCUDA_NAMED_METHOD(function, name, ...)                                                                  \
    {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(                                              \
               +[](PyObject*, PyObject* const* given, Py_ssize_t count, PyObject* names) -> PyObject* {             \
                   static const hostcuda::bind::Named named[] = {__VA_ARGS__};                                      \
                   return hostcuda::bind::apply_named(name, &function, named, given, count, names);                 \
               })), METH_FASTCALL | METH_KEYWORDS, name}
