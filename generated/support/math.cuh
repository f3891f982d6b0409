// Activations and their gradients. `f_backward(g, x)` is the gradient of f at x for an incoming
// gradient g, `f_slope(x)` the derivative alone; values at kinks are PyTorch's
// (tools/autograd/derivatives.yaml and the ATen kernels it names).
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace fusegen {

#define FUSEGEN_MATH template <typename A> __device__ __forceinline__ A
// For functions of exponentials: Out is the type of the results that depend on them.
#define FUSEGEN_MATH_FOR_OUT template <typename Out, typename A> __device__ __forceinline__ A

FUSEGEN_MATH reciprocal(A x) { return A(1) / x; }

// 1 / d for d from 1 to 2^126, zero for more: to 1 ulp, or for results in float32 to half an ulp by
// a step of Newton's. The correctly rounded division takes many more instructions.
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
  return sizeof(Out) > 2 && e == INFINITY ? 0.0f : result;  // of which Newton's step makes NaN
#else
  return 1 / (1 + e);
#endif
}

// The larger, the smaller; NaN if either is. One instruction, where a comparison and a choice are
// two.
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

#if defined(__CUDACC__)
// 2^x to 2 ulp, or zero where that is less than a normal float.
__device__ __forceinline__ float approximate_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
#endif

// Whether results of type Out show what becomes of numbers that are less than a normal float.
template <typename Out>
constexpr bool kShowsTiny = !std::is_same_v<Out, __half>;

// exp(factor x), as exact as a result of type Out can show. For one of 16 bits the relative error
// is up to (2 |factor x| + 8) 2^-24, where the type itself rounds by 2^-12 at least. The square of
// a root, which is a normal number also where the result is less than one.
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

// exp(x) where one is added to it, beside which less than a normal float is nothing.
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
FUSEGEN_MATH absolute_backward(A g, A x) { return g * (A(x > A(0)) - A(x < A(0))); }

FUSEGEN_MATH relu(A x) { return maximum(x, A(0)); }
FUSEGEN_MATH relu_backward(A g, A x) { return x <= A(0) ? A(0) : g; }

FUSEGEN_MATH leaky_relu(A x, A slope) { return x > A(0) ? x : x * slope; }
FUSEGEN_MATH leaky_relu_backward(A g, A x, A slope) { return x > A(0) ? g : g * slope; }
// Of the weight of leaky_relu, where that is learnt.
FUSEGEN_MATH prelu_weight_backward(A g, A x) { return x > A(0) ? A(0) : x * g; }

FUSEGEN_MATH softsign(A x) { return x / (A(1) + fabs(x)); }
// 1 / (1 + |x|)^2, and NaN at infinity, as PyTorch.
FUSEGEN_MATH softsign_backward(A g, A x) {
  const A q = A(1) / (A(1) + fabs(x));
  return fma(x, A(0), g * q * q);
}

// ELU, SELU and CELU (ATen's elu): positive x, else negative (exp(inner x) - 1)
FUSEGEN_MATH elu(A x, A positive, A negative, A inner) {
  return x > A(0) ? x * positive : negative * expm1(x * inner);
}
FUSEGEN_MATH_FOR_OUT elu_backward(A g, A x, A positive, A negative, A inner) {
  return x <= A(0) ? g * (inner * negative) * exponential<Out>(x * inner) : g * positive;
}

FUSEGEN_MATH_FOR_OUT sigmoid(A x) { return logistic<Out>(exponential_beside_one<Out>(-x)); }
// y (1 - y) as y - y y, rounded once; so is x (1 - s) below.
FUSEGEN_MATH sigmoid_backward(A g, A y) { return g * fma(-y, y, y); }


// logsigmoid(x) = min(x, 0) - log(1 + exp(-|x|));  logsigmoid'(x) = sigmoid(-x), to its own digits
// where that is small
FUSEGEN_MATH_FOR_OUT logsigmoid(A x) {
  return minimum(x, A(0)) - log1p(exponential<Out>(-fabs(x)));
}
FUSEGEN_MATH_FOR_OUT logsigmoid_backward(A g, A x) {
  const A e = exponential<Out>(-fabs(x));
  const A s = logistic<Out>(e);
  return g * (x < A(0) ? s : e * s);
}

FUSEGEN_MATH tanh_backward(A g, A y) { return g * (A(1) - y * y); }

// silu(x) = x s with s = sigmoid(x);  silu'(x) = s + s x (1 - s)
FUSEGEN_MATH silu_slope(A x, A s) { return fma(s, fma(-x, s, x), s); }

// gelu(x) = x Phi(x);  gelu'(x) = Phi(x) + x phi(x), with the normal distribution's Phi and its
// density phi(x) = exp(-x^2/2) / sqrt(2 pi)
FUSEGEN_MATH_FOR_OUT normal_pdf(A x) {
#if defined(__CUDACC__)
  // The factor is part of the exponent. A square, as in exponential().
  if constexpr (sizeof(Out) == 2 && kShowsTiny<Out>) {
    const A root = approximate_exp2(fma(x * x, -0.36067376022224085f, -0.66287403236807960f));
    return root * root;
  } else if constexpr (sizeof(Out) == 2) {
    return approximate_exp2(fma(x * x, -0.72134752044448170f, -1.3257480647361592f));
  }
#endif
  return exponential<Out>(x * x, A(-0.5)) * A(0.39894228040143267794);
}
FUSEGEN_MATH_FOR_OUT normal_cdf(A x) {
  if constexpr (sizeof(Out) > 2) {
    return A(0.5) + A(0.5) * erf(x * A(0.70710678118654752440));
  } else {
    // Phi(-|x|) as phi(x) times a polynomial of t, without a constant (the form of Abramowitz and
    // Stegun 1964, 7.1.26), fitted where results of the type are not zero. bfloat16 has a long
    // tail: a relative error of 4e-6 wherever phi(x) is a normal float, which the sum of 1/2 and
    // erf is far from. float16 has more digits where the slope of gelu is nearly zero: an error of
    // 2e-8 for |x| < 1, relatively of 2e-6 for |x| < 4.
    constexpr bool kLong = kShowsTiny<Out>;
    const A t = inverse<Out>(A(1) + A(kLong ? 0.307 : 0.28) * fabs(x));
    A tail = A(kLong ? -0.1907188118 : -0.2646385716) * t + A(kLong ? 0.4863836039 : 0.9753775881);
    tail = tail * t + A(kLong ? 0.0078334966 : -0.5918463239);
    tail = tail * t + A(kLong ? 0.3460848275 : 0.6730310513);
    tail = tail * t + A(kLong ? 0.2960285585 : 0.1692728514);
    tail = tail * t + A(kLong ? 0.3077001615 : 0.2921175854);
    tail = tail * t * normal_pdf<Out>(x);
    return x < A(0) ? tail : A(1) - tail;
  }
}
FUSEGEN_MATH_FOR_OUT gelu_slope(A x, A cdf) { return cdf + x * normal_pdf<Out>(x); }

// gelu with Phi(x) taken as (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2 (Hendrycks and Gimpel
// 2016), which is the sigmoid of twice what the tanh is of, and does not cancel as such.
FUSEGEN_MATH gelu_tanh_inner(A x) {
  return A(1.59576912160573071176) * (x + A(0.044715) * x * x * x);
}
FUSEGEN_MATH_FOR_OUT gelu_tanh(A x) { return x * sigmoid<Out>(gelu_tanh_inner(x)); }
FUSEGEN_MATH_FOR_OUT gelu_tanh_backward(A g, A x) {
  const A e = exponential_beside_one<Out>(-gelu_tanh_inner(x));
  const A s = logistic<Out>(e);
  const A rest = s > A(0) ? e * s : A(1);  // 1 - s, to its own digits where s is nearly 1
  const A slope = A(1.59576912160573071176) * (A(1) + A(3 * 0.044715) * x * x);
  return g * (s + x * s * rest * slope);
}

// mish(x) = x t with t = tanh(softplus(x)) = n / (n + 1), n = e^2/2 + e and e = exp(x): no
// cancellation. t is 1 in double from 20 on, where e stays bounded. With r = 1 / (n + 1)
//   mish'(x) = t + x (1 - t^2) sigmoid(x) = t + x (2 n - e) r^2
// (Misra 2019, equation 2, in other letters).
FUSEGEN_MATH bounded_for_mish(A x) { return minimum(x, A(20)); }
FUSEGEN_MATH_FOR_OUT bounded_exp(A x) { return exponential<Out>(bounded_for_mish(x)); }
FUSEGEN_MATH_FOR_OUT mish(A x, A e) {
  const A n = e * fma(e, A(0.5), A(1));
  const A value = x * (n * inverse<Out>(n + A(1)));
  // t is 1 beyond 20 but for the quotient's own error, which a result of 16 bits does not show.
  return sizeof(Out) > 2 && x > A(20) ? x : value;
}
FUSEGEN_MATH_FOR_OUT mish_slope(A x, A e) {
  const A n = e * fma(e, A(0.5), A(1));
  const A r = inverse<Out>(n + A(1));
  const A rest = fma(A(2), n, -e) * r * r;
  // NaN at infinity, as PyTorch.
  if constexpr (sizeof(Out) > 2) return x > A(20) ? x * A(0) + A(1) : fma(x, rest, n * r);
  return fma(x, A(0), fma(bounded_for_mish(x), rest, n * r));
}

// hardswish(x) = x min(max(x + 3, 0), 6) / 6
FUSEGEN_MATH hardswish(A x) {
  const A gate = x + A(3) < A(0) ? A(0) : (x + A(3) > A(6) ? A(6) : x + A(3));
  return x * gate * A(1.0 / 6.0);
}
FUSEGEN_MATH hardswish_backward(A g, A x) {
  if (x <= A(-3)) return A(0);
  return x < A(3) ? g * ((x + A(1.5)) * A(1.0 / 3.0)) : g;  // to its own digits about the root
}

// hardsigmoid(x) = min(max(x + 3, 0), 6) / 6
FUSEGEN_MATH hardsigmoid(A x) {
  return minimum(maximum(x + A(3), A(0)), A(6)) * A(1.0 / 6.0);
}
FUSEGEN_MATH hardsigmoid_backward(A g, A x) {
  return x > A(-3) && x < A(3) ? g * A(1.0 / 6.0) : A(0);
}

// softplus(x) = log(1 + exp(beta x)) / beta, the identity where beta x is above the threshold
FUSEGEN_MATH_FOR_OUT softplus(A x, A beta, A threshold) {
  return x * beta > threshold ? x : log1p(exponential<Out>(x * beta)) / beta;
}
// The sigmoid as e / (e + 1), which keeps its digits as long as e does. It is 1 from 80 on, where e
// stays bounded.
FUSEGEN_MATH_FOR_OUT softplus_backward(A g, A x, A beta, A threshold) {
  const A e = exponential<Out>(minimum(x * beta, A(80)));
  return x * beta > threshold ? g : g * (e * inverse<Out>(e + A(1)));
}

// clamp passes the gradient at both bounds, hardtanh at neither.
FUSEGEN_MATH clamp_min(A x, A low) { return maximum(x, low); }
FUSEGEN_MATH clamp_min_backward(A g, A x, A low) { return x >= low ? g : A(0); }
FUSEGEN_MATH clamp_max(A x, A high) { return minimum(x, high); }
FUSEGEN_MATH clamp_max_backward(A g, A x, A high) { return x <= high ? g : A(0); }
FUSEGEN_MATH clamp(A x, A low, A high) { return clamp_max(clamp_min(x, low), high); }
FUSEGEN_MATH clamp_backward(A g, A x, A low, A high) { return x >= low && x <= high ? g : A(0); }
FUSEGEN_MATH hardtanh(A x, A low, A high) { return clamp(x, low, high); }
FUSEGEN_MATH hardtanh_backward(A g, A x, A low, A high) {
  return x <= low || x >= high ? A(0) : g;
}

// The gradient goes to the one taken, half to each at a tie.
FUSEGEN_MATH minimum_backward(A g, A x, A other) {
  return x == other ? g * A(0.5) : (x > other ? A(0) : g);
}
FUSEGEN_MATH maximum_backward(A g, A x, A other) {
  return x == other ? g * A(0.5) : (x < other ? A(0) : g);
}

// The gradient of one channel of a row: zero in the others, whatever g is.
FUSEGEN_MATH at_channel(A g, A channel, A chosen) { return channel == chosen ? g : A(0); }

// The gradient of each of the `ties` elements that are the largest; NaN where that is NaN.
FUSEGEN_MATH at_ties(A g, A x, A largest, A ties) {
  return g * (x == largest ? A(1) : A(0)) / ties;
}

// The weight of the newest batch in running statistics; a negative momentum asks for the cumulative
// average.
FUSEGEN_MATH average_factor(A momentum, A batches) {
  return momentum < A(0) ? A(1) / batches : momentum;
}

#undef FUSEGEN_MATH
#undef FUSEGEN_MATH_FOR_OUT

}  // namespace fusegen
