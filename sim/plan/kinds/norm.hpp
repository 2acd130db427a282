// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/model/model.hpp"
#include "sim/plan/kinds/common.hpp"

namespace orrery {

/// y = (x − mean)·rstd·w + b over the last dimension; RMSNorm has neither mean nor b.
/// Operands: x w [b] → y [mean] rstd.  About 8 FLOP per element.
struct NormForward {
  NormKind kind = NormKind::Layer;
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  double epsilon = 1e-5;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "norm";
  static constexpr OpClass kClass = OpClass::Norm;
  template <class V>
  void visit(V&& v) const {
    v("kind", kind);
    v("rows", rows);
    v("dim", dim);
    v("epsilon", epsilon);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{8.0 * double(rows * dim)},
            size_of(dtype, rows * dim + 2 * dim),
            size_of(dtype, rows * dim + 2 * rows),
            {}};
  }
  bool operator==(const NormForward&) const = default;
};

/// Operands: x w [mean] rstd dy → dx dw [db].  With `accumulate` dw and db are added to.
struct NormBackward {
  NormKind kind = NormKind::Layer;
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  double epsilon = 1e-5;
  bool accumulate = false;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "norm_backward";
  static constexpr OpClass kClass = OpClass::Norm;
  template <class V>
  void visit(V&& v) const {
    v("kind", kind);
    v("rows", rows);
    v("dim", dim);
    v("epsilon", epsilon);
    v("accumulate", accumulate);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{14.0 * double(rows * dim)},
            size_of(dtype, 2 * rows * dim + 2 * rows + dim),
            size_of(dtype, rows * dim + 2 * dim),
            {}};
  }
  bool operator==(const NormBackward&) const = default;
};

}  // namespace orrery
