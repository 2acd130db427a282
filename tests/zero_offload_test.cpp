// SPDX-License-Identifier: Apache-2.0
// The strategy zero-offload: the same weights as without it, also where updates are one step late.
#include <catch2/catch.hpp>

#include "tests/offload_testing.hpp"
#include "tests/reference_adamw.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr OffloadCase kCases[] = {
    {"gpt2", "{}"},
    {"tied", "{memory: pageable}", 2},
    {"llama", "{overlap: false}"},
    {"mixtral", "{in_flight: 1}"},
    {"gpt2", "{parallel: {mesh: dp2}}", 2},
    {"gpt2", "{parallel: {mesh: dp2, data: {kind: zero1, bucket: 4000}}}"},
    {"llama", "{parallel: {mesh: dp2, data: {kind: zero2, bucket: 4000}}}", 2},
    {"gpt2", "{parallel: {mesh: fsdp2, data: {kind: zero3, bucket: 4000}}}"},
    {"gpt2", "{parallel: {mesh: dp2 tp2, data: {kind: zero1}}}"},
    {"gpt2", "{parallel: {mesh: pp2}}", 2},
};

/// Steps of one device in which gradient t changes the weights when step t + 1 has been computed, in a loop over a plan
/// that computes gradients only.
Trained one_step_late(const Model& model, const TrainOptions& o) {
  auto program = training_program(model, o, single()->train_step(model, o, &host_workspaces()), {});
  const Plan& plan = program->plans().front();
  auto executor = make_host_executor();
  executor->prepare(plan);
  fill(*executor, plan, model, 3, 0.02);
  ReferenceAdamW adam = reference_adamw(o.optimizer);
  const auto read_all = [&](auto read) {
    Values out;
    for (std::size_t i = 0; i < model.parameters.size(); ++i)
      out[model.parameters[i].name] = read(*executor, plan, ParameterId{i}, model.parameters[i].elements());
    return out;
  };
  Values weights = read_all(read_parameter), late;
  Trained t;
  while (auto step = program->next()) {
    for (std::size_t i = 0; i < model.parameters.size(); ++i)
      write_parameter(*executor, plan, ParameterId{i}, weights.at(model.parameters[i].name));
    put(*executor, plan, step->inputs);
    executor->execute(plan, step->bindings);
    t.losses.push_back(read_port(*executor, plan, "loss")[0]);
    if (!late.empty()) adam.update(weights, late);
    late = read_all(read_gradient);
  }
  for (const Parameter& p : model.parameters) t.weights.push_back(weights.at(p.name));
  return t;
}

}  // namespace

TEST_CASE("updates on the host give the weights that updates on the device give", "[offload]") {
  const OffloadCase& c = GENERATE(from_range(std::begin(kCases), std::end(kCases)));
  CAPTURE(c.model, c.options);
  CHECK(off_one_device("zero-offload", c) < 1e-9);
}

TEST_CASE("a delayed update is one step late, and nothing else", "[offload]") {
  const char* options = GENERATE("{delayed: true}", "{delayed: true, parallel: {mesh: dp2, data: {kind: zero2}}}");
  CAPTURE(options);
  const Model model = small_model("gpt2");
  TrainOptions o = offload_options();
  o.steps = 4;
  const Plan plan = strategy_of("zero-offload", options)->train_step(model, o, &host_workspaces());
  const Trained late = train(model, o, plan);
  CHECK(difference(late, one_step_late(model, o)) < 1e-9);
  CHECK(difference(late, train(model, o, *single())) > 1e-4);
}

TEST_CASE("a gradient goes down and a weight comes up once per step", "[offload]") {
  const Model model = small_model("gpt2");
  const TrainOptions o = offload_options();
  const Plan plan = strategy_of("zero-offload", "{}")->train_step(model, o, &host_workspaces());
  const OffloadRun run = train_capped(model, o, plan);
  std::int64_t elements = 0;
  for (const Parameter& p : model.parameters) elements += p.elements();
  const auto moves = static_cast<std::int64_t>(model.parameters.size()) * o.steps;
  const std::vector<Transfers> expected{{RankId{0}, Tier::Device, Tier::Pinned, moves, 8 * elements * o.steps},
                                        {RankId{0}, Tier::Pinned, Tier::Device, moves, 8 * elements * o.steps}};
  CHECK(run.timeline.transfers == expected);
  CHECK(simulate_steps(plan, o.steps).transfers == expected);
}

TEST_CASE("states and most gradients are not on the device", "[offload]") {
  const Model model = small_model("gpt2");
  const TrainOptions o = offload_options();
  const std::int64_t plain =
      peak_of(train_capped(model, o, single()->train_step(model, o, &host_workspaces())).timeline, Tier::Device);
  const Plan plan = strategy_of("zero-offload", "{overlap: false}")->train_step(model, o, &host_workspaces());
  std::int64_t elements = 0;
  for (const Parameter& p : model.parameters) elements += p.elements();
  // Both moments are gone, 16 bytes per parameter, and all gradients but those of a few tensors.
  CHECK(peak_of(train_capped(model, o, plan).timeline, Tier::Device) < plain - 16 * elements);
}

TEST_CASE("what a delayed update cannot be is refused") {
  const Model model = small_model("gpt2");
  TrainOptions o = offload_options();
  o.optimizer.kind = OptimizerKind::Sgd;
  const auto strategy = strategy_of("zero-offload", "{delayed: true}");
  CHECK_THAT(user_error([&] { strategy->train_step(model, o, nullptr); }), Catch::Contains("adamw"));
  CHECK_THAT(user_error([&] { strategy->generation(model, {}, nullptr); }), Catch::Contains("does not generate"));
}
