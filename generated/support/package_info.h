// What a package's bindings.cpp says of itself; python_module.cpp, compiled once for all packages,
// shows it to Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "call.h"

namespace fusegen {

// Writes what a launcher would launch: see explain.cuh.
using ExplainLaunch = int64_t (*)(const Call* call, char* text, int64_t size);

struct PackageOp {
  const char* name;  // to which the digest of the sources is added
  std::string (*schema)();  // what it takes and returns
  void (*boxed)(uint64_t* stack, uint64_t arguments, uint64_t results);
  const char* launcher = nullptr;  // null: of no program
  ExplainLaunch explain = nullptr;
  ExplainLaunch explain_product = nullptr;  // of the launcher `<launcher>_product`, if there is one
};

struct PackageInfo {
  const char* name;
  const char* digest;          // of the sources
  const char* marker;          // "fusegen sources <name> <digest>", which can be found in the file
  const PackageOp* ops;
  size_t op_count;
  const char* const* targets;  // a null pointer ends them
  bool float64;                // whether it has kernels for float64
};

}  // namespace fusegen

// Hidden, so that each extension in a process has its own.
extern "C" __attribute__((visibility("hidden"))) const fusegen::PackageInfo fusegen_package_info;
