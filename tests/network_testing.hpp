// SPDX-License-Identifier: Apache-2.0
// A model on the host runtime for tests: lowered, filled with seeded weights, run step by step.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/executor.hpp"
#include "runtime/whole_arrays.hpp"
#include "sim/base/random.hpp"
#include "sim/model/load.hpp"
#include "sim/program/initial_weights.hpp"
#include "sim/program/programs.hpp"
#include "sim/strategy/strategy.hpp"

namespace orrery::testing {

inline std::string shipped_model(const std::string& name) {
  return std::string{ORRERY_SOURCE_DIR} + "/scenarios/models/" + name + ".json";
}

inline std::unique_ptr<Strategy> single() { return find_strategy("single").make(Node::map()); }

/// The seeded values of a parameter. Tests fill many executors with the same ones.
inline const std::vector<double>& known_values(const Model& model, ParameterId parameter, std::uint64_t seed) {
  using Key = std::tuple<std::uint64_t, std::size_t, std::int64_t, Init, double>;
  static std::map<Key, std::vector<double>> known;
  const Parameter& p = model[parameter];
  std::vector<double>& values = known[{seed, parameter.index(), p.elements(), p.init, p.deviation}];
  if (values.empty()) values = initial_values(model, parameter, seed);
  return values;
}

/// Fills constants and parameters of a prepared plan. Norm weights and biases get noise too, so that no gradient is
/// hidden by zeros: evenly spread, of deviation `noise`.
inline void fill(Executor& executor, const Plan& plan, const Model& model, std::uint64_t seed, double noise) {
  write_constants(executor, plan);
  Random random{seed, 7};
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    std::vector<double> values = known_values(model, ParameterId{i}, seed);
    if (noise > 0)
      for (double& v : values) v += noise * std::sqrt(3.0) * random.uniform(-1, 1);
    write_parameter(executor, plan, ParameterId{i}, values);
  }
  write_master_copies(executor, plan);
}

inline void put(Executor& executor, const Plan& plan, const std::vector<PortValues>& inputs) {
  for (const PortValues& in : inputs) {
    if (!in.indices.empty())
      write_port(executor, plan, in.port, std::span<const std::int32_t>{in.indices});
    else
      write_port(executor, plan, in.port, std::span<const double>{in.numbers});
  }
}

/// Losses of steps on one device.
inline std::vector<double> losses_of(const Model& model, const TrainOptions& o, const WorkspaceModel& workspaces,
                                     Executor& executor) {
  const auto program = training_program(model, o, single()->train_step(model, o, &workspaces), {});
  const Plan& plan = program->plans().front();
  executor.prepare(plan);
  fill(executor, plan, model, 3, 0.05);
  std::vector<double> all;
  while (const auto step = program->next()) {
    put(executor, plan, step->inputs);
    executor.execute(plan, step->bindings);
    all.push_back(read_port(executor, plan, "loss").front());
  }
  return all;
}

/// max |a − b| / max |b|; of lists of different lengths, or with what is no number, infinite.
inline double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, scale = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) || std::isnan(b[i])) return INFINITY;
    difference = std::max(difference, std::abs(a[i] - b[i]));
    scale = std::max(scale, std::abs(b[i]));
  }
  return difference / scale;
}

/// Columns of the logits.
inline std::int64_t output_size(const Plan& plan) { return plan.shape(plan.find_port("logits"))[1]; }

}  // namespace orrery::testing
