// The numbers of channels, 0, 1, 2 ..., as a tensor that is not in memory: what would load them
// computes them from the columns.
#pragma once

#include <cstdint>
#include <cstring>

#include "columns.cuh"

namespace fusegen {

// The number of a channel. Programs have a pointer to it as they have one to a channel tensor.
struct ChannelNumber {
  int value;
};
constexpr const ChannelNumber* kChannelNumbers = nullptr;

__device__ __forceinline__ int widen(ChannelNumber number) { return number.value; }

// As read_at() in packs.cuh.
__device__ __forceinline__ ChannelNumber read_at(const ChannelNumber*, int64_t at) {
  return {int(at)};
}

// The thread's channel numbers; columns that do not exist have any number.
template <typename Numbers, int N, typename ColumnsOf>
__device__ __forceinline__ Numbers channel_numbers(const ColumnsOf& columns) {
  Pack<ChannelNumber, N> pack;
#pragma unroll
  for (int v = 0; v < N; ++v) pack[v] = {int(columns.at(v))};
  Numbers numbers;
  static_assert(sizeof(numbers) == sizeof(pack));
  memcpy(&numbers, &pack, sizeof(numbers));
  return numbers;
}
template <int N, bool kPacked>
__device__ __forceinline__ Loaded<ChannelNumber, N, kPacked> load_pack(
    const Columns<N, kPacked>& columns, const ChannelNumber*) {
  return channel_numbers<Loaded<ChannelNumber, N, kPacked>, N>(columns);
}
template <template <int> typename ColumnsOf, int N>
__device__ __forceinline__ Loaded<ChannelNumber, N> load_pack(
    const ColumnsOf<N>& columns, const ChannelNumber*) {
  return channel_numbers<Loaded<ChannelNumber, N>, N>(columns);
}
template <int N>
__device__ __forceinline__ Loaded<ChannelNumber, N> load_pack(
    const Columns<N, true>& columns, const ChannelNumber* tensor, int64_t, int64_t) {
  return load_pack(columns, tensor);
}

}  // namespace fusegen
