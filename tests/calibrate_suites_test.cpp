// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <set>

#include "calibrate/calibrate.hpp"
#include "calibrate/campaign.hpp"
#include "calibrate/suites.hpp"
#include "calibrate/this_machine.hpp"
#include "hw_models/host_laws.hpp"
#include "sim/plan/reuse.hpp"

using namespace orrery;

TEST_CASE("suites measure every kind that a host law is for", "[calibrate]") {
  Random r{1};
  std::set<std::string> measured;
  for (const Work& w : draw_works(r, 1)) measured.insert(std::string{kind_name(w)});
  // What is not an op of its own: storage, waits, and messages, which the message suite measures between ranks. Grouped
  // products share the laws of products, attention over pages those of attention; what a cache of rows admits is a
  // Program's.
  const std::set<std::string> others{"alloc", "free", "host_work",       "collective",
                                     "send",  "recv", "paged_attention", "admit_rows"};
  for (std::size_t kind = 0; kind < kNumKinds; ++kind) {
    INFO(kind_name(kind));
    CHECK(measured.contains(std::string{kind_name(kind)}) != others.contains(std::string{kind_name(kind)}));
  }
}

TEST_CASE("the same seed draws the same works", "[calibrate]") {
  Random a{7}, b{7};
  CHECK(draw_works(a, 0.2) == draw_works(b, 0.2));
}

TEST_CASE("each suite's plan runs and gives a time for each op", "[calibrate]") {
  Random r{2};
  std::vector<Work> works;
  for (const Suite& s : suites()) works.push_back(s.draw(r));
  std::set<std::string> kinds;
  for (Bench& bench : make_benches(works, r)) {
    BenchRun run{std::move(bench)};
    run.run(1, 1);
    for (const Point& p : run.measured().points) {
      CHECK(p.seconds.median > 0);
      kinds.insert(std::string{kind_name(p.work)});
    }
  }
  CHECK(kinds.size() >= 50);
}

TEST_CASE("ops of one work are one point, and what only feeds another op is none", "[calibrate]") {
  Random r{3};
  const Work add{Add{16, 64}};
  std::vector<Bench> benches = make_benches({add, add, add}, r);
  REQUIRE(benches.size() == 1);
  BenchRun run{std::move(benches.front())};
  run.run(1, 3);
  const MeasuredPlan m = run.measured();
  REQUIRE(m.points.size() == 1);  // not the fills that write the operands
  CHECK(m.points[0].ops == 3);
  CHECK(m.seconds.count == 3);
}

TEST_CASE("a visit runs a plan that the caches hold until it is settled, and keeps the runs behind", "[calibrate]") {
  Random r{3};
  BenchRun run{std::move(make_benches({Add{16, 64}}, r).front())};
  run.visit();
  run.visit();
  CHECK(run.measured().visits.size() == 2);
  CHECK(run.totals().size() >= 4);
}

TEST_CASE("the cache sweep grows from a part of the second-level cache to more than the last one", "[calibrate]") {
  const auto largest = [](Bytes most) {
    Random r{5};
    double before = 0;
    for (const Bench& bench : cache_sweep(r, most)) {
      const double bytes = working_set(bench.plan, bench.bindings).base();
      CHECK(bytes > before);
      before = bytes;
    }
    return before;
  };
  CHECK(largest(Bytes{48e6}) > 150e6);
  CHECK(largest(Bytes{48e6}) < 200e6);
  CHECK(largest(Bytes{750e6}) > 550e6);
  CHECK(largest(Bytes{750e6}) < 800e6);
}

TEST_CASE("near products are of all kinds that steps have, over weights from part of a second-level cache on",
          "[calibrate]") {
  Random r{6};
  std::set<std::string> laws;
  double least = 1e12, most = 0;
  for (const Bench& bench : near_products(r)) {
    double weights = 0;
    for (const Work& work : bench.plan.works) {
      const auto* g = std::get_if<Gemm>(&work);
      if (g == nullptr) continue;  // what writes the operands
      CHECK((g->transpose_a ? g->k : g->m) <= 128);
      laws.insert(slot_name(slot_of(work)));
      weights += 4.0 * double(g->n) * double(g->transpose_a ? g->m : g->k);
    }
    CHECK(bench.weight > 1);
    least = std::min(least, weights), most = std::max(most, weights);
  }
  CHECK(laws == std::set<std::string>{"gemm.few_nn", "gemm.few_nt", "gemm.nn", "gemm.nt", "gemm.tn"});
  CHECK(least < 0.8e6);
  CHECK(most > 1.2e6);
  CHECK(most < 4e6);
}

TEST_CASE("two ranks exchange messages of every kind", "[calibrate]") {
  Random r{4};
  std::vector<Bench> benches = message_benches(2, r);
  for (Bench& bench : ring_benches(r)) benches.push_back(std::move(bench));
  std::set<std::string> laws;
  for (Bench& bench : benches) {
    BenchRun run{std::move(bench)};
    run.run(1, 1);
    for (const Point& p : run.measured().points) {
      CHECK(p.ranks == 2);
      CHECK(p.seconds.median > 0);
      laws.insert(slot_name(slot_of(p.work)));
    }
  }
  CHECK(laws.size() == 10);  // eight collectives, send and receive
}

TEST_CASE("ranks that take turns on a core give times of messages and of the whole, not of ops", "[calibrate]") {
  const std::int64_t ranks = 2 * detected_caches().cores;
  BenchRun run{pairs_bench(ranks)};
  run.run(1, 2);
  const MeasuredPlan m = run.measured();
  CHECK(m.ranks == ranks);
  REQUIRE(m.points.size() == 1);
  CHECK(m.points[0].seconds.count == 50 * 2 * static_cast<std::size_t>(ranks / 2));

  Random r{6};
  Bench alone = std::move(make_benches({Add{16, 64}}, r).front());
  alone.plan.mesh = Mesh{{{"rank", ranks}}};
  alone.plan.classes.front().ranges = all_of(alone.plan.mesh);
  BenchRun turns{std::move(alone)};
  turns.run(1, 2);
  CHECK(turns.measured().seconds.count == 2);
  CHECK(turns.measured().points.at(0).seconds.count == 0);
}

TEST_CASE("benches are measured in turns in any order and come back in order", "[calibrate]") {
  Random r{8};
  Campaign campaign;
  for (std::int64_t i = 1; i <= 5; ++i) campaign.add(std::move(make_benches({Add{i, 64}}, r).front()));
  CHECK(campaign.measure(Seconds{0.01}, r, [](const CalibrateProgress&) { return true; }));
  REQUIRE(campaign.measured().size() == 5);
  for (std::int64_t i = 1; i <= 5; ++i) {
    const MeasuredPlan& m = campaign.measured()[static_cast<std::size_t>(i - 1)];
    CHECK(m.points.at(0).work == Work{Add{i, 64}});
    CHECK(m.visits.size() >= 3);
  }
}

TEST_CASE("a drift probe tells what a core and what memory take, and how much longer than when calibrated",
          "[calibrate]") {
  DriftProbe core{DriftProbe::Of::Core}, both;
  for (int i = 0; i < 9; ++i) core.sample(), both.sample();
  CHECK(core.seconds() > 0);
  CHECK(core.pass_seconds() == 0);
  CHECK(both.pass_seconds() > both.seconds());  // 64 MiB against a product of 40 us
  CHECK(slowdown_since(0.003, Seconds{0.002}) == Approx(0.5));
  CHECK(slowdown_since(0.003, Seconds{0}) == 0);
}

TEST_CASE("a calibration that is told to stop gives nothing", "[calibrate]") {
  int calls = 0;
  CHECK_FALSE(calibrate({.quick = true}, {}, [&](const CalibrateProgress&) { return ++calls < 1; }));
  CHECK(calls == 1);
}
