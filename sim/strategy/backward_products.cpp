// SPDX-License-Identifier: Apache-2.0
// Rules of products: gradients of what they read, weights and inputs.
#include <utility>

#include "sim/strategy/backward_rules.hpp"

namespace orrery {

/// C = A·B: dA = dC·Bᵀ, dB = Aᵀ·dC, dbias = Σ rows of dC; with the stored orientation of A and B.
void BackwardRules::input_gradient(const Gemm& g) {
  const TensorId dc = tape_.gradient(in(static_cast<std::size_t>(g.output_operand())));
  if (dc.is_none()) return;
  // What the weight's gradient reads is made again before the other product: it may come while that runs.
  if (tape_.wants(in(1)) && is_parameter(in(1)) && !tape_.deferred()) saved_input(copy_of_input(g.narrow));
  if (tape_.wants(in(0))) gemm_left(g, dc);
}

void BackwardRules::weight_gradient(const Gemm& g) {
  const TensorId dc = tape_.gradient(in(static_cast<std::size_t>(g.output_operand())));
  if (dc.is_none()) return;
  if (tape_.wants(in(1))) {
    if (is_parameter(in(1)))
      tape_.defer([&node = node_, &tape = tape_, g, dc] { BackwardRules{node, tape}.gemm_right(g, dc); });
    else
      gemm_right(g, dc);
  }
  if (!g.bias || !tape_.wants(in(2))) return;
  tape_.defer([&tape = tape_, bias = in(2), name = name(".db"), g, dc] {
    const auto target = tape.parameter_target(bias);
    tape.emit(name, SumRows{.rows = g.m * g.batch, .cols = g.n, .accumulate = target.accumulate, .dtype = g.dtype},
              {reads(dc), target.accumulate ? updates(target.tensor) : writes(target.tensor)});
  });
}

/// Where the gradient stands matters to products in eight bits alone; others stay what they are without it.
static GradientOperand in_eight_bits(const Gemm& g, GradientOperand gradient) {
  return g.narrow == Narrow::EightBits ? gradient : GradientOperand::None;
}

/// A stored [m,k]: dA = dC·op(B)ᵀ; stored [k,m]: dAᵀ = op(B)·dCᵀ.
void BackwardRules::gemm_left(const Gemm& g, TensorId dc) {
  const TensorId da = tape_.contribution(in(0)), b = saved(1);
  Gemm back{.m = g.m,
            .n = g.k,
            .k = g.n,
            .batch = g.batch,
            .narrow = g.narrow,
            .gradient = in_eight_bits(g, g.transpose_a ? GradientOperand::B : GradientOperand::A),
            .dtype = g.dtype,
            .alpha = g.alpha};
  if (g.transpose_a) {
    std::swap(back.m, back.n);
    back.transpose_a = g.transpose_b;
    back.transpose_b = true;
    tape_.emit(name(".dx"), back, {reads(b), reads(dc), writes(da)});
  } else {
    back.transpose_b = !g.transpose_b;
    tape_.emit(name(".dx"), back, {reads(dc), reads(b), writes(da)});
  }
  tape_.contribute(in(0), da);
}

/// B stored [k,n]: dB = op(A)ᵀ·dC; stored [n,k]: dB = dCᵀ·op(A).
void BackwardRules::gemm_right(const Gemm& g, TensorId dc) {
  const bool weight = is_parameter(in(1));
  const auto target = weight ? tape_.parameter_target(in(1)) : Tape::ParameterTarget{tape_.contribution(in(1)), false};
  const Operand out = target.accumulate ? updates(target.tensor) : writes(target.tensor);
  const Tape::InputCopy copy = copy_of_input(g.narrow);
  const TensorId a = saved_input(copy);
  Gemm back{.m = g.k,
            .n = g.n,
            .k = g.m,
            .batch = g.batch,
            .accumulate = target.accumulate,
            .wide = weight && is_wide(target.tensor, g.dtype),
            .narrow = g.narrow,
            .gradient = in_eight_bits(g, g.transpose_b ? GradientOperand::A : GradientOperand::B),
            .dtype = g.dtype,
            .alpha = g.alpha,
            .input = copy.numbers.is_none() ? InputCast::None : InputCast::Read,
            .cast_rows = copy.rows};
  std::vector<Operand> operands{reads(a), reads(dc)};
  if (g.transpose_b) {
    std::swap(back.m, back.n);
    back.transpose_a = true;
    back.transpose_b = g.transpose_a;
    std::swap(operands[0], operands[1]);
  } else {
    back.transpose_a = !g.transpose_a;
  }
  if (back.input == InputCast::Read) operands.push_back(reads(tape_.saved(copy.scale)));
  operands.push_back(out);
  tape_.emit(name(".dw"), back, operands);
  if (!weight) tape_.contribute(in(1), target.tensor);
}

void BackwardRules::operator()(const GroupedGemm& g) {
  const TensorId dy = tape_.gradient(in(3));
  if (dy.is_none()) return;
  GroupedGemm back = g;
  back.input = InputCast::None;
  back.mode = GroupedMode::InputGradient;
  const TensorId before = tape_.gradient_so_far(in(0));
  back.accumulate = !before.is_none();
  if (back.accumulate)
    tape_.emit(name(".dx"), back, {reads(dy), reads(saved(1)), reads(saved(2)), updates(before)});
  else
    one(0, back, {reads(dy), reads(saved(1)), reads(saved(2))});
  back.mode = GroupedMode::WeightGradient;
  tape_.defer([&node = node_, &tape = tape_, back, dy]() mutable {
    BackwardRules rules{node, tape};
    const auto target = tape.parameter_target(rules.in(1));
    back.accumulate = target.accumulate;
    back.wide = rules.is_wide(target.tensor, back.dtype);
    const Tape::InputCopy copy = rules.copy_of_input(back.narrow);
    std::vector<Operand> operands{reads(rules.saved_input(copy)), reads(dy), reads(rules.saved(2))};
    if (!copy.numbers.is_none()) {
      back.input = InputCast::Read;
      operands.push_back(reads(copy.scale));
    }
    operands.push_back(target.accumulate ? updates(target.tensor) : writes(target.tensor));
    tape.emit(rules.name(".dw"), back, operands);
  });
}

void backward_of_input(const TapeNode& product, Tape& tape) {
  BackwardRules{product, tape}.input_gradient(std::get<Gemm>(product.work));
}
void backward_of_weight(const TapeNode& product, Tape& tape) {
  BackwardRules{product, tape}.weight_gradient(std::get<Gemm>(product.work));
}

}  // namespace orrery
