// SPDX-License-Identifier: Apache-2.0
// The strategy patrickstar with the tracer of its first releases: how much it keeps free of what it saw.
#include <catch2/catch.hpp>

#include <optional>
#include <set>

#include "sim/base/error.hpp"
#include "sim/strategy/offload/chunked_states.hpp"
#include "tests/offload_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

/// Per op: bytes of what is neither model data nor its gradient, where the op is about to read a parameter; else none.
std::vector<std::optional<std::int64_t>> moments_of(const Plan& plan) {
  const auto is_model = [&](TensorId t) {
    const TensorRole role = plan.tensors[t.index()].role;
    return role == TensorRole::Parameter || role == TensorRole::Gradient || role == TensorRole::OptimizerState;
  };
  const auto bytes = [&](TensorId t) {
    return static_cast<std::int64_t>(ceil_to(plan.size(t), kAllocationUnit).base());
  };
  std::set<std::uint32_t> stays;
  std::int64_t live = 0;
  for (const Op& op : plan.ops)
    for (const Operand& o : plan.operands_of(op))
      if (const TensorId t = plan.owner(o.tensor());
          plan.tensors[t.index()].persistent && !is_model(t) && stays.insert(t.value).second)
        live += bytes(t);
  std::vector<std::optional<std::int64_t>> out;
  for (const Op& op : plan.ops) {
    bool asks = false;
    for (const Operand& o : plan.operands_of(op))
      asks = asks || (o.reads() && plan.tensors[plan.owner(o.tensor()).index()].role == TensorRole::Parameter);
    out.push_back(asks && op.phase != Phase::Optimizer ? std::optional{live} : std::nullopt);
    for (const Operand& o : plan.operands_of(op))
      if (const TensorId t = plan.owner(o.tensor()); !is_model(t)) live += (o.allocates() - o.frees()) * bytes(t);
  }
  return out;
}

}  // namespace

/// usable − 1.5·max(seen last, seen next) in the forward pass, which has no gradients; 2 times as much behind it.
TEST_CASE("a tracer that looks when weights are asked for keeps more free than it saw", "[offload]") {
  const Model model = small_model("gpt2");
  TrainOptions o = offload_options();
  o.recompute = Recompute::Whole;
  const Plan base = single()->train_step(model, o, nullptr);
  const std::vector<std::optional<std::int64_t>> moments = moments_of(base);
  std::int64_t most = 0, gradients = 0, forward = 0;
  for (const auto& m : moments) most = std::max(most, m.value_or(0));
  for (std::size_t t = 0; t < base.tensors.size(); ++t)
    if (base.tensors[t].base.is_none() && base.tensors[t].role == TensorRole::Gradient)
      gradients += static_cast<std::int64_t>(base.size(TensorId{t}).base());
  std::vector<ChunkCounts> counts;
  const ChunkOptions options{.chunk = least_chunk(base),
                             .device_memory = Bytes{2.0 * double(most) + 3.0 * 8 * double(least_chunk(base))},
                             .usable = 1,
                             .reserve = 0,
                             .tracer = MemoryTracer::Moments};
  chunk_states(base, options, nullptr, &counts);
  REQUIRE(counts.front().cached);
  const std::vector<CacheStep>& steps = counts.front().steps;
  const auto usable = static_cast<std::int64_t>(options.device_memory.base());
  for (std::int64_t last = 0; base.ops[std::size_t(forward)].phase == Phase::Forward; ++forward) {
    const auto i = static_cast<std::size_t>(forward);
    last = moments[i].value_or(last);
    const auto next = std::find_if(moments.begin() + forward + 1, moments.end(), [](const auto& m) { return m; });
    CHECK(steps[i].capacity == usable - static_cast<std::int64_t>(1.5 * double(std::max(last, **next))));
  }
  REQUIRE(forward > 20);
  std::int64_t least = usable;
  for (const CacheStep& s : steps) least = std::min(least, s.capacity);
  CHECK(least <= usable - 2 * most);
  CHECK(least >= usable - 2 * most - gradients);
  std::optional<Plan> plan;
  for (ChunkOptions executed = options; !plan; executed.device_memory += Bytes{4096.0}) try {  // until scratch has room
      counts.clear();
      plan = chunk_states(base, executed, &host_workspaces(), &counts);
    } catch (const UserError&) {
    }
  REQUIRE(counts.back().cached);
  const OffloadRun run = train_capped(model, o, *plan);
  CHECK(simulate_steps(*plan, o.steps).transfers == run.timeline.transfers);
  CHECK(difference(run.trained, train(model, o, *single())) < 1e-9);
}
