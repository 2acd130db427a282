// SPDX-License-Identifier: Apache-2.0
// exp, log, tanh, erf and sigmoid of a scalar or of a vector, in branch-free code that is the same for both.
// Float results are within 2 ulp or 1e-7; double exp is a polynomial, the other double functions are those of <cmath>.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace orrery::kernels {

/// Bytes of a vector register. Wider vectors would be split, and what cannot be split well is done lane by lane.
#if defined(__AVX512F__)
constexpr std::size_t kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr std::size_t kVectorBytes = 32;
#else
constexpr std::size_t kVectorBytes = 16;
#endif

/// As many T as a register has room for, or fewer.
template <class T, std::size_t N = kVectorBytes / sizeof(T)>
struct VectorOf {
  typedef T Type __attribute__((vector_size(N * sizeof(T))));
};
template <class T>
using Vec = typename VectorOf<T>::Type;

/// For V = T or Vec<T>: the scalar T and the integers of the same width and number of lanes.
template <class V>
struct Lanes;
template <>
struct Lanes<float> {
  using Scalar = float;
  using Bits = std::uint32_t;
};
template <>
struct Lanes<double> {
  using Scalar = double;
  using Bits = std::uint64_t;
};
template <>
struct Lanes<Vec<float>> {
  using Scalar = float;
  using Bits = Vec<std::uint32_t>;
};
template <>
struct Lanes<Vec<double>> {
  using Scalar = double;
  using Bits = Vec<std::uint64_t>;
};
template <class V>
using ScalarOf = typename Lanes<V>::Scalar;

/// `value` in every lane.
template <class V>
inline V splat(ScalarOf<V> value) {
  if constexpr (std::is_floating_point_v<V>)
    return value;
  else
    return V{} + value;
}

template <class V>
inline V max(V a, V b) {
  return a > b ? a : b;
}

template <class V>
inline V min(V a, V b) {
  return a < b ? a : b;
}

template <class V>
inline V abs(V x) {
  return x < splat<V>(0) ? -x : x;
}

/// Applies a scalar function lane by lane.
template <class V, class F>
inline V by_lane(V x, F&& f) {
  if constexpr (std::is_floating_point_v<V>) {
    return f(x);
  } else {
    for (unsigned i = 0; i < sizeof(V) / sizeof(ScalarOf<V>); ++i) x[i] = f(x[i]);
    return x;
  }
}

/// c[0] + c[1]·x + … by Horner's rule.
template <class V, std::size_t N>
inline V polynomial(V x, const ScalarOf<V> (&c)[N]) {
  V sum = splat<V>(c[N - 1]);
  for (std::size_t i = N - 1; i-- > 0;) sum = sum * x + c[i];
  return sum;
}

/// e^x = 2^n·e^r with n = round(x/ln 2), |r| ≤ ln 2/2, and e^r by its Taylor series: the first term left out is below
/// 6e-9 (float, degree 7) or 5e-18 (double, degree 13). Results under the smallest normal number are 0.
template <class V>
inline V exp(V x) {
  using T = ScalarOf<V>;
  using Bits = typename Lanes<V>::Bits;
  constexpr bool kFloat = std::is_same_v<T, float>;
  constexpr int kMantissa = kFloat ? 23 : 52;
  constexpr T kRound =
      kFloat ? T(12582912.0) : T(6755399441055744.0);  // 1.5·2^mantissa: adding it rounds to an integer
  constexpr T kLn2High = kFloat ? T(0.693359375) : T(0x1.62e42feep-1);
  constexpr T kLn2Low = kFloat ? T(-2.12194440054690583e-4) : T(0x1.a39ef35793c76p-33);
  constexpr T kLowest = kFloat ? T(-87.3) : T(-708.3), kHighest = kFloat ? T(88.72283) : T(709.7827);
  constexpr T kFactorials[] = {1,
                               1,
                               T(1) / 2,
                               T(1) / 6,
                               T(1) / 24,
                               T(1) / 120,
                               T(1) / 720,
                               T(1) / 5040,
                               T(1) / 40320,
                               T(1) / 362880,
                               T(1) / 3628800,
                               T(1) / 39916800,
                               T(1) / 479001600,
                               T(1) / 6227020800};
  const V shifted = x * T(1.44269504088896340736) + kRound;
  const V n = shifted - kRound;
  const V r = (x - n * kLn2High) - n * kLn2Low;
  constexpr std::size_t kTerms = kFloat ? 8 : 14;
  V p = splat<V>(kFactorials[kTerms - 1]);
  for (std::size_t i = kTerms - 1; i-- > 0;) p = p * r + kFactorials[i];
  const Bits scaled = std::bit_cast<Bits>(p) + (std::bit_cast<Bits>(shifted) << kMantissa);
  V y = std::bit_cast<V>(scaled);
  y = x < splat<V>(kLowest) ? splat<V>(0) : y;
  y = x > splat<V>(kHighest) ? splat<V>(std::numeric_limits<T>::infinity()) : y;
  return x != x ? x : y;
}

/// ln x = e·ln 2 + 2·artanh(s), s = (m−1)/(m+1), with x = 2^e·m and m in [√½, √2) (float; positive normal x, and 0 →
/// −∞).
template <class V>
inline V log(V x) {
  if constexpr (std::is_same_v<ScalarOf<V>, double>) {
    return by_lane(x, [](double v) { return std::log(v); });
  } else {
    using Bits = typename Lanes<V>::Bits;
    const Bits bits = std::bit_cast<Bits>(x);
    const Bits offset = bits - 0x3f3504f3u;  // bits of √½
    const Bits exponent = (offset >> 23) - ((offset >> 31) << 9);
    const V m = std::bit_cast<V>((offset & 0x007fffffu) + 0x3f3504f3u);
    // exponent + 1.5·2^23 as a float: exact for |exponent| < 2^22
    const V e = std::bit_cast<V>(exponent + 0x4b400000u) - 12582912.0f;
    const V s = (m - 1.0f) / (m + 1.0f), z = s * s;
    const V series = polynomial(z, {2.0f / 3, 2.0f / 5, 2.0f / 7, 2.0f / 9});
    const V y = e * 0.693359375f + (2.0f * s + (s * z * series - e * 2.12194440054690583e-4f));
    return x == splat<V>(0) ? splat<V>(-std::numeric_limits<float>::infinity()) : y;
  }
}

/// σ(x) = 1/(1 + e^−x)
template <class V>
inline V sigmoid(V x) {
  return ScalarOf<V>(1) / (ScalarOf<V>(1) + exp(-x));
}

/// tanh x: 1 − 2/(e^2|x| + 1) with the sign of x, and below 0.6 an odd polynomial (Chebyshev fit, error 2e-8).
template <class V>
inline V tanh(V x) {
  if constexpr (std::is_same_v<ScalarOf<V>, double>) {
    return by_lane(x, [](double v) { return std::tanh(v); });
  } else {
    const V a = abs(x), z = x * x;
    const V large = 1.0f - 2.0f / (exp(2.0f * a) + 1.0f);
    const V small =
        x + x * z * polynomial(z, {-0.333333313f, 0.133329153f, -0.0538739488f, 0.0211109594f, -0.00626911968f});
    return a < splat<V>(0.6f) ? small : (x < splat<V>(0) ? -large : large);
  }
}

/// erf x: an odd polynomial up to 1, above it 1 − t·e^(−x²)·Q(t), t = 1/(1 + 0.4|x|) (Chebyshev fits, errors 7e-8,
/// 2e-9).
template <class V>
inline V erf(V x) {
  if constexpr (std::is_same_v<ScalarOf<V>, double>) {
    return by_lane(x, [](double v) { return std::erf(v); });
  } else {
    const V a = abs(x), z = x * x, t = 1.0f / (1.0f + 0.4f * a);
    const V tail = t * exp(-z) *
                   polynomial(t, {0.22578755f, 0.224828541f, 0.207662076f, 0.19084096f, 0.0390267439f, 0.221223682f,
                                  -0.109576687f});
    const V large = 1.0f - tail;
    const V small = x * polynomial(z, {1.12837911f, -0.37612626f, 0.112835944f, -0.0268542115f, 0.00518908724f,
                                       -0.00080168643f, 7.87587449e-05f});
    return a < splat<V>(1) ? small : (x < splat<V>(0) ? -large : large);
  }
}

}  // namespace orrery::kernels
