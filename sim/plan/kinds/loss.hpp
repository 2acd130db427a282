// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/plan/kinds/common.hpp"

namespace orrery {

/// loss += weight·Σ (lse − logit[target]) over the rows whose target is not −100.  Operands: logits targets → lse loss
/// (added to).
struct CrossEntropyForward {
  std::int64_t rows = 0;
  std::int64_t classes = 0;
  double weight = 1;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "cross_entropy";
  static constexpr OpClass kClass = OpClass::Loss;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("classes", classes);
    v("weight", weight);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{5.0 * double(rows * classes)},
            size_of(dtype, rows * classes) + size_of(DType::I32, rows),
            size_of(dtype, rows),
            {}};
  }
  bool operator==(const CrossEntropyForward&) const = default;
};

/// dlogits = weight·(softmax − onehot); without the one-hot where the target is negative (another shard's), zeros where
/// it is −100.  Operands: logits targets lse → dlogits; dlogits may be logits. With `op_by_op` from the exponentials
/// that CrossEntropySums left and their sums: divided, then scaled.  Operands: exponentials (updated) targets sums[2,
/// rows].
struct CrossEntropyBackward {
  std::int64_t rows = 0;
  std::int64_t classes = 0;
  double weight = 1;
  DType dtype = DType::F32;
  bool op_by_op = false;

  static constexpr std::string_view kName = "cross_entropy_backward";
  static constexpr OpClass kClass = OpClass::Loss;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("classes", classes);
    v("weight", weight);
    v("dtype", dtype);
    v("op_by_op", op_by_op);
  }
  Amount amount(const Bindings&) const {
    const std::int64_t passes = op_by_op ? 2 : 1;
    return {Flops{5.0 * double(rows * classes)},
            size_of(dtype, passes * rows * classes + passes * rows) + size_of(DType::I32, rows),
            size_of(dtype, passes * rows * classes),
            {}};
  }
  bool operator==(const CrossEntropyBackward&) const = default;
};

/// loss += weight·Σ (softplus(x) − x·target).  Operands: logits targets → loss (added to).
struct BinaryCrossEntropyForward {
  std::int64_t rows = 0;
  double weight = 1;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "binary_cross_entropy";
  static constexpr OpClass kClass = OpClass::Loss;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("weight", weight);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const { return {Flops{10.0 * double(rows)}, size_of(dtype, 2 * rows), {}, {}}; }
  bool operator==(const BinaryCrossEntropyForward&) const = default;
};

/// Operands: logits targets → dlogits.
struct BinaryCrossEntropyBackward {
  std::int64_t rows = 0;
  double weight = 1;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "binary_cross_entropy_backward";
  static constexpr OpClass kClass = OpClass::Loss;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("weight", weight);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{10.0 * double(rows)}, size_of(dtype, 2 * rows), size_of(dtype, rows), {}};
  }
  bool operator==(const BinaryCrossEntropyBackward&) const = default;
};

/// Next token of each row: the largest logit (temperature 0), or drawn at a temperature from the top_k largest whose
/// probability adds up to top_p; the generator is counted by (seed, step, row).  Operands: logits → tokens.
struct Sample {
  std::int64_t rows = 0;
  std::int64_t vocab = 0;
  double temperature = 0;
  std::int64_t top_k = 0;
  double top_p = 1;
  std::int64_t seed = 0;
  Extent step;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "sample";
  static constexpr OpClass kClass = OpClass::Loss;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("vocab", vocab);
    v("temperature", temperature);
    v("top_k", top_k);
    v("top_p", top_p);
    v("seed", seed);
    v("step", step);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{3.0 * double(rows * vocab)}, size_of(dtype, rows * vocab), size_of(DType::I32, rows), {}};
  }
  bool operator==(const Sample&) const = default;
};

/// Columns c with first[0] + c ≥ total become −∞: the padding of the last shard of a vocabulary.
/// Operands: first[1] → x[rows, cols] (updated).
struct MaskColumns {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t total = 0;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "mask_columns";
  static constexpr OpClass kClass = OpClass::Loss;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("cols", cols);
    v("total", total);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const { return {{}, size_of(DType::I32, 1), {}, {}}; }
  bool operator==(const MaskColumns&) const = default;
};

/// max[r] = max_c x[r,c].  Operands: x → max[rows].
struct RowMax {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "row_max";
  static constexpr OpClass kClass = OpClass::Loss;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("cols", cols);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{double(rows * cols)}, size_of(dtype, rows * cols), size_of(dtype, rows), {}};
  }
  bool operator==(const RowMax&) const = default;
};

/// What a shard of the classes adds to a loss: sums[0,r] = Σ_c exp(x[r,c] − max[r]) and sums[1,r] = x[r,target] −
/// max[r], 0 where the target is not of this shard (negative).  Operands: logits targets max → sums[2, rows]. With
/// `op_by_op` the logits are left as exponentials: one pass over memory subtracts, one exponentiates, one adds up, as
/// PyTorch runs Megatron-LM's vocabulary-parallel loss.  Operands: logits (updated) targets max → sums.
struct CrossEntropySums {
  std::int64_t rows = 0;
  std::int64_t classes = 0;
  DType dtype = DType::F32;
  bool op_by_op = false;

  static constexpr std::string_view kName = "cross_entropy_sums";
  static constexpr OpClass kClass = OpClass::Loss;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("classes", classes);
    v("dtype", dtype);
    v("op_by_op", op_by_op);
  }
  Amount amount(const Bindings&) const {
    const std::int64_t logits = rows * classes;
    return {Flops{5.0 * double(logits)},
            size_of(dtype, (op_by_op ? 3 : 1) * logits + rows) + size_of(DType::I32, rows),
            size_of(dtype, (op_by_op ? 2 * logits : 0) + 2 * rows),
            {}};
  }
  bool operator==(const CrossEntropySums&) const = default;
};

/// lse = max + ln sums[0]; loss += weight·Σ (ln sums[0] − sums[1]) over the rows whose target is not −100.
/// Operands: targets max sums[2, rows] → lse loss (added to).
struct CrossEntropyFinish {
  std::int64_t rows = 0;
  double weight = 1;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "cross_entropy_finish";
  static constexpr OpClass kClass = OpClass::Loss;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("weight", weight);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {Flops{5.0 * double(rows)}, size_of(dtype, 3 * rows) + size_of(DType::I32, rows), size_of(dtype, rows), {}};
  }
  bool operator==(const CrossEntropyFinish&) const = default;
};

}  // namespace orrery
