// SPDX-License-Identifier: Apache-2.0
// The strategy elixir-v1: the same weights whatever the plans of operators are, and plans that follow from what they
// save.
#include <catch2/catch.hpp>

#include "sim/strategy/offload/chunk_layout.hpp"
#include "tests/offload_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

Plan v1_plan(const Model& model, const TrainOptions& o, const std::string& options) {
  return strategy_of("elixir-v1", "{" + options + "}")->train_step(model, o, &host_workspaces());
}

/// Bytes of persistent tensors on the device of a role.
double resident(const Plan& plan, TensorRole role) {
  double sum = 0;
  for (std::size_t t = 0; t < plan.tensors.size(); ++t) {
    const Tensor& x = plan.tensors[t];
    if (x.base.is_none() && x.persistent && x.role == role && x.tier == Tier::Device)
      sum += plan.size(TensorId{t}).base();
  }
  return sum;
}

}  // namespace

TEST_CASE("plans of operators give the same weights", "[offload]") {
  const OffloadCase c =
      GENERATE(OffloadCase{"gpt2", "device_memory: 10 GB"}, OffloadCase{"gpt2", "usable: 1, device_memory: 800 kB"},
               OffloadCase{"llama", "device_memory: 900 kB", 2}, OffloadCase{"tied", "device_memory: 10 GB"},
               OffloadCase{"mixtral", "device_memory: 1 MB, memory: pageable"},
               OffloadCase{"gpt2", "device_memory: 800 kB, parallel: {mesh: fsdp2, data: {kind: zero3, bucket: 4000}}"},
               OffloadCase{"mixtral", "device_memory: 2 MB, parallel: {mesh: ep2, data: {kind: zero3, bucket: 4000}}"});
  CAPTURE(c.model, c.options);
  CHECK(off_one_device(c, v1_plan) < 1e-9);
}

TEST_CASE("elixir-v1 trains in a quarter of the plain plan's memory", "[offload]") {
  const char* name = GENERATE("gpt2", "llama", "mixtral");
  CAPTURE(name);
  // The rest is for gaps between tensors, which depend on how copies meet the passes.
  const QuarterRun run = train_in_a_quarter(name, [](const Model& model, const TrainOptions& o, std::int64_t bytes) {
    return v1_plan(model, o, "usable: 0.8, device_memory: " + std::to_string(bytes) + " B");
  });
  CHECK(run.difference < 1e-9);
  CHECK(moves_of(run.timeline, Tier::Pinned, Tier::Device) > 0);
}

/// Three models, four sizes of memory.
TEST_CASE("elixir-v1's planned, simulated and counted moves are the same", "[offload]") {
  const char* name = GENERATE("gpt2", "llama", "tied");
  const int memory = GENERATE(400, 600, 900, 2000);
  CAPTURE(name, memory);
  const Model model = small_model(name);
  TrainOptions o = offload_options();
  o.batch = 1;
  o.steps = 1;
  const Plan plan = v1_plan(model, o, "usable: 1, device_memory: " + std::to_string(memory) + " kB");
  const OffloadRun run = train_capped(model, o, plan);
  CHECK(simulate_steps(plan, 1).transfers == run.timeline.transfers);
  CHECK(planned_transfers(plan) == run.timeline.transfers);
  CHECK(peak_of(run.timeline, Tier::Device) <= memory * 1000);
}

TEST_CASE("an operator is a matrix with its bias, a norm or a table", "[offload]") {
  const Model model = small_model("gpt2");
  const Plan plan = single()->train_step(model, offload_options(), nullptr);
  const ChunkLayout layout = lay_out_operators(plan, ClassId{0}, updates_of(plan, ClassId{0}));
  // Two tables, and per block two norms and four matrices, each with a bias; the last norm. The head is the table.
  CHECK(layout.size() == 2 + 8 * 6 + 1);
  for (const auto& members : layout.members) CHECK(members.size() <= 2);
}

/// A slow host makes states worth more than weights, a slow link with a fast host weights more than states.
TEST_CASE("memory goes to what saves most", "[offload]") {
  const Model model = small_model("gpt2");
  TrainOptions o = offload_options();
  o.batch = 1;
  const std::string memory = "device_memory: 600 kB, rate: 1 PFLOP/s, profile: ";
  const Plan slow_host = v1_plan(model, o, memory + "{to_device: 1 TB/s, to_host: 1 TB/s, host_adam: 1e3}");
  const Plan slow_link = v1_plan(model, o, memory + "{to_device: 1 MB/s, to_host: 1 TB/s, host_adam: 1e12}");
  CHECK(resident(slow_host, TensorRole::OptimizerState) > resident(slow_link, TensorRole::OptimizerState));
  CHECK(resident(slow_link, TensorRole::Parameter) > resident(slow_host, TensorRole::Parameter));
}

TEST_CASE("what elixir-v1 cannot do is refused") {
  const Model model = small_model("gpt2");
  const auto refusal = [&](const char* options) {
    return user_error([&] { v1_plan(model, offload_options(), options); });
  };
  CHECK_THAT(refusal("device_memory: 10 kB"), Catch::Contains("allow more device memory"));
  CHECK_THAT(refusal("device_memory: 1 MB, parallel: {mesh: dp2, data: {kind: zero1}}"), Catch::Contains("zero3"));
}
