// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "sim/plan/builder.hpp"
#include "sim/strategy/distribution.hpp"

namespace orrery {

/// q×q ranks multiply matrices of which each holds one block (SUMMA, as in Optimus, arXiv 2104.05343). In step i of q
/// an operand is broadcast over an axis from rank i of it, or is the rank's own block in every step; the product is
/// added to the result, or is summed over an axis into the result of rank i. With A split by `row` and `col`, and B
/// alike:
///   C = A·B    A over col, B over row              forward
///   C = A·Bᵀ   B over row, summed over col         gradient of an input, logits
///   C = Aᵀ·B   A over col, summed over row         gradient of a weight
/// As released, each step waits for its broadcasts and for its sum. With `overlap` they run on a stream of their own, a
/// step ahead and a step behind, in two buffers each.
///
/// A buffer holds one block: what the paper calls its workspace, (4bsh + 4h²)/q² numbers in the widest product of a
/// layer and (bsv + vh)/q² in that of the logits; with `overlap` twice as much. The paper keeps it for the whole step,
/// here its storage is free between products.
struct Summa {
  PlanBuilder& builder;
  Split row, col;
  bool overlap = false;
  DType dtype = DType::F32;

  struct Factor {
    TensorId block;
    Split over;
  };
  /// `one` is the product of two blocks; it may add a bias, in the first step.
  void multiply(const std::string& name, Gemm one, const Factor& left, const Factor& right, TensorId bias, TensorId out,
                const Split& sum = {}) const;

  /// One broadcast or sum of a block, in or from a new buffer.
  TensorId buffer(const std::string& name, const Shape& shape) const;
  void broadcast(const std::string& name, TensorId block, const Split& over, std::int64_t from, TensorId to) const;
  void reduce(const std::string& name, TensorId part, const Split& over, std::int64_t to, TensorId out) const;
};

}  // namespace orrery
