// The bridge's Python side: conversions for bound functions (include/hostcuda/bind.h), and the module hostcuda_bridge that the shim uses.
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "device.h"
#include "graph.h"
#include "hostcuda/bind.h"

namespace hostcuda::bind {

bool tensor_from(PyObject* object, at::Tensor& out) {
    if (!THPVariable_Check(object)) return false;
    out = THPVariable_Unpack(object);
    return true;
}
PyObject* tensor_to(const at::Tensor& tensor) { return THPVariable_Wrap(tensor); }
bool dtype_from(PyObject* object, at::ScalarType& out) {
    if (!THPDtype_Check(object)) return false;
    out = reinterpret_cast<THPDtype*>(object)->scalar_type;
    return true;
}
PyObject* dtype_to(at::ScalarType dtype) { return Py_NewRef(reinterpret_cast<PyObject*>(torch::getTHPDtype(dtype))); }
bool device_from(PyObject* object, at::Device& out) {
    if (!THPDevice_Check(object)) return false;
    out = reinterpret_cast<THPDevice*>(object)->device;
    return true;
}
bool scalar_from(PyObject* object, at::Scalar& out) {
    if (PyBool_Check(object)) return out = object == Py_True, true;
    if (PyLong_Check(object)) return out = static_cast<std::int64_t>(PyLong_AsLongLong(object)), PyErr_Occurred() == nullptr;
    if (PyFloat_Check(object)) return out = PyFloat_AsDouble(object), true;
    return false;
}
void raise_current_exception() {
    try {
        throw;
    } catch (python_error& e) {
        e.restore();
    } catch (const c10::IndexError& e) {
        PyErr_SetString(PyExc_IndexError, e.what_without_backtrace());
    } catch (const c10::ValueError& e) {
        PyErr_SetString(PyExc_ValueError, e.what_without_backtrace());
    } catch (const c10::TypeError& e) {
        PyErr_SetString(PyExc_TypeError, e.what_without_backtrace());
    } catch (const c10::NotImplementedError& e) {
        PyErr_SetString(PyExc_NotImplementedError, e.what_without_backtrace());
    } catch (const c10::Error& e) {
        PyErr_SetString(PyExc_RuntimeError, e.what_without_backtrace());
    } catch (const std::bad_alloc& e) {
        PyErr_SetString(PyExc_MemoryError, e.what());
    } catch (const std::invalid_argument& e) {
        PyErr_SetString(PyExc_ValueError, e.what());
    } catch (const std::out_of_range& e) {
        PyErr_SetString(PyExc_IndexError, e.what());
    } catch (const std::exception& e) {
        PyErr_SetString(PyExc_RuntimeError, e.what());
    } catch (...) {
        PyErr_SetString(PyExc_RuntimeError, "Unknown C++ exception");
    }
}

}  // namespace hostcuda::bind

namespace {

void activate() {
    hostcuda::bridge::activate();
    hostcuda::bridge::add_hooks();
}
std::size_t allocated_bytes() { return hostcuda::bridge::allocated_bytes(); }
at::Tensor as_device(const at::Tensor& t) { return hostcuda::bridge::as_device(t); }
at::Tensor as_host(const at::Tensor& t) { return hostcuda::bridge::as_host(t); }
using hostcuda::bridge::graph_begin;
using hostcuda::bridge::graph_end;
using hostcuda::bridge::graph_free;
using hostcuda::bridge::graph_pool;
using hostcuda::bridge::graph_replay;

PyMethodDef methods[] = {
    HOSTCUDA_METHOD(activate, "activate"),
    HOSTCUDA_METHOD(allocated_bytes, "allocated_bytes"),
    HOSTCUDA_METHOD(as_device, "as_device"),
    HOSTCUDA_METHOD(as_host, "as_host"),
    HOSTCUDA_METHOD(graph_begin, "graph_begin"),
    HOSTCUDA_METHOD(graph_end, "graph_end"),
    HOSTCUDA_METHOD(graph_free, "graph_free"),
    HOSTCUDA_METHOD(graph_pool, "graph_pool"),
    HOSTCUDA_METHOD(graph_replay, "graph_replay"),
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef definition = {PyModuleDef_HEAD_INIT, "hostcuda_bridge", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_hostcuda_bridge() { return PyModule_Create(&definition); }
