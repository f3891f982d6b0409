// Ops as functions of a Python module, and what each takes and returns.
#pragma once

#include "torch_call.h"

#include <vector>

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

template <const Op& op>
py::object call_bound(const py::args& arguments) {
  CallMemory<op> memory;
  for (int i = 0; i < op.count && is_argument(op.fields[i].use); ++i) {
    const Use use = op.fields[i].use;
    const py::object from = arguments[i];
    Slot& slot = memory.slots[i];
    if (is_tensor(use)) {
      if (!from.is_none()) slot.given = from.cast<Tensor>();
    } else if (use == Use::kConstant) {
      slot.number = from.cast<double>();
    } else if (use == Use::kNeeds) {
      memory.lists.needs = from.cast<std::vector<bool>>();
    } else if (use == Use::kWindowNumbers) {
      memory.lists.windows = from.cast<std::vector<int64_t>>();
    } else {
      slot.integer = from.cast<int64_t>();
    }
  }
  std::vector<Tensor> results;
  {
    const py::gil_scoped_release released;
    results = OpCall(op, memory.slots, memory.lists, memory.arguments).run();
    for (int i = 0; i < op.count; ++i) {
      if (op.fields[i].use == Use::kUpdate) written(memory.slots[i].given);
    }
  }
  const py::list list = py::cast(results);
  return op.returns == Returns::kList ? py::object(list) : py::object(py::tuple(list));
}

template <const Op& op>
void bind_op(py::module_& module, const char* name) {
  module.def(name, &call_bound<op>);
  if (!py::hasattr(module, "schemas")) module.attr("schemas") = py::dict();
  module.attr("schemas")[name] = schema_text(op, /*marks_written=*/false);
}

}}  // namespace fusegen::glue
