// The Python module `_C` of every package: it says what the package was built for. Nothing here
// depends on a chain, so `fusegen build` compiles this once for all packages below one output
// directory and links it into each: pybind11's headers take longer than all else in a binding.
#include <pybind11/pybind11.h>

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

py::dict info() {
  py::dict info;
  info["name"] = fusegen_package_info.name;
  info["sources"] = fusegen_package_info.sources;
  info["ops"] = names(fusegen_package_info.ops);
  info["targets"] = names(fusegen_package_info.targets);
  info["float64"] = fusegen_package_info.float64;
  return info;
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  module.doc() = std::string("Fused kernels of ") + fusegen_package_info.name;
  module.def("info", &info);
}
