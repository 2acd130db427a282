// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/plan/kinds/common.hpp"

namespace orrery {

/// L·Lᵀ = A for a small symmetric positive matrix [n, n]; n³/3 FLOP.  Operands: a → l.
struct Cholesky {
  std::int64_t n = 0;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "cholesky";
  static constexpr OpClass kClass = OpClass::Other;
  template <class V>
  void visit(V&& v) const {
    v("n", n);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{double(n) * double(n) * double(n) / 3.0}, size_of(dtype, n * n), size_of(dtype, n * n), {}};
  }
  bool operator==(const Cholesky&) const = default;
};

/// X = (L·Lᵀ)⁻¹·B for B[n, columns]; 2·n²·columns FLOP.  Operands: l b → x.
struct CholeskySolve {
  std::int64_t n = 0;
  std::int64_t columns = 1;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "cholesky_solve";
  static constexpr OpClass kClass = OpClass::Other;
  template <class V>
  void visit(V&& v) const {
    v("n", n);
    v("columns", columns);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{2.0 * double(n) * double(n) * double(columns)},
            size_of(dtype, n * n + n * columns),
            size_of(dtype, n * columns),
            {}};
  }
  bool operator==(const CholeskySolve&) const = default;
};

/// How alike a function is at two points, as their distance r, over a length, says: (1 + s + s²/3)·exp(−s) with s =
/// √5·r, (1 + s)·exp(−s) with s = √3·r, exp(−r²/2).
enum class CovarianceKind : std::uint8_t { Matern52, Matern32, SquaredExponential };

/// k[i, j] = κ(‖a_i − h_j‖/length) for the first `known` rows of h, zero for the others, and all zero while fewer than
/// two are known. With `own` the points are those of h, noise is added to the diagonal, and there is one for rows that
/// are not known, so that the matrix is positive. Distances are over `used` of the columns, 0: all.
/// Operands: [a[points, columns]] h[history, columns] [coordinates[used]] → k[points, history].
struct Covariance {
  CovarianceKind kind = CovarianceKind::Matern52;
  std::int64_t points = 1, history = 0, columns = 0, used = 0;
  double length = 1, noise = 0;
  bool own = false;
  Extent known;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "covariance";
  static constexpr OpClass kClass = OpClass::Other;
  template <class V>
  void visit(V&& v) const {
    v("kind", kind);
    v("points", points);
    v("history", history);
    v("columns", columns);
    v("used", used);
    v("length", length);
    v("noise", noise);
    v("own", own);
    v("known", known);
    v("dtype", dtype);
  }
  std::int64_t width() const { return used > 0 ? used : columns; }
  Amount amount(const Bindings&) const {
    const std::int64_t pairs = own ? history * (history + 1) / 2 : points * history;
    return {Flops{3.0 * double(pairs) * double(width())},
            size_of(dtype, (own ? history : points + history) * width()) + size_of(DType::I32, used),
            size_of(dtype, points * history),
            {}};
  }
  bool operator==(const Covariance&) const = default;
};

}  // namespace orrery
