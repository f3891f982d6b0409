// What a package's bindings.cpp says of itself; python_module.cpp, compiled once for all packages,
// shows it to Python.
#pragma once

#include <cstdint>

#include "call.h"

namespace fusegen {

// A launcher by its name, and what says what it would launch: see explain.cuh.
struct Launcher {
  const char* name;
  int64_t (*explain)(const Call* call, char* text, int64_t size);
};

struct PackageInfo {
  const char* name;
  const char* sources;         // "fusegen sources <name> <digest>", which can be found in the file
  const char* const* ops;      // a null pointer ends both lists of names
  const char* const* targets;
  bool float64;                // whether it has the kernels for float64
  const Launcher* launchers;   // one without a name ends them
};

}  // namespace fusegen

// Hidden, so that each extension in a process has its own.
extern "C" __attribute__((visibility("hidden"))) const fusegen::PackageInfo fusegen_package_info;
