// SPDX-License-Identifier: Apache-2.0
// The strategy activation-offload: the same numbers, with fewer activations on the device.
#include <catch2/catch.hpp>

#include "tests/offload_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

TEST_CASE("activations that waited on the host give the same gradients", "[offload]") {
  const OffloadCase c =
      GENERATE(OffloadCase{"gpt2", "{least: 0 B}"}, OffloadCase{"llama", "{least: 0 B, prefetch: 0, buffers: 1}", 2},
               OffloadCase{"mixtral", "{least: 0 B, keep_last: 0, prefetch: 3}"},
               OffloadCase{"gpt2", "{least: 0 B, parallel: {mesh: dp2}}"},
               OffloadCase{"gpt2", "{least: 0 B, parallel: {mesh: pp2}}", 2},
               OffloadCase{"gpt2", "{least: 0 B, parallel: {mesh: fsdp2, data: {kind: zero3, bucket: 4000}}}"},
               OffloadCase{"gpt2", "{least: 0 B, memory: pageable, parallel: {mesh: tp2}}"});
  CAPTURE(c.model, c.options);
  CHECK(off_one_device("activation-offload", c) < 1e-9);
}

TEST_CASE("each activation that leaves comes back, and the peak falls", "[offload]") {
  const Model model = small_model("gpt2");
  TrainOptions o = offload_options();
  o.batch = 64;
  o.sequence = 32;
  const auto run_of = [&](const Plan& plan) { return train_capped(model, o, plan); };
  const OffloadRun plain = run_of(single()->train_step(model, o, &host_workspaces()));
  const Plan plan = strategy_of("activation-offload", "{}")->train_step(model, o, &host_workspaces());
  const OffloadRun moved = run_of(plan);
  CHECK(difference(moved.trained, plain.trained) < 1e-9);
  REQUIRE(moved.timeline.transfers.size() == 2);
  CHECK(moved.timeline.transfers[0].moves == moved.timeline.transfers[1].moves);
  CHECK(moved.timeline.transfers[0].bytes == moved.timeline.transfers[1].bytes);
  CHECK(moved.timeline.transfers == simulate_steps(plan, o.steps).transfers);
  // Eight blocks are kept plain; here the last one, two on their way down, one coming up, and what is being computed.
  CHECK(peak_of(moved.timeline, Tier::Device) < 0.75 * double(peak_of(plain.timeline, Tier::Device)));
}
