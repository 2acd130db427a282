// SPDX-License-Identifier: Apache-2.0
// A model on the host runtime for tests: lowered, filled with seeded weights, run step by step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/executor.hpp"
#include "sim/model/load.hpp"
#include "sim/program/initial_weights.hpp"
#include "sim/program/programs.hpp"
#include "sim/strategy/strategy.hpp"

namespace orrery::testing {

inline std::string shipped_model(const std::string& name) {
  return std::string{ORRERY_SOURCE_DIR} + "/scenarios/models/" + name + ".json";
}

inline std::unique_ptr<Strategy> single() { return find_strategy("single").make(Node::map()); }

/// Fills constants and parameters of a prepared plan. Norm weights and biases get noise too, so that no gradient is
/// hidden by zeros.
inline void fill(Executor& executor, const Plan& plan, const Model& model, std::uint64_t seed, double noise) {
  for (const Constant& c : plan.constants) executor.write(plan, c.tensor, RankId{0}, c.values());
  Random random{seed, 7};
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    std::vector<double> values = initial_values(model, ParameterId{i}, seed);
    if (noise > 0)
      for (double& v : values) v += noise * random.normal();
    if (!plan.parameters[i].is_none()) executor.write(plan, plan.parameters[i], RankId{0}, values);
  }
}

inline void put(Executor& executor, const Plan& plan, const std::vector<PortValues>& inputs) {
  for (const PortValues& in : inputs) {
    const TensorId t = plan.find_port(in.port);
    if (!in.indices.empty())
      executor.write(plan, t, RankId{0}, in.indices);
    else
      executor.write(plan, t, RankId{0}, in.numbers);
  }
}

/// Columns of the logits.
inline std::int64_t output_size(const Plan& plan) { return plan.shape(plan.find_port("logits"))[1]; }

}  // namespace orrery::testing
