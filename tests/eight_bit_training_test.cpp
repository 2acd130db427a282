// SPDX-License-Identifier: Apache-2.0
// Training with products in 8 bits: which operand of a product is a gradient, and how near its losses stay.
#include <catch2/catch.hpp>

#include <map>
#include <optional>

#include "tests/network_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

TrainOptions in_eight_bits() {
  TrainOptions o;
  o.batch = 2;
  o.sequence = 8;
  o.steps = 8;
  o.narrow = Narrow::EightBits;
  return o;
}

/// The operand of a product that its work says is a gradient.
std::optional<TensorId> gradient_of(const Plan& plan, const Op& op, GradientOperand which) {
  if (which == GradientOperand::None) return {};
  return plan.operands_of(op)[which == GradientOperand::A ? 0 : 1].tensor();
}

/// The same steps with products in 8 bits or none.
std::vector<double> losses(const Model& model, TrainOptions o, Narrow narrow) {
  o.narrow = narrow;
  return losses_of(model, o, host_workspaces(), *make_host_executor());
}

}  // namespace

TEST_CASE("products in 8 bits know which operand is a gradient, from either orientation", "[network]") {
  // gpt2 stores weights [in, out], llama [out, in]: gradients of weights are XᵀdY and dYᵀX.
  const auto* name = GENERATE("gpt2-tiny", "llama-tiny", "mixtral-tiny");
  const Model model = load_model(shipped_model(name));
  const Plan plan = single()->train_step(model, in_eight_bits(), nullptr);
  std::map<std::string, TensorId> of_inputs, of_weights;  // by the product: what its two gradients call the gradient
  int forward = 0;
  for (const Op& op : plan.ops) {
    const auto* g = std::get_if<Gemm>(&plan.work(op));
    const auto* of_groups = std::get_if<GroupedGemm>(&plan.work(op));
    if (!g && !of_groups) continue;
    const std::string op_name{plan.name_of(op)};
    const bool narrow = (g ? g->narrow : of_groups->narrow) == Narrow::EightBits;
    const auto gradient = gradient_of(plan, op, g ? g->gradient : of_groups->gradient());
    INFO(op_name);
    if (op_name.ends_with(".dx") && narrow) {
      REQUIRE(gradient);
      of_inputs[op_name.substr(0, op_name.size() - 3)] = *gradient;
      // The other operand is the weight.
      const auto operands = plan.operands_of(op);
      const TensorId other = operands[operands[0].tensor() == *gradient ? 1 : 0].tensor();
      CHECK(plan.tensors[plan.owner(other).index()].role == TensorRole::Parameter);
    } else if (op_name.ends_with(".dw") && narrow) {
      REQUIRE(gradient);
      of_weights[op_name.substr(0, op_name.size() - 3)] = *gradient;
    } else {
      CHECK((!gradient || !narrow));
      forward += narrow ? 1 : 0;
    }
  }
  CHECK(forward > 4);
  CHECK(of_inputs.size() == static_cast<std::size_t>(forward));
  CHECK(of_inputs == of_weights);
}

TEST_CASE("products that are not in 8 bits do not say where the gradient stands", "[network]") {
  const Narrow narrow = GENERATE(Narrow::None, Narrow::FourBits);
  TrainOptions o = in_eight_bits();
  o.narrow = narrow;
  const Plan plan = single()->train_step(load_model(shipped_model("gpt2-tiny")), o, nullptr);
  for (const Op& op : plan.ops)
    if (const auto* g = std::get_if<Gemm>(&plan.work(op))) CHECK(g->gradient == GradientOperand::None);
}

TEST_CASE("losses of training in 8 bits stay near those of training in full", "[network]") {
  const Model model = load_model(shipped_model("llama-tiny"));
  const TrainOptions o = in_eight_bits();
  const auto want = losses(model, o, Narrow::None), got = losses(model, o, Narrow::EightBits);
  REQUIRE(want.size() == 8);
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(want[i]).epsilon(0.01));
  CHECK(got != want);
}
