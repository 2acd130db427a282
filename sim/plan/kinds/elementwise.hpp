// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/model/model.hpp"
#include "sim/plan/kinds/common.hpp"

namespace orrery {

// Activations with `counted` take one operand more, before the outputs: indices whose last one is the number of rows in
// use. `rows` is then what is expected, and the operands may have more.

/// y = act(x).  Operands: x → y.
struct ActivationForward {
  ActivationKind kind = ActivationKind::GeluTanh;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::F32;
  bool counted = false;

  static constexpr std::string_view kName = "activation";
  static constexpr OpClass kClass = OpClass::Elementwise;
  template <class V>
  void visit(V&& v) const {
    v("kind", kind);
    v("rows", rows);
    v("cols", cols);
    v("dtype", dtype);
    v("counted", counted);
  }
  Amount amount(const Bindings&) const {
    return {Flops{10.0 * double(rows * cols)}, size_of(dtype, 1 * rows * cols), size_of(dtype, 1 * rows * cols), {}};
  }
  bool operator==(const ActivationForward&) const = default;
};

/// dx = dy·act'(x).  Operands: x dy → dx.
struct ActivationBackward {
  ActivationKind kind = ActivationKind::GeluTanh;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::F32;
  bool counted = false;

  static constexpr std::string_view kName = "activation_backward";
  static constexpr OpClass kClass = OpClass::Elementwise;
  template <class V>
  void visit(V&& v) const {
    v("kind", kind);
    v("rows", rows);
    v("cols", cols);
    v("dtype", dtype);
    v("counted", counted);
  }
  Amount amount(const Bindings&) const {
    return {Flops{14.0 * double(rows * cols)}, size_of(dtype, 2 * rows * cols), size_of(dtype, 1 * rows * cols), {}};
  }
  bool operator==(const ActivationBackward&) const = default;
};

/// y = act(gate)·up.  Operands: gate up → y.
struct GatedForward {
  ActivationKind kind = ActivationKind::Silu;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::F32;
  bool counted = false;

  static constexpr std::string_view kName = "gated";
  static constexpr OpClass kClass = OpClass::Elementwise;
  template <class V>
  void visit(V&& v) const {
    v("kind", kind);
    v("rows", rows);
    v("cols", cols);
    v("dtype", dtype);
    v("counted", counted);
  }
  Amount amount(const Bindings&) const {
    return {Flops{8.0 * double(rows * cols)}, size_of(dtype, 2 * rows * cols), size_of(dtype, 1 * rows * cols), {}};
  }
  bool operator==(const GatedForward&) const = default;
};

/// Operands: gate up dy → dgate dup.
struct GatedBackward {
  ActivationKind kind = ActivationKind::Silu;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::F32;
  bool counted = false;

  static constexpr std::string_view kName = "gated_backward";
  static constexpr OpClass kClass = OpClass::Elementwise;
  template <class V>
  void visit(V&& v) const {
    v("kind", kind);
    v("rows", rows);
    v("cols", cols);
    v("dtype", dtype);
    v("counted", counted);
  }
  Amount amount(const Bindings&) const {
    return {Flops{14.0 * double(rows * cols)}, size_of(dtype, 3 * rows * cols), size_of(dtype, 2 * rows * cols), {}};
  }
  bool operator==(const GatedBackward&) const = default;
};

/// out = a + b.  Operands: a b → out; out may be a.
struct Add {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "add";
  static constexpr OpClass kClass = OpClass::Elementwise;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("cols", cols);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{1.0 * double(rows * cols)}, size_of(dtype, 2 * rows * cols), size_of(dtype, 1 * rows * cols), {}};
  }
  bool operator==(const Add&) const = default;
};

/// out = a·b element by element.  Operands: a b → out.
struct Multiply {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "multiply";
  static constexpr OpClass kClass = OpClass::Elementwise;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("cols", cols);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{1.0 * double(rows * cols)}, size_of(dtype, 2 * rows * cols), size_of(dtype, 1 * rows * cols), {}};
  }
  bool operator==(const Multiply&) const = default;
};

/// out[r,:] = factor·x[r,:] (times s[r] when `by_row`); `counted` as of ActivationForward.  Operands: x [s] [offsets] →
/// out.
struct ScaleRows {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  double factor = 1;
  bool by_row = false;
  DType dtype = DType::F32;
  bool counted = false;

  static constexpr std::string_view kName = "scale_rows";
  static constexpr OpClass kClass = OpClass::Elementwise;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("cols", cols);
    v("factor", factor);
    v("by_row", by_row);
    v("dtype", dtype);
    v("counted", counted);
  }
  Amount amount(const Bindings&) const {
    return {Flops{1.0 * double(rows * cols)}, size_of(dtype, 1 * rows * cols), size_of(dtype, 1 * rows * cols), {}};
  }
  bool operator==(const ScaleRows&) const = default;
};

/// out[r] = Σ a[r,:]·b[r,:]; `counted` as of ActivationForward.  Operands: a b [offsets] → out.
struct RowDot {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::F32;
  bool counted = false;

  static constexpr std::string_view kName = "row_dot";
  static constexpr OpClass kClass = OpClass::Elementwise;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("cols", cols);
    v("dtype", dtype);
    v("counted", counted);
  }
  Amount amount(const Bindings&) const {
    return {Flops{2.0 * double(rows * cols)}, size_of(dtype, 2 * rows * cols), size_of(dtype, rows), {}};
  }
  bool operator==(const RowDot&) const = default;
};

/// out[r,:] = x[r,:] + b[r mod period,:]: biases (period 1) and position embeddings.  Operands: x b → out.
struct AddRows {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t period = 1;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "add_rows";
  static constexpr OpClass kClass = OpClass::Elementwise;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("cols", cols);
    v("period", period);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{double(rows * cols)}, size_of(dtype, rows * cols + period * cols), size_of(dtype, rows * cols), {}};
  }
  bool operator==(const AddRows&) const = default;
};

/// out[p,:] = Σ x[r,:] over r mod period = p; added to with `accumulate`.  Operands: x → out.
struct SumRows {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t period = 1;
  bool accumulate = false;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "sum_rows";
  static constexpr OpClass kClass = OpClass::Elementwise;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("cols", cols);
    v("period", period);
    v("accumulate", accumulate);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{double(rows * cols)}, size_of(dtype, rows * cols), size_of(dtype, period * cols), {}};
  }
  bool operator==(const SumRows&) const = default;
};

/// Every element = value.  Operands: → out.
struct Fill {
  std::int64_t elements = 0;
  double value = 0;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "fill";
  static constexpr OpClass kClass = OpClass::Elementwise;
  template <class V>
  void visit(V&& v) const {
    v("elements", elements);
    v("value", value);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const { return {{}, {}, size_of(dtype, elements), {}}; }
  bool operator==(const Fill&) const = default;
};

/// y = x·keep/(1 − p), keep drawn from a counter-based generator at the element's index in the whole tensor, so any
/// sharding draws the same. Row r is row first_row + r of the whole tensor, or row_ids[r] with `by_row`. The same op
/// runs backward on dy; with masks what was kept is written, a byte a number, and read there in place of drawing again.
/// Operands: x [row_ids] → y [mask]; where it is read, dy mask → dx.
struct Dropout {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t global_cols = 0;
  std::int64_t first_row = 0;
  std::int64_t first_col = 0;
  double probability = 0;
  std::int64_t seed = 0;
  std::int64_t stream = 0;
  Extent step;
  bool by_row = false;
  KeptMask mask = KeptMask::None;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "dropout";
  static constexpr OpClass kClass = OpClass::Elementwise;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("cols", cols);
    v("global_cols", global_cols);
    v("first_row", first_row);
    v("first_col", first_col);
    v("probability", probability);
    v("seed", seed);
    v("stream", stream);
    v("step", step);
    v("by_row", by_row);
    v("mask", mask);
    v("dtype", dtype);
  }
  bool reads_mask() const { return mask == KeptMask::Read; }
  Amount amount(const Bindings&) const {
    const std::int64_t n = rows * cols;
    const auto bytes = [&](KeptMask of) { return size_of(dtype, n) + size_of(DType::U8, mask == of ? n : 0); };
    return {Flops{(reads_mask() ? 2.0 : 10.0) * double(n)}, bytes(KeptMask::Read), bytes(KeptMask::Written), {}};
  }
  bool operator==(const Dropout&) const = default;
};

/// Operands: x → y of another type.
struct Cast {
  std::int64_t elements = 0;
  DType from = DType::F32;
  DType to = DType::F32;

  static constexpr std::string_view kName = "cast";
  static constexpr OpClass kClass = OpClass::Elementwise;
  template <class V>
  void visit(V&& v) const {
    v("elements", elements);
    v("from", from);
    v("to", to);
  }
  Amount amount(const Bindings&) const { return {{}, size_of(from, elements), size_of(to, elements), {}}; }
  bool operator==(const Cast&) const = default;
};

/// y[r,h,:] = x[r,:] for each head: the rotary key that all heads of latent attention share.  Operands: x → y[rows,
/// heads, cols].
struct BroadcastHeads {
  std::int64_t rows = 0, heads = 1, cols = 0;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "broadcast_heads";
  static constexpr OpClass kClass = OpClass::Elementwise;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("heads", heads);
    v("cols", cols);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {{}, size_of(dtype, rows * cols), size_of(dtype, rows * heads * cols), {}};
  }
  bool operator==(const BroadcastHeads&) const = default;
};

/// dx[r,:] = Σ_h dy[r,h,:].  Operands: dy[rows, heads, cols] → dx.
struct SumHeads {
  std::int64_t rows = 0, heads = 1, cols = 0;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "sum_heads";
  static constexpr OpClass kClass = OpClass::Elementwise;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("heads", heads);
    v("cols", cols);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{double(rows * heads * cols)}, size_of(dtype, rows * heads * cols), size_of(dtype, rows * cols), {}};
  }
  bool operator==(const SumHeads&) const = default;
};

}  // namespace orrery
