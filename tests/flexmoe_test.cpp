// SPDX-License-Identifier: Apache-2.0
// Replicas of hot experts on several ranks compute what one device computes, and stay equal.
#include <catch2/catch.hpp>
#include <map>

#include "sim/plan/placement.hpp"
#include "sim/strategy/expert_placement.hpp"
#include "tests/parallel_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr double kTolerance = 1e-9;

/// Shares that give some expert three replicas and another two.
TrainOptions options(const std::string& family) {
  TrainOptions o = double_steps(16, 4, 12, 3);
  o.routing.shares =
      family == "mixtral" ? std::vector<double>{2, 9, 6, 3} : std::vector<double>{1, 2, 9, 1, 6, 2, 1, 5};
  return o;
}

/// What one device computes, of each model once.
const Trained& alone(const std::string& family) {
  static std::map<std::string, Trained> known;
  const auto it = known.find(family);
  if (it != known.end()) return it->second;
  return known.emplace(family, train(small_model(family), options(family), *single())).first->second;
}

/// The largest difference of what any rank has of a parameter from what one device has; counts what it compares.
double worst_replica(const Executor& executor, const Plan& plan, const Trained& one, std::map<std::size_t, int>& held) {
  double worst = 0;
  for (const ParameterPlacement& p : plan.placements)
    for (std::size_t r = 0; r < static_cast<std::size_t>(plan.mesh.size()); ++r) {
      const std::vector<std::int64_t> at = plan.mesh.coordinates(RankId{r});
      if (!plan.classes[p.rank_class.index()].contains(at)) continue;
      const std::vector<double>& wanted = one.weights[p.parameter.index()];
      const std::vector<double> tensor = executor.fetch(plan, p.weight.tensor, RankId{r});
      for (const ElementRun& run : runs_of(plan, p.weight, at))
        for (std::int64_t i = 0; i < run.count; ++i)
          worst = std::max(worst, std::abs(tensor[static_cast<std::size_t>(run.local + i)] -
                                           wanted[static_cast<std::size_t>(run.global + i)]));
      ++held[p.parameter.index()];
    }
  return worst;
}

/// How many ranks have each expert of the first layer of experts, and experts each rank has.
struct Spread {
  std::vector<std::size_t> holders;
  std::vector<std::size_t> held;
};
Spread spread(const std::vector<double>& shares, std::int64_t ranks, std::int64_t slots) {
  double sum = 0;
  for (const double s : shares) sum += s;
  std::vector<double> parts;
  for (const double s : shares) parts.push_back(s / sum);
  const ExpertLayout layout{parts, place_experts(parts, ranks, slots)};
  Spread out;
  for (std::int64_t e = 0; e < layout.experts(); ++e) out.holders.push_back(layout.holders(e).size());
  for (std::int64_t r = 0; r < ranks; ++r) out.held.push_back(layout.held(r).size());
  return out;
}

}  // namespace

// Of 4 ranks with 2 slots (mixtral) and 3 (deepseek) each.
TEST_CASE("the placements that are executed have experts on one, two and three ranks, and ranks with unequally many",
          "[flexmoe]") {
  const Spread four = spread(options("mixtral").routing.shares, 4, 2);
  const Spread eight = spread(options("deepseek").routing.shares, 4, 3);
  for (const Spread& s : {four, eight})
    for (const std::size_t n : {1, 2}) CHECK(std::count(s.holders.begin(), s.holders.end(), n) > 0);
  CHECK(std::count(four.holders.begin(), four.holders.end(), 3u) +
            std::count(eight.holders.begin(), eight.holders.end(), 3u) >
        0);
  CHECK(*std::max_element(four.held.begin(), four.held.end()) > *std::min_element(four.held.begin(), four.held.end()));
}

TEST_CASE("replicas of experts compute what one device computes", "[flexmoe]") {
  const auto* model = GENERATE("mixtral", "deepseek", "qwen");
  const auto* s = GENERATE("mesh: ep2, expert_slots: 5", "mesh: ep4, expert_slots: 2", "mesh: ep4, expert_slots: 3",
                           "mesh: dp2 ep2, expert_slots: 4", "mesh: ep2 dp2, expert_slots: 4, expert_buffer: 1.9");
  if (std::string{model} != "mixtral" && std::string{s} == "mesh: ep4, expert_slots: 2") return;  // 8 slots, 8 experts
  INFO(model << " " << s);
  CHECK(worst_difference(train(small_model(model), options(model), *parallel("{" + std::string{s} + "}")),
                         alone(model)) < kTolerance);
}

TEST_CASE("replicas of experts stand beside other ways to split a step", "[flexmoe]") {
  const auto* s = GENERATE("mesh: pp2 ep2", "mesh: ep2 tp2", "mesh: ep2 tp2, sequence_parallel: true",
                           "mesh: dp2 ep2, data: {kind: zero1}", "mesh: dp2 ep2, data: {kind: zero2}",
                           "mesh: dp2 ep2, data: {kind: zero3}", "mesh: ep2, expert_overlap: true",
                           "mesh: ep2, data: {overlap: false}", "mesh: ep2, data: {bucket: 100}");
  INFO(s);
  const std::string text = "{expert_slots: 3, " + std::string{s} + "}";
  CHECK(worst_difference(train(small_model("mixtral"), options("mixtral"), *parallel(text)), alone("mixtral")) <
        kTolerance);
}

TEST_CASE("replicas of experts are computed again, and weigh their rows", "[flexmoe]") {
  TrainOptions o = options("deepseek");
  const auto* kind = GENERATE("full", "inside", "waits");
  if (std::string{kind} == "full") o.recompute = Recompute::Full;
  o.weigh_inside = std::string{kind} == "inside";
  o.waits_for_experts = std::string{kind} == "waits";
  INFO(kind);
  CHECK(worst_difference(train(small_model("deepseek"), o, *parallel("{mesh: ep4, expert_slots: 3}")),
                         alone("deepseek")) < kTolerance);
}

TEST_CASE("all replicas of an expert have its weights after each step", "[flexmoe]") {
  const TrainOptions o = options("mixtral");
  const Model model = small_model("mixtral");
  const auto executor = make_host_executor();
  std::map<std::size_t, int> held;
  double worst = 1;
  train_steps(model, o, parallel("{mesh: ep4, expert_slots: 2}")->train_step(model, o, &host_workspaces()), *executor,
              [&](const Plan& plan, Trained&) { worst = worst_replica(*executor, plan, alone("mixtral"), held); });
  CHECK(worst < kTolerance);
  const std::vector<std::size_t> holders = spread(o.routing.shares, 4, 2).holders;
  const auto& experts = std::get<MoE>(std::get<Transformer>(model.network).decoder.front().ffn).experts;
  for (std::size_t e = 0; e < holders.size(); ++e)
    CHECK(held[experts[e].up.weight.index()] == static_cast<int>(holders[e]));
}

// Each of r ranks with an expert sums its gradient, three matrices of h·f numbers, in each layer.
TEST_CASE("gradients of an expert are summed over the ranks that have it, and no others", "[flexmoe]") {
  const TrainOptions o = options("mixtral");
  const Model model = small_model("mixtral");
  const Plan plan = parallel("{mesh: ep4, expert_slots: 2}")->train_step(model, o, nullptr);
  std::map<std::size_t, int> sums;  // ranks of the group → ops over all classes
  for (const Op& op : plan.ops) {
    const auto* c = std::get_if<Collective>(&plan.work(op));
    if (c == nullptr || c->kind != CollectiveKind::AllReduce || c->bytes != Bytes{16 * 24 * 8.0}) continue;
    const Group& group = plan.groups[c->group.index()];
    if (!group.only.empty()) ++sums[group.only.front().size()];
  }
  std::map<std::size_t, int> expected;
  const int layers = 4, matrices = 3;
  for (const std::size_t n : spread(o.routing.shares, 4, 2).holders)
    if (n > 1) expected[n] += static_cast<int>(n) * layers * matrices;
  CHECK(sums == expected);
}

TEST_CASE("slots that hold no experts, or cannot be, are refused", "[flexmoe]") {
  const auto error = [](const char* strategy, double capacity = 0) {
    TrainOptions o = options("mixtral");
    o.capacity_factor = capacity;
    if (capacity > 0) o.routing = {};
    return user_error([&] { parallel(strategy)->train_step(small_model("mixtral"), o, nullptr); });
  };
  CHECK(error("{mesh: ep3, expert_slots: 1}") ==
        "3 ranks of 1 expert_slots have no room for 4 experts\n  hint: expert_slots can be 2 or more");
  CHECK(error("{mesh: dp2, expert_slots: 2}") ==
        "expert_slots are for replicas of experts on an axis ep\n  hint: leave it out, or use one");
  CHECK(error("{mesh: ep2, expert_slots: 2}", 1) ==
        "replicas of experts take all rows, and capacity_factor drops some\n  hint: leave one of them out");
  CHECK(error("{mesh: ep2 tp2, expert_slots: 2, sequence_parallel: true, whole_experts: true}") ==
        "replicas of experts lie on the ranks of ep alone, in all layers\n  hint: leave one of them out");
  CHECK(user_error([] {
          parallel("{mesh: ep2, expert_slots: 2}")
              ->inference(small_model("mixtral"), {.batch = 4, .sequence = 8}, nullptr);
        }) == "expert_slots is for training\n  hint: leave it out");
}
