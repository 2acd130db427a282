// SPDX-License-Identifier: Apache-2.0
#include "sim/model/model.hpp"

namespace orrery {
namespace {

std::int64_t elements_of(const Model& model, ParameterId id) { return id.is_none() ? 0 : model[id].elements(); }

std::int64_t elements_of(const Model& model, const Linear& linear) {
  return elements_of(model, linear.weight) + elements_of(model, linear.bias);
}

std::int64_t elements_of(const Model& model, const Mlp& mlp) {
  return (mlp.gate ? elements_of(model, *mlp.gate) : 0) + elements_of(model, mlp.up) + elements_of(model, mlp.down);
}

/// Parameters of the experts that a token does not visit.
std::int64_t idle_elements(const Model& model, const std::vector<Block>& blocks) {
  std::int64_t idle = 0;
  for (const Block& block : blocks)
    if (const auto* moe = std::get_if<MoE>(&block.ffn)) {
      const auto experts = static_cast<std::int64_t>(moe->experts.size());
      if (experts > moe->top_k) idle += (experts - moe->top_k) * elements_of(model, moe->experts.front());
    }
  return idle;
}

}  // namespace

std::int64_t Parameter::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t d : shape) product *= d;
  return product;
}

std::int64_t Model::parameter_count() const {
  std::int64_t sum = 0;
  for (const Parameter& p : parameters) sum += p.elements();
  return sum;
}

std::int64_t Model::active_parameter_count() const {
  const auto* transformer = std::get_if<Transformer>(&network);
  if (!transformer) return parameter_count();
  return parameter_count() - idle_elements(*this, transformer->encoder) - idle_elements(*this, transformer->decoder);
}

}  // namespace orrery
