// Arithmetic: powers, extremes and their gradients. `f_backward(g, x)` is the gradient of f at x
// for an incoming gradient g, as PyTorch has it (tools/autograd/derivatives.yaml).
#pragma once

#include <cmath>

#include <cuda_runtime.h>

namespace fusegen {

#define FUSEGEN_MATH template <typename A> __device__ __forceinline__ A

// The larger and the smaller, or NaN if either is. One instruction, where a comparison and a choice
// are two.
__device__ __forceinline__ double maximum(double x, double y) { return x != x || x > y ? x : y; }
__device__ __forceinline__ double minimum(double x, double y) { return x != x || x < y ? x : y; }
__device__ __forceinline__ float maximum(float x, float y) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
  return result;
#else
  return x != x || x > y ? x : y;
#endif
}
__device__ __forceinline__ float minimum(float x, float y) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
  return result;
#else
  return x != x || x < y ? x : y;
#endif
}

FUSEGEN_MATH reciprocal(A x) { return A(1) / x; }
FUSEGEN_MATH square(A x) { return x * x; }

// -1/2 g y^3 for y = 1 / sqrt(x), and -g y^2 for y = 1 / x: factor by factor, as y^3 may leave the
// range where the gradient does not.
FUSEGEN_MATH rsqrt_backward(A g, A y) { return A(-0.5) * g * y * y * y; }
FUSEGEN_MATH reciprocal_backward(A g, A y) { return -g * y * y; }

// x^exponent. Where a product or a root is more exact than pow, that is what PyTorch takes as well.
FUSEGEN_MATH real_power(A x, A exponent, A) {
  if (exponent == A(1)) return x;
  if (exponent == A(2)) return x * x;
  if (exponent == A(3)) return x * x * x;
  if (exponent == A(0.5)) return sqrt(x);
  if (exponent == A(-0.5)) return rsqrt(x);
  if (exponent == A(-1)) return A(1) / x;
  if (exponent == A(-2)) return A(1) / (x * x);
  return pow(x, exponent);
}
// less_one: the exponent - 1, which would round here.
FUSEGEN_MATH real_power_backward(A g, A x, A exponent, A less_one) {
  return exponent == A(0) ? A(0) : g * (exponent * real_power(x, less_one, less_one));
}

// Zero for NaN, as PyTorch.
FUSEGEN_MATH sign(A x) { return A(x > A(0)) - A(x < A(0)); }
FUSEGEN_MATH absolute_backward(A g, A x) { return g * sign(x); }
// The gradient of what is constant between its jumps: zero, whatever g is.
FUSEGEN_MATH no_gradient(A) { return A(0); }

// Derivatives of tan, by its result, and of inverse functions. 1 - x^2 is a product of factors that
// are exact near its roots, and no square is taken of what has none.
FUSEGEN_MATH tan_backward(A g, A y) { return g * fma(y, y, A(1)); }
FUSEGEN_MATH asin_backward(A g, A x) { return g * rsqrt((A(1) - x) * (A(1) + x)); }
FUSEGEN_MATH atan_backward(A g, A x) { return g / fma(x, x, A(1)); }
FUSEGEN_MATH asinh_backward(A g, A x) {
  const A size = fabs(x);
  return size > A(1e9) ? g / size : g * rsqrt(fma(x, x, A(1)));
}
// As PyTorch: of |x|, where x < -1 has no value.
FUSEGEN_MATH acosh_backward(A g, A x) {
  const A size = fabs(x);
  return g * (rsqrt(size - A(1)) * rsqrt(size + A(1)));
}
FUSEGEN_MATH atanh_backward(A g, A x) { return g / ((A(1) - x) * (A(1) + x)); }

// The gradient goes to the operand that is the result, half to each at a tie.
FUSEGEN_MATH minimum_backward(A g, A x, A other) {
  return x == other ? g * A(0.5) : (x > other ? A(0) : g);
}
FUSEGEN_MATH maximum_backward(A g, A x, A other) {
  return x == other ? g * A(0.5) : (x < other ? A(0) : g);
}

// Of the first operand y of atan2(y, x): g x / (x^2 + y^2), where no square leaves the range. Of
// the second one it is minus that with x and y exchanged. Zero at the origin, as PyTorch.
FUSEGEN_MATH atan2_backward(A g, A y, A x) {
  const A radius = hypot(x, y);
  return radius == A(0) ? A(0) : g * (x / radius / radius);
}

// `value` where the mask is 1, and the gradient of x there.
FUSEGEN_MATH masked_fill(A x, A mask, A value) { return mask == A(0) ? x : value; }
FUSEGEN_MATH masked_fill_backward(A g, A mask) { return mask == A(0) ? g : A(0); }

// g / (2 y) of y = sqrt(x), and zero where y is.
FUSEGEN_MATH magnitude_backward(A g, A y) { return y == A(0) ? A(0) : g / (y + y); }

// What is subtracted from exponents: the largest of them, unless that is infinite.
FUSEGEN_MATH finite_or_zero(A largest) {
  return fabs(largest) == A(INFINITY) ? A(0) : largest;
}

// One channel of a row, or its gradient: zero in the others, whatever g is.
FUSEGEN_MATH at_channel(A g, A channel, A chosen) { return channel == chosen ? g : A(0); }

// A row's loss, or its gradient: zero where the target is the one to be ignored, NaN where it is no
// channel.
FUSEGEN_MATH of_target(A value, A target, A ignored, A channels) {
  if (target == ignored) return A(0);
  return target >= A(0) && target < channels ? value : A(NAN);
}

// What each of the elements gets that are the largest, and what the others do.
FUSEGEN_MATH at_ties(A x, A largest, A share, A nothing) {
  return x == largest ? share : nothing;
}

// The weight of the newest batch in running statistics; a negative momentum stands for the
// cumulative average.
FUSEGEN_MATH average_factor(A momentum, A batches) {
  return momentum < A(0) ? A(1) / batches : momentum;
}

#undef FUSEGEN_MATH

}  // namespace fusegen
