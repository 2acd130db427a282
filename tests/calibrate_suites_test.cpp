// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <set>

#include "calibrate/calibrate.hpp"
#include "calibrate/suites.hpp"
#include "hw_models/host_laws.hpp"

using namespace orrery;

TEST_CASE("suites measure every kind that a host law is for", "[calibrate]") {
  Random r{1};
  std::set<std::string> measured;
  for (const Work& w : draw_works(r, 1)) measured.insert(std::string{kind_name(w)});
  // What is not an op of its own: storage, waits, and messages, which the message suite measures between ranks. Grouped
  // products share the laws of products.
  const std::set<std::string> others{"alloc", "free", "host_work", "collective", "send", "recv"};
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
  CHECK(run.visits().size() == 2);
  CHECK(run.totals().size() >= 4);
}

TEST_CASE("the cache sweep grows from a part of the second-level cache to more than the last one", "[calibrate]") {
  Random r{5};
  double before = 0;
  for (const Bench& bench : cache_sweep(r)) {
    const double bytes = working_set(bench.plan).base();
    CHECK(bytes > before);
    before = bytes;
  }
  CHECK(before > 40e6);
}

TEST_CASE("two ranks exchange messages of every kind", "[calibrate]") {
  Random r{4};
  std::set<std::string> laws;
  for (Bench& bench : message_benches(2, r)) {
    BenchRun run{std::move(bench)};
    run.run(1, 1);
    for (const Point& p : run.measured().points) {
      CHECK(p.ranks == 2);
      laws.insert(slot_name(slot_of(p.work)));
    }
  }
  CHECK(laws.size() == 10);  // eight collectives, send and receive
}

TEST_CASE("a calibration that is told to stop gives nothing", "[calibrate]") {
  int calls = 0;
  CHECK_FALSE(calibrate({.quick = true}, {}, [&](const CalibrateProgress&) { return ++calls < 1; }));
  CHECK(calls == 1);
}
