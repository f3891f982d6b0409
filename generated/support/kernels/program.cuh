// What a program is to the kernels: one direction of a chain, behind its contraction.
//
// A program is a struct P in kernels.cu, a template over the element types of a dtype
// configuration. It says what is the chain's own: its tensors, what a pass over the elements sums,
// what follows from the sums and what is stored. A kernel says where elements are meanwhile, and is
// a template over P. Every kernel takes its program by value.
//
// P derives from Program, which has what a program need not say, and has
//
//   T, Acc                    element type of activations; type of all arithmetic
//   kTarget                   the GPU that launch configurations are made for
//   kPasses, kUnit[kPasses]   passes over the elements, and what each of them reduces to one value
//   kFirstResident            the first pass of kernels that keep elements on chip
//   Reads<Of>, reads          tensors of all elements that are read: a field Of<element type> each
//   Writes<Of>, writes        tensors of all elements that are stored by the last pass
//   kOptionalWrites           the fields of Writes whose pointer may be null, as bits
//   kReadBy[kPasses]          the fields of Reads that a pass needs, as bits
//   partials                  partial results of column sums, in the workspace
//   scratch(f)                calls f(pass that makes it, pointer, unit, whether every schedule has
//                             it) for what kernels leave each other in the workspace
//   of(sizes, arguments)      the program of a call
//   Scalars, Channel, Row, Group   values that do not vary over all elements: see Known
//   scalars()                 the Scalars of a launch
//   channel_tensors<kFrom>(f) calls f(Uses<passes>{}, pointer, whether it is there,
//                             &Channel::field) for each tensor of one value a channel that lies in
//                             memory when pass kFrom begins; passes, as bits, are those whose
//                             elements need the value. None: only finish() does. The pointer
//                             kChannelNumbers stands for 0, 1, 2 ..., which lie nowhere
//   row_tensors<kFrom>(f), group_tensors<kFrom>(f)   the same for one value a row and a group
//   derive_channel(k), derive_row(k), derive_group(k)   what follows from such tensors alone
//   Kept                      values of an element that a kernel may keep for later passes
//   kKeptInRegisters[pass], kKeptInShared[pass]   those that row and column kernels have kept when
//                             a pass begins, as bits
//   Sums<kPass, Of>           what a pass sums: a field Of<reduction> each
//   element<kPass, kKept>(x, k, kept, sum, y)   an element: the terms that it adds to sums, and
//                             what is stored of it. Values whose bit is in kKept come from
//                             `kept`. The compiler drops what a pass does not use
//   follow<kPass>(k, total)   what later passes need of the sums of a pass
//   finish<kPass>(k, total)   what is only stored of them
//   results<kPass, kResident>(f)   calls f(pointer, &Channel::field), or another record's, for what
//                             is stored once the sums of a pass are known; not resident: with what
//                             later kernels of a two-pass schedule read
//   count<kPass>()            counts a batch, in one thread of the grid
//   kReducesChannels, channel_terms(k, term)   whether, and of what, channels are summed to scalars
//   kFitsL2                   whether the L2-resident kernel can run the program
//   kTileReads                the fields of Reads that a column kernel reads again, as bits
//   kColumnValues             values of a column that a thread keeps, at most: see kVectorOf
//   kChannelValuesBy[pass]    values of a channel that the elements of a pass use
//   kRowTensorsBy[pass], kGroupTensorsBy[pass]   tensors of rows and groups that they need
//   kRowConstants, kRowValues channel tensors that the row kernel holds; values that it computes of
//                             an element
//   kRowBlocks, kRowHasLarge, kRowManyConstants   see row_blocks(), row_is_large() and RowChannels
//
// Records of fields have each(f, records...), which calls f(Index<i>{}, field of each record...).
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "../columns.cuh"
#include "../packs.cuh"
#include "../reductions.cuh"
#include "../types.cuh"

// A program says more of itself than each kernel asks for.
#if defined(__CUDACC__)
#pragma nv_diag_suppress 177
#endif

namespace fusegen {

// What a pass reduces to one value each; kNone where it has no sums.
enum class Unit { kNone, kChannel, kRow, kGroup, kScalar };

struct Sizes {
  int64_t rows, channels, groups, group_length;
};

template <int kIndex>
using Index = std::integral_constant<int, kIndex>;

template <unsigned kPasses>
struct Uses {
  static constexpr unsigned passes = kPasses;
};

// Whether a mask has bit i.
__host__ __device__ constexpr bool has_bit(unsigned mask, int i) { return mask >> i & 1u; }

// How many fields of the sums of a pass are of one reduction.
template <class P, int kPass, typename Reduction>
__host__ __device__ constexpr int count_of() {
  typename P::template Sums<kPass, AsIs> fields{};
  int count = 0;
  P::template Sums<kPass, AsIs>::each(
      [&](auto, const auto& field) {
        count += std::is_same_v<std::decay_t<decltype(field)>, Reduction>;
      },
      fields);
  return count;
}

// How many values the largest record has that is combined as a whole, of the sums of a pass.
template <class P, int kPass>
__host__ __device__ constexpr int combined_values() {
  typename P::template Sums<kPass, TotalsIn<typename P::Acc>::template Of> fields{};
  int most = 0;
  P::template Sums<kPass, TotalsIn<typename P::Acc>::template Of>::each(
      [&](auto, const auto& field) {
        constexpr int kValues = kCombinedValues<std::decay_t<decltype(field)>>;
        most = kValues > most ? kValues : most;
      },
      fields);
  return most;
}

// Calls f(fields...) for each field of the first record and those of the others.
template <typename F, typename Record, typename... More>
__host__ __device__ __forceinline__ constexpr void each(const F& f, Record& first, More&... more) {
  std::remove_const_t<Record>::each(f, first, more...);
}

// Heads of the functions that every program has.
#define FUSEGEN_DEVICE __device__ __forceinline__
#define FUSEGEN_BOTH __host__ __device__ __forceinline__
#define FUSEGEN_EACH                     \
  template <typename F, typename... R>   \
  FUSEGEN_BOTH static constexpr void each([[maybe_unused]] const F& f, [[maybe_unused]] R&... r)

// A record without fields.
struct Nothing {
  static constexpr int kFields = 0, kComponents = 0;

  FUSEGEN_EACH {}
};

// What a program has where it says nothing else.
struct Program : Sizes {
  static constexpr int kMostPasses = 32;  // a mask has a bit for each
  static constexpr unsigned kKeptInRegisters[kMostPasses] = {}, kKeptInShared[kMostPasses] = {};
  static constexpr int kRowTensorsBy[kMostPasses] = {}, kGroupTensorsBy[kMostPasses] = {};
  static constexpr unsigned kTileReads = 0, kOptionalWrites = 0;
  static constexpr bool kFitsL2 = false, kReducesChannels = false;

  using Kept = Nothing;
  template <int kPass, template <typename> class Of>
  using Sums = Nothing;
  struct Scalars {};
  struct Channel {};
  struct Row {};
  struct Group {};
  FUSEGEN_DEVICE Scalars scalars() const { return {}; }
  template <int kFrom, typename F>
  FUSEGEN_BOTH void channel_tensors(const F&) const {}
  template <int kFrom, typename F>
  FUSEGEN_BOTH void row_tensors(const F&) const {}
  template <int kFrom, typename F>
  FUSEGEN_BOTH void group_tensors(const F&) const {}
  template <typename K>
  FUSEGEN_DEVICE void derive_channel(K&) const {}
  template <typename K>
  FUSEGEN_DEVICE void derive_row(K&) const {}
  template <typename K>
  FUSEGEN_DEVICE void derive_group(K&) const {}
  template <int kPass, typename K, typename S>
  FUSEGEN_DEVICE void follow(K&, const S&) const {}
  template <int kPass, typename K, typename S>
  FUSEGEN_DEVICE void finish(K&, const S&) const {}
  template <int kPass, bool kResident, typename F>
  FUSEGEN_BOTH void results(const F&) const {}
  template <int kPass>
  FUSEGEN_DEVICE void count() const {}
  template <typename F>
  void scratch(const F&) {}
};

// Of a record's fields: pointers to read or to write, and values.
template <typename E>
using ReadPointer = const E*;
template <typename E>
using WritePointer = E*;
template <typename Acc>
struct ValuesIn {
  template <typename E>
  using Of = Acc;
};

// The record that a pointer to a field is of.
template <typename Field>
struct RecordOf;
template <typename Record, typename Value>
struct RecordOf<Value Record::*> {
  using type = Record;
};

template <class P, int kPass>
using Terms = typename P::template Sums<kPass, TermsIn<typename P::Acc>::template Of>;
template <class P, int kPass>
using Totals = typename P::template Sums<kPass, TotalsIn<typename P::Acc>::template Of>;
template <class P, int kPass>
using Running = typename P::template Sums<kPass, RunningIn<typename P::Acc>::template Of>;
template <class P>
using Elements = typename P::template Reads<ValuesIn<typename P::Acc>::template Of>;
template <class P>
using Results = typename P::template Writes<ValuesIn<typename P::Acc>::template Of>;

// All that is known besides an element itself: formulas name these fields, wherever they are from.
template <class P>
struct Known : P::Scalars, P::Channel, P::Row, P::Group {};

// What is known of each of a thread's columns, with nothing but the scalars so far.
template <class P, int N>
__device__ __forceinline__ void set_scalars(const P& p, Known<P> (&known)[N]) {
  const typename P::Scalars scalars = p.scalars();
#pragma unroll
  for (int v = 0; v < N; ++v) known[v] = {scalars, {}, {}, {}};
}

// What follows from the tensors of the channels alone.
template <class P, int N>
__device__ __forceinline__ void derive_channels(const P& p, Known<P> (&known)[N]) {
#pragma unroll
  for (int v = 0; v < N; ++v) p.derive_channel(known[v]);
}

// Loads the channel tensors that lie in memory when pass kFrom begins, for the thread's columns:
// those that any of some passes needs, as bits. Where the thread is not active, none is read.
// Record is Channel or what derives from it.
template <int kFrom, unsigned kPasses, class P, typename ColumnsOf, typename Record, int N>
__device__ __forceinline__ void load_channels(
    const P& p, const ColumnsOf& columns, bool active, Record (&channel)[N]) {
  p.template channel_tensors<kFrom>([&](auto uses, auto* pointer, bool present, auto field) {
    if constexpr ((decltype(uses)::passes & kPasses) != 0) {
      typename P::Acc value[N];
      load_values(columns, pointer, active && present, value);
#pragma unroll
      for (int v = 0; v < N; ++v) channel[v].*field = value[v];
    }
  });
}

// The same of those that only finish() needs, in a thread that stores what it makes of them.
template <int kFrom, class P, typename ColumnsOf, typename Record, int N>
__device__ __forceinline__ void load_finish_channels(
    const P& p, const ColumnsOf& columns, Record (&channel)[N]) {
  p.template channel_tensors<kFrom>([&](auto uses, auto* pointer, bool present, auto field) {
    if constexpr (decltype(uses)::passes == 0) {
      typename P::Acc value[N];
      load_values(columns, pointer, present, value);
#pragma unroll
      for (int v = 0; v < N; ++v) channel[v].*field = value[v];
    }
  });
}

// A value as a tensor holds it.
template <typename E, typename Acc>
__device__ __forceinline__ void store_value(E* to, Acc value) {
  *to = narrow<E>(value);
}

}  // namespace fusegen
