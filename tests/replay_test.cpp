// SPDX-License-Identifier: Apache-2.0
// Blocks that repeat are replayed, and what they do to storage is not walked again where it is known: neither changes
// what is predicted.
#include <catch2/catch.hpp>

#include <numeric>

#include "hw_models/cluster_cost_model.hpp"
#include "hw_models/parameters.hpp"
#include "sim/base/random.hpp"
#include "sim/engine/storage_effects.hpp"
#include "sim/machine/resources.hpp"
#include "sim/timeline/analysis.hpp"
#include "tests/folding_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

struct Machine {
  explicit Machine(std::int64_t ranks)
      : cluster{resized(ranks)}, cost{cluster, find_device("h100_sxm", {parameters_folder()})}, resources{cluster} {}
  static Cluster resized(std::int64_t ranks) {
    Cluster c = load_cluster(std::string{ORRERY_SOURCE_DIR} + "/scenarios/clusters/dgx_h100_x4.yaml");
    c.nodes = (ranks + 7) / 8;
    return c;
  }

  Cluster cluster;
  ClusterCostModel cost;
  ClusterResources resources;
};

bool same(const Span& a, const Span& b) {
  return a.start_ps == b.start_ps && a.end_ps == b.end_ps && a.op == b.op && a.rank == b.rank && a.part == b.part;
}

bool same(const Peak& a, const Peak& b) {
  return a.rank == b.rank && a.tier == b.tier && a.bytes == b.bytes && a.op == b.op && a.owners == b.owners;
}

bool same_arenas(const Peak& a, const Peak& b) { return a.arena_bytes == b.arena_bytes; }

template <class List>
bool all_same(const List& a, const List& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) { return same(x, y); });
}

constexpr LoweredCase kCases[] = {
    {"{mesh: dp8}", 8, 24},
    {"{mesh: tp8, sequence_parallel: true}", 1, 24, Recompute::Full},
    {"{mesh: pp4 dp2, data: {kind: zero1}}", 2, 24},
    {"{mesh: pp4 dp2, schedule: gpipe}", 2, 12, Recompute::Selective},
    {"{mesh: pp4 tp2, schedule: interleaved, chunks: 2}", 1, 32, Recompute::Full},
    {"{mesh: pp4, schedule: interleaved, chunks: 2}", 1, 64},
    {"{mesh: pp4 tp2, schedule: zb-h1}", 1, 40},
    {"{mesh: pp4, schedule: zb-v}", 1, 24, Recompute::Full},
    {"{mesh: pp4 dp2, schedule: chimera}", 2, 24},
    {"{mesh: pp4 dp2, stage_layers: [1, 3, 3, 1]}", 2, 40},
};

}  // namespace

TEST_CASE("a plan that does not say what repeats takes the same time and memory, and has the same report",
          "[engine][long]") {
  const LoweredCase& c = kCases[GENERATE(range(std::size_t{0}, std::size(kCases)))];
  const Expansion expansion = GENERATE(Expansion::Folded, Expansion::Expanded);
  CAPTURE(c.strategy, expansion == Expansion::Folded);
  const Plan plan = lower(c);
  REQUIRE(!plan.repetitions.empty());
  Plan plain = plan;
  plain.repetitions.clear();
  const Machine m{plan.mesh.size()};
  const EngineOptions options{.expansion = expansion};
  const Timeline replayed = simulate(plan, first_step(), m.cost, m.resources, options),
                 walked = simulate(plain, first_step(), m.cost, m.resources, options);
  CHECK(replayed.makespan_ps == walked.makespan_ps);
  CHECK(all_same(replayed.spans, walked.spans));
  CHECK(all_same(replayed.peaks, walked.peaks));
  // With samples all storage is walked. What several streams take at one instant has no order of its own: arenas are
  // compared where blocks are replayed in both.
  const Timeline sampled =
      simulate(plan, first_step(), m.cost, m.resources, {.expansion = expansion, .record = Record::SpansAndMemory});
  CHECK(all_same(sampled.peaks, walked.peaks));
  CHECK(std::equal(replayed.peaks.begin(), replayed.peaks.end(), sampled.peaks.begin(), sampled.peaks.end(),
                   same_arenas));
  const Analysis a = analyse(replayed, describe(plan)), b = analyse(walked, describe(plain));
  CHECK(a.by_class == b.by_class);
  CHECK(a.busy_by_class == b.busy_by_class);
  CHECK(a.waiting == b.waiting);
  CHECK(a.idle == b.idle);
  CHECK(a.path.by_class_ps == b.path.by_class_ps);
  CHECK(a.path.segments.size() == b.path.segments.size());
  CHECK(a.ops == b.ops);
}

namespace {

using Gaps = std::vector<std::pair<std::int64_t, std::int64_t>>;
Gaps gaps_of(const OffsetAllocator& arena) {
  Gaps out;
  for (const OffsetAllocator::Range& gap : arena.gaps()) out.emplace_back(gap.offset, gap.size);
  return out;
}

std::int64_t any_size(Random& random, std::uint64_t most) {
  return 64 * (1 + static_cast<std::int64_t>(random.below(most)));
}

/// Gives back a block of before, takes some and gives back all of them but one.
StorageEffects::Outcome walk(OffsetAllocator& arena, std::span<const std::int64_t> sizes, std::int64_t given,
                             std::int64_t given_size) {
  StorageEffects::Outcome out;
  std::vector<std::int64_t> offsets;
  const auto take = [&](std::size_t i) {
    offsets.push_back(arena.allocate(sizes[i]).value());
    out.net += sizes[i];
    out.rise = std::max(out.rise, out.net);
    out.end = std::max(out.end, offsets.back() + sizes[i]);
  };
  const auto give = [&](std::int64_t offset, std::int64_t size) {
    arena.release(offset);
    out.net -= size;
  };
  for (std::size_t i = 0; i < sizes.size() / 2; ++i) take(i);
  give(given, given_size);
  give(offsets[0], sizes[0]);
  for (std::size_t i = sizes.size() / 2; i < sizes.size(); ++i) take(i);
  for (std::size_t i = 1; i + 1 < sizes.size(); ++i) give(offsets[i], sizes[i]);
  out.taken.push_back({static_cast<std::uint32_t>(sizes.size()), offsets.back(), sizes.back()});
  return out;
}

}  // namespace

TEST_CASE("what a stretch comes to in an arena like one before is what walking it gives", "[allocator][property]") {
  Random random{7};
  std::size_t known = 0, elsewhere = 0;
  for (int round = 0; round < 40; ++round) {
    OffsetAllocator arena;
    StorageEffects effects;
    std::vector<std::int64_t> sizes;
    for (int i = 0; i < 6; ++i) sizes.push_back(any_size(random, 4));
    const std::int64_t takes = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    std::vector<std::pair<std::int64_t, std::int64_t>> live;  // offsets and sizes
    const auto pick = [&] { return live.begin() + static_cast<std::ptrdiff_t>(random.below(live.size())); };
    std::optional<std::int64_t> learnt_at;
    for (int i = 0; i < 200; ++i) {
      while (live.size() < 8 || random.below(3) == 0) {
        const std::int64_t size = any_size(random, 2);
        live.emplace_back(arena.allocate(size).value(), size);
      }
      while (live.size() > 8) {
        const auto gone = pick();
        arena.release(gone->first);
        live.erase(gone);
      }
      const auto given = pick();
      const StorageEffects::Block block{3, given->first, given->second};
      const StorageEffects::Outcome* found = effects.find(arena, {&block, 1}, takes);
      if (found == nullptr) {
        const StorageEffects::Outcome outcome = walk(arena, sizes, given->first, given->second);
        effects.learn(arena, outcome);
        learnt_at = given->first;
        live.erase(given);
        live.emplace_back(outcome.taken[0].offset, sizes.back());
        continue;
      }
      ++known;
      elsewhere += learnt_at != given->first;
      OffsetAllocator walked = arena;
      const StorageEffects::Outcome outcome = walk(walked, sizes, given->first, given->second);
      REQUIRE(found->taken[0].offset == outcome.taken[0].offset);
      REQUIRE(found->net == outcome.net);
      REQUIRE(found->rise == outcome.rise);
      REQUIRE(found->end == outcome.end);
      const OffsetAllocator::Range gone{block.offset, block.size, block.size},
          taken{outcome.taken[0].offset, sizes.back(), sizes.back()};
      arena.take_over({&gone, 1}, {&taken, 1}, found->gaps, found->rise, found->end);
      REQUIRE(gaps_of(arena) == gaps_of(walked));
      REQUIRE(arena.stats() == walked.stats());
      REQUIRE(arena.num_blocks() == walked.num_blocks());
      live.erase(given);
      live.emplace_back(outcome.taken[0].offset, sizes.back());
    }
  }
  CHECK(known > 500);
  CHECK(elsewhere > 100);
}
