// SPDX-License-Identifier: Apache-2.0
// Bubbles and activations of the pipeline schedules against the formulas of their papers. p stages, m microbatches; F,
// B and W are the times of forward, input gradient and weight gradient of one chunk, B' = B + W.
#include <algorithm>
#include <catch2/catch.hpp>

#include "sim/strategy/pipeline/schedules.hpp"
#include "sim/strategy/pipeline/timing.hpp"

using namespace orrery;

namespace {

constexpr PassCosts kEqual{};             // F = B = W
constexpr PassCosts kUneven{10, 14, 8};   // W < F < B, as in transformers
constexpr PassCosts kWhole{1, 0.5, 0.5};  // F = B': the count of slots in the Chimera paper
constexpr PassCosts kBothCosts[] = {kEqual, kUneven};

Timing timed(std::string_view name, const PipelineShape& shape, const PassCosts& costs = kEqual) {
  return time_schedule(make_schedule(name, shape), costs);
}

double peak(const Timing& t, std::int32_t stage) { return t.stages[static_cast<std::size_t>(stage)].peak; }

/// The idle time of every stage, which must be the same.
double idle(const Timing& t) {
  for (const StageTiming& s : t.stages) CHECK(s.idle == Approx(t.stages[0].idle).margin(1e-9));
  return t.stages[0].idle;
}

double least_gap(const Timing& t) {
  double gap = t.makespan;
  for (const StageTiming& s : t.stages) gap = std::min(gap, s.gap);
  return gap;
}

double largest_gap(const Timing& t) {
  double gap = 0;
  for (const StageTiming& s : t.stages) gap = std::max(gap, s.gap);
  return gap;
}

}  // namespace

TEST_CASE("gpipe idles (p-1)(F+B'), a share of (p-1)/(m+p-1), and holds all microbatches") {
  const std::int32_t p = GENERATE(1, 2, 4, 7), m = GENERATE(1, 4, 9);
  for (const PassCosts& c : kBothCosts) {
    const Timing t = timed("gpipe", {p, m}, c);
    CHECK(idle(t) == Approx((p - 1) * (c.forward + c.input_gradient + c.weight_gradient)).margin(1e-9));
    CHECK(t.bubble() == Approx(double(p - 1) / (m + p - 1)).margin(1e-9));
    for (std::int32_t i = 0; i < p; ++i) CHECK(peak(t, i) == m);
  }
}

TEST_CASE("1f1b has the bubble of gpipe and holds min(m, p-i) microbatches on stage i") {
  const std::int32_t p = GENERATE(1, 2, 4, 7), m = GENERATE(1, 4, 9, 16);
  for (const PassCosts& c : kBothCosts) {
    const Timing t = timed("1f1b", {p, m}, c);
    CHECK(idle(t) == Approx((p - 1) * (c.forward + c.input_gradient + c.weight_gradient)).margin(1e-9));
    CHECK(t.bubble() == Approx(double(p - 1) / (m + p - 1)).margin(1e-9));
    for (std::int32_t i = 0; i < p; ++i) CHECK(peak(t, i) == std::min(m, p - i));
  }
}

TEST_CASE("interleaved divides the bubble of 1f1b by the chunks") {
  // The paper has (p-1)/v·(F+B') with F and B' of a whole stage, which are v times those of a chunk: (p-1)(F+B') here.
  // It holds for every m ≥ p, a multiple of p or not.
  const std::int32_t p = GENERATE(2, 4, 5), v = GENERATE(2, 3, 4);
  for (const std::int32_t m : {p, p + 1, 2 * p - 1, 2 * p, 3 * p + 2})
    for (const PassCosts& c : kBothCosts) {
      const double whole = c.forward + c.input_gradient + c.weight_gradient;
      const Timing t = timed("interleaved", {p, m, v}, c);
      CHECK(idle(t) == Approx((p - 1) * whole));
      CHECK(idle(t) / (m * v * whole) == Approx(double(p - 1) / (v * m)));  // the share "over ideal"
    }
}

TEST_CASE("interleaved holds more than 1f1b: 1 + (p-1)/(pv) times as much on the first stage") {
  // 2(p-1) + (v-1)p + 1 chunks = vp + p - 1 of v to a microbatch: p(1 + (p-1)/(pv)), the formula of 1f1b's p scaled.
  const std::int32_t p = GENERATE(2, 4, 8), v = GENERATE(2, 4);
  const Timing t = timed("interleaved", {p, 4 * p, v});
  CHECK(peak(t, 0) / v == Approx(p * (1 + double(p - 1) / (p * v))));
  for (std::int32_t i = 0; i < p; ++i) CHECK(peak(t, i) == 2 * (p - 1 - i) + (v - 1) * p + 1);
}

TEST_CASE("chimera idles (D-2)/(2N+D-2) when forward and backward are equal, in units of D microbatches") {
  const std::int32_t d = GENERATE(2, 4, 6, 8), units = GENERATE(1, 2, 3);
  const std::int32_t n = units * d;
  const Timing t = timed("chimera", {d, n}, kWhole);
  CHECK(idle(t) == Approx(d - 2).margin(1e-9));
  CHECK(t.bubble() == Approx(double(d - 2) / (2 * n + d - 2)).margin(1e-9));
}

TEST_CASE("chimera with backwards twice as long idles (D-2)/(3N/2+D-2) for one unit, more for several") {
  const std::int32_t d = GENERATE(4, 6, 8);
  const double formula = double(d - 2) / (1.5 * d + d - 2);
  CHECK(timed("chimera", {d, d}).bubble() == Approx(formula));
  // One unit behind the other leaves idle slots between them, since forwards of the one stand beside backwards of the
  // other; the paper removes them by doubling the forwards, which is left out.
  CHECK(idle(timed("chimera", {d, 2 * d})) > 2 * (d - 2));
}

TEST_CASE("chimera holds D/2+1 microbatches at the ends and D in the middle") {
  const std::int32_t d = GENERATE(2, 4, 8), units = GENERATE(1, 3);
  const Timing t = timed("chimera", {d, units * d});
  for (std::int32_t i = 0; i < d; ++i) CHECK(peak(t, i) == d / 2 + 1 + std::min(i, d - 1 - i));
}

TEST_CASE("zb-h1 idles (p-1)(F+B-W): a third of 1f1b when all are equal") {
  const std::int32_t p = GENERATE(1, 2, 4, 8);
  for (const std::int32_t m : {p, p + 1, 2 * p, 5 * p})
    for (const PassCosts& c : kBothCosts)
      CHECK(idle(timed("zb-h1", {p, m}, c)) ==
            Approx((p - 1) * (c.forward + c.input_gradient - c.weight_gradient)).margin(1e-9));
  CHECK(3 * idle(timed("zb-h1", {p, 2 * p})) == Approx(idle(timed("1f1b", {p, 2 * p}))).margin(1e-9));
}

TEST_CASE("zb-h1 never holds more than the first stage of 1f1b") {
  const std::int32_t p = GENERATE(1, 2, 4, 8), m = GENERATE(1, 3, 8, 20);
  const Timing t = timed("zb-h1", {p, m});
  for (std::int32_t i = 0; i < p; ++i) CHECK(peak(t, i) == std::min(m, p));
}

TEST_CASE("zb-h1 holds less when the input gradient frees a part") {
  // Stage i holds p-i microbatches in full and i that wait for their weight gradient only: p - i + i·kept.
  PassCosts half = kEqual;
  half.kept = 0.5;
  const Timing t = timed("zb-h1", {4, 12}, half);
  for (std::int32_t i = 0; i < 4; ++i) CHECK(peak(t, i) == Approx(4 - i + 0.5 * i));
}

TEST_CASE("zb-v has no idle time between first and last action of a stage, from 2p-1 microbatches on") {
  // "Zero bubble" is that: stage i starts i·F late and ends as much later than the first. A step after which all stages
  // wait for each other takes (p-1)F longer, the least for any schedule that begins on one stage.
  const std::int32_t p = GENERATE(1, 2, 4, 5, 8);
  for (const std::int32_t m : {2 * p - 1, 2 * p, 4 * p}) {
    const Timing t = timed("zb-v", {p, m});
    CHECK(largest_gap(t) == 0);
    CHECK(idle(t) == p - 1);
  }
}

TEST_CASE("zb-v has gaps of 2(p-1)(B-W) when B > F > W and B + W = 2F, as its order is made for equal passes") {
  const std::int32_t p = GENERATE(2, 4, 8);
  CHECK(largest_gap(timed("zb-v", {p, 2 * p}, {10, 12, 8})) == Approx(2 * (p - 1) * (12 - 8)));
  CHECK(largest_gap(timed("zb-v", {p, 3 * p}, {10, 14, 6})) == Approx(2 * (p - 1) * (14 - 6)));
}

TEST_CASE("zb-v holds 2p chunks on every stage: the p microbatches of 1f1b, two chunks each") {
  const std::int32_t p = GENERATE(1, 2, 4, 8);
  const Timing t = timed("zb-v", {p, 3 * p});
  for (std::int32_t i = 0; i < p; ++i) CHECK(peak(t, i) == 2 * p);
}

TEST_CASE("dualpipe idles (p/2-1)(F&B + B' - 3W)") {
  // F&B is the time of an overlapped pair, B' of a whole backward. Without gain from the overlap, F&B = F + B', all
  // stages idle as long. It holds for W ≤ F ≤ B.
  const std::int32_t p = GENERATE(2, 4, 6, 8);
  for (PassCosts c : kBothCosts) {
    c.pair = c.forward + c.input_gradient + c.weight_gradient;
    const double formula = (p / 2 - 1) * (*c.pair + c.input_gradient + c.weight_gradient - 3 * c.weight_gradient);
    CHECK(idle(timed("dualpipe", {p, 2 * p}, c)) == Approx(formula).margin(1e-9));
    CHECK(idle(timed("dualpipe", {p, 2 * p + 4}, c)) == Approx(formula).margin(1e-9));
  }
}

TEST_CASE("dualpipe with shorter pairs idles as its formula says on the middle stages, less on the others") {
  PassCosts c = kEqual;
  c.pair = 2.5;
  const Timing t = timed("dualpipe", {8, 20}, c);
  // (8/2-1)(2.5 + 2 - 3) = 4.5. A stage one further from the middle has one pair less of 2.5 and one forward and one
  // backward more of 3: it is busy for 0.5 longer.
  for (std::int32_t i = 0; i < 8; ++i)
    CHECK(t.stages[static_cast<std::size_t>(i)].idle == Approx(4.5 - 0.5 * (3 - std::min(i, 7 - i))));
}

TEST_CASE("dualpipe without overlap idles (p/2-1)(F+B-W), since forwards leave before the backward of their pair") {
  // That is its formula with F&B = F + W in place of F + B': what a forward waits for is no longer the backward.
  const std::int32_t p = GENERATE(2, 4, 8);
  CHECK(idle(timed("dualpipe", {p, 2 * p})) == Approx(p / 2 - 1).margin(1e-9));
}

TEST_CASE("dualpipe holds p+1 chunks on every stage") {
  const std::int32_t p = GENERATE(2, 4, 8);
  const Timing t = timed("dualpipe", {p, 2 * p + 4});
  for (std::int32_t i = 0; i < p; ++i) CHECK(peak(t, i) == p + 1);
}

TEST_CASE("a hop delays the first microbatch on its way there and back") {
  // 1f1b, p = 3, m = 1: 3 forwards, 3 backwards of 2, and 2 + 2 hops.
  PassCosts c = kEqual;
  c.hop = 0.25;
  CHECK(timed("1f1b", {3, 1}, c).makespan == 3 + 3 * 2 + 4 * 0.25);
  // zb-v, p = 2, m = 1: 4 forwards, 4 input gradients and 2 weight gradients, since on stage 1 that of the way back
  // stands before the input gradient of the way there; the turn from part 1 to 2 stays on the stage: 2 + 2 hops.
  CHECK(timed("zb-v", {2, 1}, c).makespan == 4 + 4 + 2 + 4 * 0.25);
}

TEST_CASE("the gap of a stage is its idle time without the way to its start and from its end") {
  const Timing t = timed("1f1b", {4, 8});
  CHECK(least_gap(t) == 0);    // the last stage, once started, has always work
  CHECK(largest_gap(t) == 9);  // the first stage is there from the beginning to the end
}
