// SPDX-License-Identifier: Apache-2.0
// Every way to split training computes what one device computes: three steps in float64 on up to 16 ranks.
#include <catch2/catch.hpp>

#include "tests/parallel_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr double kTolerance = 1e-9;

TrainOptions options(OptimizerKind kind) {
  TrainOptions o;
  o.batch = 16;
  o.microbatches = 4;
  o.sequence = 16;
  o.steps = 3;
  o.dtype = Precision::F64;
  o.dropout = 0.1;
  o.optimizer = clipped_optimizer(kind);
  return o;
}

struct Case {
  const char* model;
  const char* strategy;
};

void check(const Case& c, const TrainOptions& o) {
  INFO(c.model << " " << c.strategy);
  const Model model = small_model(c.model);
  const Trained one = train(model, o, *single());
  const Trained many = train(model, o, *parallel(c.strategy));
  CHECK(worst_difference(many, one) < kTolerance);
}

}  // namespace

TEST_CASE("replicas compute what one device computes", "[parallel]") {
  const auto* s =
      GENERATE("{mesh: dp2}", "{mesh: dp4, data: {bucket: 0}}", "{mesh: dp2, data: {kind: zero1}}",
               "{mesh: dp4, data: {kind: zero1, bucket: 0}}", "{mesh: dp3, data: {kind: zero2}}",
               "{mesh: dp2, data: {kind: zero3}}", "{mesh: fsdp4, data: {kind: zero3, bucket: 0}}",
               "{mesh: fsdp4, data: {kind: zero3, reshard: false}}", "{mesh: fsdp4, data: {kind: zero3, part: 300}}",
               "{mesh: fsdp2 dp2, data: {kind: zero3, part: 1000, bucket: 0, reshard: false}}",
               "{mesh: dp2 fsdp2, data: {kind: zero3}}", "{mesh: fsdp2 dp2, data: {kind: zero1}}");
  TrainOptions o = options(OptimizerKind::AdamW);
  if (std::string{s}.find("dp3") != std::string::npos) o.batch = 12;
  check({"gpt2", s}, o);
}

TEST_CASE("split matrices compute what one device computes", "[parallel]") {
  const auto* model = GENERATE("gpt2", "llama", "bert", "mixtral");
  const auto* s = GENERATE("{mesh: tp2}", "{mesh: tp4}", "{mesh: tp2, sequence_parallel: true}",
                           "{mesh: dp2 tp2, sequence_parallel: true, data: {kind: zero3}}");
  check({model, s}, options(OptimizerKind::Sgd));
}

TEST_CASE("stages compute what one device computes", "[parallel]") {
  const auto* s = GENERATE(
      "{mesh: pp2}", "{mesh: pp4, schedule: gpipe}", "{mesh: pp4}", "{mesh: pp2, schedule: interleaved, chunks: 2}",
      "{mesh: pp4, schedule: interleaved, chunks: 2}", "{mesh: pp4, schedule: chimera}", "{mesh: pp4, schedule: zb-h1}",
      "{mesh: pp2, schedule: zb-v}", "{mesh: pp2, schedule: dualpipe}", "{mesh: pp4, stage_layers: [1, 3, 3, 1]}");
  const auto* model = GENERATE("gpt2", "llama");
  check({model, s}, options(OptimizerKind::AdamW));
}

TEST_CASE("compositions compute what one device computes", "[parallel]") {
  const auto* s = GENERATE("{mesh: dp2 pp2 tp2}", "{mesh: tp2 pp2 dp2, data: {kind: zero1}}",
                           "{mesh: pp2 dp2 tp2, sequence_parallel: true, schedule: zb-h1}",
                           "{mesh: dp2 pp4 tp2, schedule: chimera}");
  const auto* model = GENERATE("gpt2", "llama");
  check({model, s}, options(OptimizerKind::AdamW));
}

TEST_CASE("attention that keeps its scores computes what fused attention does", "[parallel]") {
  const auto* model = GENERATE("gpt2", "llama", "bert");
  const auto recompute = GENERATE(Recompute::None, Recompute::Selective, Recompute::Full);
  TrainOptions o = options(OptimizerKind::Sgd);
  const Trained fused = train(small_model(model), o, *single());
  o.stored_scores = true;
  o.recompute = recompute;
  INFO(model);
  CHECK(worst_difference(train(small_model(model), o, *single()), fused) < kTolerance);
  CHECK(worst_difference(train(small_model(model), o, *parallel("{mesh: dp2 tp2}")), fused) < kTolerance);
}

TEST_CASE("gradients that are summed behind the passes are those that are summed meanwhile", "[parallel]") {
  const auto* s = GENERATE("{mesh: dp4, data: {overlap: false}}", "{mesh: dp4, data: {kind: zero1, overlap: false}}",
                           "{mesh: pp2 dp2, data: {overlap: false}}");
  check({"gpt2", s}, options(OptimizerKind::AdamW));
}

TEST_CASE("frozen matrices stay as they are while norms and biases train as without", "[parallel]") {
  const auto* s = GENERATE("{mesh: tp1}", "{mesh: dp2 tp2}", "{mesh: dp4, data: {kind: zero3}}", "{mesh: pp2}");
  const Model model = small_model("gpt2");
  TrainOptions o = options(OptimizerKind::Sgd);
  o.steps = 1;
  o.optimizer.clip = 0;
  const Trained all = train(model, o, *single());
  o.frozen = true;
  const Trained some = train(model, o, *parallel(s));
  using Values = std::vector<std::vector<double>>;
  INFO(s);
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    INFO(model.parameters[i].name);
    if (model.parameters[i].decay)
      CHECK(some.gradients[i].empty());
    else
      CHECK(worst_difference(Values{some.weights[i]}, Values{all.weights[i]}) < kTolerance);
  }
}
