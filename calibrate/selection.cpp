// SPDX-License-Identifier: Apache-2.0
#include "calibrate/selection.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "calibrate/suites.hpp"
#include "calibrate/this_machine.hpp"
#include "sim/machine/cluster.hpp"
#include "sim/plan/reuse.hpp"

namespace orrery {
namespace {

constexpr double kQuickShare = 0.35;
constexpr std::int64_t kMostRanks = 16;     // that exchange messages
constexpr std::int64_t kMostCores = 8;      // that are kept busy at once
constexpr std::int64_t kTurns = 2;          // ranks per core that take turns
constexpr double kBeyondCache = 1.5;        // of what the hardware says that the last one holds
constexpr double kMostOfMemory = 1.0 / 16;  // that these benches may take
constexpr Bytes kLeastFromMemory{128e6};    // and what they read in any case
constexpr double kBeyondSecond = 4;         // times its second-level cache, of what a core reads from the last one
constexpr Bytes kMostOfSteps{64e6};         // of a step that several ranks do at once
constexpr Flops kLongSteps{5e8};            // of one that lasts for many turns
constexpr std::int64_t kPairedRanks = 4;    // per core
constexpr std::size_t kMostBeside = 14, kMostTurns = 5;

std::int64_t busy_cores() { return std::min(detected_cores(), kMostCores); }

/// More than the last cache holds, if the computer has as much.
Bytes beyond_caches() {
  return std::max(kLeastFromMemory, std::min(kBeyondCache * detected_caches().l3, kMostOfMemory * detected_memory()));
}

/// All cores copy at the same time; they read and write `bytes` in all.
Bench bandwidth_bench(Bytes bytes) {
  const std::int64_t ranks = busy_cores();
  const auto elements = static_cast<std::int64_t>(bytes / double(2 * ranks) / size_of(DType::F32, 1));
  PlanBuilder b{"bandwidth", Mesh{{{"rank", ranks}}}};
  b.begin_class("all", {{0, ranks}});
  const TensorSpec spec{.role = TensorRole::Parameter, .persistent = true};
  const TensorId from = b.tensor("bandwidth.from", {elements}, spec), to = b.tensor("bandwidth.to", {elements}, spec);
  b.add("copy", Copy{size_of(DType::F32, elements)}, {reads(from), writes(to)});
  return {b.take(&host_workspaces()), {}, {}, 0};
}

/// A step that many ranks do at the same time, each on its own.
Bench beside_itself(const Bench& step, std::int64_t ranks) {
  Bench b = step;
  b.plan.name += fmt::format(" on {} ranks", ranks);
  b.plan.mesh = Mesh{{{"rank", ranks}}};
  for (RankClass& c : b.plan.classes) c.ranges = all_of(b.plan.mesh);
  return b;
}

Flops flops_of(const Bench& b) {
  Flops sum;
  for (const Op& op : b.plan.ops) sum += amount(b.plan.work(op), b.bindings).flops;
  return sum;
}

/// Which steps do at least so much and touch little, spread over all.
std::vector<std::size_t> small_steps(const std::vector<Bench>& steps, std::size_t most, Flops least) {
  std::vector<std::size_t> small, out;
  for (std::size_t i = 0; i < steps.size(); ++i)
    if (working_set(steps[i].plan, steps[i].bindings) <= kMostOfSteps && flops_of(steps[i]) >= least)
      small.push_back(i);
  const std::size_t stride = std::max<std::size_t>(1, (small.size() + most - 1) / most);
  for (std::size_t i = 0; i < small.size(); i += stride) out.push_back(small[i]);
  return out;
}

}  // namespace

Selection select_benches(const CalibrateOptions& o, std::vector<Bench> steps, Random& random) {
  Selection s;
  const auto add = [&](std::vector<Bench> benches) {
    const std::size_t begin = s.benches.size();
    std::move(benches.begin(), benches.end(), std::back_inserter(s.benches));
    return Numbers{begin, s.benches.size()};
  };
  add(make_benches(draw_works(random, o.quick ? kQuickShare : 1), random));
  s.sweep = add(cache_sweep(random, o.quick ? Bytes{0} : beyond_caches()));
  add(near_products(random));
  const std::int64_t cores = busy_cores();
  std::vector<Bench> beside, turns;
  if (cores > 1) s.alone = small_steps(steps, kMostBeside, Flops{0});
  for (const std::size_t i : s.alone) beside.push_back(beside_itself(steps[i], cores));
  for (const std::size_t i : small_steps(steps, kMostTurns, kLongSteps))
    turns.push_back(beside_itself(steps[i], kTurns * cores));
  s.steps = add(std::move(steps));
  for (std::size_t& i : s.alone) i += s.steps.begin;
  s.beside = add(std::move(beside));
  s.turns = add(std::move(turns));
  for (std::int64_t ranks = 2; ranks <= kMostRanks; ranks *= 2) add(message_benches(ranks, random));
  add(ring_benches(random));
  s.pairs = s.benches.size();
  s.benches.push_back(pairs_bench(kPairedRanks * cores));
  const auto add_moving = [&](Bytes bytes, Bench bench) {
    s.benches.push_back(std::move(bench));
    return MovingBench{s.benches.size() - 1, bytes};
  };
  const Bytes far = beyond_caches(), near = kBeyondSecond * detected_caches().l2;
  s.memory = add_moving(far, bandwidth_bench(far));
  s.far = add_moving(far, reading_bench(far, random));
  s.near = add_moving(near, reading_bench(near, random));
  return s;
}

}  // namespace orrery
