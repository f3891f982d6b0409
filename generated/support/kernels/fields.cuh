// Records of fields. One list gives the declaration of a record, its number of fields, its visitor
// and the numbers of its fields, by which masks name them.
//
// A list is a sequence of (name, type), or of (name, source, type) for the tensors of a program:
//
//   FUSEGEN_SUMS(Sums0, (y_sum_v, Sum) (y_moments_v, MeanAndSquares))
//   FUSEGEN_READS((x_v, from(a->x_arg), T) (z_v, from(a->z_arg), Part<Out, 2>))
//
// The type comes last, as it may have commas.
#pragma once

#include <type_traits>

#include "../reductions.cuh"

namespace fusegen {

template <int kIndex>
using Index = std::integral_constant<int, kIndex>;

// Whether a mask has bit i.
__host__ __device__ constexpr bool has_bit(unsigned mask, int i) { return mask >> i & 1u; }

// The mask of some fields.
template <typename... Fields>
__host__ __device__ constexpr unsigned mask_of(Fields... fields) {
  return (0u | ... | (1u << int(fields)));
}

// The mask of the first fields.
__host__ __device__ constexpr unsigned mask_of_first(int fields) {
  return fields == 0 ? 0u : ~0u >> (32 - fields);
}

// A record without fields.
struct Nothing {
  static constexpr int kFields = 0, kComponents = 0;

  template <typename F, typename... R>
  __host__ __device__ static constexpr void each(const F&, R&...) {}
};

// Number kIndex of some records; Nothing where there are fewer.
template <int kIndex, typename... Records>
struct RecordAt {
  using type = Nothing;
};
template <typename First, typename... More>
struct RecordAt<0, First, More...> {
  using type = First;
};
template <int kIndex, typename First, typename... More>
struct RecordAt<kIndex, First, More...> : RecordAt<kIndex - 1, More...> {};

// Calls f(fields...) for each field of the first record and those of the others.
template <typename F, typename Record, typename... More>
__host__ __device__ __forceinline__ constexpr void each(const F& f, Record& first, More&... more) {
  std::remove_const_t<Record>::each(f, first, more...);
}

}  // namespace fusegen

// Declares the record Record<Of>, whose fields are Of<type> x_v, and the numbers of its fields,
// Number::x_v. each(f, records...) calls f(Index<number>(), the field of each record...).
#define FUSEGEN_RECORD(Record, Number, fields) \
  FUSEGEN_RECORD_OF(Record, Number, FUSEGEN_EXPAND(FUSEGEN_FIELD_A fields), fields)

// A record of sums, which has kComponents values.
#define FUSEGEN_SUMS(Record, fields)                                                  \
  FUSEGEN_RECORD_OF(                                                                  \
      Record, Record##Number,                                                         \
      FUSEGEN_EXPAND(FUSEGEN_FIELD_A fields) static constexpr int kComponents =       \
          0 FUSEGEN_EXPAND(FUSEGEN_COMPONENTS_A fields);                              \
      , fields)

// Values of an element that kernels may cache for later passes.
#define FUSEGEN_CACHED(fields)                  \
  FUSEGEN_RECORD(CachedAs, InCache, fields)     \
  using Cached = CachedAs<fusegen::AsIs>;

// The tensors of all elements that a program reads and writes, and where they are.
#define FUSEGEN_READS(tensors)                                                      \
  FUSEGEN_RECORD_OF(Reads, Read, FUSEGEN_EXPAND(FUSEGEN_TENSOR_A tensors), tensors) \
  Reads<fusegen::ReadPointer> reads = {FUSEGEN_EXPAND(FUSEGEN_SOURCE_A tensors)};   \
  static constexpr unsigned kAllReads = fusegen::mask_of_first(Read::kFields);
#define FUSEGEN_WRITES(tensors)                                                       \
  FUSEGEN_RECORD_OF(Writes, Write, FUSEGEN_EXPAND(FUSEGEN_TENSOR_A tensors), tensors) \
  Writes<fusegen::WritePointer> writes = {FUSEGEN_EXPAND(FUSEGEN_SOURCE_A tensors)};  \
  static constexpr unsigned kAllWrites = fusegen::mask_of_first(Write::kFields);

#define FUSEGEN_RECORD_OF(Record, Number, members, fields)                          \
  struct Number {                                                                   \
    enum : int { FUSEGEN_EXPAND(FUSEGEN_NUMBER_A fields) kFields };                 \
  };                                                                                \
  template <template <typename> class Of>                                           \
  struct Record {                                                                   \
    using At = Number;                                                              \
    static constexpr int kFields = At::kFields;                                     \
    members template <typename F, typename... R>                                    \
    __host__ __device__ __forceinline__ static constexpr void each(                 \
        [[maybe_unused]] const F& f, [[maybe_unused]] R&... r) {                    \
      FUSEGEN_EXPAND(FUSEGEN_VISIT_A fields)                                        \
    }                                                                               \
  };

// FUSEGEN_X_A (a) (b) (c) becomes X of each: A and B take turns, as no macro expands within itself.
// What is left behind the last one becomes FUSEGEN_X_A_END or FUSEGEN_X_B_END, which is nothing.
#define FUSEGEN_EXPAND(...) FUSEGEN_END(__VA_ARGS__)
#define FUSEGEN_END(...) __VA_ARGS__##_END

#define FUSEGEN_NUMBER_A(name, ...) name, FUSEGEN_NUMBER_B
#define FUSEGEN_NUMBER_B(name, ...) name, FUSEGEN_NUMBER_A
#define FUSEGEN_NUMBER_A_END
#define FUSEGEN_NUMBER_B_END

#define FUSEGEN_FIELD_A(name, ...) Of<__VA_ARGS__> name; FUSEGEN_FIELD_B
#define FUSEGEN_FIELD_B(name, ...) Of<__VA_ARGS__> name; FUSEGEN_FIELD_A
#define FUSEGEN_FIELD_A_END
#define FUSEGEN_FIELD_B_END

#define FUSEGEN_TENSOR_A(name, source, ...) Of<__VA_ARGS__> name; FUSEGEN_TENSOR_B
#define FUSEGEN_TENSOR_B(name, source, ...) Of<__VA_ARGS__> name; FUSEGEN_TENSOR_A
#define FUSEGEN_TENSOR_A_END
#define FUSEGEN_TENSOR_B_END

#define FUSEGEN_SOURCE_A(name, source, ...) source, FUSEGEN_SOURCE_B
#define FUSEGEN_SOURCE_B(name, source, ...) source, FUSEGEN_SOURCE_A
#define FUSEGEN_SOURCE_A_END
#define FUSEGEN_SOURCE_B_END

#define FUSEGEN_COMPONENTS_A(name, ...) + fusegen::kComponentsOf<__VA_ARGS__> FUSEGEN_COMPONENTS_B
#define FUSEGEN_COMPONENTS_B(name, ...) + fusegen::kComponentsOf<__VA_ARGS__> FUSEGEN_COMPONENTS_A
#define FUSEGEN_COMPONENTS_A_END
#define FUSEGEN_COMPONENTS_B_END

#define FUSEGEN_VISIT_A(name, ...) f(fusegen::Index<At::name>(), r.name...); FUSEGEN_VISIT_B
#define FUSEGEN_VISIT_B(name, ...) f(fusegen::Index<At::name>(), r.name...); FUSEGEN_VISIT_A
#define FUSEGEN_VISIT_A_END
#define FUSEGEN_VISIT_B_END
