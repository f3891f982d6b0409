// The ops of a package in torch's library: calls through the dispatcher, and their schemas.
#pragma once

#include "package_info.h"
#include "torch_call.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

#ifdef FUSEGEN_VERIFICATION
constexpr bool kHasFloat64 = true;
#else
constexpr bool kHasFloat64 = false;
#endif

// The arguments of a call on the dispatcher's stack.
inline void unbox(const Op& op, const StableIValue* stack, Slot* slots, Lists& lists) {
  namespace abi = torch::stable::detail;
  for (int i = 0; i < op.count && is_argument(op.fields[i].use); ++i) {
    const Field& field = op.fields[i];
    if (is_tensor(field.use) && field.optional) {
      slots[i].given = abi::to<OptionalTensor>(stack[i]);
    } else if (is_tensor(field.use)) {
      slots[i].given = abi::to<Tensor>(stack[i]);
    } else if (field.use == Use::kConstant) {
      slots[i].number = abi::to<double>(stack[i]);
    } else if (field.use == Use::kNeeds) {
      lists.needs = abi::to<std::vector<bool>>(stack[i]);
    } else if (field.use == Use::kWindowNumbers) {
      lists.windows = abi::to<std::vector<int64_t>>(stack[i]);
    } else {
      slots[i].integer = abi::to<int64_t>(stack[i]);
    }
  }
}

inline void box(const Op& op, const std::vector<Tensor>& results, StableIValue* stack) {
  namespace abi = torch::stable::detail;
  if (op.returns == Returns::kList) {
    stack[0] = abi::from(results);
  } else {
    for (size_t i = 0; i < results.size(); ++i) stack[i] = abi::from(results[i]);
  }
}

// As TORCH_BOX makes it of a function: the stack has the arguments, then the results. Call: OpCall,
// or what is made of several of these.
template <const Op& op, class Call>
void call_boxed(StableIValue* stack, uint64_t, uint64_t) {
  CallMemory<op> memory;
  unbox(op, stack, memory.slots, memory.lists);
  box(op, Call(op, memory.slots, memory.lists, memory.arguments).run(), stack);
}

template <const Op& op, class Call = OpCall>
constexpr PackageOp of_table() {
  return {op.name + sizeof("fusegen::") - 1,
          [] { return schema_text(op, /*marks_written=*/true); },
          &call_boxed<op, Call>,
          op.overwritten.empty() ? op.symbol : nullptr,  // told of the op that it is another of
          op.explain,
          op.explain_product};
}

inline std::string full_name(const PackageInfo& package, const PackageOp& op) {
  return op.name + std::string("_") + package.digest;
}
inline void define(torch::stable::detail::StableLibrary& library, const PackageInfo& package) {
  for (size_t i = 0; i < package.op_count; ++i) {
    const PackageOp& op = package.ops[i];
    library.def((full_name(package, op) + op.schema()).c_str());
  }
}
inline void implement(torch::stable::detail::StableLibrary& library, const PackageInfo& package) {
  for (size_t i = 0; i < package.op_count; ++i) {
    library.impl(full_name(package, package.ops[i]).c_str(), package.ops[i].boxed);
  }
}

}}  // namespace fusegen::glue

STABLE_TORCH_LIBRARY_FRAGMENT(fusegen, library) {
  fusegen::glue::define(library, fusegen_package_info);
}
STABLE_TORCH_LIBRARY_IMPL(fusegen, FUSEGEN_DEVICE, library) {
  fusegen::glue::implement(library, fusegen_package_info);
}
