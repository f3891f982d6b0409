// Activations and their gradients. `f_backward(g, x)` is the gradient of f at x for an incoming
// gradient g, `f_slope(x)` the derivative alone; values at kinks are PyTorch's
// (tools/autograd/derivatives.yaml and the ATen kernels it names).
#pragma once

#include <cmath>

#include "exponentials.cuh"
#include "math.cuh"

namespace fusegen {

#define FUSEGEN_MATH template <typename A> __device__ __forceinline__ A
// For functions of exponentials: Out is the type of the results that depend on them.
#define FUSEGEN_MATH_FOR_OUT template <typename Out, typename A> __device__ __forceinline__ A

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

FUSEGEN_MATH tanh_backward(A g, A y) { return g * fma(-y, y, A(1)); }

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

// x above the threshold, else value
FUSEGEN_MATH threshold(A x, A least, A value) { return x <= least ? value : x; }
FUSEGEN_MATH threshold_backward(A g, A x, A least, A) { return x <= least ? A(0) : g; }

// Zero from -most to most; beyond, x or its distance to the bound. NaN stays NaN.
FUSEGEN_MATH hardshrink(A x, A most) { return x >= -most && x <= most ? A(0) : x; }
FUSEGEN_MATH hardshrink_backward(A g, A x, A most) { return x >= -most && x <= most ? A(0) : g; }
FUSEGEN_MATH softshrink(A x, A most) {
  return x > most ? x - most : (x < -most ? x + most : x * A(0));
}
FUSEGEN_MATH softshrink_backward(A g, A x, A most) { return hardshrink_backward(g, x, most); }

// x - t with t = tanh(x). In float, where that cancels, by the continued fraction of tanh, cut off
// at the term of x^2 / 11 (Abramowitz and Stegun 1964, 4.5.70): all that is added has one sign.
FUSEGEN_MATH tanhshrink(A x, A t) {
  if (sizeof(A) > 4 || !(fabs(x) < A(1))) return x - t;
  const A s = x * x;
  const A above = A(3465) + s * (A(189) + s);
  const A below = A(10395) + s * (A(4725) + s * (A(210) + s));
  return x * s * (above / below);
}

// log(exp(x) + exp(y)); two infinities of one sign are that
FUSEGEN_MATH_FOR_OUT logaddexp(A x, A y) {
  if (x == y) return x + A(0.69314718055994530942);
  return maximum(x, y) + log1p(exponential<Out>(-fabs(x - y)));
}
// Of the first operand; of the second one with the operands exchanged.
FUSEGEN_MATH_FOR_OUT logaddexp_backward(A g, A x, A y) {
  return g * logistic<Out>(exponential<Out>(y - x));
}

// d erf(x) / dx = 2 exp(-x^2) / sqrt(pi)
FUSEGEN_MATH_FOR_OUT erf_backward(A g, A x) {
  return g * (A(1.12837916709551257390) * exponential<Out>(x * x, A(-1)));
}

#undef FUSEGEN_MATH
#undef FUSEGEN_MATH_FOR_OUT

}  // namespace fusegen
