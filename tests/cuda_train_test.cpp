// SPDX-License-Identifier: Apache-2.0
// Whole networks on the cuda device.
#include <catch2/catch.hpp>

#include "runtime/cuda/gpu_executor.hpp"
#include "sim/base/yaml.hpp"
#include "tests/cuda_testing.hpp"
#include "tests/network_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

Model gpt2() {
  return model_from_config(
      parse_json(
          R"({"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 16, "vocab_size": 64})",
          "gpt2"),
      "gpt2");
}
Model llama() {
  return model_from_config(
      parse_json(
          R"({"model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4,
      "num_key_value_heads": 2, "vocab_size": 64, "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false})",
          "llama"),
      "llama");
}

/// Losses of a few steps of training.
std::vector<double> losses(const Model& model, Executor& executor, const WorkspaceModel& workspaces, TrainOptions o,
                           const Strategy& strategy) {
  const auto program = training_program(model, o, strategy.train_step(model, o, &workspaces), {});
  const Plan& plan = program->plans().front();
  executor.prepare(plan);
  fill(executor, plan, model, 3, 0.05);
  std::vector<double> all;
  while (const auto step = program->next()) {
    put(executor, plan, step->inputs);
    executor.execute(plan, step->bindings);
    all.push_back(read_port(executor, plan, "loss").front());
    Outcome outcome;
    for (const std::string& port : step->outputs) outcome.values[port] = read_port(executor, plan, port);
    program->told(outcome);
  }
  return all;
}

TrainOptions few_steps() {
  TrainOptions o;
  o.batch = 2;
  o.sequence = 7;
  o.steps = 4;
  o.optimizer.rate = 1e-2;
  return o;
}

}  // namespace

TEST_CASE("training on the cuda device follows training on the host", "[cuda]") {
  const Model model = GENERATE(gpt2(), llama());
  TrainOptions o = few_steps();
  o.microbatches = 2;
  const auto host = make_host_executor();
  const auto want = losses(model, *host, host_workspaces(), o, *single());
  REQUIRE(want.size() == 4);

  const auto close = [&](Precision precision, double tolerance) {
    o.dtype = precision;
    const auto device = make_gpu_executor(gpu_under_test());
    const auto got = losses(model, *device, gpu_workspaces(), o, *single());
    REQUIRE(got.size() == want.size());
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(want[i]).epsilon(tolerance));
  };
  close(Precision::F32, 1e-5);
  close(Precision::BF16, 1e-2);
  o.optimizer.widen_gradients = true;
  close(Precision::BF16, 1e-2);
  o.optimizer.widen_gradients = false;
  o.optimizer.narrow_moments = true;
  close(Precision::BF16, 1e-2);
}

TEST_CASE("training with products in 8 bits follows that of the host, which casts alike", "[cuda]") {
  if (gpu_under_test()->info(0).capability < 89) return;  // has no such tensor cores
  const Model model = GENERATE(gpt2(), llama());
  TrainOptions o = few_steps();
  o.narrow = Narrow::EightBits;
  o.keep_narrow = GENERATE(false, true);
  const auto host = make_host_executor();
  const auto want = losses(model, *host, host_workspaces(), o, *single());
  o.dtype = Precision::BF16;
  const auto device = make_gpu_executor(gpu_under_test());
  const auto got = losses(model, *device, gpu_workspaces(), o, *single());
  REQUIRE(got.size() == 4);
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(want[i]).epsilon(1e-2));
}
