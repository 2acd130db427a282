// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/plan/kinds/common.hpp"

namespace orrery {

/// C[b][m,n] = alpha·op(A)·op(B) (+ bias[n]) (+ C).  Operands: A B [bias] → C.  2·b·m·n·k FLOP.
/// With an input that is written cast: A B [bias] [first] → C numbers scale, of `cast_rows` rows of A, which where
/// these are not all begin at `first`. With one that is read cast: A B scale → C, numbers in place of A or B; of an
/// input that is added up over, each `cast_rows` rows may have a scale of their own.
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  bool transpose_a = false, transpose_b = false;
  bool bias = false, accumulate = false;
  bool wide = false;                                 // C in f32, whatever A and B are
  Narrow narrow = Narrow::None;                      // what A and B are cast to first
  GradientOperand gradient = GradientOperand::None;  // with `narrow` eight bits
  DType dtype = DType::F32;
  double alpha = 1;
  Quantised weights = Quantised::None;  // B in memory; widened on its way to the product, or with `narrow` not cast
  InputCast input = InputCast::None;
  std::int64_t cast_rows = 0;

  static constexpr std::string_view kName = "gemm";
  static constexpr OpClass kClass = OpClass::Gemm;
  template <class V>
  void visit(V&& v) const {
    v("m", m);
    v("n", n);
    v("k", k);
    v("batch", batch);
    v("ta", transpose_a);
    v("tb", transpose_b);
    v("bias", bias);
    v("accumulate", accumulate);
    v("wide", wide);
    v("narrow", narrow);
    v("gradient", gradient);
    v("dtype", dtype);
    v("alpha", alpha);
    v("weights", weights);
    v("input", input);
    v("cast_rows", cast_rows);
  }
  Amount amount(const Bindings&) const {
    const std::int64_t c = batch * m * n;
    return {Flops{2.0 * double(batch) * double(m) * double(n) * double(k)},
            size_of(arithmetic(), batch * m * k) + size_quantised(weights, arithmetic(), batch * k * n) +
                size_of(dtype, bias ? n : 0) + size_of(output(), accumulate ? c : 0),
            size_of(output(), c),
            {}};
  }
  /// The type that is multiplied. Tensor cores take f8e5m2 as fast as f8e4m3.
  DType arithmetic() const { return type_of(narrow, weights, dtype); }
  /// Traffic of the casts before the product, not in `amount`: each number is read, and written in few bits. Weights
  /// that lie so are not cast, and rows on the way into a product with them are part of its law.
  Bytes casts() const {
    const std::int64_t numbers = weights == Quantised::None ? batch * (m * k + k * n) : 0;
    return narrow == Narrow::None ? Bytes{0} : size_of(dtype, numbers) + size_narrow(narrow, numbers);
  }
  DType output() const { return wide ? DType::F32 : dtype; }
  bool writes_part() const { return input == InputCast::Written && cast_rows < m; }
  std::int64_t num_scales() const { return input == InputCast::Read && cast_rows > 0 ? k / cast_rows : 1; }
  /// Which operand C is, and which one the scale of an input that is read cast.
  int output_operand() const { return scale_operand() + (writes_part() || input == InputCast::Read ? 1 : 0); }
  int scale_operand() const { return bias ? 3 : 2; }
  bool operator==(const Gemm&) const = default;
};

/// What a grouped GEMM computes: Y = X·W, dX = dY·Wᵀ, or dW = Xᵀ·dY per group.
enum class GroupedMode : std::uint8_t { Forward, InputGradient, WeightGradient };

/// One GEMM per group over consecutive rows (experts). `rows` over all groups, as expected where their number depends
/// on data; W is [groups, k, n], or [groups, n, k] when transpose_b. Operands: X W offsets → Y | dY W offsets → dX | X
/// dY offsets → dW. With an input that is written cast: X W offsets → Y numbers scale, of all rows; with one that is
/// read cast: X dY offsets scale → dW.
struct GroupedGemm {
  std::int64_t rows = 0, n = 0, k = 0, groups = 1;
  GroupedMode mode = GroupedMode::Forward;
  bool transpose_b = false, accumulate = false;
  bool wide = false;             // dW in f32
  Narrow narrow = Narrow::None;  // as of Gemm
  DType dtype = DType::F32;
  double skew = 1.0;                    // rows of the fullest group over the mean; 1 when even
  std::int64_t max_rows = 0;            // that the buffers hold; 0: `rows`
  Quantised weights = Quantised::None;  // W in memory, as of Gemm
  InputCast input = InputCast::None;

  static constexpr std::string_view kName = "grouped_gemm";
  static constexpr OpClass kClass = OpClass::Gemm;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("n", n);
    v("k", k);
    v("groups", groups);
    v("mode", mode);
    v("tb", transpose_b);
    v("accumulate", accumulate);
    v("wide", wide);
    v("narrow", narrow);
    v("dtype", dtype);
    v("skew", skew);
    v("max_rows", max_rows);
    v("weights", weights);
    v("input", input);
  }
  Amount amount(const Bindings&) const {
    const std::int64_t x = rows * k, y = rows * n, w = groups * n * k;
    const std::int64_t out = mode == GroupedMode::Forward ? y : mode == GroupedMode::InputGradient ? x : w;
    const Bytes narrower = size_of(arithmetic(), w) - size_quantised(weights, arithmetic(), w);
    return {Flops{2.0 * double(rows) * double(n) * double(k)},
            size_of(arithmetic(), x + y + w - out) - narrower + size_of(output(), accumulate ? out : 0),
            size_of(output(), out),
            {}};
  }
  DType arithmetic() const { return type_of(narrow, weights, dtype); }
  Bytes casts() const {
    if (weights != Quantised::None) return {};
    const std::int64_t x = rows * k, y = rows * n, w = groups * n * k;
    const std::int64_t numbers = mode == GroupedMode::Forward         ? x + w
                                 : mode == GroupedMode::InputGradient ? y + w
                                                                      : x + y;
    return narrow == Narrow::None ? Bytes{0} : size_of(dtype, numbers) + size_narrow(narrow, numbers);
  }
  DType output() const { return wide ? DType::F32 : dtype; }
  /// As of Gemm.
  int output_operand() const { return scale_operand() + (input == InputCast::Read ? 1 : 0); }
  int scale_operand() const { return 3; }
  GradientOperand gradient() const {
    return mode == GroupedMode::Forward         ? GradientOperand::None
           : mode == GroupedMode::InputGradient ? GradientOperand::A
                                                : GradientOperand::B;
  }
  bool operator==(const GroupedGemm&) const = default;
};

}  // namespace orrery
