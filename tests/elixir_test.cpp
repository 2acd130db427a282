// SPDX-License-Identifier: Apache-2.0
// The strategy elixir: its values against those published, its search against trying all, its plans against one device.
#include <catch2/catch.hpp>

#include "sim/strategy/offload/chunk_cache.hpp"
#include "sim/strategy/offload/elixir_search.hpp"
#include "tests/offload_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

Plan elixir_plan(const Model& model, const TrainOptions& o, const std::string& options) {
  return strategy_of("elixir", "{driver: 0 B, least_chunk: 1 kB, " + options + "}")
      ->train_step(model, o, &host_workspaces());
}

/// A step through `layers` tensors of various sizes and back.
ElixirCase chain(std::uint32_t layers, std::int64_t capacity) {
  ElixirCase c;
  for (std::uint32_t i = 0; i < layers; ++i) {
    c.tensors.push_back(40 + (i * 37) % 61);
    c.steps.push_back({i});
  }
  for (std::uint32_t i = layers; i-- > 0;) c.steps.push_back({i});
  c.alone.assign(layers, false);
  c.capacity = capacity;
  c.least = 64;
  c.grain = 4;
  return c;
}

/// Moved elements with chunks of one size, by the cache that plans use.
std::int64_t moved_with(const ElixirCase& c, std::int64_t chunk) {
  std::vector<std::uint32_t> of;
  std::int64_t used = chunk;
  std::uint32_t count = 0;
  for (const std::int64_t t : c.tensors) {
    if (used + t > chunk) ++count, used = 0;
    used += t;
    of.push_back(count - 1);
  }
  const std::int64_t blocks = std::min<std::int64_t>(c.capacity / chunk - (c.overlap ? 2 : 0), count);
  std::vector<CacheStep> steps;
  for (const auto& s : c.steps) steps.push_back({{of[s.front()]}, {}, blocks});
  if (blocks < 1) return INT64_MAX;
  const CachePlan plan = plan_cache(std::vector<std::int64_t>(count, 1), steps, Eviction::Belady);
  return 2 * (plan.evictions + plan.returned) * chunk;
}

}  // namespace

TEST_CASE("a block is worth more than states on one rank, less on several") {
  // The published constants, 2 bytes a weight, 4 a master copy, 12 of states.
  const auto values = [](double n) { return elixir_values(ElixirProfile::of_a100(n), n, 2, 4, 12); };
  const double expected[][3] = {{1, 0.1905, 0.0907}, {2, 0.1074, 0.1177}, {4, 0.0576, 0.1551}, {8, 0.0299, 0.2148}};
  for (const auto& [n, cached, state] : expected) {
    CHECK(values(n).cached == Approx(cached).margin(5e-5));
    CHECK(values(n).state == Approx(state).margin(5e-5));
  }
}

TEST_CASE("the search finds what trying all sizes finds") {
  const std::int64_t capacity = GENERATE(300, 500, 800, 1500, 4000);
  const bool overlap = GENERATE(false, true);
  ElixirCase c = chain(24, capacity);
  c.overlap = overlap;
  const ElixirChoice found = elixir_search(c);
  std::int64_t least = INT64_MAX;
  for (std::int64_t chunk = 128; chunk <= 384; chunk += 4) least = std::min(least, moved_with(c, chunk));
  if (least == INT64_MAX) {
    CHECK(found.chunk == 0);
    return;
  }
  CHECK(found.moved == least);
  CHECK(moved_with(c, found.chunk) == least);
  const ElixirChoice again = elixir_search(c);
  CHECK((again.chunk == found.chunk && again.blocks == found.blocks && again.resident == found.resident));
}

TEST_CASE("memory goes to blocks first, or to states first") {
  ElixirCase c = chain(24, 2000);
  ElixirChoice choice{.chunk = 128};
  c.overlap = false;
  c.state_ratio = 4;
  // 15 chunks of room for 14: all have a block, and no states fit: a chunk more would be 13 + 4.
  elixir_spend(c, 14, 1, choice);
  CHECK((choice.blocks == 14 && choice.resident == 0));
  // 4 blocks stay, two chunks take the room of 4 each, the rest is blocks again: 15 − 8.
  c.states_first = true;
  elixir_spend(c, 14, 1, choice);
  CHECK((choice.blocks == 7 && choice.resident == 2));
}

TEST_CASE("chunks in blocks give the same weights", "[offload]") {
  const OffloadCase c = GENERATE(
      OffloadCase{"gpt2", "device_memory: 1200 kB"}, OffloadCase{"tied", "device_memory: 1 MB, overlap: false", 2},
      OffloadCase{"llama", "device_memory: 10 GB"}, OffloadCase{"mixtral", "device_memory: 1 MB, memory: pageable"},
      OffloadCase{"gpt2", "device_memory: 1 MB, chunk: 2000, blocks: 6, resident: 0"},
      OffloadCase{"tied", "device_memory: 1 MB, chunk: 2000, blocks: 5, resident: 3", 2},
      OffloadCase{"gpt2",
                  "device_memory: 1 MB, chunk: 2000, blocks: 4, resident: 2, parallel: {mesh: fsdp2, data: "
                  "{kind: zero3, bucket: 4000}}, gathered: 5"});
  CAPTURE(c.model, c.options);
  CHECK(off_one_device(c, elixir_plan) < 1e-9);
}

TEST_CASE("elixir trains in a quarter of the plain plan's memory", "[offload]") {
  const char* name = GENERATE("gpt2", "llama", "mixtral");
  CAPTURE(name);
  const QuarterRun run = train_in_a_quarter(name, [](const Model& model, const TrainOptions& o, std::int64_t bytes) {
    return elixir_plan(model, o, "device_memory: " + std::to_string(bytes) + " B");
  });
  CHECK(run.difference < 1e-9);
  CHECK(moves_of(run.timeline, Tier::Pinned, Tier::Device) > 0);
}

/// Three models, four numbers of blocks, three sizes of chunks, two numbers of resident chunks.
TEST_CASE("elixir's planned, simulated and counted moves are the same", "[offload]") {
  const char* name = GENERATE("gpt2", "llama", "tied");
  const int blocks = GENERATE(4, 5, 8, 100);
  const int chunk = GENERATE(1100, 2200, 4400);
  CAPTURE(name, blocks, chunk);
  const Model model = small_model(name);
  TrainOptions o = offload_options();
  o.batch = 1;
  o.steps = 1;
  for (const int resident : {0, 2}) {
    const Plan plan =
        elixir_plan(model, o,
                    "device_memory: 1 GB, chunk: " + std::to_string(chunk) + ", blocks: " + std::to_string(blocks) +
                        ", resident: " + std::to_string(resident));
    const OffloadRun run = train_capped(model, o, plan);
    CHECK(simulate_steps(plan, 1).transfers == run.timeline.transfers);
    CHECK(planned_transfers(plan) == run.timeline.transfers);
    CHECK(planned_moves(plan, "come.") > 0);
  }
}

TEST_CASE("the first arrival is wide, the first departure writes, the last takes gradients down", "[offload]") {
  const Model model = small_model("llama");
  TrainOptions o = offload_options();
  o.dtype = Precision::BF16;
  const std::int64_t chunk = 2200;
  const Plan plan =
      elixir_plan(model, o, "device_memory: 1 GB, overlap: false, chunk: 2200, blocks: 3, resident: 0, memory: pinned");
  std::map<std::string, std::vector<std::string>> moves;  // of each chunk
  for (const Op& op : plan.ops)
    if (const auto* c = std::get_if<Copy>(&plan.work(op))) {
      const std::string name{plan.name_of(op)};
      const std::size_t dot = name.find('.');
      moves[name.substr(dot + 1)].push_back(name.substr(0, dot) + (c->bytes.base() == 4.0 * chunk ? " wide" : ""));
    }
  CHECK(moves.size() > 5);
  std::size_t came_again = 0;
  for (const auto& [name, of] : moves) {
    CHECK(of.front() == "come wide");
    CHECK(of.back() == "leave");
    const auto leaves = std::count(of.begin(), of.end(), "leave");
    const auto comes = std::count(of.begin() + 1, of.end(), "come");
    CHECK(static_cast<std::size_t>(leaves + comes) + 1 == of.size());
    CHECK(leaves <= 2);  // rounded weights once, gradients once
    CHECK(leaves == (comes > 0 ? 2 : 1));
    came_again += comes > 0;
  }
  CHECK(came_again > 0);
}

TEST_CASE("what elixir cannot do is refused") {
  const Model model = small_model("gpt2");
  const auto refusal = [&](const char* options) {
    return user_error([&] { elixir_plan(model, offload_options(), options); });
  };
  CHECK_THAT(refusal("device_memory: 10 kB"), Catch::Contains("allow more device memory"));
  CHECK_THAT(refusal("device_memory: 1 MB, gathered: 3"), Catch::Contains("zero3"));
  CHECK_THAT(refusal("device_memory: 1 MB, chunk: 10"), Catch::Contains("use chunks of at least"));
  CHECK_THAT(refusal("device_memory: 1 MB, chunk: 4000, blocks: 2"), Catch::Contains("there is room for"));
  CHECK_THAT(refusal("device_memory: 1 MB, resident: -2"), Catch::Contains("-1"));
}
