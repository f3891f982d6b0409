// The launcher of a product with the chain's forward program in its epilogue.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "../kernels/entry.cuh"
#include "tail.cuh"
#include "tensor_cores.cuh"

namespace fusegen {

// Calls f(program) for a call in float32, the only type with products of pieces.
template <template <typename...> class P, class Modes, class Arguments, typename F>
cudaError_t with_float_program(const Call& call, const Arguments& arguments, const F& f) {
  return with_program<P, Modes>(call, arguments, [&](const auto& p) -> cudaError_t {
    using Chosen = std::decay_t<decltype(p)>;
    if constexpr (std::is_same_v<typename Chosen::T, float>) return f(p);
    return cudaErrorNotSupported;
  });
}

// Why the product's epilogue cannot have a program at these sizes; null if it can.
template <class P>
const char* reason_against_tail(const P&) {
  if (!has_tensor_core_kernel()) return "the device has no tensor cores of sm_90";
  return nullptr;
}

template <template <typename...> class P, class Modes, class Arguments>
int takes_product(const Call& call, const Arguments& none) {
  int takes = 0;
  with_float_program<P, Modes>(call, none, [&](const auto& p) {
    takes = reason_against_tail(p) == nullptr;
    return cudaSuccess;
  });
  return takes;
}

template <class P>
cudaError_t launch_with_tail(const P& p, const Operation& operation, cudaStream_t stream) {
  const Aligned begins = p.channels % 2 == 0 ? alignment(p) : Aligned::kNone;
  const int64_t vector_end = begins == Aligned::kNone ? 0 : p.rows * p.channels;
  const Tail<P> tail{p, begins == Aligned::kAll, vector_end};
  return launch_forward(operation, tail, stream);
}

// Writes the product where the program reads it, and runs the program on the way.
template <template <typename...> class P, class Modes, class Arguments>
int run_product(const Call& call, const Arguments& arguments, const SplitProduct& product) {
  return with_float_program<P, Modes>(call, arguments, [&](const auto& p) {
    if (reason_against_tail(p) != nullptr) return cudaErrorNotSupported;
    return launch_with_tail(p, operation_of(product), static_cast<cudaStream_t>(call.stream));
  });
}

// Explains whether the product's epilogue takes the program, and what it launches then: as
// explain() of kernels/entry.cuh.
template <template <typename...> class P, class Modes, class Arguments>
int64_t explain_product(const Call& call, const Arguments& none, char* text, int64_t size) {
  Explanation why(text, size);
  explanation = &why;
  with_float_program<P, Modes>(call, none, [&](const auto& p) {
    const char* const against = reason_against_tail(p);
    const char* const in_favour = "what a thread has of a tile is all that its results need";
    why.considered("epilogue", against == nullptr, against == nullptr ? in_favour : against);
    if (against != nullptr) return cudaSuccess;
    Operation operation{};
    operation.product.rows = p.rows;
    operation.product.columns = p.channels;
    return launch_with_tail(p, operation, nullptr);
  });
  explanation = nullptr;
  return why.bytes();
}

}  // namespace fusegen

// The launcher of a program in the epilogue of its product, and what goes with it, as launchers.h
// declares them.
#define FUSEGEN_PRODUCT_LAUNCHER(symbol, Program)                                                  \
  extern "C" int symbol##_product(                                                                 \
      const fusegen::Call* call, const Program##Arguments* arguments,                              \
      const fusegen::SplitProduct* product) {                                                      \
    return fusegen::run_product<Program, Modes>(*call, *arguments, *product);                      \
  }                                                                                                \
  extern "C" int symbol##_takes_product(const fusegen::Call* call) {                               \
    return fusegen::takes_product<Program, Modes>(*call, Program##Arguments{});                    \
  }                                                                                                \
  extern "C" int64_t symbol##_product_explain(                                                     \
      const fusegen::Call* call, char* text, int64_t size) {                                       \
    return fusegen::explain_product<Program, Modes>(*call, Program##Arguments{}, text, size);      \
  }
