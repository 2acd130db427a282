// SPDX-License-Identifier: Apache-2.0
// Rows that cross the ranks of tp in pieces: what they send, what they hide, what a host spends on them, and what is
// refused. What they compute: parallel_grid_test.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "tests/parallel_testing.hpp"
#include "tests/unit_cost.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr std::int64_t kBlocks = 2, kRows = 64, kHidden = 32;

/// A pass over 4 sequences of 16 tokens.
TrainOptions options() {
  TrainOptions o = double_steps(4, 1, 16, 1);
  o.dropout = 0;
  return o;
}

Plan lower(const std::string& strategy) {
  return parallel(strategy)->train_step(gpt2_of({.hidden = kHidden, .layers = kBlocks, .heads = 4}), options(),
                                        nullptr);
}
Plan whole(std::int64_t t) {
  return lower(fmt::format("{{mesh: tp{}, sequence_parallel: true, tensor_overlap: true}}", t));
}
Plan in_pieces(std::int64_t t) {
  return lower(fmt::format("{{mesh: tp{}, sequence_parallel: true, tp_comm_overlap: true}}", t));
}

double sent(const Collective& c, double ranks) {
  const bool is_cut = c.kind == CollectiveKind::AllGather || c.kind == CollectiveKind::ReduceScatter;
  return c.bytes.base() * (is_cut ? (ranks - 1) / ranks : 1.0);
}

/// A picosecond for each multiplication, and for each byte that a rank sends; nothing for what else there is.
class ByWork final : public UnitCost {
 public:
  OpCost cost(const Work& work, const Bindings&, RankId) const override {
    const auto* g = std::get_if<Gemm>(&work);
    return {.duration = Seconds{g ? double(g->m * g->n * g->k) * 1e-12 : 0.0}};
  }
  OpCost collective(const Collective& c, std::span<const RankId> ranks) const override {
    return {.duration = Seconds{sent(c, double(ranks.size())) * 1e-12}};
  }
};

double picoseconds(const Plan& plan) { return double(simulate(plan, {}, ByWork{}, NoSharing{}).makespan_ps); }

}  // namespace

TEST_CASE("rows in pieces are as many bytes as whole ones", "[parallel]") {
  const std::int64_t t = GENERATE(2, 4);
  const auto bytes = [&](const Plan& plan) {
    double sum = 0;
    for (const Op& op : plan.ops)
      if (const auto* c = std::get_if<Collective>(&plan.work(op))) sum += sent(*c, double(t));
    return sum;
  };
  CHECK(bytes(in_pieces(t)) == bytes(whole(t)));
}

/// Rows of 8 B a number that all ranks gather or scatter take g = (t-1)/t·64·32·8 ps. A block gathers two inputs and
/// scatters two results forward, and gathers two gradients backward, which nothing hides: 6 g. In pieces only the last
/// quarter of each result is scattered behind all products: g/2. A message takes 16384/t ps; the shortest product
/// beside one, of a piece of the gradient behind attention, m/t·h·h/t = 65536/t².
TEST_CASE("in pieces only the last quarter of a sum waits for the ranks of tp", "[parallel]") {
  const std::int64_t t = GENERATE(2, 4);
  const double g = double(t - 1) / double(t) * double(kRows * kHidden) * 8;
  CHECK(picoseconds(whole(t)) - picoseconds(in_pieces(t)) == kBlocks * 5.5 * g);
}

/// A product in pieces is one call of the program, and so is what travels beside it.
TEST_CASE("the first piece of a product starts the others", "[parallel]") {
  const Plan plan = in_pieces(4);
  std::map<std::string, int> calls, joined;
  for (const Op& op : plan.ops) ++(op.joins ? joined : calls)[std::string{plan.name_of(op)}];
  CHECK(calls["layers.0.mlp.up"] == 1);
  CHECK(joined["layers.0.mlp.up"] == 3);
  CHECK(joined["layers.0.mlp.enter"] == 3);
  CHECK(calls["layers.0.mlp.down"] == 1);
  CHECK(joined["layers.0.mlp.down.leave"] == 4);
  CHECK(joined["layers.0.mlp.down.dx"] == 3);
  CHECK(calls["layers.0.mlp.down.dw"] == 1);
  CHECK(joined["layers.0.mlp.down.dw"] == 0);
}

TEST_CASE("pieces lie in storage of their own tensor", "[parallel]") {
  Plan plan = in_pieces(2);
  REQUIRE_FALSE(plan.rank_views.empty());
  CHECK(check_plan(plan).empty());
  const auto other = std::find_if(plan.rank_views.begin(), plan.rank_views.end(), [&](const RankView& v) {
    return plan.owner(v.view) != plan.owner(plan.rank_views.front().view) && !v.places.empty();
  });
  REQUIRE(other != plan.rank_views.end());
  const std::string_view name = plan.name_of(other->places[1].tensor);
  const std::string view{plan.name_of(plan.rank_views.front().view)};
  plan.rank_views.front().places[1].tensor = other->places[1].tensor;
  CHECK(check_plan(plan).front() ==
        fmt::format("view '{}' lies in '{}', which has no lasting storage of its type", view, name));
}

TEST_CASE("pieces that there are none of are refused", "[parallel][error]") {
  const auto refusal = [](const char* strategy) { return user_error([&] { lower(strategy); }); };
  const std::string none =
      "tp_comm_overlap multiplies rows on their way over tp, which no layer splits them over\n"
      "  hint: leave it out, or use sequence_parallel: {mesh: tp2, sequence_parallel: true, tp_comm_overlap: true}";
  CHECK(refusal("{mesh: tp2, tp_comm_overlap: true}") == none);
  CHECK(refusal("{mesh: dp2, sequence_parallel: true, tp_comm_overlap: true}") == none);
  CHECK(refusal("{mesh: tp2, sequence_parallel: true, tp_comm_overlap: true, keep_gathered: true}") ==
        "keep_gathered keeps rows that tp_comm_overlap does not gather\n  hint: leave one of them out");
}
