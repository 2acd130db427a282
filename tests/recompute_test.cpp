// SPDX-License-Identifier: Apache-2.0
// Recomputation of whole chains of blocks: the same weights as without, less memory for more work.
#include <catch2/catch.hpp>
#include <initializer_list>
#include <set>
#include <string>

#include "sim/strategy/block_profile.hpp"
#include "tests/parallel_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr double kTolerance = 1e-9;

TrainOptions options() { return double_steps(8, 2, 16, 2); }

TrainOptions rotor_of(std::int64_t budget) {
  TrainOptions o = options();
  o.recompute = Recompute::Rotor;
  o.activation_budget = Bytes{double(budget)};
  return o;
}

TrainOptions every(std::int64_t interval) {
  TrainOptions o = options();
  o.recompute = Recompute::Full;
  o.recompute_interval = interval;
  return o;
}

Flops flops_of(const Plan& plan, Phase phase) {
  Flops sum;
  for (const Op& op : plan.ops)
    if (op.phase == phase) sum += amount(plan.work(op)).flops;
  return sum;
}

}  // namespace

TEST_CASE("chains that are computed again train to the same weights", "[recompute]") {
  const auto* name = GENERATE("gpt2", "llama");
  const Model model = small_model(name);
  const Trained plain = train(model, options(), *single());
  const Chain chain = profile_chain(single()->train_step(model, options(), nullptr), 0, 8);
  const std::int64_t least = least_budget(chain);
  for (const double share : {1.0, 1.5, 3.0}) {
    INFO(name << " " << share);
    CHECK(worst_difference(train(model, rotor_of(std::int64_t(double(least) * share)), *single()), plain) < kTolerance);
  }
  for (const std::int64_t k : {2, 3, 8}) {
    INFO(name << " every " << k);
    CHECK(worst_difference(train(model, every(k), *single()), plain) < kTolerance);
  }
}

TEST_CASE("schedules of chains go with every way to split a step", "[recompute]") {
  const auto* strategy =
      GENERATE("{mesh: dp2, data: {kind: zero3, bucket: 0}}", "{mesh: tp2, sequence_parallel: true}",
               "{mesh: pp2 dp2, data: {kind: zero2}}", "{mesh: pp2, schedule: zb-h1}",
               "{mesh: pp2, schedule: dualpipe}", "{mesh: cp2, context: ulysses}", "{mesh: row2 col2}");
  INFO(strategy);
  const Model model = small_model("gpt2");
  const auto in_four = [](TrainOptions o) {
    o.microbatches = 4;
    return o;
  };
  const Trained plain = train(model, in_four(options()), *single());
  CHECK(worst_difference(train(model, in_four(every(2)), *parallel(strategy)), plain) < kTolerance);
  const bool has_stages = std::string{strategy}.find("pp2") != std::string::npos;
  const Plan one = parallel(strategy)->train_step(model, in_four(options()), nullptr);
  const std::int64_t least = least_budget(profile_chain(one, 0, has_stages ? 4 : 8));
  CHECK(worst_difference(train(model, in_four(rotor_of(2 * least)), *parallel(strategy)), plain) < kTolerance);
}

namespace {

TrainOptions selective(std::initializer_list<RecomputePart> parts) {
  TrainOptions o = options();
  o.recompute = Recompute::Selective;
  o.recompute_parts = parts;
  o.microbatches = 4;
  return o;
}

/// What the backward pass makes again, without what names have in front: "attention_norm", "mlp.act".
std::set<std::string> made_again(const Plan& plan) {
  std::set<std::string> names;
  for (const Op& op : plan.ops) {
    if (op.phase != Phase::Recompute || op.layer < 0) continue;
    const std::string name{plan.name_of(op)};
    const std::size_t at = name.find('.', name.find('.') + 1) + 1;
    names.insert(name.substr(at, name.rfind(".again") - at));
  }
  return names;
}

struct PartCase {
  const char* model;
  RecomputePart part;
  std::set<std::string> again;
};
using Part = RecomputePart;

}  // namespace

TEST_CASE("parts of blocks that are computed again are those that were asked for", "[recompute]") {
  const PartCase c = GENERATE(
      PartCase{"gpt2", Part::Core, {"attention.core"}}, PartCase{"gpt2", Part::Norms, {"attention_norm", "ffn_norm"}},
      PartCase{"gpt2", Part::Activations, {"mlp.act"}}, PartCase{"gpt2", Part::FeedForward, {"mlp.act", "mlp.up"}},
      PartCase{"llama", Part::Activations, {"mlp.act"}},
      PartCase{"llama", Part::FeedForward, {"mlp.act", "mlp.gate", "mlp.up"}},
      PartCase{"llama",
               Part::AllButEverySecondProduct,  // q, v, gate and down stay, and attention
               {"attention.k", "attention.out", "attention.rope_k", "attention_dropout", "attention_norm",
                "attention_residual", "ffn_norm", "mlp.act", "mlp.up"}},
      PartCase{"deepseek",
               Part::Latents,
               {"attention.k_nope", "attention.k_rope", "attention.kv_up", "attention.q", "attention.rope_q"}});
  CAPTURE(c.model, static_cast<int>(c.part));
  const Model model = small_model(c.model);
  const Plan plan = single()->train_step(model, selective({c.part}), nullptr);
  CHECK(made_again(plan) == c.again);
  TrainOptions none = selective({Part::Core});
  none.recompute = Recompute::None;
  CHECK(activation_peak(plan) < activation_peak(single()->train_step(model, none, nullptr)));
}

TEST_CASE("parts of blocks that are computed again give the same weights, however a step is split", "[recompute]") {
  struct Split {
    const char *model, *strategy;
  };
  const Split c = GENERATE(
      Split{"gpt2", "{mesh: tp2, sequence_parallel: true}"}, Split{"gpt2", "{mesh: pp2, schedule: zb-h1}"},
      Split{"llama", "{mesh: dp2, data: {kind: zero3, bucket: 0}}"}, Split{"llama", "{mesh: cp2, context: ulysses}"},
      Split{"gpt2", "{mesh: row2 col2}"}, Split{"mixtral", "{mesh: ep2}"}, Split{"deepseek", "{mesh: ep2 tp2}"},
      Split{"mixtral", "{mesh: ep2, expert_overlap: true}"});
  CAPTURE(c.model, c.strategy);
  const Model model = small_model(c.model);
  TrainOptions none = selective({Part::Core});
  none.recompute = Recompute::None;
  const Trained plain = train(model, none, *single());
  for (const TrainOptions& o :
       {selective({Part::Norms, Part::Activations, Part::Latents, Part::Core}),
        selective({Part::FeedForward, Part::Experts}), selective({Part::AllButEverySecondProduct})})
    CHECK(worst_difference(train(model, o, *parallel(c.strategy)), plain) < kTolerance);
}

TEST_CASE("less memory for more work, and the budget holds", "[recompute]") {
  const Model model = small_model("gpt2");
  const Plan plain = single()->train_step(model, options(), nullptr);
  const Chain chain = profile_chain(plain, 0, 8);
  REQUIRE(chain.blocks.size() == 8);
  const std::int64_t least = least_budget(chain),
                     beside = activation_peak(plain) - cost_of(chain, *rotor(chain, 1 << 30)).peak;
  double work = 1e300;
  for (const double share : {1.0, 1.3, 2.0, 4.0, 8.0}) {
    const auto budget = static_cast<std::int64_t>(double(least) * share);
    const Plan plan = single()->train_step(model, rotor_of(budget), nullptr);
    const double again = flops_of(plan, Phase::Recompute).base();
    CAPTURE(share, budget, beside);
    CHECK(activation_peak(plan) <= budget + std::max<std::int64_t>(beside, 0) + chain.output);
    CHECK(again <= work);
    CHECK(again <= cost_of(chain, *rotor(chain, budget)).work * 2);  // two microbatches
    work = again;
  }
  CHECK(flops_of(single()->train_step(model, every(1), nullptr), Phase::Recompute).base() > 0);
}

TEST_CASE("what schedules of chains cannot do is said", "[recompute][error]") {
  const Model model = small_model("gpt2");
  TrainOptions o = options();
  o.recompute = Recompute::Rotor;
  CHECK_THROWS_WITH(single()->train_step(model, o, nullptr),
                    "recompute: rotor has no budget\n  hint: set activation_budget, such as 2 GiB");
  CHECK_THROWS_WITH(
      single()->train_step(model, rotor_of(1000), nullptr),
      Catch::StartsWith("blocks 0 to 7 do not fit into an activation_budget of 1000 B\n  hint: they need at least"));
  o = options();
  o.recompute_interval = 2;
  CHECK_THROWS_WITH(single()->train_step(model, o, nullptr),
                    "recompute_interval is for `recompute: full`\n  hint: leave it out");
  CHECK_THROWS_WITH(
      single()->train_step(model, selective({}), nullptr),
      "`recompute: selective` with no recompute_parts makes nothing again\n  hint: name one, such as core, "
      "norms or activations");
  o = selective({Part::Norms});
  o.recompute = Recompute::Full;
  CHECK_THROWS_WITH(single()->train_step(model, o, nullptr),
                    "recompute_parts are for `recompute: selective`\n  hint: leave them out");
  o = options();
  o.activation_budget = 1.0_MiB;
  CHECK_THROWS_WITH(single()->train_step(model, o, nullptr),
                    "activation_budget is for `recompute: rotor` and `recompute: checkmate`\n  hint: leave it out");
  CHECK_THROWS_WITH(
      parallel("{mesh: dp1, layers: [{blocks: 0-3, recompute: rotor}]}")->train_step(model, options(), nullptr),
      "recompute of single blocks cannot be combined with schedules of whole chains\n  hint: leave out `recompute` of "
      "layers, or rotor and recompute_interval of the workload");
}

namespace {

/// Tensors of a plan as large as the logits and in f32.
int wide_logits(const Plan& plan) {
  const auto is_logits = [&](const Tensor& t) { return plan.names[t.name] == "logits"; };
  const auto logits = std::find_if(plan.tensors.begin(), plan.tensors.end(), is_logits);
  const auto shape_of = [&](const Tensor& t) { return plan.layouts[t.layout.index()].shape; };
  return static_cast<int>(std::count_if(plan.tensors.begin(), plan.tensors.end(), [&](const Tensor& t) {
    return t.dtype == DType::F32 && shape_of(t) == shape_of(*logits);
  }));
}

TrainOptions with_loss(LossKind loss) {
  TrainOptions o = options();
  o.microbatches = 1;
  o.dtype = Precision::BF16;
  o.loss = loss;
  return o;
}

}  // namespace

TEST_CASE("a loss copies the logits in f32 as often as its program does", "[loss]") {
  const Model model = small_model("llama");
  const auto plan_with = [&](LossKind loss) { return single()->train_step(model, with_loss(loss), nullptr); };
  CHECK(wide_logits(plan_with(LossKind::Fused)) == 0);
  CHECK(wide_logits(plan_with(LossKind::Widened)) == 1);  // the gradient takes its place
  CHECK(wide_logits(plan_with(LossKind::Megatron)) == 1);
  CHECK(wide_logits(plan_with(LossKind::MegatronCopied)) == 2);
  CHECK(wide_logits(plan_with(LossKind::Torch)) == 4);  // of them the first makes way for the gradients
  CHECK(wide_logits(parallel("{mesh: tp2}")->train_step(model, with_loss(LossKind::Torch), nullptr)) == 1);
  TrainOptions wide = with_loss(LossKind::Widened);
  wide.dtype = Precision::F32;
  CHECK_THROWS_WITH(
      single()->train_step(model, wide, nullptr),
      "losses widened and torch copy logits of 16 bits to f32\n  hint: leave it out, or train in bf16 or f16");
}
