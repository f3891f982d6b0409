// The Python module `_C` of every package: it says what the package was built for, and whether a
// module is as it was in an earlier call. Nothing here depends on a chain, so `fusegen build`
// compiles this once for all packages below one output directory and links it into each:
// pybind11's headers take longer than all else in a binding.
#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>

#include "package_info.h"

// pybind11 wants it of Python before 3.13; weak, so that newer ones load this object too.
#pragma weak _PyThreadState_UncheckedGet

namespace {
namespace py = pybind11;

py::tuple names(const char* const* list) {
  py::list found;
  for (; *list != nullptr; ++list) found.append(*list);
  return py::tuple(found);
}

py::tuple ops() {
  py::list found;
  for (size_t i = 0; i < fusegen_package_info.op_count; ++i) {
    found.append(fusegen_package_info.ops[i].name + std::string("_") + fusegen_package_info.digest);
  }
  return py::tuple(found);
}

py::dict info() {
  py::dict info;
  info["name"] = fusegen_package_info.name;
  info["sources"] = fusegen_package_info.marker;
  info["ops"] = ops();
  info["targets"] = names(fusegen_package_info.targets);
  info["float64"] = fusegen_package_info.float64;
  return info;
}

// What a launcher would launch for tensors of a size on the current device, as lines of JSON.
std::string explain(
    const std::string& launcher, int64_t mode, int64_t rows, int64_t channels, int64_t groups,
    int64_t positions, int64_t samples) {
  for (size_t i = 0; i < fusegen_package_info.op_count; ++i) {
    const fusegen::PackageOp& op = fusegen_package_info.ops[i];
    if (op.launcher == nullptr) continue;
    const bool is_product = op.explain_product && launcher == op.launcher + std::string("_product");
    if (!is_product && launcher != op.launcher) continue;
    const fusegen::ExplainLaunch explain = is_product ? op.explain_product : op.explain;
    fusegen::Call call{mode, rows, channels, groups};
    call.positions = positions;
    call.samples = samples;
    std::string text(4096, '\0');
    int64_t bytes = explain(&call, text.data(), int64_t(text.size()));
    if (bytes > int64_t(text.size())) {
      text.resize(size_t(bytes));
      bytes = explain(&call, text.data(), bytes);
    }
    text.resize(size_t(bytes - 1));  // without the null at the end
    return text;
  }
  throw py::key_error(launcher);
}

// Whether a dict holds what `kept` says behind its first place, and nothing else: of each object
// the name, itself and its type.
bool holds(PyObject* dict, PyObject* kept) {
  if (3 * PyDict_GET_SIZE(dict) + 1 != PyTuple_GET_SIZE(kept)) return false;
  PyObject *name = nullptr, *value = nullptr, **each = PySequence_Fast_ITEMS(kept) + 1;
  for (Py_ssize_t place = 0; PyDict_Next(dict, &place, &name, &value); each += 3) {
    if (each[0] != name || each[1] != value || each[2] != (PyObject*)Py_TYPE(value)) return false;
  }
  return true;
}

// The same of a module's or a type's attributes, which may be more.
bool has(PyObject* holder, PyObject* kept) {
  PyObject** const all = PySequence_Fast_ITEMS(kept);
  for (Py_ssize_t at = 1; at < PyTuple_GET_SIZE(kept); at += 3) {
    const auto value = py::reinterpret_steal<py::object>(PyObject_GetAttr(holder, all[at]));
    PyErr_Clear();
    if (value.ptr() != all[at + 1]) return false;
  }
  return true;
}

// Whether everything in `kept` holds what it held: see remembered.py. own: the dict in place of
// None.
PyObject* unchanged(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count != 2 || !PyTuple_Check(arguments[0]) || !PyDict_Check(arguments[1])) {
    PyErr_SetString(PyExc_TypeError, "expected a tuple and a dict");
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments[0]); ++i) {
    PyObject* kept = PyTuple_GET_ITEM(arguments[0], i);
    PyObject* holder = PyTuple_GET_ITEM(kept, 0);
    if (holder == Py_None) holder = arguments[1];
    if (!(PyDict_Check(holder) ? holds(holder, kept) : has(holder, kept))) Py_RETURN_FALSE;
  }
  Py_RETURN_TRUE;
}

PyMethodDef functions[] = {
    {"unchanged", reinterpret_cast<PyCFunction>(&unchanged), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

PYBIND11_MODULE(_C, module) {
  module.doc() = std::string("Fused kernels of ") + fusegen_package_info.name;
  module.def("info", &info);
  module.def(
      "explain", &explain, py::arg("launcher"), py::arg("mode"), py::arg("rows"),
      py::arg("channels"), py::arg("groups") = 1, py::arg("positions") = 0,
      py::arg("samples") = 0);
  PyModule_AddFunctions(module.ptr(), functions);
}
