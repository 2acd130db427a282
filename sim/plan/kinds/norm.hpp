// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/model/model.hpp"
#include "sim/plan/kinds/common.hpp"

namespace orrery {

/// What is added to the weights of a norm.
constexpr double weight_offset(NormKind kind) { return kind == NormKind::RmsOnePlus ? 1 : 0; }

/// y = (x − mean)·rstd·w + b over the last dimension; RMSNorm has neither mean nor b. An RMSNorm that is not `weighted`
/// has no w either, one of kind RmsOnePlus has 1 + w in place of w, here and below.  Operands: x [w] [b] → y [mean]
/// rstd.  About 8 FLOP per element.
struct NormForward {
  NormKind kind = NormKind::Layer;
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  double epsilon = 1e-5;
  DType dtype = DType::F32;
  bool weighted = true;

  static constexpr std::string_view kName = "norm";
  static constexpr OpClass kClass = OpClass::Norm;
  template <class V>
  void visit(V&& v) const {
    v("kind", kind);
    v("rows", rows);
    v("dim", dim);
    v("epsilon", epsilon);
    v("dtype", dtype);
    v("weighted", weighted);
  }
  Amount amount(const Bindings&) const {
    return {Flops{8.0 * double(rows * dim)},
            size_of(dtype, rows * dim + (weighted ? 2 * dim : 0)),
            size_of(dtype, rows * dim + 2 * rows),
            {}};
  }
  bool operator==(const NormForward&) const = default;
};

/// Operands: x [w] [mean] rstd dy → dx [dw] [db].  With `accumulate` dw and db are added to.
struct NormBackward {
  NormKind kind = NormKind::Layer;
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  double epsilon = 1e-5;
  bool accumulate = false;
  DType dtype = DType::F32;
  bool weighted = true;

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
    v("weighted", weighted);
  }
  Amount amount(const Bindings&) const {
    return {Flops{14.0 * double(rows * dim)},
            size_of(dtype, 2 * rows * dim + 2 * rows + (weighted ? dim : 0)),
            size_of(dtype, rows * dim + (weighted ? 2 * dim : 0)),
            {}};
  }
  bool operator==(const NormBackward&) const = default;
};

/// What the columns of one rank add to a norm: sums[0,r] = Σ_c x[r,c] (0 for RMSNorm), sums[1,r] = Σ_c x[r,c]².
/// Operands: x → sums[2, rows].
struct NormSums {
  NormKind kind = NormKind::Layer;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "norm_sums";
  static constexpr OpClass kClass = OpClass::Norm;
  template <class V>
  void visit(V&& v) const {
    v("kind", kind);
    v("rows", rows);
    v("cols", cols);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{3.0 * double(rows * cols)}, size_of(dtype, rows * cols), size_of(dtype, 2 * rows), {}};
  }
  bool operator==(const NormSums&) const = default;
};

/// The norm of a row of `dim` columns, of which these are `cols`, from the sums over all: mean = sums[0]/dim,
/// rstd = 1/√(sums[1]/dim − mean² + ε), y = (x − mean)·rstd·w + b.  Operands: x sums[2, rows] w [b] → y [mean] rstd.
struct NormApply {
  NormKind kind = NormKind::Layer;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t dim = 0;
  double epsilon = 1e-5;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "norm_apply";
  static constexpr OpClass kClass = OpClass::Norm;
  template <class V>
  void visit(V&& v) const {
    v("kind", kind);
    v("rows", rows);
    v("cols", cols);
    v("dim", dim);
    v("epsilon", epsilon);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{4.0 * double(rows * cols)},
            size_of(dtype, rows * cols + 2 * rows + 2 * cols),
            size_of(dtype, rows * cols + 2 * rows),
            {}};
  }
  bool operator==(const NormApply&) const = default;
};

/// With x̂ = (x − mean)·rstd: sums[0,r] = Σ_c dy·w, sums[1,r] = Σ_c dy·w·x̂, dw = Σ_r dy·x̂, db = Σ_r dy; with
/// `accumulate` dw and db are added to.  Operands: x w [mean] rstd dy → sums[2, rows] dw [db].
struct NormBackwardSums {
  NormKind kind = NormKind::Layer;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  bool accumulate = false;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "norm_backward_sums";
  static constexpr OpClass kClass = OpClass::Norm;
  template <class V>
  void visit(V&& v) const {
    v("kind", kind);
    v("rows", rows);
    v("cols", cols);
    v("accumulate", accumulate);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{8.0 * double(rows * cols)},
            size_of(dtype, 2 * rows * cols + 2 * rows + cols),
            size_of(dtype, 2 * rows + 2 * cols),
            {}};
  }
  bool operator==(const NormBackwardSums&) const = default;
};

/// dx = rstd·(dy·w − sums[0]/dim − x̂·sums[1]/dim), the sums being those over all columns; RMSNorm has no sums[0].
/// Operands: x w [mean] rstd dy sums[2, rows] → dx.
struct NormBackwardApply {
  NormKind kind = NormKind::Layer;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t dim = 0;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "norm_backward_apply";
  static constexpr OpClass kClass = OpClass::Norm;
  template <class V>
  void visit(V&& v) const {
    v("kind", kind);
    v("rows", rows);
    v("cols", cols);
    v("dim", dim);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{8.0 * double(rows * cols)},
            size_of(dtype, 2 * rows * cols + 4 * rows + cols),
            size_of(dtype, rows * cols),
            {}};
  }
  bool operator==(const NormBackwardApply&) const = default;
};

}  // namespace orrery
