// Exponentials and quotients, as exact as results of type Out can show.
//
// Kernels with results of 16 bits need not compute digits that these cannot show. Out is a template
// argument of every function that depends on it.
#pragma once

#include <cmath>
#include <type_traits>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace fusegen {

// 1 / d for d from 1 to 2^126, zero for larger d. To 1 ulp, or for results in float32 to half an
// ulp by a step of Newton's method. The correctly rounded division takes many more instructions.
template <typename Out>
__device__ __forceinline__ double inverse(double d) {
  return 1 / d;
}
template <typename Out>
__device__ __forceinline__ float inverse(float d) {
#if defined(__CUDACC__)
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(d));  // __fdividef also scales tiny d
  if constexpr (sizeof(Out) > 2) result = fma(result, fma(-d, result, 1.0f), result);
  return result;
#else
  return 1 / d;
#endif
}

// 1 / (1 + e) for any e >= 0. A quarter of the denominator has a reciprocal that is a normal number
// for all finite e: x / (1 + exp(-x)) is one down to x = -88.7, where the reciprocal itself is not.
template <typename Out>
__device__ __forceinline__ double logistic(double e) {
  return 1 / (1 + e);
}
template <typename Out>
__device__ __forceinline__ float logistic(float e) {
#if defined(__CUDACC__)
  const float result = 0.25f * inverse<Out>(fma(e, 0.25f, 0.25f));
  return sizeof(Out) > 2 && e == INFINITY ? 0.0f : result;  // where Newton's step gives NaN
#else
  return 1 / (1 + e);
#endif
}

#if defined(__CUDACC__)
// 2^x to 2 ulp, or zero where that is less than a normal float.
__device__ __forceinline__ float approximate_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
#endif

// Whether results of type Out can show values that are smaller than a normal float.
template <typename Out>
constexpr bool kShowsTiny = !std::is_same_v<Out, __half>;

// exp(factor x). For a type of 16 bits the relative error is up to (2 |factor x| + 8) 2^-24, where
// the type itself rounds by 2^-12 at least. It is the square of a root, which is a normal number
// also where the result is smaller.
template <typename Out>
__device__ __forceinline__ double exponential(double x, double factor = 1) {
  return exp(factor * x);
}
template <typename Out>
__device__ __forceinline__ float exponential(float x, float factor = 1) {
#if defined(__CUDACC__)
  if constexpr (sizeof(Out) == 2 && kShowsTiny<Out>) {
    const float root = approximate_exp2(x * (factor * 0.72134752044448170f));
    return root * root;
  } else if constexpr (sizeof(Out) == 2) {
    return approximate_exp2(x * (factor * 1.4426950408889634f));
  }
#endif
  return exp(factor * x);
}

// exp(x) to be added to one, so that results smaller than a normal float do not matter.
template <typename Out>
__device__ __forceinline__ double exponential_beside_one(double x) {
  return exp(x);
}
template <typename Out>
__device__ __forceinline__ float exponential_beside_one(float x) {
#if defined(__CUDACC__)
  if constexpr (sizeof(Out) == 2) return approximate_exp2(x * 1.4426950408889634f);
#endif
  return exp(x);
}

}  // namespace fusegen
