// The launchers: from their arguments to a program in one dtype configuration.
#pragma once

#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>

#include <cuda_runtime.h>

#include "../call.h"
#include "../devices.cuh"
#include "../dtypes.h"
#include "../shapes.cuh"
#include "../types.cuh"
#include "schedules.cuh"

// The dtype configurations that are compiled, as bits: all of them, unless a build sets fewer.
#ifndef FUSEGEN_MODES
#define FUSEGEN_MODES 0xffffffffu
#endif

namespace fusegen {

// The element types of a dtype configuration; Of<P> is a program with them.
template <typename... Ts>
struct Types {
  static constexpr bool kBuilt = true;
  template <template <typename...> class P>
  using Of = P<Ts...>;
};

#ifdef FUSEGEN_VERIFICATION
template <typename... Ts>
using VerificationTypes = Types<Ts...>;
#else
struct NotBuilt {
  static constexpr bool kBuilt = false;
};
template <typename...>
using VerificationTypes = NotBuilt;
#endif

template <Dtype kDtype>
struct ElementTypeOf;
template <>
struct ElementTypeOf<Dtype::kFloat32> {
  using type = float;
};
template <>
struct ElementTypeOf<Dtype::kBFloat16> {
  using type = __nv_bfloat16;
};
template <>
struct ElementTypeOf<Dtype::kFloat16> {
  using type = __half;
};
template <>
struct ElementTypeOf<Dtype::kFloat64> {
  using type = double;
};

// The dtype configurations of a chain; with(i, f) calls f(Types) of number i.
template <typename... Modes>
struct DtypeModes {
  template <typename F>
  static cudaError_t with(int64_t mode, const F& f) {
    cudaError_t error = cudaErrorInvalidValue;
    call(mode, f, error, std::index_sequence_for<Modes...>());
    return error;
  }

 private:
  template <typename F, size_t... kModes>
  static void call(
      int64_t mode, const F& f, cudaError_t& error, std::index_sequence<kModes...>) {
    (call_if<kModes, Modes>(mode, f, error), ...);
  }
  template <int kMode, typename Mode, typename F>
  static void call_if(int64_t mode, const F& f, cudaError_t& error) {
    if constexpr (Mode::kBuilt && has_bit(FUSEGEN_MODES, kMode)) {
      if (mode == kMode) error = f(Mode());
    }
  }
};

// Those of a table in launchers.h. A row with float64 is for verification.
template <const auto& kRows, size_t kRow, typename Columns>
struct TypesOfRow;
template <const auto& kRows, size_t kRow, size_t... kColumns>
struct TypesOfRow<kRows, kRow, std::index_sequence<kColumns...>> {
  using type = std::conditional_t<
      kRows[kRow][0] == Dtype::kFloat64,
      VerificationTypes<typename ElementTypeOf<kRows[kRow][kColumns]>::type...>,
      Types<typename ElementTypeOf<kRows[kRow][kColumns]>::type...>>;
};
template <const auto& kRows, typename Indices>
struct ModesOfRows;
template <const auto& kRows, size_t... kIndices>
struct ModesOfRows<kRows, std::index_sequence<kIndices...>> {
  using type = DtypeModes<typename TypesOfRow<
      kRows, kIndices, std::make_index_sequence<std::size(kRows[0])>>::type...>;
};
template <const auto& kRows>
using ModesOf = typename ModesOfRows<kRows, std::make_index_sequence<std::size(kRows)>>::type;

// A pointer that converts to the element type of what it initialises.
// Null stays null, wherever in the tensor it would point to.
struct ReadFrom {
  const void* at;
  int64_t offset;
  template <typename E>
  operator const E*() const {
    return at == nullptr ? nullptr : static_cast<const E*>(at) + offset;
  }
  template <typename E, int kParts>
  operator PartPointer<E, kParts>() const {
    return {*this};
  }
};
struct WriteTo {
  void* at;
  int64_t offset;
  template <typename E>
  operator E*() const {
    return at == nullptr ? nullptr : static_cast<E*>(at) + offset;
  }
  template <typename E, int kParts>
  operator PartPointer<E, kParts>() const {
    return {*this};
  }
};
inline ReadFrom from(const void* at, int64_t offset = 0) { return {at, offset}; }
inline WriteTo to(void* at, int64_t offset = 0) { return {at, offset}; }

// Of headers that kernels.cu includes where something is drawn, or pooled.
template <typename Acc>
struct SampleFactors;  // dropout.cuh
template <typename E, Pooling kPooling>
struct PooledPointer;  // window_gradients.cuh

// Checks whether pointers are multiples of 16 bytes; null is one, and scalars are not checked.
// parts: of parts, whose elements vectors move only where all vectors are packed.
template <class P>
struct CheckAlignment {
  bool& aligned;
  bool& parts;

  __host__ __device__ static void check(bool& all, const void* at) {
    all &= reinterpret_cast<uintptr_t>(at) % 16 == 0;
  }
  __host__ __device__ void check(const void* at) const { check(aligned, at); }
  template <int kIndex, typename E>  // a field of reads or writes
  __host__ __device__ void operator()(Index<kIndex>, E* at) const {
    check(at);
  }
  template <int kIndex, typename E, bool kRepeats>
  __host__ __device__ void operator()(Index<kIndex>, const SpreadPointer<E, kRepeats>& from) const {
    check(from.at);
  }
  template <int kIndex, typename E, Pooling kPooling>
  __host__ __device__ void operator()(
      Index<kIndex>, const PooledPointer<E, kPooling>& from) const {
    check(from.at);
    check(from.taps);
  }
  template <int kIndex, typename E, int kParts>
  __host__ __device__ void operator()(Index<kIndex>, const PartPointer<E, kParts>& part) const {
    check(parts, part.first);
  }
  template <typename U, typename E, typename Field>  // a tensor in memory
  __host__ __device__ void operator()(U, E* at, bool, Field) const {
    check(at);
  }
  template <typename U, typename Field>  // factors that are drawn lie nowhere
  __host__ __device__ void operator()(U, SampleFactors<typename P::Acc>, bool, Field) const {}
  template <typename E, typename Record>  // a result
  __host__ __device__ void operator()(E* at, typename P::Acc Record::*) const {
    if (!std::is_same_v<Record, typename P::Scalars>) check(at);
  }
};

template <class P, int kPass>
void check_results(const P& p, const CheckAlignment<P>& check) {
  p.template results<kPass, true>(check);
  if constexpr (kPass > 0) check_results<P, kPass - 1>(p, check);
}

template <class P>
Aligned alignment(const P& p) {
  bool elements = true, others = true;
  const CheckAlignment<P> at_elements{elements, others}, at_others{others, others};
  each(at_elements, p.reads);
  each(at_elements, p.writes);
  p.template channel_tensors<0>(at_others);
  p.template row_tensors<0>(at_others);
  p.template group_tensors<0>(at_others);
  p.template sample_tensors<0>(at_others);
  check_results<P, P::kPasses - 1>(p, at_others);
  return !elements ? Aligned::kNone : others ? Aligned::kAll : Aligned::kElements;
}

template <class P>
cudaError_t run_program(const P& p, Aligned aligned, LaunchContext context, Scratch& scratch) {
  constexpr int kVec = kVectorOf<typename P::T, P::kColumnValues>;
  // Packed where every row begins with a vector, and every group of it that kernels see.
  const bool groups_are = P::kOfSamples || p.group_length % kVec == 0;
  if (aligned == Aligned::kAll && p.channels % kVec == 0 && groups_are) {
    return run_with_vectors<kVec, true>(p, context, scratch);
  }
  if constexpr (P::kRowInvariant) {
    // Where in a vector a row begins is not to decide which threads have which of its elements.
    return run_with_vectors<1, true>(p, context, scratch);
  } else {
    context.vector_end = aligned == Aligned::kNone ? 0 : p.rows * p.channels;
    return run_with_vectors<kVec, false>(p, context, scratch);
  }
}

// The program of a call.
template <class P, class Arguments>
P program_of(const Sizes& sizes, const Arguments& arguments) {
  P program{{{sizes}, &arguments}};
  program.a = nullptr;  // an address of the host
  return program;
}

// Calls f(program) with P in the dtypes and sizes of a call, if there are elements.
template <template <typename...> class P, class Modes, class Arguments, typename F>
cudaError_t with_program(const Call& call, const Arguments& arguments, const F& f) {
  if (call.rows == 0 || call.channels == 0) return cudaSuccess;
  const int64_t images = call.positions > 0 ? call.rows / call.positions : 1;
  const int64_t samples = call.samples > 0 ? call.samples : images;
  const int64_t length = call.channels / call.groups;
  const Sizes sizes{call.rows, call.channels, call.groups, length, call.positions, samples,
                    call.rows / samples, call.windows};
  return Modes::with(call.mode, [&](auto types) {
    using Program = typename decltype(types)::template Of<P>;
    if constexpr (kSumsSamples<Program> || Program::kOfSamples) {
      const bool are_images = call.positions == 0 || samples == images;
      if (call.rows % samples != 0 || !are_images) return cudaErrorInvalidValue;
    }
    return f(program_of<Program>(sizes, arguments));
  });
}

// Launch shapes: those that a call forces, else the default.
struct Untuned {};
inline Shapes shapes_of(const Call& call, Untuned, const Target&) {
  return call.forced != nullptr ? *call.forced : Shapes{};
}

// Table: of launch shapes (tuning.cuh), or Untuned.
template <class P, typename Table>
LaunchContext context_of(const P&, Call call, const Table& table) {
  const Target target = current_target();
  if (P::kRowInvariant) call.rows = kRowsOfLaunches;
  const Shapes shapes = shapes_of(call, table, target);
  return {shapes, target, call.rows, 0, static_cast<cudaStream_t>(call.stream)};
}

// Runs the program of a call.
template <template <typename...> class P, class Modes, class Arguments, typename Table>
int run(const Call& call, const Arguments& arguments, const Table& table) {
  Scratch scratch(call.workspace);
  return with_program<P, Modes>(call, arguments, [&](const auto& p) {
    return run_program(p, alignment(p), context_of(p, call, table), scratch);
  });
}

// Bytes of workspace that a call needs, whatever the alignment of its tensors.
template <template <typename...> class P, class Modes, class Arguments, typename Table>
int64_t workspace_bytes(const Call& call, const Arguments& none, const Table& table) {
  Scratch vectors, others;
  with_program<P, Modes>(call, none, [&](const auto& p) {
    const LaunchContext context = context_of(p, call, table);
    run_program(p, Aligned::kAll, context, vectors);
    return run_program(p, Aligned::kNone, context, others);
  });
  return vectors.bytes() > others.bytes() ? vectors.bytes() : others.bytes();
}

// Explains what run() would do with tensors that begin at multiples of 16 bytes. Returns the bytes
// of the text; where these are more than `size`, the text is cut off.
template <template <typename...> class P, class Modes, class Arguments, typename Table>
int64_t explain(
    const Call& call, const Arguments& none, const Table& table, char* text, int64_t size) {
  Explanation why(text, size);
  Scratch scratch(text);  // any address: nothing reads or writes there
  explanation = &why;
  with_program<P, Modes>(call, none, [&](const auto& p) {
    return run_program(p, Aligned::kAll, context_of(p, call, table), scratch);
  });
  explanation = nullptr;
  return why.bytes();
}

}  // namespace fusegen

// The launcher of a program and what goes with it, as launchers.h declares them. table: of launch
// shapes (tuning.cuh), or Untuned().
#define FUSEGEN_LAUNCHER(symbol, Program, table)                                              \
  extern "C" int symbol(const fusegen::Call* call, const Program##Arguments* arguments) {      \
    return fusegen::run<Program, Modes>(*call, *arguments, table);                             \
  }                                                                                            \
  extern "C" int64_t symbol##_workspace(const fusegen::Call* call) {                           \
    return fusegen::workspace_bytes<Program, Modes>(*call, Program##Arguments{}, table);       \
  }                                                                                            \
  extern "C" int64_t symbol##_explain(const fusegen::Call* call, char* text, int64_t size) {   \
    return fusegen::explain<Program, Modes>(*call, Program##Arguments{}, table, text, size);   \
  }
