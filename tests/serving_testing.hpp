// SPDX-License-Identifier: Apache-2.0
// Servers on the host runtime, and requests alone.
#pragma once

#include <functional>

#include "sim/program/data.hpp"
#include "sim/program/serving/serving_program.hpp"
#include "tests/network_testing.hpp"

namespace orrery::testing {

constexpr std::int64_t kServedContext = 64;

/// Four sequences, steps of 16 tokens, pages of 4, in float64.
inline ServeOptions serve_options(std::string_view scheduler) {
  ServeOptions o;
  o.dtype = Precision::F64;
  o.replica.scheduler = scheduler;
  o.replica.max_sequences = 4;
  o.replica.max_tokens = 16;
  o.replica.block = 4;
  o.replica.prefix_sharing = false;
  return o;
}

/// "tp2"; one device without a mesh.
inline std::unique_ptr<Strategy> strategy_of_mesh(const std::string& mesh) {
  return mesh.empty() ? single() : find_strategy("parallel").make(parse_yaml("{mesh: " + mesh + "}", "strategy"));
}

inline std::unique_ptr<Executor> executor_of(std::span<const Plan> plans, const Model& model) {
  auto executor = make_host_executor();
  for (const Plan& plan : plans) {
    executor->prepare(plan);
    fill(*executor, plan, model, 5, 0.05);
  }
  return executor;
}

/// A request by a prefill and decode steps with a cache of its own; `told` is called behind each.
inline void generate_alone(const Model& model, const Request& r,
                           const std::function<void(Executor&, const Plan&)>& told) {
  GenerateOptions o;
  o.prompt = r.prompt;
  o.tokens = r.output;
  o.dtype = Precision::F64;
  auto program = generation_program(model, o, single()->generation(model, o, &host_workspaces()), r.tokens);
  const auto executor = executor_of(program->plans(), model);
  while (auto step = program->next()) {
    const Plan& plan = program->plans()[step->plan];
    put(*executor, plan, step->inputs);
    executor->execute(plan, step->bindings);
    told(*executor, plan);
    program->told({{{"next_tokens", read_port(*executor, plan, "next_tokens")}}});
  }
}

}  // namespace orrery::testing
