// SPDX-License-Identifier: Apache-2.0
// The strategy zero-infinity: the same weights with model data on the host or a disk, in a quarter of the memory.
#include <catch2/catch.hpp>

#include <set>

#include "tests/offload_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

TEST_CASE("model data on other tiers gives the same weights", "[offload]") {
  const OffloadCase c = GENERATE(
      OffloadCase{"gpt2", "{}"}, OffloadCase{"llama", "{weights: host, prefetch: 0, buffers: 1}", 2},
      OffloadCase{"tied", "{states: host, prefetch: 2}"}, OffloadCase{"mixtral", "{weights: host, states: host}"},
      OffloadCase{"gpt2", "{parallel: {mesh: pp2}}", 2}, OffloadCase{"gpt2", "{parallel: {mesh: dp2}}"},
      OffloadCase{"llama", "{gradients: disk, buffers: 2}"},
      OffloadCase{"gpt2", "{gradients: disk, parallel: {mesh: dp2}}", 2},
      OffloadCase{"gpt2", "{parallel: {mesh: fsdp2, data: {kind: zero3, bucket: 4000}}}", 2},
      OffloadCase{"gpt2", "{weights: host, overlap: none}"}, OffloadCase{"llama", "{overlap: weights, prefetch: 0}", 2},
      OffloadCase{"gpt2", "{tile: 1500 B}"}, OffloadCase{"llama", "{tile: 1 kB, weights: host, prefetch: 0}", 2},
      OffloadCase{"tied", "{tile: 500 B, gradients: disk, overlap: none}"},
      OffloadCase{"gpt2", "{tile: 1 B, buffers: 1}", 2});
  CAPTURE(c.model, c.options);
  CHECK(off_one_device("zero-infinity", c) < 1e-9);
}

/// Per step: weights are read and go up in each pass (tensors that one block uses in both passes at the turn, once) and
/// are read once for the update; gradients go down; two states are read; weights and states are written.
TEST_CASE("bytes of the disk follow from the number of parameters", "[offload]") {
  const Model model = small_model("llama");
  TrainOptions o = offload_options();
  o.steps = 1;
  const Plan plan =
      strategy_of("zero-infinity", "{weights: host, prefetch: 0}")->train_step(model, o, &host_workspaces());
  const OffloadRun run = train_capped(model, o, plan);
  std::int64_t elements = 0;
  for (const Parameter& p : model.parameters) elements += p.elements();
  const auto bytes = [&](Tier from, Tier to) {
    for (const Transfers& t : run.timeline.transfers)
      if (t.from == from && t.to == to) return t.bytes;
    return std::int64_t{0};
  };
  CHECK(bytes(Tier::Disk, Tier::Pinned) == 16 * elements);
  CHECK(bytes(Tier::Pinned, Tier::Disk) == 16 * elements);
  CHECK(bytes(Tier::Device, Tier::Pinned) == 8 * elements);
  CHECK(run.timeline.transfers == simulate_steps(plan, 1).transfers);
}

TEST_CASE("with gradients on a disk the host holds none of the model", "[offload]") {
  const Model model = deep_model("gpt2");
  TrainOptions o = offload_options();
  o.batch = 1;
  const auto host_peak = [&](const char* options) {
    const Plan plan = strategy_of("zero-infinity", options)->train_step(model, o, &host_workspaces());
    const OffloadRun run = train_capped(model, o, plan);
    CHECK(run.timeline.transfers == simulate_steps(plan, o.steps).transfers);
    return peak_of(run.timeline, Tier::Pinned);
  };
  std::int64_t gradients = 0;
  for (const Parameter& p : model.parameters) gradients += 8 * p.elements();
  const std::int64_t kept = host_peak("{buffers: 1}"), gone = host_peak("{buffers: 1, gradients: disk}");
  CHECK(kept > gradients);
  CHECK(gone < kept - gradients / 2);
}

TEST_CASE("a quarter of the device memory is enough with model data on a disk", "[offload]") {
  const QuarterRun run = train_in_a_quarter("gpt2", [](const Model& model, const TrainOptions& o, std::int64_t) {
    return strategy_of("zero-infinity", "{buffers: 1}")->train_step(model, o, &host_workspaces());
  });
  CHECK(run.difference < 1e-9);
  CHECK(peak_of(run.timeline, Tier::Disk) > peak_of(run.timeline, Tier::Device));
}

/// One sample of one token: matrices are nearly all that a step needs. The largest is 32 by 128, 32 KiB in 64 bits; of
/// its 32 tiles two are on the device at once, in place of that matrix and its gradient.
TEST_CASE("matrices in tiles need the room of two tiles", "[offload]") {
  const Model model = gpt2_of({.hidden = 32, .vocab = 8, .positions = 4});
  TrainOptions o = offload_options();
  o.batch = 1;
  o.sequence = 1;
  o.steps = 1;
  const auto plan_with = [&](const std::string& options) {
    return strategy_of("zero-infinity", "{weights: host, states: host, prefetch: 0, buffers: 1" + options + "}")
        ->train_step(model, o, &host_workspaces());
  };
  const Plan whole_plan = plan_with(""), tiled_plan = plan_with(", tile: 1 KiB");
  const Timeline whole_simulated = simulate_steps(whole_plan, 1);
  const OffloadRun whole = train_capped(model, o, whole_plan), tiled = train_capped(model, o, tiled_plan);
  CHECK(whole.timeline.transfers == whole_simulated.transfers);
  CHECK(tiled.timeline.transfers == simulate_steps(tiled_plan, 1).transfers);
  CHECK(difference(tiled.trained, whole.trained) < 1e-9);
  // Where copies of an execution overlap with what frees their room depends on the computer: of whole matrices, whose
  // room that changes, the simulated one.
  CHECK(peak_of(tiled.timeline, Tier::Device) <= peak_of(whole_simulated, Tier::Device) - 30 * 1024);
  // A matrix in tiles comes for each of its two products; the gradient goes down once either way.
  const std::int64_t matrices = 4 * 12 * 32 * 32 * 8;
  CHECK(bytes_between(tiled.timeline, Tier::Device, Tier::Pinned) ==
        bytes_between(whole.timeline, Tier::Device, Tier::Pinned));
  CHECK(bytes_between(tiled.timeline, Tier::Pinned, Tier::Device) >= 2 * matrices);
}

TEST_CASE("copies that do not run beside the passes are in their stream", "[offload]") {
  const Model model = small_model("gpt2");
  const auto streams = [&](const std::string& overlap) {
    const Plan plan = strategy_of("zero-infinity", "{weights: host, states: host, overlap: " + overlap + "}")
                          ->train_step(model, offload_options(), &host_workspaces());
    std::set<std::pair<std::string, Stream>> out;
    for (const Op& op : plan.ops)
      if (std::holds_alternative<Copy>(plan.work(op)))
        out.emplace(std::string{plan.name_of(op)}.substr(0, 2), op.stream);
    return out;
  };
  using Expected = std::set<std::pair<std::string, Stream>>;
  CHECK(streams("all") == Expected{{"do", Stream::CopyOut}, {"up", Stream::CopyIn}});
  CHECK(streams("weights") == Expected{{"do", Stream::Compute}, {"up", Stream::CopyIn}});
  CHECK(streams("none") == Expected{{"do", Stream::Compute}, {"up", Stream::Compute}});
}

TEST_CASE("a disk slower than declared costs time and changes no weight", "[offload]") {
  const Model model = small_model("gpt2");
  TrainOptions o = offload_options();
  o.steps = 1;
  const Plan plan = strategy_of("zero-infinity", "{}")->train_step(model, o, &host_workspaces());
  const OffloadRun fast = train_capped(model, o, plan);
  const BytesPerSecond rate{40e6};
  HostOptions host;
  host.paced = {{Tier::Disk, Tier::Pinned, Seconds{0}, rate, {{PacedCopy::Link::Disk, rate}}},
                {Tier::Pinned, Tier::Disk, Seconds{0}, rate, {{PacedCopy::Link::Disk, rate}}}};
  const OffloadRun slow = train_capped(model, o, plan, host);
  CHECK(slow.trained.losses == fast.trained.losses);
  CHECK(slow.trained.weights == fast.trained.weights);
  const std::int64_t bytes =
      bytes_between(slow.timeline, Tier::Disk, Tier::Pinned) + bytes_between(slow.timeline, Tier::Pinned, Tier::Disk);
  CHECK(slow.timeline.makespan().base() >= double(bytes) / rate.base());
}

TEST_CASE("what replicas gather is not cut into tiles") {
  const Model model = small_model("gpt2");
  const char* parallel = GENERATE("{mesh: dp2}", "{mesh: fsdp2, data: {kind: zero3}}");
  const auto strategy = strategy_of("zero-infinity", std::string{"{tile: 100 B, parallel: "} + parallel + "}");
  CHECK_THAT(user_error([&] { strategy->train_step(model, offload_options(), nullptr); }),
             Catch::Contains("leave out `tile`"));
}

TEST_CASE("parts of shared tensors cannot go to a disk") {
  const Model model = small_model("gpt2");
  const auto strategy = strategy_of("zero-infinity", "{parallel: {mesh: dp2, data: {kind: zero2}}}");
  CHECK_THAT(user_error([&] { strategy->train_step(model, offload_options(), nullptr); }), Catch::Contains("zero3"));
}
