// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/plan/kinds/common.hpp"

namespace orrery {

/// Image [batch, channels, side, side] → rows [batch·(side/patch)², channels·patch²] in the order of a convolution's
/// weight. Operands: image → rows.
struct Patchify {
  std::int64_t batch = 0;
  std::int64_t channels = 0;
  std::int64_t side = 0;
  std::int64_t patch = 1;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "patchify";
  static constexpr OpClass kClass = OpClass::Embedding;
  template <class V>
  void visit(V&& v) const {
    v("batch", batch);
    v("channels", channels);
    v("side", side);
    v("patch", patch);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {{}, size_of(dtype, batch * channels * side * side), size_of(dtype, batch * channels * side * side), {}};
  }
  bool operator==(const Patchify&) const = default;
};

/// Puts one row (the class token) before the rows of each sample.  Operands: x prefix → out[batch, rows + 1, cols].
struct ConcatPrefix {
  std::int64_t batch = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "concat_prefix";
  static constexpr OpClass kClass = OpClass::Embedding;
  template <class V>
  void visit(V&& v) const {
    v("batch", batch);
    v("rows", rows);
    v("cols", cols);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {{}, size_of(dtype, batch * rows * cols + cols), size_of(dtype, batch * (rows + 1) * cols), {}};
  }
  bool operator==(const ConcatPrefix&) const = default;
};

/// Operands: dout → dx dprefix (added to with `accumulate`).
struct ConcatPrefixBackward {
  std::int64_t batch = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  bool accumulate = false;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "concat_prefix_backward";
  static constexpr OpClass kClass = OpClass::Embedding;
  template <class V>
  void visit(V&& v) const {
    v("batch", batch);
    v("rows", rows);
    v("cols", cols);
    v("accumulate", accumulate);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {{}, size_of(dtype, batch * (rows + 1) * cols), size_of(dtype, batch * rows * cols + cols), {}};
  }
  bool operator==(const ConcatPrefixBackward&) const = default;
};

/// out[b,:] = mean over the rows of sample b.  Operands: x → out.
struct MeanPool {
  std::int64_t batch = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "mean_pool";
  static constexpr OpClass kClass = OpClass::Elementwise;
  template <class V>
  void visit(V&& v) const {
    v("batch", batch);
    v("rows", rows);
    v("cols", cols);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{double(batch * rows * cols)}, size_of(dtype, batch * rows * cols), size_of(dtype, batch * cols), {}};
  }
  bool operator==(const MeanPool&) const = default;
};

/// Operands: dout → dx.
struct MeanPoolBackward {
  std::int64_t batch = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "mean_pool_backward";
  static constexpr OpClass kClass = OpClass::Elementwise;
  template <class V>
  void visit(V&& v) const {
    v("batch", batch);
    v("rows", rows);
    v("cols", cols);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{double(batch * rows * cols)}, size_of(dtype, batch * cols), size_of(dtype, batch * rows * cols), {}};
  }
  bool operator==(const MeanPoolBackward&) const = default;
};

}  // namespace orrery
