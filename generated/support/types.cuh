// Element types, their accumulation type, and vector access to memory.
#pragma once

#include <cstdint>

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
__device__ __forceinline__ float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ __forceinline__ float widen(__half value) { return __half2float(value); }
__device__ __forceinline__ float widen(int64_t value) { return float(value); }

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

// How many neighbouring columns a thread has. Eight of a 16-bit type would fill a 16-byte access,
// but then the constants of the columns take so many registers that too few warps are resident.
template <typename T>
constexpr int kVectorOf = sizeof(T) < 8 ? 4 : 2;

// N neighbouring elements. A pack of more than 16 bytes is moved in pieces of 16.
template <typename T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  T element[N];
};

// Loads N elements; the address must be a multiple of the pack's alignment (N == 1: any address).
template <int N, typename T>
__device__ __forceinline__ Pack<T, N> load_pack(const T* address) {
  return *reinterpret_cast<const Pack<T, N>*>(address);
}

template <int N, typename T>
__device__ __forceinline__ void store_pack(T* address, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(address) = pack;
}

// N neighbouring elements as accumulation values; zeros where `present` is false.
template <int N, typename Acc, typename T>
__device__ __forceinline__ void load_values(const T* address, bool present, Acc (&value)[N]) {
  Pack<T, N> pack;
  if (present) pack = load_pack<N>(address);
#pragma unroll
  for (int v = 0; v < N; ++v) value[v] = present ? Acc(widen(pack.element[v])) : Acc(0);
}

template <int N, typename Acc, typename T>
__device__ __forceinline__ void store_values(T* address, const Acc (&value)[N]) {
  Pack<T, N> pack;
#pragma unroll
  for (int v = 0; v < N; ++v) pack.element[v] = narrow<T>(value[v]);
  store_pack(address, pack);
}

}  // namespace fusegen
