// SPDX-License-Identifier: Apache-2.0
// Every model family: gradients of the lowered training step against central differences in float64, with and without
// recomputation.
#include <catch2/catch.hpp>

#include <cmath>

#include "tests/network_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr double kStep = 1e-6;

TrainOptions frozen(std::string_view model, Recompute recompute) {
  TrainOptions o;
  o.batch = 2;
  o.microbatches = 2;
  o.sequence = 9;
  o.target_sequence = model == "t5-tiny" ? 6 : 0;
  o.dtype = Precision::F64;
  o.recompute = recompute;
  o.dropout = 0.1;
  o.optimizer = {.kind = OptimizerKind::Sgd, .rate = 0, .momentum = 0, .decay = 0, .clip = 0};
  return o;
}

/// One model whose training step can be run again and again with other weights.
class Bench {
 public:
  Bench(const Model& model, const TrainOptions& o)
      : model_{model}, program_{training_program(model, o, single()->train_step(model, o, &host_workspaces()), {})} {
    executor_->prepare(plan());
    fill(*executor_, plan(), model, 3, 0.05);
    step_ = *program_->next();
    put(*executor_, plan(), step_.inputs);
  }
  const Plan& plan() const { return program_->plans().front(); }

  double loss() {
    executor_->execute(plan(), step_.bindings);
    return executor_->read(plan(), plan().find_port("loss"), RankId{0})[0];
  }
  TensorId gradient_of(std::size_t parameter) const {
    const ParameterPlacement* p = plan().find_placement(ParameterId{parameter});
    return p ? p->gradient.tensor : TensorId{};
  }
  std::vector<double> gradient(std::size_t parameter) {
    return executor_->read(plan(), gradient_of(parameter), RankId{0});
  }
  double difference(std::size_t parameter, std::size_t element) {
    auto w = executor_->read(plan(), plan().find_placement(ParameterId{parameter})->weight.tensor, RankId{0});
    const double at = w[element];
    const auto with = [&](double value) {
      w[element] = value;
      executor_->write(plan(), plan().find_placement(ParameterId{parameter})->weight.tensor, RankId{0}, w);
      return loss();
    };
    const double above = with(at + kStep), below = with(at - kStep);
    w[element] = at;
    executor_->write(plan(), plan().find_placement(ParameterId{parameter})->weight.tensor, RankId{0}, w);
    return (above - below) / (2 * kStep);
  }

 private:
  const Model& model_;
  std::unique_ptr<Program> program_;
  std::unique_ptr<Executor> executor_ = make_host_executor();
  Step step_;
};

}  // namespace

TEST_CASE("gradients of every model family agree with central differences", "[network]") {
  const auto* name = GENERATE("gpt2-tiny", "llama-tiny", "opt-tiny", "bert-tiny", "t5-tiny", "mixtral-tiny",
                              "qwen3-moe-tiny", "deepseek-tiny", "llama4-tiny", "gemma2-tiny", "gemma3-tiny",
                              "granite-tiny", "vit-tiny", "swin-tiny-test", "dlrm-tiny", "starcoder2-tiny");
  const Model model = load_model(shipped_model(name));
  Bench bench{model, frozen(name, Recompute::None)};
  const double loss = bench.loss();
  std::vector<std::vector<double>> gradients(model.parameters.size());
  for (std::size_t p = 0; p < gradients.size(); ++p)
    if (!bench.gradient_of(p).is_none()) gradients[p] = bench.gradient(p);
  CHECK(std::isfinite(loss));
  Random random{17};
  const std::size_t stride = std::max<std::size_t>(1, model.parameters.size() / 24);
  for (std::size_t p = 0; p < model.parameters.size(); p += stride) {
    if (gradients[p].empty()) continue;
    const std::size_t element = random.below(gradients[p].size());
    INFO(name << " " << model.parameters[p].name << "[" << element << "]");
    CHECK(gradients[p][element] == Approx(bench.difference(p, element)).epsilon(1e-4).margin(2e-8));
  }
}

TEST_CASE("recomputation changes no gradient", "[network]") {
  const auto* name = GENERATE("gpt2-tiny", "llama-tiny", "t5-tiny", "mixtral-tiny", "llama4-tiny", "gemma2-tiny",
                              "gemma3-tiny", "granite-tiny", "deepseek-tiny", "swin-tiny-test");
  const Recompute recompute = GENERATE(Recompute::Selective, Recompute::Full, Recompute::Whole);
  const Model model = load_model(shipped_model(name));
  Bench plain{model, frozen(name, Recompute::None)}, again{model, frozen(name, recompute)};
  CHECK(again.loss() == plain.loss());
  CHECK(again.plan().ops.size() > plain.plan().ops.size());
  for (std::size_t p = 0; p < model.parameters.size(); ++p)
    if (!plain.gradient_of(p).is_none()) {
      INFO(name << " " << model.parameters[p].name);
      CHECK(again.gradient(p) == plain.gradient(p));
    }
}
