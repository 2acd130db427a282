// SPDX-License-Identifier: Apache-2.0
// What checkmate makes again of a step: the same weights under every way to split it and to keep its memory, no more
// bytes than the budget, and the work that the schedule says.
#include <catch2/catch.hpp>

#include "sim/search/checkmate.hpp"
#include "sim/strategy/remat_plan.hpp"
#include "tests/offload_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr int kMostBlocks = 6;

TrainOptions options(std::int64_t microbatches) {
  TrainOptions o = offload_options();
  o.batch = 8;
  o.microbatches = microbatches;
  o.steps = 2;
  o.dropout = 0.1;
  return o;
}

/// The most that a pass takes when nothing is made again.
std::int64_t peak_without(const Plan& plan) {
  std::int64_t most = 0;
  for (std::size_t c = 0; c < plan.classes.size(); ++c)
    for (const RematPass& pass : remat_passes(plan, ClassId{c}, kMostBlocks)) {
      const RematGraph& g = pass.graph;
      const auto n = static_cast<std::size_t>(g.size());
      RematSchedule s;
      for (std::size_t t = 0; t < n; ++t) {
        s.made.emplace_back(n, false);
        s.kept.emplace_back(n, false);
        s.made[t][t] = true;
      }
      for (const auto& [from, to] : g.edges)
        for (auto t = std::size_t(from) + 1; t <= std::size_t(to); ++t) s.kept[t][std::size_t(from)] = true;
      most = std::max(most, s.peak(g));
    }
  return most;
}

double flops_made_again(const Plan& plan) {
  double sum = 0;
  for (const Op& op : plan.ops)
    if (op.phase == Phase::Recompute) sum += amount(plan.work(op)).flops.base();
  return sum;
}

struct Case {
  const char *model, *strategy, *options;
  std::int64_t microbatches = 1;
  double part = 0.7;  // of what the passes take
};

constexpr Case kCases[] = {
    {"gpt2", "parallel", "{}"},
    {"llama", "parallel", "{}", 2},
    {"mixtral", "parallel", "{}"},
    {"t5-tiny", "parallel", "{}"},
    {"gpt2", "parallel", "{mesh: dp2 tp2, sequence_parallel: true, keep_gathered: true}", 2},
    {"gpt2", "parallel", "{mesh: pp2}", 4},
    {"llama", "parallel", "{mesh: pp2, schedule: zb-h1}", 4, 0.9},
    {"llama", "parallel", "{mesh: fsdp2, data: {kind: zero3, bucket: 4000}}", 2},
    {"llama", "parallel", "{mesh: cp2}"},
    {"gpt2", "parallel", "{mesh: cp2, context: ulysses}"},
    {"mixtral", "parallel", "{mesh: ep2}"},
    {"gpt2", "parallel", "{mesh: row2 col2}"},
    {"gpt2", "zero-offload", "{parallel: {mesh: dp2, data: {kind: zero2, bucket: 4000}}}"},
    {"llama", "zero-infinity", "{}"},
    {"gpt2", "patrickstar", "{usable: 1, reserve: 0, device_memory: 2 MB, chunk: 4000}"},
    {"gpt2", "elixir", "{driver: 0 B, least_chunk: 1 kB, device_memory: 3 MB}"},
    {"tied", "gemini", "{min_chunk: 2000, search_range: 4000, search_interval: 16, offload_optim: 1}"},
    {"gpt2", "angel-ptm", "{page: 4 kB, device_memory: 3 MB}"},
    {"gpt2", "activation-offload", "{least: 0 B}"},
};

}  // namespace

TEST_CASE("what checkmate makes again gives the same weights, with any strategy", "[recompute][mip]") {
  const Case& c = GENERATE(from_range(std::begin(kCases), std::end(kCases)));
  CAPTURE(c.model, c.strategy, c.options);
  const Model model = named_model(c.model);
  const CheckmateSolver solver{Seconds{20.0}};
  TrainOptions o = options(c.microbatches);
  const auto strategy = strategy_of(c.strategy, c.options);
  const Trained reference = train_capped(model, o, strategy->train_step(model, o, &host_workspaces())).trained;
  Node written = parse_yaml(c.options, "strategy");
  const Node* inner = std::string{c.strategy} == "parallel" ? &written : written.find("parallel");
  const std::string split = inner != nullptr ? to_flow_yaml(*inner) : "{}";
  const std::int64_t all = peak_without(parallel(split)->train_step(model, o, nullptr));
  o.recompute = Recompute::Checkmate;
  o.remat = &solver;
  o.activation_budget = Bytes{c.part * double(all)};
  const Plan plan = strategy->train_step(model, o, &host_workspaces());
  CHECK(flops_made_again(plan) > 0);
  CHECK(difference(train_capped(model, o, plan).trained, reference) < 1e-12);
}

TEST_CASE("a step stays within its budget and makes again what the schedule says", "[recompute][mip]") {
  const char* name = GENERATE("gpt2", "llama");
  const double part = GENERATE(1.0, 0.8, 0.6, 0.45);
  CAPTURE(name, part);
  const Model model = small_model(name);
  const CheckmateSolver solver{Seconds{20.0}};
  TrainOptions o = options(1);
  const Plan plain = single()->train_step(model, o, nullptr);
  const auto budget = static_cast<std::int64_t>(part * double(peak_without(plain)));
  const RematPass pass = remat_passes(plain, ClassId{0}, kMostBlocks).front();
  const auto schedule = solver.solve(pass.graph, budget);
  REQUIRE(schedule.has_value());
  CHECK(schedule->peak(pass.graph) <= budget);
  const Plan plan = make_again(plain, solver, Bytes{double(budget)}, nullptr);
  CHECK(activation_peak(plan) <= budget);
  double once = 0, forward = 0;
  for (const double cost : pass.graph.cost) once += cost;
  for (const Op& op : plain.ops)
    if (op.phase == Phase::Forward) forward += amount(plain.work(op)).flops.base();
  CHECK(flops_made_again(plan) == Approx((schedule->cost - once) / 100 * forward).margin(1));
  CHECK((flops_made_again(plan) > 0) == (part < 1));
}

TEST_CASE("checkmate without a budget, or with one that nothing fits into, is refused", "[recompute][mip]") {
  const Model model = small_model("gpt2");
  const CheckmateSolver solver{Seconds{20.0}};
  TrainOptions o = options(1);
  o.recompute = Recompute::Checkmate;
  o.remat = &solver;
  const auto refusal = [&] { return user_error([&] { single()->train_step(model, o, nullptr); }); };
  CHECK_THAT(refusal(), Catch::Contains("set activation_budget"));
  o.activation_budget = Bytes{1000};
  CHECK_THAT(refusal(), Catch::Contains("one part of it alone takes"));
  o.recompute = Recompute::Full;
  CHECK_THAT(refusal(), Catch::Contains("`recompute: checkmate`"));
}
