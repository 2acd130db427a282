// SPDX-License-Identifier: Apache-2.0
// What layers with meshes of their own cost: arithmetic as on one device, bytes that cross ranks between layers, model
// state of each layer as its own mesh has it.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "tests/parallel_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr double kHidden = 32;

/// Sizes that 8 divides, so that nothing is padded.
Model gpt() { return gpt2_of({.hidden = 32, .heads = 8, .vocab = 64}); }

TrainOptions options() {
  TrainOptions o;
  o.batch = 16;
  o.microbatches = 1;
  o.sequence = 16;
  return o;
}

Plan lower(const std::string& strategy) { return parallel(strategy)->train_step(gpt(), options(), nullptr); }

/// What a rank receives in the gathers of a phase between layers: (n−1)/n of what it then has.
double received(const Plan& plan, Phase phase) {
  double sum = 0;
  for (const Op& op : plan.ops)
    if (const auto* c = std::get_if<Collective>(&plan.work(op));
        c && op.phase == phase && plan.name_of(op).find(".relayout") != std::string_view::npos) {
      double n = 1;
      for (const std::uint8_t a : plan.groups[c->group.index()].axes) n *= double(plan.mesh.axes[a].size);
      sum += (n - 1) / n * c->bytes.base();
    }
  return sum;
}

std::size_t ops_between(const Plan& plan) {
  std::size_t n = 0;
  for (const Op& op : plan.ops) n += plan.name_of(op).find(".relayout") != std::string_view::npos ? 1 : 0;
  return n;
}

/// Bytes of weights, gradients and optimizer states that a rank keeps of the blocks whose buckets have these names.
double state(const Plan& plan, int block) {
  double sum = 0;
  for (std::size_t t = 0; t < plan.tensors.size(); ++t) {
    const Tensor& x = plan.tensors[t];
    const bool is_state =
        x.role == TensorRole::Parameter || x.role == TensorRole::Gradient || x.role == TensorRole::OptimizerState;
    if (is_state && x.base.is_none() && x.persistent &&
        std::string_view{plan.names[x.name]}.starts_with(fmt::format("{}.", block)))
      sum += plan.size(TensorId{t}).base();
  }
  return sum;
}

}  // namespace

/// The whole activation of a microbatch is N = b·s·h numbers of 4 bytes. A layer on d replicas has N/d of them on a
/// rank. From d to d' replicas a rank receives (d/d' − 1)/(d/d')·N/d' where d > d', and the same in the other direction
/// back.
TEST_CASE("a change of replicas moves (r-1)/r of what a rank has then", "[parallel]") {
  const double n = 4.0 * 16 * 16 * kHidden;
  struct Case {
    const char* strategy;
    double forward, backward;
  };
  const Case c = GENERATE_COPY(
      // Into the layers and out of them again: one way gathers forward, the other one back.
      Case{"{mesh: dp8, layers: [{blocks: 1-2, mesh: dp4 tp2}]}", 1.0 / 2 * n / 4, 1.0 / 2 * n / 4},
      Case{"{mesh: dp8, layers: [{blocks: 1-2, mesh: dp2 tp4}]}", 3.0 / 4 * n / 2, 3.0 / 4 * n / 2},
      Case{"{mesh: dp8, layers: [{blocks: 1-2, mesh: tp8}]}", 7.0 / 8 * n, 7.0 / 8 * n},
      Case{"{mesh: tp8, layers: [{blocks: 1-2, mesh: dp8}]}", 7.0 / 8 * n, 7.0 / 8 * n},
      // The last layers: the head gets what it wants, nothing comes back to the embedding but gradients.
      Case{"{mesh: dp8, layers: [{blocks: 2-3, mesh: dp2 tp4}]}", 3.0 / 4 * n / 2, 3.0 / 4 * n / 2},
      // As many replicas of other ranks: each keeps the quarter that it has anyway, gathers the other one, both ways.
      Case{"{mesh: dp2 tp2, layers: [{blocks: 1-2, mesh: tp2 dp2}]}", 2 * 1.0 / 2 * n / 2, 2 * 1.0 / 2 * n / 2},
      // With rows split over tp between blocks every rank has one eighth on each mesh.
      Case{"{mesh: dp2 tp4, sequence_parallel: true, layers: [{blocks: 1-2, mesh: dp4 tp2}, {blocks: 3, mesh: dp8}]}",
           0, 0},
      Case{"{mesh: dp2 tp4, layers: [{blocks: 1-2, recompute: full, data: zero1}]}", 0, 0});
  INFO(c.strategy);
  const Plan plan = lower(c.strategy);
  CHECK(received(plan, Phase::Forward) == c.forward);
  CHECK(received(plan, Phase::Backward) == c.backward);
  CHECK((c.forward > 0) == (ops_between(plan) > 0));
}

TEST_CASE("layers with meshes of their own do the arithmetic of one device", "[parallel]") {
  const auto* strategy = GENERATE("{mesh: dp8, layers: [{blocks: 1-2, mesh: dp4 tp2}]}",
                                  "{mesh: pp2 dp4, layers: [{blocks: 0-1, mesh: tp2 dp2, data: zero2}]}",
                                  "{mesh: tp4, layers: [{blocks: 2, mesh: dp4, data: zero3}]}");
  CHECK(lower(strategy).purpose.model_flops.base() ==
        single()->train_step(gpt(), options(), nullptr).purpose.model_flops.base());
}

/// A block of GPT-2 has 12h² + 13h parameters: 12h² + 7h in matrices and biases that tp cuts, 6h that each rank has
/// (norms and the biases behind two projections). Of 4 bytes, four times: weight, gradient, two moments.
TEST_CASE("each layer's model state is that of its own mesh", "[parallel]") {
  const Plan plan = lower(
      "{mesh: dp8, data: {bucket: 0}, layers: [{blocks: 1, mesh: dp4 tp2}, {blocks: 2, mesh: fsdp4 tp2, data: zero3}, "
      "{blocks: 3, mesh: dp8, data: zero2}]}");
  const double cut = 12 * kHidden * kHidden + 7 * kHidden, whole = 6 * kHidden, all = cut + whole;
  CHECK(state(plan, 0) == 4 * 4 * all);
  CHECK(state(plan, 1) == 4 * 4 * (cut / 2 + whole));
  CHECK(state(plan, 2) == 4 * 4 * (cut / 2 + whole) / 4);
  CHECK(state(plan, 3) == 4 * (all + 3 * all / 8));
}

TEST_CASE("axes are cut no finer than layers need, and named after what they were", "[parallel]") {
  const auto axes = [](const std::string& strategy) {
    std::string out;
    for (const Axis& a : lower(strategy).mesh.axes) out += fmt::format("{}{} ", a.name, a.size);
    return out;
  };
  CHECK(axes("{mesh: dp4 tp2, layers: [{blocks: 0, mesh: fsdp4 tp2, data: zero1}]}") == "dp4 tp2 ");
  CHECK(axes("{mesh: dp4 tp2, layers: [{blocks: 0, mesh: dp2 tp4}]}") == "dp.02 dp.12 tp2 ");
  CHECK(axes("{mesh: tp2 pp2 dp4, layers: [{blocks: 0, mesh: dp4 tp2}]}") == "tp2 pp2 dp.02 dp.12 ");
  CHECK(axes("{mesh: dp8, layers: [{blocks: 0, mesh: tp8}]}") == "dp8 ");
}
