// SPDX-License-Identifier: Apache-2.0
// Steps whose tensors move between tiers on the cuda device: the same losses and weights as on the host.
#include <catch2/catch.hpp>

#include "runtime/cuda/gpu_executor.hpp"
#include "tests/cuda_testing.hpp"
#include "tests/network_testing.hpp"
#include "tests/offload_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

Model small_gpt2() {
  return model_from_config(
      parse_json(
          R"({"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16, "vocab_size": 61})",
          "gpt2"),
      "gpt2");
}

struct Steps {
  std::vector<double> losses;
  std::vector<std::vector<double>> weights;
  Timeline timeline;
};

Steps timed_train(const Model& model, const TrainOptions& o, Plan lowered, Executor& executor) {
  auto program = training_program(model, o, std::move(lowered), {});
  const Plan& plan = program->plans().front();
  executor.prepare(plan);
  fill(executor, plan, model, 3, 0.02);
  Steps s;
  while (auto step = program->next()) {
    put(executor, plan, step->inputs);
    executor.execute(plan, step->bindings);
    s.losses.push_back(read_port(executor, plan, "loss")[0]);
  }
  for (std::size_t i = 0; i < model.parameters.size(); ++i)
    s.weights.push_back(read_parameter(executor, plan, ParameterId{i}, model.parameters[i].elements()));
  s.timeline = executor.take();
  return s;
}

struct Offload {
  const char *strategy, *options;
};

}  // namespace

TEST_CASE("each way of keeping a model in little memory trains on the cuda device as on the host", "[cuda]") {
  const Offload way = GENERATE(
      Offload{"zero-offload", "{}"}, Offload{"zero-offload", "{delayed: true}"}, Offload{"zero-infinity", "{}"},
      Offload{"zero-infinity", "{weights: disk, gradients: disk, states: disk}"},
      Offload{"patrickstar", "{device_memory: 64 MiB}"},
      Offload{"gemini", "{min_chunk: 2000, search_range: 4000, search_interval: 16}"},
      Offload{"elixir", "{driver: 0 B, least_chunk: 1 kB, device_memory: 128 MiB}"},
      Offload{"angel-ptm", "{device_memory: 64 MiB, states: disk}"}, Offload{"activation-offload", "{}"});
  INFO(way.strategy << " " << way.options);
  const Model model = small_gpt2();
  TrainOptions o = offload_options();
  o.batch = 2;
  o.dtype = Precision::F32;
  const auto strategy = strategy_of(way.strategy, way.options);
  const auto host = make_host_executor();
  const Steps want = timed_train(model, o, strategy->train_step(model, o, &host_workspaces()), *host);
  const auto device = make_gpu_executor(gpu_under_test());
  const Plan lowered = strategy->train_step(model, o, &gpu_workspaces());
  const std::vector<Transfers> planned = planned_transfers(lowered);
  const Steps got = timed_train(model, o, lowered, *device);
  REQUIRE(got.losses.size() == want.losses.size());
  for (std::size_t i = 0; i < want.losses.size(); ++i) CHECK(got.losses[i] == Approx(want.losses[i]).epsilon(1e-5));
  CHECK(worst_difference(got.weights, want.weights) < 1e-4);
  REQUIRE(got.timeline.transfers.size() == planned.size());
  for (std::size_t i = 0; i < planned.size(); ++i) {
    CHECK(got.timeline.transfers[i].moves == o.steps * planned[i].moves);
    CHECK(got.timeline.transfers[i].bytes == o.steps * planned[i].bytes);
  }
}
