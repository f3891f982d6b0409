// The words that tables of ops are written in. `Arguments` is the launcher's struct there.
#pragma once

#include "torch_call.h"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

template <class Arguments, int (*launcher)(const Call*, const Arguments*)>
int launch(const Call* call, const void* arguments) {
  static_assert(std::is_trivially_copyable_v<Arguments>);
  return launcher(call, static_cast<const Arguments*>(arguments));
}
template <class Arguments, int (*launcher)(const Call*, const Arguments*, const SplitProduct*)>
int launch_product(const Call* call, const void* arguments, const SplitProduct* product) {
  return launcher(call, static_cast<const Arguments*>(arguments), product);
}

// "weight" of "weight_arg".
constexpr std::string_view without_ending(std::string_view member) {
  return member.substr(0, member.rfind('_'));
}

template <class Expected, class Member>
constexpr int64_t checked(size_t offset) {
  static_assert(std::is_same_v<Expected, Member>, "a member of another type");
  return int64_t(offset);
}

template <class... Dims>
constexpr Field tensor(Use use, std::string_view name, int64_t offset, int role, Dims... dims) {
  return {use, name, offset, role, Form::kRows, int(sizeof...(dims)), {Dim(dims)...}};
}
constexpr Field tensor(Use use, std::string_view name, int64_t offset, int role, Form form) {
  return {use, name, offset, role, form};
}
template <class... Dims>
constexpr Field gradient(std::string_view name, int64_t offset, int need, Dims... dims) {
  Field field = tensor(Use::kGradient, name, offset, dims...);
  field.need = need;
  return field;
}

// Fields without a member.
template <class... Dims>
constexpr Field operand(std::string_view name, Dims... dims) {
  return tensor(Use::kOperand, name, -1, kActivation, dims...);
}
// An operand that a gradient alone needs, and that is not there elsewhere.
constexpr Field late_operand(std::string_view name) {
  return tensor(Use::kOperand, name, -1, kActivation).as_optional();
}
template <class... Dims>
constexpr Field read(std::string_view name, int role, Dims... dims) {
  return tensor(Use::kRead, name, -1, role, dims...);
}
constexpr Field size(std::string_view name, Symbol symbol, int64_t offset = -1) {
  return tensor(Use::kSize, name, offset, 0, symbol);
}
constexpr Field constant(std::string_view name) { return {Use::kConstant, name}; }
constexpr Field part(std::string_view name, int64_t offset, int index) {
  Field field{Use::kResult, name, offset};
  field.part = index;
  return field;
}
constexpr Field pieces(std::string_view name) { return Field{Use::kPieces, name}.as_optional(); }
constexpr Field needs(int count) { return {Use::kNeeds, "_needs", -1, 0, Form::kRows, count}; }
constexpr Field kDtypeMode{Use::kMode, "_dtype_mode"};
constexpr Field kChunk{Use::kChunk, "_chunk"};
constexpr Field kWindowList{Use::kWindowNumbers, "_windows"};
constexpr Field kPrecision{Use::kPrecision, "_precision"};

// What tables say without a namespace.
namespace table {
using glue::kAccumulator;
using glue::kActivation;
using glue::kBool;
using glue::kByte;
using glue::kChannels;
using glue::kGroups;
using glue::kInFeatures;
using glue::kInner;
using glue::kLong;
using glue::kOfSamples;
using glue::kOuter;
using glue::kOutput;
using glue::kParameter;
using glue::kPositions;
using glue::kRows;
using glue::kSampleRows;
using glue::kSamples;
using glue::kWindows;
using glue::OptionalTensor;
using glue::own_rows;
using glue::ScalarType;
using glue::Tensor;
}  // namespace table

#define FUSEGEN_OFFSET(type, member) \
  fusegen::glue::checked<type, decltype(Arguments::member)>(offsetof(Arguments, member))
#define FUSEGEN_TENSOR(use, type, member, ...)                                                  \
  fusegen::glue::tensor(fusegen::glue::Use::use, fusegen::glue::without_ending(#member),        \
                        FUSEGEN_OFFSET(type, member), __VA_ARGS__)

// Fields with the member `member` of `Arguments`, then the role and the sizes.
#define FUSEGEN_READ(member, ...) FUSEGEN_TENSOR(kRead, const void*, member, __VA_ARGS__)
#define FUSEGEN_BIAS(member, ...) FUSEGEN_TENSOR(kBias, const void*, member, __VA_ARGS__)
#define FUSEGEN_UPDATE(member, ...) \
  FUSEGEN_TENSOR(kUpdate, void*, member, __VA_ARGS__).as_optional()
#define FUSEGEN_RESULT(member, ...) FUSEGEN_TENSOR(kResult, void*, member, __VA_ARGS__)
#define FUSEGEN_PRODUCT(member) \
  FUSEGEN_TENSOR(kProduct, const void*, member, fusegen::glue::kActivation)
#define FUSEGEN_HIDDEN_PRODUCT(member) \
  FUSEGEN_TENSOR(kHiddenProduct, const void*, member, fusegen::glue::kActivation)
#define FUSEGEN_PRODUCT_GRADIENT(member, ...) \
  FUSEGEN_TENSOR(kProductGradient, void*, member, __VA_ARGS__)
// need: the place of what it is the gradient of in `needs`.
#define FUSEGEN_GRADIENT(member, need, ...)                                                      \
  fusegen::glue::gradient(fusegen::glue::without_ending(#member), FUSEGEN_OFFSET(void*, member), \
                          need, __VA_ARGS__)
#define FUSEGEN_PART(member, index) \
  fusegen::glue::part(fusegen::glue::without_ending(#member), FUSEGEN_OFFSET(void*, member), index)
#define FUSEGEN_CONSTANT(member)                                                        \
  fusegen::glue::Field {                                                                \
    fusegen::glue::Use::kConstant, fusegen::glue::without_ending(#member),              \
        FUSEGEN_OFFSET(double, member)                                                  \
  }
#define FUSEGEN_SIZE(name, symbol, member) \
  fusegen::glue::size(name, symbol, FUSEGEN_OFFSET(int64_t, member))

// The op `name` of a package with kModes, by the table kFields of a launcher's `Arguments`.
#define FUSEGEN_OP(name, returns)                                                            \
  fusegen::glue::Op {                                                                        \
    "fusegen::" #name, "fusegen_" #name, kFields, int(sizeof(kFields) / sizeof(kFields[0])), \
        &kModes, kErrorText, fusegen::glue::Returns::returns, sizeof(Arguments),             \
        &fusegen::glue::launch<Arguments, fusegen_##name>, &fusegen_##name##_workspace,      \
        &fusegen_##name##_explain                                                            \
  }
// Its kernels may run in the epilogue of the product.
#define FUSEGEN_IN_EPILOGUE(name)                                                  \
  in_epilogue(&fusegen_##name##_takes_product,                                     \
              &fusegen::glue::launch_product<Arguments, fusegen_##name##_product>, \
              &fusegen_##name##_product_explain)

}}  // namespace fusegen::glue
