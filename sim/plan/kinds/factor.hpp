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

}  // namespace orrery
