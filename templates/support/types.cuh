// Element types, the type of their arithmetic, and vectors of neighbouring elements.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace fusegen {

// Arithmetic is done in float, whatever the storage type; double stays double.
template <typename T>
struct AccumulateFor {
  using type = float;
};
template <>
struct AccumulateFor<double> {
  using type = double;
};
template <typename T>
using Accumulate = typename AccumulateFor<T>::type;

__device__ __forceinline__ float widen(float value) { return value; }
__device__ __forceinline__ double widen(double value) { return value; }
// Not by __bfloat162float, which is inline assembly: written like this, the second element of a
// word takes one instruction, a mask.
__device__ __forceinline__ float widen(__nv_bfloat16 value) {
  unsigned short bits;
  memcpy(&bits, &value, sizeof(bits));
  return __uint_as_float(static_cast<unsigned>(bits) << 16);
}
__device__ __forceinline__ float widen(__half value) { return __half2float(value); }
__device__ __forceinline__ float widen(int64_t value) { return float(value); }

// An element of a tensor of bool: 0 or 1.
using Mask = unsigned char;
__device__ __forceinline__ float widen(Mask value) { return float(value); }

template <typename T>
__device__ __forceinline__ T narrow(Accumulate<T> value) {
  return T(value);
}
template <>
__device__ __forceinline__ __nv_bfloat16 narrow<__nv_bfloat16>(float value) {
  return __float2bfloat16(value);
}
template <>
__device__ __forceinline__ __half narrow<__half>(float value) {
  return __float2half(value);
}

// Whether the kernels add a linear layer's bias. In 16 bits the library does, before it rounds.
template <typename T>
constexpr bool kAddsBias = sizeof(T) > 2;

// The elements of a thread's vector: 16 bytes. Where a thread also has more than four constants or
// sums of each column (kArrays), eight elements of 16 bits would take so many registers that too
// few warps are resident.
template <typename T, int kArrays>
constexpr int kVectorOf = sizeof(T) == 8 ? 2 : (sizeof(T) == 2 && kArrays <= 4 ? 8 : 4);

// N neighbouring elements. More than 16 bytes are moved in pieces of 16.
template <typename T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  T element[N];

  __device__ __forceinline__ T& operator[](int v) { return element[v]; }
  __device__ __forceinline__ const T& operator[](int v) const { return element[v]; }
};

// N elements of a row as they came from memory. Neighbours are unpacked where they are used:
// unpacking elements of 16 bits where they are loaded would wait for the memory there.
template <typename T, int N, bool kPacked = true>
struct alignas(alignof(Pack<T, N>)) Loaded {
  using Unit = std::conditional_t<N * sizeof(T) < 4, unsigned short, unsigned int>;
  Unit unit[N * sizeof(T) / sizeof(Unit)];

  __device__ __forceinline__ T operator[](int v) const {
    T value;
    if constexpr (sizeof(T) == 1) {
      value = static_cast<T>(unit[v / int(sizeof(Unit))] >> (v % int(sizeof(Unit)) * 8));
    } else if constexpr (sizeof(T) < sizeof(Unit)) {
      const auto bits = static_cast<unsigned short>(unit[v / 2] >> (v % 2 * 16));
      memcpy(&value, &bits, sizeof(T));
    } else {
      memcpy(&value, unit + v * int(sizeof(T) / sizeof(Unit)), sizeof(T));
    }
    return value;
  }
};
template <typename T, int N>
struct alignas(alignof(Pack<T, N>)) Loaded<T, N, false> {
  T element[N];

  __device__ __forceinline__ T operator[](int v) const { return element[v]; }
};

// How many rows a thread loads before it uses the first, so that their latencies overlap.
constexpr int kRowsInFlight = 4;

// The word that one access to memory moves. Packs are moved as such words, because the copy of a
// struct of elements may be compiled into one access per element.
template <int kBytes>
struct WordOf;
template <>
struct WordOf<1> {
  using type = unsigned char;
};
template <>
struct WordOf<2> {
  using type = unsigned short;
};
template <>
struct WordOf<4> {
  using type = unsigned int;
};
template <>
struct WordOf<8> {
  using type = uint2;
};
template <>
struct WordOf<16> {
  using type = uint4;
};
template <typename T, int N>
using Word = typename WordOf<int(alignof(Pack<T, N>))>::type;

}  // namespace fusegen
