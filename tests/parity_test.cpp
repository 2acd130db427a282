// SPDX-License-Identifier: Apache-2.0
// Plans compute: networks trained on the host runtime follow the straight-line implementation of
// reference_networks.hpp.
#include <catch2/catch.hpp>

#include <fstream>
#include <sstream>

#include "sim/base/yaml.hpp"
#include "tests/network_testing.hpp"
#include "tests/reference_adamw.hpp"
#include "tests/reference_networks.hpp"
#include "tests/small_models.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr int kSteps = 50;
constexpr ReferenceSizes kGpt2{
    .batch = 3, .sequence = 17, .hidden = 24, .heads = 3, .kv_heads = 3, .layers = 2, .inner = 96, .vocab = 256};
constexpr ReferenceSizes kLlama{
    .batch = 3, .sequence = 17, .hidden = 32, .heads = 4, .kv_heads = 2, .layers = 2, .inner = 56, .vocab = 256};

SmallSizes sizes_of(const ReferenceSizes& s) {
  return {.hidden = s.hidden,
          .inner = s.inner,
          .layers = s.layers,
          .heads = s.heads,
          .kv_heads = s.kv_heads,
          .vocab = s.vocab};
}
Model gpt2() { return gpt2_of(sizes_of(kGpt2)); }
Model llama() { return llama_of(sizes_of(kLlama)); }

/// Bytes of the shipped public-domain text.
std::vector<std::int32_t> shipped_text() {
  std::ifstream in{std::string{ORRERY_SOURCE_DIR} + "/scenarios/data/alice.txt", std::ios::binary};
  std::vector<std::int32_t> out;
  for (char c; in.get(c);) out.push_back(static_cast<unsigned char>(c));
  return out;
}

using Reference = double (*)(const ReferenceSizes&, const Values&, const std::vector<std::int32_t>&,
                             const std::vector<std::int32_t>&, Values&);

/// Trains plan and reference side by side; the largest relative difference of the losses over all steps.
double worst_loss_difference(const Model& model, const ReferenceSizes& s, Reference reference, Precision dtype,
                             Recompute recompute, std::int64_t microbatches) {
  TrainOptions o;
  o.batch = s.batch;
  o.microbatches = microbatches;
  o.sequence = s.sequence;
  o.dtype = dtype;
  o.recompute = recompute;
  o.steps = kSteps;
  o.optimizer.epsilon = 1e-6;
  auto program = training_program(model, o, single()->train_step(model, o, &host_workspaces()), shipped_text());
  const Plan& plan = program->plans().front();
  auto executor = make_host_executor();
  executor->prepare(plan);
  fill(*executor, plan, model, 11, 0);
  Values w, g;
  for (std::size_t i = 0; i < model.parameters.size(); ++i)
    w[model.parameters[i].name] = initial_values(model, ParameterId{i}, 11);
  ReferenceAdamW adam = reference_adamw(o.optimizer);
  double worst = 0;
  while (auto step = program->next()) {
    put(*executor, plan, step->inputs);
    executor->execute(plan, step->bindings);
    const double loss = executor->read(plan, plan.find_port("loss"), RankId{0})[0];
    const double expected = reference(s, w, step->inputs[0].indices, step->inputs[1].indices, g);
    adam.update(w, g);
    worst = std::max(worst, std::abs(loss - expected) / expected);
  }
  return worst;
}

}  // namespace

TEST_CASE("the shipped text is there", "[parity]") { CHECK(shipped_text().size() > 10000); }

TEST_CASE("a GPT-2 trained for 50 steps follows the straight-line implementation", "[parity]") {
  CHECK(worst_loss_difference(gpt2(), kGpt2, gpt2_reference, Precision::F64, Recompute::None, 1) < 1e-9);
  CHECK(worst_loss_difference(gpt2(), kGpt2, gpt2_reference, Precision::F64, Recompute::Selective, 3) < 1e-9);
  CHECK(worst_loss_difference(gpt2(), kGpt2, gpt2_reference, Precision::F64, Recompute::Full, 3) < 1e-9);
  CHECK(worst_loss_difference(gpt2(), kGpt2, gpt2_reference, Precision::F32, Recompute::None, 1) < 1e-4);
}

TEST_CASE("a Llama trained for 50 steps follows the straight-line implementation", "[parity]") {
  CHECK(worst_loss_difference(llama(), kLlama, llama_reference, Precision::F64, Recompute::None, 1) < 1e-9);
  CHECK(worst_loss_difference(llama(), kLlama, llama_reference, Precision::F64, Recompute::Full, 3) < 1e-9);
  CHECK(worst_loss_difference(llama(), kLlama, llama_reference, Precision::F32, Recompute::None, 1) < 1e-4);
}
