// SPDX-License-Identifier: Apache-2.0
// What the engine predicts of memory is what the host runtime counts, to the byte.
#include <catch2/catch.hpp>

#include <algorithm>

#include "sim/timeline/storage.hpp"
#include "tests/parallel_testing.hpp"
#include "tests/unit_cost.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

void check_equal_peaks(const Timeline& predicted, const Timeline& measured) {
  REQUIRE(predicted.peaks.size() == measured.peaks.size());
  for (std::size_t i = 0; i < predicted.peaks.size(); ++i) {
    CHECK(predicted.peaks[i].tier == measured.peaks[i].tier);
    CHECK(predicted.peaks[i].bytes == measured.peaks[i].bytes);
    CHECK(predicted.peaks[i].arena_bytes == measured.peaks[i].arena_bytes);
    CHECK(predicted.peaks[i].op == measured.peaks[i].op);
  }
  CHECK(predicted.spans.size() == measured.spans.size());
}

/// What blocks of storage hold at an instant, when what ends there is gone.
std::int64_t held_at(const std::vector<StorageBlock>& blocks, std::int64_t at) {
  std::int64_t sum = 0;
  for (const StorageBlock& b : blocks) sum += b.from_ps <= at && (at < b.to_ps || b.from_ps == b.to_ps) ? b.bytes : 0;
  return sum;
}

/// Blocks that are found in a timeline hold, at each sample, what was counted, and lie where the arena put them.
void check_blocks(const Timeline& timeline, const Plan& plan) {
  const Trace trace{timeline, describe(plan, StorageUses::Told), {}};
  REQUIRE(timeline.peaks.size() == 1);
  const std::vector<StorageBlock> blocks = storage_blocks(trace, RankId{0}, Tier::Device);
  std::int64_t top = 0;
  for (const StorageBlock& b : blocks) top = std::max(top, b.offset + b.bytes);
  CHECK(top == timeline.peaks[0].arena_bytes);
  std::size_t differ = 0;
  for (const MemorySample& m : timeline.memory)
    differ += m.at_ps > 0 && m.at_ps < timeline.makespan_ps && held_at(blocks, m.at_ps) != m.bytes;
  CHECK(differ == 0);
}

/// The first step of a program's first plan, executed.
Timeline executed_step(Program& program, const Model& model) {
  const Plan& plan = program.plans().front();
  auto executor = make_host_executor();
  executor->prepare(plan);
  fill(*executor, plan, model, 1, 0);
  const Step step = *program.next();
  put(*executor, plan, step.inputs);
  executor->execute(plan, step.bindings);
  return executor->take();
}

}  // namespace

TEST_CASE("the predicted peak of a training step equals the arena's count to the byte", "[memory]") {
  const auto* name =
      GENERATE("gpt2-tiny", "llama-tiny", "mixtral-tiny", "deepseek-tiny", "t5-tiny", "swin-tiny-test", "dlrm-tiny");
  const Recompute recompute = GENERATE(Recompute::None, Recompute::Full);
  INFO(name << " recompute " << static_cast<int>(recompute));
  const Model model = load_model(shipped_model(name));
  TrainOptions o;
  o.batch = 4;
  o.microbatches = 2;
  o.sequence = 24;
  o.recompute = recompute;
  auto program = training_program(model, o, single()->train_step(model, o, &host_workspaces()), {});
  const Plan& plan = program->plans().front();
  const UnitCost cost;
  const NoSharing sharing;
  Bindings bindings;
  bindings[Symbol::Step] = 1;
  const Timeline predicted = simulate(plan, bindings, cost, sharing);
  const Timeline measured = executed_step(*program, model);
  check_equal_peaks(predicted, measured);
  check_blocks(predicted, plan);
  check_blocks(measured, plan);
}

TEST_CASE("parts of tensors that each rank has elsewhere take no storage of their own", "[memory]") {
  const auto* s = GENERATE("{mesh: dp2, data: {kind: zero1, overlap: false}}",
                           "{mesh: dp2, data: {kind: zero1, owners: true, overlap: false}}");
  INFO(s);
  const Model model = load_model(shipped_model("gpt2-tiny"));
  TrainOptions o;
  o.batch = 4;
  o.sequence = 24;
  auto program = training_program(model, o, parallel(s)->train_step(model, o, &host_workspaces()), {});
  const Plan& plan = program->plans().front();
  Bindings bindings;
  bindings[Symbol::Step] = 1;
  const Timeline predicted = simulate(plan, bindings, UnitCost{}, NoSharing{});
  const Timeline measured = executed_step(*program, model);
  REQUIRE(predicted.peaks.size() == 1);  // of both ranks
  REQUIRE(measured.peaks.size() == 2);
  for (const Peak& p : measured.peaks) CHECK(p.bytes == predicted.peaks.front().bytes);
}

TEST_CASE("engine and runtime reserve the same with every allocator, over several steps", "[memory]") {
  const auto kind = GENERATE(AllocatorKind::BestFit, AllocatorKind::Buddy, AllocatorKind::PyTorch);
  const bool expandable = kind == AllocatorKind::PyTorch && GENERATE(false, true);
  AllocatorOptions allocator{.allocator = kind};
  allocator.expandable_segments = expandable;
  INFO(static_cast<int>(kind) << " " << expandable);
  const Model model = load_model(shipped_model("gpt2-tiny"));
  TrainOptions o;
  o.batch = 8;
  o.microbatches = 2;
  o.sequence = 96;
  auto program = training_program(model, o, single()->train_step(model, o, &host_workspaces()), {});
  const Plan& plan = program->plans().front();
  const UnitCost cost;
  const NoSharing sharing;
  Bindings bindings;
  bindings[Symbol::Step] = 1;
  Engine engine{cost, sharing, {.allocator = allocator}};
  auto executor = make_host_executor({.arena_bytes = std::int64_t{1} << 30, .allocator = allocator});
  executor->prepare(plan);
  fill(*executor, plan, model, 1, 0);
  const Step step = *program->next();
  for (int i = 0; i < 3; ++i) {
    put(*executor, plan, step.inputs);
    executor->execute(plan, step.bindings);
    engine.execute(plan, bindings);
  }
  const Timeline predicted = engine.take(), measured = executor->take();
  check_equal_peaks(predicted, measured);
  if (kind != AllocatorKind::BestFit) CHECK(predicted.peaks.front().arena_bytes > predicted.peaks.front().bytes);
}

TEST_CASE("full recomputation needs less activation memory and more arithmetic", "[memory]") {
  const Model model = load_model(shipped_model("llama-tiny"));
  const UnitCost cost;
  const NoSharing sharing;
  const auto measure = [&](Recompute recompute) {
    TrainOptions o;
    o.batch = 8;
    o.sequence = 64;
    o.recompute = recompute;
    const Plan plan = single()->train_step(model, o, nullptr);
    double flops = 0;
    for (const Op& op : plan.ops) flops += amount(plan.work(op)).flops.base();
    return std::pair{simulate(plan, {}, cost, sharing).peaks.front().bytes, flops};
  };
  const auto none = measure(Recompute::None), selective = measure(Recompute::Selective),
             full = measure(Recompute::Full);
  CHECK(full.first < selective.first);
  CHECK(selective.first < none.first);
  CHECK(full.second > selective.second);
  CHECK(selective.second > none.second);
}
