// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/dense.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/host/elementwise.hpp"
#include "kernels/host/simd.hpp"

namespace orrery::kernels {

// Row by row: l_ij = (a_ij − Σ_{p<j} l_ip·l_jp)/l_jj, l_ii = √(a_ii − Σ_{p<i} l_ip²).
template <class T>
std::int64_t cholesky(std::int64_t n, T* a, std::int64_t lda) {
  for (std::int64_t i = 0; i < n; ++i) {
    T* row = a + i * lda;
    for (std::int64_t j = 0; j <= i; ++j) {
      const T* other = a + j * lda;
      const T rest = row[j] - reduce_add<T>(j, [&](auto at) { return at(row) * at(other); });
      if (j < i)
        row[j] = rest / other[j];
      else if (rest > 0)
        row[i] = std::sqrt(rest);
      else
        return i;
    }
  }
  return n;
}

template <class T>
void solve_triangular(const TriangularSolveArgs<T>& s) {
  const bool forward = s.triangle == Triangle::Lower;
  for (std::int64_t step = 0; step < s.n; ++step) {
    const std::int64_t i = forward ? step : s.n - 1 - step;
    T* x = s.x + i * s.ldx;
    for (std::int64_t p = forward ? 0 : i + 1; p < (forward ? i : s.n); ++p)
      axpy(s.rhs, forward ? -s.l[i * s.ldl + p] : -s.l[p * s.ldl + i], s.x + p * s.ldx, x);
    scale(s.rhs, T(1) / s.l[i * s.ldl + i], x, x);
  }
}

template <class T>
std::int64_t solve_symmetric(const SymmetricSolveArgs<T>& s) {
  const std::int64_t factored = cholesky(s.n, s.a, s.lda);
  if (factored < s.n) return factored;
  for (const Triangle triangle : {Triangle::Lower, Triangle::LowerTransposed})
    solve_triangular<T>({.triangle = triangle, .n = s.n, .rhs = s.rhs, .l = s.a, .ldl = s.lda, .x = s.x, .ldx = s.ldx});
  return s.n;
}

double covariance(CovarianceKind kind, double squared_distance) {
  const double r = std::sqrt(squared_distance);
  switch (kind) {
    case CovarianceKind::Matern52: {
      const double s = std::sqrt(5.0) * r;
      return (1 + s + s * s / 3) * std::exp(-s);
    }
    case CovarianceKind::Matern32: {
      const double s = std::sqrt(3.0) * r;
      return (1 + s) * std::exp(-s);
    }
    case CovarianceKind::SquaredExponential:
      return std::exp(-squared_distance / 2);
  }
  return 0;
}

/// Σ (a − h)² over the numbers [first, end) of a row, or over those of the coordinates.
template <class T>
static T squared_distance(const CovariancesArgs<T>& s, const T* a, const T* h, std::int64_t first, std::int64_t end) {
  if (s.coordinates == nullptr)
    return reduce_add<T>(end - first, [&](auto at) {
      const auto d = at(a + first) - at(h + first);
      return d * d;
    });
  T sums[4] = {};  // of every fourth
  for (std::int64_t i = first; i < end; ++i) {
    const T d = a[s.coordinates[i]] - h[s.coordinates[i]];
    sums[i % 4] += d * d;
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// All pairs over a stretch of the columns that a cache holds, then over the next.
template <class T>
void covariances(const CovariancesArgs<T>& s) {
  constexpr std::int64_t kStretch = 4096;
  const bool symmetric = s.a == s.h;
  const std::int64_t width = s.coordinates ? s.used : s.columns;
  const auto each_pair = [&](auto&& f) {
    for (std::int64_t i = 0; i < s.points; ++i)
      for (std::int64_t j = symmetric ? i : 0; j < s.history; ++j) f(i, j, s.k[i * s.history + j]);
  };
  each_pair([](std::int64_t, std::int64_t, T& k) { k = 0; });
  for (std::int64_t first = 0; first < width; first += kStretch)
    each_pair([&](std::int64_t i, std::int64_t j, T& k) {
      k += squared_distance(s, s.a + i * s.columns, s.h + j * s.columns, first, std::min(first + kStretch, width));
    });
  const double scale = 1 / (s.length * s.length);
  each_pair([&](std::int64_t i, std::int64_t j, T& k) {
    k = static_cast<T>(covariance(s.kind, scale * double(k)));
    if (symmetric) s.k[j * s.history + i] = k;
  });
}

template void covariances<float>(const CovariancesArgs<float>&);
template void covariances<double>(const CovariancesArgs<double>&);
template std::int64_t cholesky<float>(std::int64_t, float*, std::int64_t);
template std::int64_t cholesky<double>(std::int64_t, double*, std::int64_t);
template void solve_triangular<float>(const TriangularSolveArgs<float>&);
template void solve_triangular<double>(const TriangularSolveArgs<double>&);
template std::int64_t solve_symmetric<float>(const SymmetricSolveArgs<float>&);
template std::int64_t solve_symmetric<double>(const SymmetricSolveArgs<double>&);

}  // namespace orrery::kernels
