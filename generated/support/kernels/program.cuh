// A program: one direction of a chain, after its contraction, as kernels see it.
//
// A program is a struct P in kernels.cu, a template over the element types of a dtype
// configuration. It has what is specific to the chain: its tensors, what a pass over the elements
// sums, what follows from the sums, and what is stored. A kernel is a template over P and has
// everything else: where elements are between the passes, and which thread has which. Every kernel
// takes its program by value.
//
// P derives from ProgramOf<arguments of its launcher>, which has defaults, and has
//
//   T, Acc                    element type of activations; type of all arithmetic
//   Schedules                 the ScheduleList of those that can run it: see schedule_list.cuh
//   kPasses, kUnit[kPasses]   passes over the elements, and the unit that each of them reduces
//   kFirstResident            the first pass of persistent kernels
//   Reads<Of>, reads          tensors of all elements that are read: a field Of<element type> each
//   Writes<Of>, writes        tensors of all elements that are stored by the last pass
//   Read, Write               the numbers of these fields, by which mask_of() names them. Masks:
//   kOptionalWrites           the fields of Writes whose pointer may be null
//   kOuterReads, kOuterWrites the fields of Reads and Writes that are [batch, channels, positions]
//                             in a call with positions
//   kHasParts                 whether some of these tensors are parts of others: see parts.cuh
//   kReadBy[kPasses]          the fields of Reads that a pass needs
//   partials                  partial results of column sums, in the workspace, where a pass has
//                             such sums
//   scratch(f)                calls f(pass that stores it, pointer, unit, whether it is in every
//                             schedule) for other results in the workspace that later kernels read
//   Scalars, Channel, Row, Group, Sample   values of one launch, channel, row and group, and of a
//                             channel of one sample: see Known
//   kOfSamples                whether it has values of samples: blocks of its passes then have rows
//                             of one sample at a time
//   kRowInvariant             whether the bits of a row are the same in any batch: see call.h
//   kPooling                  what the last pass stores of windows of positions: see windows.cuh
//   scalars()                 the Scalars of a launch
//   channel_tensors<kFrom>(f) calls f(InPasses<...>{}, pointer, whether it is there,
//                             &Channel::field) for each tensor with one value per channel that is
//                             in memory when pass kFrom begins. The pointer kChannelNumbers stands
//                             for 0, 1, 2 ..., not in memory
//   row_tensors<kFrom>(f), group_tensors<kFrom>(f)   the same for one value per row and per group
//                             The factors of samples that a dropout draws are such tensors of rows,
//                             SampleFactors, which are not in memory
//   sample_tensors<kFrom>(f)  the same for tensors [samples, channels]
//   derive_channel(k), derive_row(k), derive_group(k), derive_sample(k)   what follows from such
//                             tensors alone
//   Drawn, dropouts(f)        what is drawn for an element; calls f(Dropout, &Drawn::field) for
//                             each dropout that draws a factor of each element, of which there
//                             are kDraws
//   Cached, InCache           values of an element that a kernel may cache for later passes, and
//                             the numbers of these fields
//   kCachedInRegisters[pass], kCachedInShared[pass]   those that row and column kernels have cached
//                             when a pass begins
//   Sums<kPass, Of>           what a pass sums: a field Of<reduction> each
//   element<kPass, kCached>(x, k, cached, term, y)   an element: its terms of the sums, and
//                             what is stored of it. Values whose bit is in kCached come from
//                             `cached`. The compiler drops what a pass does not use
//   follow<kPass>(k, total)   what later passes need of the sums of a pass
//   finish<kPass>(k, total)   what is only stored of them
//   results<kPass, kResident>(f)   calls f(pointer, &Channel::field), or another record's, for what
//                             is stored once the sums of a pass are known; not resident: also what
//                             later kernels of a two-pass schedule read
//   count<kPass>()            counts a batch, in one thread of the grid
//   kReducesChannels, channel_terms(k, term)   whether channels are summed to scalars, and which
//                             terms
//   kTileReads                the fields of Reads that a column kernel reads again
//   kColumnValues             values of a column in a thread's registers, at most: see kVectorOf
//   kChannelValuesBy[pass]    values of a channel, or of a sample's, that the elements of a pass
//                             use, for passes by samples, the L2-resident kernel and epilogues of
//                             products
//   kRowTensorsBy[pass], kGroupTensorsBy[pass]   tensors of rows and groups that they need
//   kRowConstants, kRowValues channel tensors that the row kernel reads; values that it computes of
//                             an element
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "../call.h"
#include "../columns.cuh"
#include "../packs.cuh"
#include "../parts.cuh"
#include "../reductions.cuh"
#include "../spread.cuh"
#include "../types.cuh"
#include "fields.cuh"

// A program has members that not every kernel uses.
#if defined(__CUDACC__)
#pragma nv_diag_suppress 177
#endif

namespace fusegen {

// The unit that a pass reduces to one value; kNone where a pass has no sums.
enum class Unit { kNone, kChannel, kRow, kGroup, kSample, kSampleGroup, kScalar };

// positions: of an image, where outer tensors are [batch, channels, positions] and rows are
// batch * positions; 0 where all tensors are [rows, channels]. samples: blocks of rows that have
// sums or values of their own, in programs with such, sample_rows rows each. windows: of programs
// that pool, an address of the host.
struct Sizes {
  int64_t rows, channels, groups, group_length, positions = 0, samples = 1, sample_rows = 0;
  const Windows* windows = nullptr;
};

// What becomes of the elements of a window (windows.cuh). Of the largest the first is taken, and of
// those that are NaN the last, as PyTorch has it.
enum class Pooling { kNone, kMean, kMax };

// Stands for the element type of the gradient of what windows became: window_gradients.cuh.
template <typename E, Pooling kPooling>
struct Pooled;
template <typename E>
struct IsPooled : std::false_type {};
template <typename E, Pooling kPooling>
struct IsPooled<Pooled<E, kPooling>> : std::true_type {};

// Whether a program reads gradients that come back through windows.
template <class P>
__host__ __device__ constexpr bool reads_pooled() {
  typename P::template Reads<IsPooled> fields{};
  bool any = false;
  P::template Reads<IsPooled>::each(
      [&](auto, const auto& field) { any = any || std::decay_t<decltype(field)>::value; }, fields);
  return any;
}

template <unsigned kPasses>
struct Uses {
  static constexpr unsigned passes = kPasses;
};

// Those whose elements need a tensor; without any, only finish() does.
template <int... kPasses>
using InPasses = Uses<(0u | ... | (1u << kPasses))>;

// How many of the sums of a pass have this reduction.
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

// Whether a pass reduces samples, besides columns in the last pass. Then each of its blocks has
// rows of one sample at a time, and leaves partial results of it.
template <class P, int kPass = P::kPasses - 1>
constexpr bool kSumsSamples =
    P::kUnit[kPass] == Unit::kSample || P::kUnit[kPass] == Unit::kSampleGroup;

// Whether the blocks of a pass over memory have rows of one sample at a time.
template <class P, int kPass>
constexpr bool kBySamples = P::kOfSamples || kSumsSamples<P, kPass>;

// The fields of Reads, and of Writes, that pass kPass moves and that are [batch, channels,
// positions].
template <class P, int kPass>
constexpr unsigned kOuterReadsOf = P::kReadBy[kPass] & P::kOuterReads;
template <class P, int kPass>
constexpr unsigned kOuterWritesOf = kPass == P::kPasses - 1 ? P::kOuterWrites : 0u;

// Whether a pass that meets outer tensors meets nothing else of a value per row or element.
template <class P, int kPass>
constexpr bool kOnPlanes = (P::kReadBy[kPass] & ~P::kOuterReads) == 0 &&
    (kPass < P::kPasses - 1 || P::kOuterWrites == (1u << P::Write::kFields) - 1u) &&
    P::kRowTensorsBy[kPass] == 0;

// Whether all passes meet outer tensors alone, and those before the last reduce samples: then what
// one sample's channels read can stay on chip until their results are stored.
template <class P, int kPass = P::kPasses - 1>
constexpr bool planes_stay() {
  if constexpr (kPass < 0) {
    return P::kPasses > 1 && !P::kHasParts;
  } else {
    return kOnPlanes<P, kPass> && (kPass == P::kPasses - 1 || kSumsSamples<P, kPass>) &&
           planes_stay<P, kPass - 1>();
  }
}

// How many values the largest combined record has (reductions.cuh), of the sums of a pass.
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

// Declarations of the functions of programs.
#define FUSEGEN_DEVICE __device__ __forceinline__
#define FUSEGEN_BOTH __host__ __device__ __forceinline__
// A function of the device that is not in line. The emulator's compiler decides by itself.
#ifdef __CUDACC__
#define FUSEGEN_CALLED __device__ __noinline__
#else
#define FUSEGEN_CALLED inline
#endif

// The defaults of programs.
struct Program : Sizes {
  static constexpr int kMostPasses = 32;  // a mask has a bit for each
  static constexpr unsigned kCachedInRegisters[kMostPasses] = {}, kCachedInShared[kMostPasses] = {};
  static constexpr int kRowTensorsBy[kMostPasses] = {}, kGroupTensorsBy[kMostPasses] = {};
  static constexpr int kChannelValuesBy[kMostPasses] = {};
  static constexpr unsigned kTileReads = 0, kOptionalWrites = 0;
  static constexpr unsigned kOuterReads = 0, kOuterWrites = 0;
  static constexpr int kFirstResident = 0;
  static constexpr bool kReducesChannels = false, kHasParts = false, kOfSamples = false;
  static constexpr bool kRowInvariant = false;
  static constexpr Pooling kPooling = Pooling::kNone;
  static constexpr int kDraws = 0;

  using Cached = Nothing;
  template <int kPass, template <typename> class Of>
  using Sums = Nothing;
  struct Scalars {};
  struct Channel {};
  struct Row {};
  struct Group {};
  struct Sample {};
  struct Drawn {};
  template <typename F>
  FUSEGEN_DEVICE void dropouts(const F&) const {}
  FUSEGEN_DEVICE Scalars scalars() const { return {}; }
  template <int kFrom, typename F>
  FUSEGEN_BOTH void channel_tensors(const F&) const {}
  template <int kFrom, typename F>
  FUSEGEN_BOTH void row_tensors(const F&) const {}
  template <int kFrom, typename F>
  FUSEGEN_BOTH void group_tensors(const F&) const {}
  template <int kFrom, typename F>
  FUSEGEN_BOTH void sample_tensors(const F&) const {}
  template <typename K>
  FUSEGEN_DEVICE void derive_channel(K&) const {}
  template <typename K>
  FUSEGEN_DEVICE void derive_row(K&) const {}
  template <typename K>
  FUSEGEN_DEVICE void derive_group(K&) const {}
  template <typename K>
  FUSEGEN_DEVICE void derive_sample(K&) const {}
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

// The base of the programs that a launcher makes of its arguments: members of a program say which
// argument each of them is. a: in kernels null.
template <class Arguments>
struct ProgramOf : Program {
  const Arguments* a;
};

// Types of a record's fields: pointers to read or to write, and values.
template <typename E>
using ReadPointer = typename PointerTo<E>::Read;
template <typename E>
using WritePointer = typename PointerTo<E>::Write;
template <typename Acc>
struct ValuesIn {
  template <typename E>
  using Of = Acc;
};

// The record of a pointer to a field.
template <typename Field>
struct RecordOf;
template <typename Record, typename Value>
struct RecordOf<Value Record::*> {
  using type = Record;
};

template <int kPass, typename... Records>
using RecordOfPass = typename RecordAt<kPass, Records...>::type;
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

// All values besides those of an element: formulas use these fields, whatever their record is.
template <class P>
struct Known : P::Scalars, P::Channel, P::Row, P::Group, P::Drawn, P::Sample {};

// Draws what the thread's elements of the row that begins at element `row` need. The compiler drops
// what the pass does not use. kAnywhere: that may be anywhere in a vector.
template <bool kAnywhere = false, class P, typename ColumnsOf, int N>
__device__ __forceinline__ void draw(
    const P& p, const ColumnsOf& columns, int64_t row, typename P::Drawn (&drawn)[N]) {
  p.dropouts([&](const auto& dropout, auto field) {
    typename P::Acc factor[N];
    if constexpr (kAnywhere) {
      draw_columns_anywhere(dropout, columns, row, factor);
    } else {
      draw_columns(dropout, columns, row, factor);
    }
#pragma unroll
    for (int v = 0; v < N; ++v) drawn[v].*field = factor[v];
  });
}

// Initialises what is known of each of a thread's columns with the scalars.
template <class P, int N>
__device__ __forceinline__ void set_scalars(const P& p, Known<P> (&known)[N]) {
  const typename P::Scalars scalars = p.scalars();
#pragma unroll
  for (int v = 0; v < N; ++v) known[v] = {scalars, {}, {}, {}};
}

// Computes what follows from the channel tensors alone.
template <class P, int N>
__device__ __forceinline__ void derive_channels(const P& p, Known<P> (&known)[N]) {
#pragma unroll
  for (int v = 0; v < N; ++v) p.derive_channel(known[v]);
}

// Loads the channel tensors that are in memory when pass kFrom begins, for the thread's columns:
// those that any of kPasses needs. A thread that is not active reads nothing. Record is Channel or
// derives from it.
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

// Loads the tensors [samples, channels] that pass kPass needs, for the thread's columns in a
// sample, and computes what follows from them.
template <int kPass, class P, typename ColumnsOf, int N>
__device__ __forceinline__ void set_samples(
    const P& p, const ColumnsOf& columns, bool active, int64_t sample, Known<P> (&known)[N]) {
  p.template sample_tensors<kPass>([&](auto uses, auto* pointer, bool present, auto field) {
    if constexpr (has_bit(decltype(uses)::passes, kPass)) {
      typename P::Acc value[N];
      load_values(columns, pointer + sample * p.channels, active && present, value);
#pragma unroll
      for (int v = 0; v < N; ++v) known[v].*field = value[v];
    }
  });
#pragma unroll
  for (int v = 0; v < N; ++v) p.derive_sample(known[v]);
}

// Loads those that only finish() needs, in a thread that stores its results.
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

// Stores a value in the type of the tensor.
template <typename E, typename Acc>
__device__ __forceinline__ void store_value(E* to, Acc value) {
  *to = narrow<E>(value);
}

}  // namespace fusegen
