// SPDX-License-Identifier: Apache-2.0
// Experts that lie whole on the ranks of tp too, and rows that are weighted at the experts.
#include <catch2/catch.hpp>
#include <map>

#include "tests/parallel_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr double kTolerance = 1e-9;

TrainOptions options() { return double_steps(16, 4, 12, 3); }

std::string folded(const std::string& mesh) {
  return "{mesh: " + mesh + ", sequence_parallel: true, whole_experts: true}";
}

/// What one device computes, of each model once.
const Trained& alone(const std::string& family) {
  static std::map<std::string, Trained> known;
  const auto it = known.find(family);
  if (it != known.end()) return it->second;
  return known.emplace(family, train(small_model(family), options(), *single())).first->second;
}

/// How many operands of the backward pass are what has come back from the experts.
std::size_t kept_behind_experts(const Plan& plan) {
  std::size_t kept = 0;
  for (const Op& op : plan.ops)
    for (const Operand& o : plan.operands_of(op)) {
      const std::string_view name = plan.name_of(plan.owner(o.tensor()));
      kept += op.phase == Phase::Backward && name.ends_with(".moe.combine");
    }
  return kept;
}

}  // namespace

TEST_CASE("whole experts on the ranks of ep and tp compute what one device computes", "[expert]") {
  const auto* model = GENERATE("mixtral", "deepseek", "qwen");
  const auto* mesh = GENERATE("ep2 tp2", "tp2", "dp2 ep2 tp2", "pp2 ep2 tp2");
  INFO(model << " " << mesh);
  CHECK(worst_difference(train(small_model(model), options(), *parallel(folded(mesh))), alone(model)) < kTolerance);
}

TEST_CASE("whole experts are split, overlapped and computed again like others", "[expert]") {
  const auto* rest = GENERATE("data: {kind: zero1}", "data: {kind: zero3}", "expert_overlap: true",
                              "expert_buffer: 3.9", "tensor_overlap: true");
  const std::string s = "{mesh: dp2 ep2 tp2, sequence_parallel: true, whole_experts: true, " + std::string{rest} + "}";
  TrainOptions o = options();
  o.recompute = GENERATE(Recompute::None, Recompute::Full);
  INFO(s << " " << int(o.recompute));
  CHECK(worst_difference(train(small_model("mixtral"), o, *parallel(s)), alone("mixtral")) < kTolerance);
}

TEST_CASE("rows that are weighted at the experts train the same model", "[expert]") {
  const auto* model = GENERATE("mixtral", "deepseek", "qwen");
  const auto* s = GENERATE("{mesh: dp1}", "{mesh: ep2}", "{mesh: ep2, expert_overlap: true}", "{mesh: ep2 tp2}",
                           "{mesh: pp2 ep2}", "{mesh: ep2 tp2, sequence_parallel: true, whole_experts: true}");
  TrainOptions o = options();
  o.weigh_inside = true;
  INFO(model << " " << s);
  CHECK(worst_difference(train(small_model(model), o, *parallel(s)), alone(model)) < kTolerance);
}

TEST_CASE("weighted rows are dropped and computed again like others", "[expert]") {
  const auto* s = GENERATE("{mesh: dp1}", "{mesh: ep2}");
  TrainOptions o = options();
  const double factor = GENERATE(0.0, 0.8);
  o.capacity_factor = factor;
  o.capacity_groups = factor > 0 ? 4 : 0;
  const Model model = small_model("deepseek");
  const Trained behind = train(model, o, *single());
  o.weigh_inside = true;
  o.recompute = GENERATE(Recompute::None, Recompute::Full, Recompute::Selective);
  if (o.recompute == Recompute::Selective) o.recompute_parts = {RecomputePart::Activations};
  INFO(s << " " << factor << " " << int(o.recompute));
  CHECK(worst_difference(train(model, o, *parallel(s)), behind) < kTolerance);
}

TEST_CASE("nothing that comes back from the experts is kept where rows are weighted there", "[expert]") {
  TrainOptions o = options();
  CHECK(kept_behind_experts(parallel("{mesh: ep2}")->train_step(small_model("mixtral"), o, nullptr)) > 0);
  o.weigh_inside = true;
  CHECK(kept_behind_experts(parallel("{mesh: ep2}")->train_step(small_model("mixtral"), o, nullptr)) == 0);
}

// A rank of tp routes its part of the rows, so that the ranks together send each choice once and not tp times.
TEST_CASE("with whole experts a rank sends the choices of its own rows", "[expert]") {
  const auto sent = [](const char* strategy) {
    TrainOptions o = options();
    o.microbatches = 1;
    const Plan plan = parallel(strategy)->train_step(small_model("mixtral"), o, nullptr);
    Bytes most;
    for (const Op& op : plan.ops) {
      const auto* c = std::get_if<Collective>(&plan.work(op));
      if (c && c->kind == CollectiveKind::AllToAll && op.layer == 1) most = std::max(most, c->bytes);
    }
    return most;
  };
  const double rows = 16 / 2 * 12, top_k = 2, h = 16, element = 8;
  CHECK(sent("{mesh: ep2 tp2, sequence_parallel: true}") == Bytes{rows * top_k * h * element});
  CHECK(sent("{mesh: ep2 tp2, sequence_parallel: true, whole_experts: true}") == Bytes{rows / 2 * top_k * h * element});
}

TEST_CASE("layouts of experts, and moments, that cannot be are refused", "[expert]") {
  const auto error = [](const char* family, const char* strategy, double factor, bool inside) {
    TrainOptions o = options();
    o.capacity_factor = factor;
    o.weigh_inside = inside;
    return user_error([&] { parallel(strategy)->train_step(small_model(family), o, nullptr); });
  };
  const char* two = "{mesh: ep2 tp2, sequence_parallel: true, whole_experts: true}";
  CHECK(
      error("mixtral", "{mesh: ep2, whole_experts: true}", 0, false) ==
      "whole_experts lays experts on the ranks of tp, too, which route the rows that they have\n  hint: leave it out, "
      "or use an axis tp and sequence_parallel: {mesh: dp2 ep2 tp2, sequence_parallel: true}");
  CHECK(error("mixtral", two, 1, false) ==
        "whole_experts and capacity_factor: ranks of tp would each count the rows of an expert\n  hint: leave one of "
        "them out");
  CHECK(error("mixtral", "{mesh: ep4 tp2, sequence_parallel: true, whole_experts: true}", 0, false) ==
        "ep and tp together 8 does not divide 4 experts\n  hint: ep and tp together can be 1, 2, 4");
  const auto infer = [](const char* strategy) {
    return user_error(
        [&] { parallel(strategy)->inference(small_model("mixtral"), {.batch = 4, .sequence = 8}, nullptr); });
  };
  CHECK(infer("{mesh: ep2 tp2, whole_experts: true}") == "whole_experts is for training\n  hint: leave it out");
  CHECK(infer("{mesh: ep2 tp2, tp_comm_overlap: true}") == "tp_comm_overlap is for training\n  hint: leave it out");
  TrainOptions narrow = options();
  narrow.optimizer.narrow_moments = true;
  CHECK(
      user_error([&] { single()->train_step(small_model("llama"), narrow, nullptr); }) ==
      "narrow_moments keeps AdamW's moments as weights in bf16 are\n  hint: leave it out, or train in bf16 with adamw");
  CHECK(error("llama", "{mesh: dp2}", 0, true) ==
        "weigh_inside is for models of experts, and llama has none\n  hint: leave it out");
  CHECK(error("llama4", "{mesh: dp2}", 0, true) ==
        "experts of llama4 weigh what they read\n  hint: leave weigh_inside out");
}
