// Tensors that lie side by side in each row of another one: its parts.
//
// A kernel takes the place of an element as that of its row in a tensor of [rows, channels], and
// its column. A tensor with kParts parts has rows kParts times as long, so the place of a row is
// multiplied by that constant: nothing is divided.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "columns.cuh"
#include "packs.cuh"

namespace fusegen {

// Stands for the element type of a part, where records of tensors are made.
template <typename E, int kParts>
struct Part {};

template <typename E>
struct ElementOfPart {
  using type = E;
};
template <typename E, int kParts>
struct ElementOfPart<Part<E, kParts>> {
  using type = E;
};
template <typename E>
using ElementOf = typename ElementOfPart<E>::type;

// Points to the first element of a part.
template <typename E, int kParts>
struct PartPointer {
  E* first;

  // Where the row begins that begins at `row` in a tensor of [rows, channels].
  __device__ __forceinline__ E* row_at(int64_t row) const { return first + row * kParts; }
  __host__ __device__ __forceinline__ bool operator!=(std::nullptr_t) const {
    return first != nullptr;
  }
};

template <typename E>
struct PointerTo {
  using Read = const E*;
  using Write = E*;
};
template <typename E, int kParts>
struct PointerTo<Part<E, kParts>> {
  using Read = PartPointer<const E, kParts>;
  using Write = PartPointer<E, kParts>;
};

// The element type of what a pointer of either kind points to, without const.
template <typename Pointer>
struct PointedBy {
  using type = std::remove_const_t<std::remove_pointer_t<Pointer>>;
};
template <typename E, int kParts>
struct PointedBy<PartPointer<E, kParts>> {
  using type = std::remove_const_t<E>;
};
template <typename Pointer>
using ElementAt = typename PointedBy<std::remove_const_t<Pointer>>::type;

// Where the row begins that begins at `row` in a tensor of [rows, channels].
template <typename E>
__device__ __forceinline__ E* row_at(E* tensor, int64_t row) {
  return tensor + row;
}
template <typename E, int kParts>
__device__ __forceinline__ E* row_at(const PartPointer<E, kParts>& part, int64_t row) {
  return part.row_at(row);
}

// As those for whole tensors in packs.cuh. Vectors that are not packed may begin anywhere in a
// part: their elements are moved one by one.
template <typename ColumnsOf, typename E, int kParts>
__device__ __forceinline__ auto load_pack(
    const ColumnsOf& columns, const PartPointer<E, kParts>& part, int64_t row, int64_t) {
  return load_pack(columns, part.row_at(row), 0, 0);
}
template <typename ColumnsOf, typename E, int kParts, int N>
__device__ __forceinline__ void store_pack(
    const ColumnsOf& columns, const PartPointer<E, kParts>& part, int64_t row, int64_t,
    const Pack<E, N>& pack) {
  store_pack(columns, part.row_at(row), 0, 0, pack);
}

// A thread's vector of a tile of rows, where some tensors are parts: those need the row of each
// element. Here: which of the elements exist, as other tensors take it.
template <int kVec, class Here>
struct VectorOverRows {
  Here here;
  const RowTile<kVec>& rows;

  __device__ __forceinline__ bool any() const { return here.any(); }
  __device__ __forceinline__ bool has(int v) const { return here.has(v); }
};

template <int kVec, class Here, typename T>
__device__ __forceinline__ auto load_pack(
    const VectorOverRows<kVec, Here>& columns, T* tensor, int64_t row, int64_t vector_end) {
  return load_pack(columns.here, tensor, row, vector_end);
}
template <int kVec, class Here, typename E, int kParts>
__device__ __forceinline__ auto load_pack(
    const VectorOverRows<kVec, Here>& columns, const PartPointer<E, kParts>& part, int64_t tile,
    int64_t) {
  Pack<std::remove_const_t<E>, kVec> pack = {};
  columns.rows.each([&](int v, int64_t row, int64_t column) {
    const int64_t at = tile + row * columns.rows.by_row.divisor;
    if (columns.has(v)) pack[v] = read(part.row_at(at) + column);
  });
  Loaded<std::remove_const_t<E>, kVec> loaded;
  memcpy(&loaded, &pack, sizeof(loaded));
  return loaded;
}

template <int kVec, class Here, typename T>
__device__ __forceinline__ void store_pack(
    const VectorOverRows<kVec, Here>& columns, T* tensor, int64_t row, int64_t vector_end,
    const Pack<T, kVec>& pack) {
  store_pack(columns.here, tensor, row, vector_end, pack);
}
template <int kVec, class Here, typename T, int kParts>
__device__ __forceinline__ void store_pack(
    const VectorOverRows<kVec, Here>& columns, const PartPointer<T, kParts>& part, int64_t tile,
    int64_t, const Pack<T, kVec>& pack) {
  columns.rows.each([&](int v, int64_t row, int64_t column) {
    const int64_t at = tile + row * columns.rows.by_row.divisor;
    if (columns.has(v)) part.row_at(at)[column] = pack[v];
  });
}

// The vector `here` of a thread whose columns are `columns`; as it is where rows are tiles, or no
// tensor is a part.
template <bool kHasParts, class Here, class ColumnsOf>
__device__ __forceinline__ Here over_rows(const Here& here, const ColumnsOf&) {
  return here;
}
template <bool kHasParts, class Here, int kVec>
__device__ __forceinline__ auto over_rows(const Here& here, const RowTile<kVec>& columns) {
  if constexpr (kHasParts) {
    return VectorOverRows<kVec, Here>{here, columns};
  } else {
    return here;
  }
}

}  // namespace fusegen
