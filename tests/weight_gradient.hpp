// SPDX-License-Identifier: Apache-2.0
// The product of a weight's gradient in 8 bits, for tests of any device.
#pragma once

#include <string>

#include "sim/plan/builder.hpp"

namespace orrery::testing {

/// dW of y[rows, n] = x[rows, k]·W, or of x·Wᵀ where it is `transposed`.
struct WeightGradient {
  std::int64_t rows = 0, n = 0, k = 0;
  bool transposed = false;
  DType dtype = DType::F64;
  std::int64_t cast_rows = 0;  // of x, which was cast in parts of so many; 0: as one

  Shape shape() const { return transposed ? Shape{n, k} : Shape{k, n}; }

  /// Adds it to a trial; with a scale x is what a product before has cast. Gives dW.
  template <class Trial, class... Scale>
  TensorId add_to(Trial& t, const std::string& name, TensorId dy, TensorId x, Scale... scale) const {
    const Gemm product{.m = shape()[0],
                       .n = shape()[1],
                       .k = rows,
                       .transpose_a = true,
                       .narrow = Narrow::EightBits,
                       .gradient = transposed ? GradientOperand::A : GradientOperand::B,
                       .dtype = dtype,
                       .input = sizeof...(scale) > 0 ? InputCast::Read : InputCast::None,
                       .cast_rows = cast_rows};
    const TensorId dw = t.output(name, shape());
    t.add(product, reads(transposed ? dy : x), reads(transposed ? x : dy), reads(scale)..., writes(dw));
    return dw;
  }
};

}  // namespace orrery::testing
