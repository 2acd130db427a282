// SPDX-License-Identifier: Apache-2.0
// Simulated steps of pipelines against closed forms: idle time, and how many microbatches a stage holds.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "sim/engine/engine.hpp"
#include "sim/strategy/pipeline/schedules.hpp"
#include "sim/strategy/pipeline/timing.hpp"
#include "tests/engine_plans.hpp"
#include "tests/parallel_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr double kHidden = 32, kHeads = 4, kVocab = 64, kSequence = 16;

Model gpt(int layers) { return gpt2_of({.hidden = 32, .layers = layers, .heads = 4, .vocab = 64}); }

double elements(const Model& model) {
  double n = 0;
  for (const Parameter& p : model.parameters) n += double(p.elements());
  return n;
}

/// Microbatches of one sample.
Plan lower(const Model& model, int microbatches, const std::string& strategy) {
  TrainOptions o;
  o.batch = o.microbatches = microbatches;
  o.sequence = std::int64_t(kSequence);
  return parallel(strategy)->train_step(model, o, nullptr);
}

/// GEMMs of blocks take a microsecond, everything else nothing: with four of them forward, four for inputs and four for
/// weights a block has F = B = W.
class BlockCost final : public TableCost {
 public:
  OpCost cost(const Work& work, const Bindings&, RankId) const override {
    const auto* g = std::get_if<Gemm>(&work);
    const auto v = static_cast<std::int64_t>(kVocab);
    OpCost c;
    if (g && g->m != v && g->n != v && g->k != v) c.duration = 1.0_us;
    return c;
  }
  OpCost collective(const Collective&, std::span<const RankId>) const override { return {}; }
  OpCost transfer(Bytes, RankId, RankId) const override { return {}; }
};

/// A step of a pipeline of 8 blocks, in microseconds. No other size is that of the vocabulary.
double step_us(std::string_view schedule, int p, int m, int chunks) {
  const Plan plan = lower(gpt(8), m, fmt::format("{{mesh: pp{}, schedule: {}, chunks: {}}}", p, schedule, chunks));
  const BlockCost cost;
  return double(simulate(plan, {}, cost, NodeResources{static_cast<std::uint32_t>(p)}).makespan_ps) * 1e-6;
}

}  // namespace

/// F = B = W = 4·8/p µs of a stage; a v-th of it of a chunk.
TEST_CASE("simulated bubbles are those of the closed forms", "[parallel]") {
  const int p = GENERATE(2, 4), m = GENERATE(4, 8);
  const double f = 4.0 * 8 / p, busy = 3 * f * m;
  const auto bubble = [&](double step) { return (step - busy) / step; };
  INFO("p " << p << " m " << m);
  for (const auto* name : {"gpipe", "1f1b"})
    CHECK(bubble(step_us(name, p, m, 1)) == Approx(double(p - 1) / (m + p - 1)).epsilon(1e-9));
  // Interleaved: (p−1)(F+B')/v of idle time; zb-h1: (p−1)(F+B−W) = (p−1)F.
  CHECK(step_us("interleaved", p, m, 2) == Approx(busy + (p - 1) * 3 * f / 2).epsilon(1e-9));
  CHECK(step_us("zb-h1", p, m, 1) == Approx(busy + (p - 1) * f).epsilon(1e-9));
  if (m >= 2 * p - 1) CHECK(step_us("zb-v", p, m, 2) == Approx(busy + (p - 1) * f / 2).epsilon(1e-9));
}

TEST_CASE("simulated steps of all schedules are those of their lists", "[parallel]") {
  const int p = GENERATE(2, 4), m = 8;
  for (const ScheduleEntry& e : schedules()) {
    INFO(e.name << " p " << p);
    const Schedule s = make_schedule(e.name, {p, m, {}});
    const double f = 4.0 * 8 / (s.placement == Placement::Bidirectional ? p : p * s.chunks);
    const Timing t = time_schedule(s, {.forward = f, .input_gradient = f, .weight_gradient = f});
    CHECK(step_us(e.name, p, m, s.chunks) == Approx(t.makespan).epsilon(1e-9));
  }
}

/// min(m, p − i) microbatches at stage i of 1f1b, m of gpipe: the difference that one block more per stage makes.
TEST_CASE("a stage holds the activations of as many microbatches as its schedule says", "[parallel]") {
  const int p = 4, m = 8;
  const auto* schedule = GENERATE("gpipe", "1f1b");
  const BlockCost cost;
  const auto peaks = [&](int layers) {
    const Plan plan = lower(gpt(layers), m, fmt::format("{{mesh: pp4, schedule: {}}}", schedule));
    std::vector<double> out(std::size_t(p), 0.0);
    for (const Peak& peak : simulate(plan, {}, cost, NodeResources{4}).peaks)
      out[peak.rank.index()] = double(peak.bytes);
    return out;
  };
  const auto two = peaks(8), three = peaks(12);
  // Of a block and a sample, in float32: sixteen times the width per token, two norms, the log-sum-exp of the heads.
  const double kept = 4 * kSequence * (16 * kHidden + 4 + kHeads);
  const double block = 4 * (elements(gpt(12)) - elements(gpt(8))) / 4;  // parameters
  for (int i = 0; i < p; ++i) {
    INFO(schedule << " stage " << i);
    const double held = std::string_view{schedule} == "gpipe" ? m : std::min(m, p - i);
    // Weights, gradients and two moments of the block stand beside them.
    CHECK(three[std::size_t(i)] - two[std::size_t(i)] == held * kept + 4 * block);
  }
}

/// With hosts that take a microsecond to start an op, beside devices that compute in no time: a host that runs ahead
/// has started its ops when the messages come, one that waits starts them then. Hosts that take no time wait for free.
TEST_CASE("blocking stages of 1f1b start nothing before their messages have come", "[parallel]") {
  const int p = 4, m = 4;
  const auto step = [&](bool blocking, double launch_us) {
    BlockCost cost;
    cost.launch_cost = {Seconds{launch_us * 1e-6}, Seconds{0}, true};
    const Plan plan = lower(gpt(8), m, fmt::format("{{mesh: pp{}, blocking: {}}}", p, blocking));
    return double(simulate(plan, {}, cost, NodeResources{p}).makespan_ps);
  };
  CHECK(step(true, 1) > 1.2 * step(false, 1));
  CHECK(step(true, 0) == step(false, 0));
}
