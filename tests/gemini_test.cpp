// SPDX-License-Identifier: Apache-2.0
// The strategy gemini: the same weights by both ways of placing chunks; what engine and runtime move is what was
// planned.
#include <catch2/catch.hpp>

#include "tests/offload_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

Plan gemini_plan(const Model& model, const TrainOptions& o, const std::string& options) {
  return strategy_of("gemini", "{" + options + "}")->train_step(model, o, &host_workspaces());
}

/// Elements of all chunks of weights.
std::int64_t chunk_elements(const Plan& plan) {
  std::int64_t sum = 0;
  for (std::size_t t = 0; t < plan.tensors.size(); ++t) {
    const std::string_view name = plan.names[plan.tensors[t].name];
    if (plan.tensors[t].base.is_none() && name.substr(0, 6) == "chunk." && name.find(".weights") != name.npos)
      sum += plan.shape(TensorId{t}).elements();
  }
  return sum;
}

std::int64_t gathers_of(const Plan& plan) {
  std::int64_t count = 0;
  for (const Op& op : plan.ops) {
    const auto* c = std::get_if<Collective>(&plan.work(op));
    count += c != nullptr && c->kind == CollectiveKind::AllGather;
  }
  return count;
}

constexpr const char* kSmall = "min_chunk: 2000, search_range: 4000, search_interval: 16";

}  // namespace

TEST_CASE("chunks placed by shares or by room give the same weights", "[offload]") {
  const OffloadCase c = GENERATE(
      OffloadCase{"gpt2", ""}, OffloadCase{"llama", "offload_optim: 0.5", 2}, OffloadCase{"tied", "offload_optim: 1"},
      OffloadCase{"mixtral", "offload_optim: 1, offload_param: 0.5"},
      OffloadCase{"gpt2", "offload_optim: 1, offload_param: 1, max_prefetch: 2"},
      OffloadCase{"gpt2", "placement: auto, device_memory: 1100 kB"},
      OffloadCase{"llama", "placement: auto, device_memory: 900 kB, max_prefetch: 3", 2},
      OffloadCase{"gpt2", "placement: auto, device_memory: 500 kB, step: warmup"},
      OffloadCase{"gpt2",
                  "offload_optim: 1, offload_param: 1, parallel: {mesh: fsdp2, data: {kind: zero3, bucket: 4000}}"},
      OffloadCase{"gpt2", "shard_param: 0.5, parallel: {mesh: fsdp2, data: {kind: zero3, bucket: 4000}}", 2});
  CAPTURE(c.model, c.options);
  CHECK(off_one_device(c, [](const Model& model, const TrainOptions& o, const std::string& options) {
          return gemini_plan(model, o, std::string{kSmall} + (options.empty() ? "" : ", ") + options);
        }) < 1e-9);
}

TEST_CASE("gemini trains in a quarter of the plain plan's memory", "[offload]") {
  const char* name = GENERATE("gpt2", "llama", "mixtral");
  CAPTURE(name);
  const QuarterRun run = train_in_a_quarter(name, [](const Model& model, const TrainOptions& o, std::int64_t bytes) {
    return gemini_plan(
        model, o,
        std::string{kSmall} + ", placement: auto, steady: 0.8, device_memory: " + std::to_string(bytes) + " B");
  });
  CHECK(run.difference < 1e-9);
  CHECK(moves_of(run.timeline, Tier::Pinned, Tier::Device) > 0);
}

/// Three models, three sizes of memory, three sizes of chunks, with and without arrivals ahead.
TEST_CASE("gemini's planned, simulated and counted moves are the same", "[offload]") {
  const char* name = GENERATE("gpt2", "llama", "tied");
  const int memory = GENERATE(500, 700, 1000);
  const int chunk = GENERATE(1100, 2200, 4400);
  CAPTURE(name, memory, chunk);
  const Model model = small_model(name);
  TrainOptions o = offload_options();
  o.batch = 1;
  o.steps = 1;
  std::int64_t without = 0;
  for (const int prefetch : {0, 1, 4}) {
    const Plan plan =
        gemini_plan(model, o,
                    "placement: auto, chunk: " + std::to_string(chunk) + ", device_memory: " + std::to_string(memory) +
                        " kB, max_prefetch: " + std::to_string(prefetch));
    const Timeline simulated = simulate_steps(plan, 1);
    const OffloadRun run = train_capped(model, o, plan);
    CHECK(simulated.transfers == run.timeline.transfers);
    CHECK(planned_transfers(plan) == run.timeline.transfers);
    CHECK(peak_of(simulated, Tier::Device) <= memory * 1000);
    // What comes ahead comes no more often.
    if (prefetch == 0) without = planned_moves(plan, "come.");
    CHECK(planned_moves(plan, "come.") == without);
    CHECK(planned_moves(plan, "leave.") == without);
  }
}

TEST_CASE("shares of chunks on the host give the bytes that move", "[offload]") {
  const Model model = small_model("gpt2");
  TrainOptions o = offload_options();
  o.steps = 1;
  const auto bytes = [&](const char* options, Tier from, Tier to) {
    const Plan plan = gemini_plan(model, o, std::string{kSmall} + options);
    const OffloadRun run = train_capped(model, o, plan);
    CHECK(run.timeline.transfers == simulate_steps(plan, 1).transfers);
    return std::pair{bytes_between(run.timeline, from, to), chunk_elements(plan)};
  };
  CHECK(bytes("", Tier::Device, Tier::Pinned).first == 0);
  // Gradients of all chunks down, and their new weights up.
  const auto [down, all] = bytes(", offload_optim: 1", Tier::Device, Tier::Pinned);
  CHECK(down == 8 * all);
  CHECK(bytes(", offload_optim: 1", Tier::Pinned, Tier::Device).first == 8 * all);
  // Weights come for both passes, and gradients go down once.
  const auto [up, same] = bytes(", offload_optim: 1, offload_param: 1", Tier::Pinned, Tier::Device);
  CHECK(same == all);
  CHECK(up == 16 * all);
  CHECK(bytes(", offload_optim: 1, offload_param: 1", Tier::Device, Tier::Pinned).first == 8 * all);
}

TEST_CASE("the search leaves least of the chunks empty", "[offload]") {
  const Model model = small_model("gpt2");
  TrainOptions o = offload_options();
  const std::int64_t found = chunk_elements(gemini_plan(model, o, kSmall));
  std::int64_t least = INT64_MAX;
  for (int chunk = 2000; chunk <= 6000; chunk += 16)
    least = std::min(least, chunk_elements(gemini_plan(model, o, "chunk: " + std::to_string(chunk))));
  CHECK(found == least);
  CHECK(found < chunk_elements(gemini_plan(model, o, "chunk: 6000")));
}

TEST_CASE("weights that are not split are gathered once", "[offload]") {
  const Model model = small_model("gpt2");
  const TrainOptions o = offload_options();
  const auto gathers = [&](const char* share) {
    return gathers_of(gemini_plan(model, o,
                                  std::string{kSmall} + ", shard_param: " + share +
                                      ", parallel: {mesh: fsdp2, data: {kind: zero3, bucket: 4000}}"));
  };
  CHECK(gathers("0") < gathers("0.5"));
  CHECK(gathers("0.5") < gathers("1"));
}

TEST_CASE("what gemini cannot do is refused") {
  const Model model = small_model("gpt2");
  const auto refusal = [&](const char* options) {
    return user_error([&] { gemini_plan(model, offload_options(), options); });
  };
  CHECK_THAT(refusal("offload_param: 0.5"), Catch::Contains("use `shard_param: 1, offload_optim: 1`"));
  CHECK_THAT(refusal("shard_param: 0.5"), Catch::Contains("zero3"));
  CHECK_THAT(refusal("placement: auto"), Catch::Contains("device_memory: 40 GB"));
  CHECK_THAT(refusal("placement: auto, device_memory: 1 GB, offload_optim: 1"), Catch::Contains("placement: static"));
  CHECK_THAT(refusal("device_memory: 1 GB"), Catch::Contains("placement: auto"));
  CHECK_THAT(refusal("placement: dynamic"), Catch::Contains("static"));
  CHECK_THAT(refusal("placement: auto, device_memory: 10 kB, chunk: 4000"),
             Catch::Contains("allow more device memory"));
  CHECK_THAT(refusal("chunk: 10"), Catch::Contains("use chunks of at least"));
}
