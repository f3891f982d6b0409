// What a package's bindings.cpp says of itself; python_module.cpp, compiled once for all packages,
// shows it to Python.
#pragma once

namespace fusegen {

struct PackageInfo {
  const char* name;
  const char* sources;         // "fusegen sources <name> <digest>", which can be found in the file
  const char* const* ops;      // a null pointer ends both lists
  const char* const* targets;
  bool float64;  // whether it has the kernels for float64
};

}  // namespace fusegen

// Hidden, so that each extension in a process has its own.
extern "C" __attribute__((visibility("hidden"))) const fusegen::PackageInfo fusegen_package_info;
