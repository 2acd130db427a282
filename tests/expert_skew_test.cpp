// SPDX-License-Identifier: Apache-2.0
// Experts that are chosen unequally often: what each rank is then expected to compute and to exchange. What they
// compute stays the same.
#include <catch2/catch.hpp>
#include <numeric>

#include "sim/base/option_error.hpp"
#include "sim/strategy/expert_layout.hpp"
#include "tests/parallel_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

TrainOptions options() { return double_steps(16, 4, 12, 3); }

const MoE& experts_of(const Model& model) {
  return std::get<MoE>(std::get<Transformer>(model.network).decoder.back().ffn);
}

std::vector<double> shares_of(const char* family, const RoutingOptions& routing, int block = 0) {
  const Model model = small_model(family);
  return expert_shares(routing, experts_of(model), block);
}

/// Products forward of the first layer of experts, by class.
std::vector<GroupedGemm> products(const Plan& plan, const RankClass& c) {
  std::vector<GroupedGemm> out;
  for (const Op& op : plan.ops_of(c))
    if (const auto* g = std::get_if<GroupedGemm>(&plan.work(op)); g && op.phase == Phase::Forward && op.layer == 1)
      out.push_back(*g);
  return out;
}

/// The most that a rank gets from others or sends to them, counted pair by pair.
double most_moved(const std::vector<double>& loads, double rows) {
  const std::size_t n = loads.size();
  std::vector<double> in(n, 0), out(n, 0);
  for (std::size_t from = 0; from < n; ++from)
    for (std::size_t to = 0; to < n; ++to)
      if (from != to) in[to] += rows * loads[to], out[from] += rows * loads[to];
  return std::max(*std::max_element(in.begin(), in.end()), *std::max_element(out.begin(), out.end()));
}

}  // namespace

TEST_CASE("shares fall with the heat of experts as Zipf says, and add up to all choices", "[expert]") {
  const std::vector<double> even = shares_of("deepseek", {}), hot = shares_of("deepseek", {.skew = 0.8});
  REQUIRE(hot.size() == 8);
  CHECK(even == std::vector<double>(8, 0.125));
  CHECK(std::accumulate(hot.begin(), hot.end(), 0.0) == Approx(1));
  for (std::size_t k = 1; k < 8; ++k) CHECK(hot[k - 1] / hot[k] == Approx(std::pow(double(k + 1) / double(k), 0.8)));
  std::vector<double> drawn = shares_of("deepseek", {.skew = 0.8, .seed = 5}),
                      next = shares_of("deepseek", {.skew = 0.8, .seed = 5}, 1);
  CHECK(drawn != hot);
  CHECK(drawn != next);
  std::sort(drawn.begin(), drawn.end(), std::greater<>{});
  CHECK(drawn == hot);
}

// With 3 experts of 8 for each token no expert has more than a third of the choices: 1, 1/32, 1/243 … would give the
// first one 96 %.
TEST_CASE("no expert is chosen twice by a token", "[expert]") {
  const std::vector<double> hot = shares_of("deepseek", {.skew = 5});
  CHECK(hot[0] == Approx(1.0 / 3));
  CHECK(hot[1] == Approx(1.0 / 3));
  CHECK(*std::max_element(hot.begin(), hot.end()) <= 1.0 / 3 + 1e-12);
  CHECK(std::accumulate(hot.begin(), hot.end(), 0.0) == Approx(1));
  CHECK(hot[3] / hot[4] == Approx(std::pow(5.0 / 4, 5)));
}

// 16 samples of 12 tokens on 2 ranks, 2 experts of 4 for each token: 192 choices on a rank, 384 in all.
TEST_CASE("products of experts have the rows that come to their rank", "[expert]") {
  TrainOptions o = options();
  o.microbatches = 1;
  o.routing.shares = {3, 2, 2, 1};
  const Plan plan = parallel("{mesh: ep2}")->train_step(small_model("mixtral"), o, nullptr);
  REQUIRE(plan.classes.size() == 2);
  CHECK(plan.classes[1].name == "experts 1");
  for (const GroupedGemm& g : products(plan, plan.classes[0])) {
    CHECK(g.rows == 384 * 5 / 8);
    CHECK(g.skew == Approx(3 / 2.5));
  }
  for (const GroupedGemm& g : products(plan, plan.classes[1])) {
    CHECK(g.rows == 384 * 3 / 8);
    CHECK(g.skew == Approx(2 / 1.5));
  }
  const Plan one = single()->train_step(small_model("mixtral"), o, nullptr);
  for (const GroupedGemm& g : products(one, one.classes[0])) {
    CHECK(g.rows == 384);
    CHECK(g.skew == Approx(3.0 / 2));
  }
}

// Of an even exchange of b bytes (n − 1)/n·b leave a rank.
TEST_CASE("an exchange has the bytes of its busiest rank", "[expert]") {
  TrainOptions o = options();
  o.microbatches = 1;
  o.routing.shares = GENERATE(std::vector<double>{3, 2, 2, 1}, std::vector<double>{4, 4, 1, 0},
                              std::vector<double>{3, 3, 3, 0}, std::vector<double>{1, 1, 1, 1});
  const double sum = std::accumulate(o.routing.shares.begin(), o.routing.shares.end(), 0.0), n = 4, h = 16;
  std::vector<double> loads;
  for (const double s : o.routing.shares) loads.push_back(s / sum);
  const Plan plan = parallel("{mesh: ep4}")->train_step(small_model("mixtral"), o, nullptr);
  const double expected = most_moved(loads, 16.0 / 4 * 12 * 2) * n / (n - 1);
  int exchanges = 0;
  for (const Op& op : plan.ops) {
    const auto* c = std::get_if<Collective>(&plan.work(op));
    if (c == nullptr || c->kind != CollectiveKind::AllToAll || c->row == 0) continue;
    CHECK(std::abs(c->bytes.base() / (h * 8) - expected) <= 0.5);
    ++exchanges;
  }
  CHECK(exchanges > 0);
}

TEST_CASE("buffers with a factor hold so many times the rows that are expected", "[expert]") {
  TrainOptions o = options();
  o.microbatches = 1;
  o.routing.shares = {3, 2, 2, 1};
  const Plan plan = parallel("{mesh: ep2, expert_buffer: 1.5}")->train_step(small_model("mixtral"), o, nullptr);
  CHECK(products(plan, plan.classes[0]).front().max_rows == 360);
  CHECK(products(plan, plan.classes[1]).front().max_rows == 216);
}

TEST_CASE("predicted shares change nothing that is computed", "[expert]") {
  const auto* s = GENERATE("{mesh: ep2}", "{mesh: dp2 ep2}", "{mesh: pp2 ep2}", "{mesh: ep2 tp2}",
                           "{mesh: ep2 tp2, sequence_parallel: true, whole_experts: true}",
                           "{mesh: ep2, expert_overlap: true}", "{mesh: dp2 ep2, data: {kind: zero3}}");
  TrainOptions o = options();
  const Model model = small_model("deepseek");
  const Trained one = train(model, o, *single());
  o.routing = {.skew = 0.7, .seed = 3, .shares = {}};
  INFO(s);
  CHECK(worst_difference(train(model, o, *parallel(s)), one) < 1e-9);
}

TEST_CASE("shares that cannot be those of a model are refused", "[expert]") {
  const auto error = [](const char* family, const RoutingOptions& routing, double capacity = 0) {
    TrainOptions o = options();
    o.routing = routing;
    o.capacity_factor = capacity;
    return user_error([&] { parallel("{mesh: dp2}")->train_step(small_model(family), o, nullptr); });
  };
  CHECK(error("gpt2", {.skew = 1}) == "routing is for models of experts, and gpt2 has none\n  hint: leave it out");
  CHECK(error("mixtral", {.seed = 1}) == "routing has a seed and no skew\n  hint: set skew, or leave the seed out");
  CHECK(error("mixtral", {.skew = 1, .shares = {1, 1, 1, 1}}) ==
        "routing has a skew and shares\n  hint: leave one of them out");
  CHECK(error("mixtral", {.shares = {1, 1}}) ==
        "2 shares are for 4 experts\n  hint: give one for each expert of a layer");
  CHECK(error("mixtral", {.shares = {0, 0, 0, 0}}) == "shares of experts add up to 0\n  hint: some expert is chosen");
  CHECK(error("mixtral", {.shares = {3, 1, 1, 0}}) ==
        "an expert has 0.6 of all choices, and a token makes 2 different ones\n  hint: a share can be at most 1/2 of "
        "their sum");
  CHECK(error("mixtral", {.skew = 1}, 1.5) ==
        "with capacity_factor experts compute equally many rows, whichever are chosen\n  hint: leave one of them out");
}
