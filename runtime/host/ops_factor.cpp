// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "kernels/host/dense.hpp"
#include "runtime/host/families.hpp"
#include "runtime/host/find_kernel.hpp"

namespace orrery {

/// The factor with zeros above its diagonal.
template <class T>
void run(const Cholesky& w, const OpContext<T>& c) {
  const T* a = c.dense(0);
  T* l = c.dense(c.output());
  for (std::int64_t r = 0; r < w.n; ++r) {
    std::copy(a + r * w.n, a + r * w.n + r + 1, l + r * w.n);
    std::fill(l + r * w.n + r + 1, l + (r + 1) * w.n, T(0));
  }
  if (const std::int64_t rows = kernels::cholesky(w.n, l, w.n); rows < w.n)
    c.fail(fmt::format("'{}' is not positive definite at row {}", c.operand_name(0), rows));
}

template <class T>
void run(const CholeskySolve& w, const OpContext<T>& c) {
  const T* b = c.dense(1);
  T* x = c.dense(c.output());
  if (x != b) std::copy(b, b + w.n * w.columns, x);
  kernels::TriangularSolveArgs<T> a{.n = w.n, .rhs = w.columns, .l = c.dense(0), .ldl = w.n, .x = x, .ldx = w.columns};
  a.triangle = kernels::Triangle::Lower;
  kernels::solve_triangular(a);
  a.triangle = kernels::Triangle::LowerTransposed;
  kernels::solve_triangular(a);
}

template <class T>
void run(const Covariance& w, const OpContext<T>& c) {
  const int h = w.own ? 0 : 1;
  T* k = c.dense(c.output());
  kernels::covariances(kernels::CovariancesArgs<T>{.kind = static_cast<kernels::CovarianceKind>(w.kind),
                                                   .points = w.points,
                                                   .history = w.history,
                                                   .columns = w.columns,
                                                   .used = w.used,
                                                   .length = w.length,
                                                   .a = c.dense(0),
                                                   .h = c.dense(h),
                                                   .coordinates = w.used > 0 ? c.ints(h + 1) : nullptr,
                                                   .k = k});
  const std::int64_t known = c.at(w.known) < 2 ? 0 : c.at(w.known);
  for (std::int64_t i = 0; i < w.points; ++i) {
    const std::int64_t first = w.own && i >= known ? 0 : std::min(known, w.history);
    std::fill(k + i * w.history + first, k + (i + 1) * w.history, T(0));
    if (w.own) k[i * w.history + i] = i < known ? k[i * w.history + i] + static_cast<T>(w.noise) : T(1);
  }
}

Kernel find_factor(const Work& work) { return find_typed<Cholesky, CholeskySolve, Covariance>(work); }

}  // namespace orrery
