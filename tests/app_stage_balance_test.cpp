// SPDX-License-Identifier: Apache-2.0
// Blocks of stages in balance, against all ways to deal them out. tests/app_search_test.cpp has what `orrery search`
// makes of them.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "sim/app/stage_balance.hpp"
#include "tests/app_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

/// Eight blocks, in four stages of H100 with so much memory.
TrainingRequest four_stages(double megabytes) {
  TrainingRequest q;
  q.model = parse_yaml(
      R"({"model_type": "gpt2", "n_embd": 1024, "n_layer": 8, "n_head": 16, "n_positions": 512, "vocab_size": 1024})",
      "model");
  const char* text =
      "{{devices_per_node: 4, device: h100_sxm, device_memory: {:.0f} MB, host_link: {{bandwidth: 63 GB/s, latency: 2 "
      "us}}, device_link: {{bandwidth: 450 GB/s, latency: 1.5 us}}}}";
  q.cluster = parse_yaml(fmt::format(fmt::runtime(text), megabytes), "cluster");
  q.ranks = 4, q.batch = 64, q.sequence = 512;
  return q;
}

StepSplit split_of_four(std::vector<std::int64_t> blocks) {
  StepSplit s;
  s.mesh = {.pp = 4};
  s.samples = 8, s.stage_layers = std::move(blocks);
  return s;
}

}  // namespace

// Under 1F1B the first of four stages holds four microbatches of what the last holds one: equal stages take as long,
// and the first has no room for its blocks when there is little. Against all ways to deal eight blocks out to four
// stages.
TEST_CASE("no numbers of blocks of four stages are faster than those in balance, with more and with less memory") {
  const Environment environment{{"ORRERY_HOME", "/dev/null/none"}};
  const Wiring wiring{environment};
  const Reproducer reproducer{wiring, [] {}};
  const auto predict = [&](const TrainingRequest& q, const StepSplit& s) {
    SplitTrial t{s, {}, 0, {}};
    Report report;
    t.trial = predict_training(reproducer, q, s.strategy(), s.recomputation(s.microbatches(q.batch)), &report);
    t.stages = report.stages;
    return t;
  };
  constexpr double kPlenty = 80'000;
  const SplitTrial equal = predict(four_stages(kPlenty), split_of_four({}));
  REQUIRE(equal.stages.size() == 4);
  const double first = 1e-6 * double(equal.stages[0].bytes), last = 1e-6 * double(equal.stages[3].bytes);
  REQUIRE(first > 1.2 * last);
  int crowded = 0, uneven = 0;
  for (const double megabytes : {kPlenty, first + 1, 0.8 * first + 0.2 * last, 0.5 * (first + last), 1.05 * last}) {
    const TrainingRequest q = four_stages(megabytes);
    double best = std::numeric_limits<double>::infinity(), found = best;
    for (int a = 1; a < 6; ++a)
      for (int b = 1; a + b < 7; ++b)
        for (int c = 1; a + b + c < 8; ++c) {
          const SplitTrial t = predict(q, split_of_four({a, b, c, 8 - a - b - c}));
          if (t.trial.fits()) best = std::min(best, t.trial.step);
        }
    const SplitTrial base = predict(q, split_of_four({}));
    if (base.trial.fits()) found = base.trial.step;
    std::vector<std::int64_t> blocks;
    const StageBalance ask{8, q.batch, [&](const StepSplit& s) { return predict(q, s); }};
    const std::vector<SplitTrial> trials = balance_stages(ask, base);
    for (const SplitTrial& t : trials)
      if (t.trial.fits() && t.trial.step < found) found = t.trial.step, blocks = t.split.stage_layers;
    INFO(megabytes << " MB, stages of " << first << " to " << last << ", " << trials.size() << " predicted");
    CHECK(found <= 1.0001 * best);
    CHECK(trials.size() < 30);  // of 35
    crowded += !base.trial.fits() && std::isfinite(found);
    uneven += !blocks.empty() && blocks.front() < blocks.back();
  }
  CHECK(crowded > 0);
  CHECK(uneven > 0);
}

TEST_CASE("stages that are alike are as balanced as can be, and one that has all is not") {
  const std::vector<StageReport> even(4, {2.0, 10}), uneven{{1, 30}, {3, 10}};
  CHECK(balance_of(even).time == Approx(0.75));
  CHECK(balance_of(even).memory == Approx(0.75));
  CHECK(balance_of(uneven).time == Approx(0.25));
  CHECK(balance_of(uneven).memory == Approx(0.25));
}

TEST_CASE("a report tells stages apart, and puts those that are nearly alike in one row") {
  constexpr std::int64_t kMiB = 1 << 20;
  Report r;
  r.step = 10;
  r.stages = {{9, 4000 * kMiB}, {8, 3000 * kMiB}, {8.01, 2999 * kMiB}, {7, 2000 * kMiB}};
  const std::string text = to_text(r, Console{TerminalFacts{}});
  CHECK(text.find("  stage    busy  of the step  peak memory\n") != std::string::npos);
  CHECK(text.find("  0         9 s       90.0 %     3.91 GiB\n") != std::string::npos);
  CHECK(text.find("  1 … 2  8.01 s       80.1 %     2.93 GiB\n") != std::string::npos);
  CHECK(text.find("  3         7 s       70.0 %     1.95 GiB\n") != std::string::npos);
  r.stages = {{9, 4000 * kMiB}};
  CHECK(to_text(r, Console{TerminalFacts{}}).find("stage") == std::string::npos);
}
