// SPDX-License-Identifier: Apache-2.0
// Steps of small language models of random sizes: what isolated ops cannot show is the state in which a step leaves the
// caches for its next op. No size is taken from a scenario or from the validation grid.
#include "sim/app/calibration_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "calibrate/draw.hpp"
#include "sim/app/drawn_model.hpp"
#include "sim/app/session.hpp"
#include "sim/app/wiring.hpp"

namespace orrery {
namespace {

constexpr double kStepWeight = 10;                     // of a point in a fit, against one of an op that stands alone
constexpr std::int64_t kWidest = 1024, kNarrow = 320;  // hidden sizes; narrow models stay in the caches
constexpr StepCounts kFullSteps{14, 6, 3, 3, 32, 8, 4, 12}, kQuickSteps{6, 2, 0, 0, 10, 3, 1, 4};

struct Sizes : DrawnModel {
  std::int64_t batch = 1, sequence = 64;

  double weights() const {
    return double(layers) * (4 * double(hidden * hidden) + 3 * double(hidden * ffn)) + double(vocab * hidden);
  }
  /// Of keys and values.
  double kept_bytes() const { return 2 * 4.0 * double(layers * batch * sequence * (hidden / heads) * kv_heads); }
};

Sizes draw_sizes(Random& r, std::int64_t most_layers, std::int64_t widest) {
  constexpr std::int64_t kDims[] = {32, 64, 64, 128};
  Sizes s{{.llama = r.below(2) == 0}};
  const std::int64_t dim = one_of(r, kDims);
  s.heads = std::max<std::int64_t>(1, log_integer(r, 96, widest) / dim);
  if (s.heads % 2 == 1 && s.heads > 1) ++s.heads;
  s.hidden = s.heads * dim;
  s.kv_heads = s.llama && s.heads % 2 == 0 && r.below(2) == 0 ? s.heads / 2 : s.heads;
  s.ffn = s.usual_ffn();
  s.vocab = width(r, 256, 32768);
  s.layers = log_integer(r, 1, most_layers);
  s.batch = log_integer(r, 1, 16);
  s.sequence = width(r, 64, 1024);
  return s;
}

Scenario make(const Sizes& s, const char* kind, Node workload, const Locations& locations) {
  Node of_kind = Node::map();
  of_kind.fields.emplace_back(kind, std::move(workload));
  Node document = Node::map();
  document.fields.emplace_back("model", config_of(s, s.sequence + 64));
  document.fields.emplace_back("workload", std::move(of_kind));
  const std::string name =
      fmt::format("{} h{} l{} {} s{} b{}", s.llama ? "llama" : "gpt2", s.hidden, s.layers, kind, s.sequence, s.batch);
  return make_scenario(std::move(document), name, locations);
}

std::vector<double> numbers(const PortValues& port) {
  return port.numbers.empty() ? std::vector<double>{port.indices.begin(), port.indices.end()} : port.numbers;
}

/// The step that stands for the program: the first of its last plan.
Step telling_step(Program& program, OutcomeSource& outcomes) {
  std::optional<Step> step = program.next();
  while (step && step->plan + 1 < program.plans().size()) {
    program.told(outcomes.outcome(program.plans()[step->plan], *step));
    step = program.next();
  }
  if (!step) bug("a program that calibration drew has no steps");
  return std::move(*step);
}

struct TrainingLimits {
  double least_flops = 0, most_flops = 0, least_weights = 0, most_weights = 0;
  std::int64_t fewest_layers = 1, most_layers = 4, least_hidden = 0;
  // Elements of the rows between layers, of which about 30 times as much is kept.
  double least_rows = 0, most_rows = std::numeric_limits<double>::infinity();
};

TrainingLimits limits_of(StepSize size) {
  switch (size) {
    case StepSize::Small:
      return {1e8, 6e9, 0, 9e6};
    // Tensors that no cache of a core holds: where a step passes on several MB at once, the last cache and memory
    // decide.
    case StepSize::Wide:
      return {6e9, 2.5e10, 0, 16e6, 1, 2, 448};
    // Weights, gradients and moments of 16 bytes each: all of them leave a last cache between two uses.
    case StepSize::Deep:
      return {2e9, 1.2e10, 8e6, 16e6, 3, 8};
    // And so does what the forward pass keeps for the backward one.
    case StepSize::Long:
      return {2e9, 1.6e10, 0, 9e6, 3, 8, 0, 7e5, 2e6};
  }
  bug("a size of steps without limits");
}

}  // namespace

Scenario draw_training(Random& r, StepSize size, const Locations& locations) {
  constexpr const char* kRecompute[] = {"none", "none", "selective", "full"};
  const TrainingLimits limits = limits_of(size);
  for (;;) {
    const Sizes s = draw_sizes(r, limits.most_layers, kWidest);
    const double tokens = double(s.batch * s.sequence), rows = tokens * double(s.hidden * s.layers);
    const double flops = 6 * s.weights() * tokens;
    if (rows < limits.least_rows || rows > limits.most_rows) continue;
    if (flops < limits.least_flops || flops > limits.most_flops) continue;
    if (s.weights() < limits.least_weights || s.weights() > limits.most_weights) continue;
    if (s.layers < limits.fewest_layers || s.hidden < limits.least_hidden) continue;
    return make(s, "train",
                map_of({{"batch", std::to_string(s.batch)},
                        {"sequence", std::to_string(s.sequence)},
                        {"recompute", one_of(r, kRecompute)}}),
                locations);
  }
}

namespace {

Node generation_of(const Sizes& s) {
  return map_of({{"batch", std::to_string(s.batch)}, {"prompt", std::to_string(s.sequence)}, {"tokens", "8"}});
}

}  // namespace

Scenario draw_generation(Random& r, StepSize size, const Locations& locations) {
  constexpr double kMost = 1e9, kMostWeights = 25e6;
  // What was said before a step passes through all caches between two uses of a weight, or does not fit into any. Long:
  // nor does what a single op reads of it.
  constexpr double kLeastOfWide = 12e6, kLeastOfLayer = 16e6, kMostKept = 120e6;
  for (;;) {
    const Sizes s = draw_sizes(r, 8, r.below(3) == 0 ? kNarrow : kWidest);
    if (2 * s.weights() * double(s.batch) > kMost || s.weights() > kMostWeights) continue;
    const double kept = s.kept_bytes();
    if (size != StepSize::Small && kept > kMostKept) continue;
    if (size == StepSize::Wide && kept < kLeastOfWide) continue;
    if (size == StepSize::Long && kept < double(s.layers) * kLeastOfLayer) continue;
    return make(s, "generate", generation_of(s), locations);
  }
}

Scenario draw_verification(Random& r, const Locations& locations) {
  constexpr double kMost = 4e9, kMostWeights = 25e6;
  constexpr std::int64_t kDepth = 2, kFewestNodes = 4, kMostNodes = 63;
  for (;;) {
    const Sizes s = draw_sizes(r, 8, r.below(3) == 0 ? kNarrow : kWidest);
    const std::int64_t nodes = log_integer(r, kFewestNodes, kMostNodes);
    // Each head of the drafter has an output matrix of its own.
    const double weights = s.weights() + double(kDepth * s.vocab * s.hidden);
    if (2 * s.weights() * double(s.batch * (1 + nodes)) > kMost || weights > kMostWeights) continue;
    Node workload = generation_of(s);
    workload.fields.emplace_back("speculate", map_of({{"method", "medusa"},
                                                      {"nodes", std::to_string(nodes)},
                                                      {"depth", std::to_string(kDepth)},
                                                      {"synthetic", "true"}}));
    return make(s, "generate", std::move(workload), locations);
  }
}

Bench step_bench(const Scenario& s, const Wiring& wiring) {
  const std::unique_ptr<Program> program = make_program(s, wiring, {.workspaces = &wiring.workspaces()});
  const Step step = telling_step(*program, *outcomes_of(s, wiring));
  Bench bench{program->plans()[step.plan], {}, step.bindings, kStepWeight};
  bench.plan.name = s.name;
  for (const Constant& c : bench.plan.constants) bench.contents.push_back({c.tensor, c.values({})});
  for (const PortValues& port : step.inputs) bench.contents.push_back({bench.plan.find_port(port.port), numbers(port)});
  return bench;
}

StepCounts calibration_counts(bool quick) { return quick ? kQuickSteps : kFullSteps; }

std::vector<Scenario> draw_scenarios(const StepCounts& counts, std::uint64_t seed, const Locations& locations) {
  Random random{seed, 1};
  std::vector<Scenario> drawn;
  const auto add = [&](std::int64_t count, const auto& draw) {
    for (std::int64_t i = 0; i < count; ++i) drawn.push_back(draw());
  };
  const auto training = [&](StepSize size) { return [&, size] { return draw_training(random, size, locations); }; };
  const auto generation = [&](StepSize size) { return [&, size] { return draw_generation(random, size, locations); }; };
  add(counts.trainings, training(StepSize::Small));
  add(counts.wide_trainings, training(StepSize::Wide));
  add(counts.deep_trainings, training(StepSize::Deep));
  add(counts.long_trainings, training(StepSize::Long));
  add(counts.generations, generation(StepSize::Small));
  add(counts.wide_generations, generation(StepSize::Wide));
  add(counts.long_generations, generation(StepSize::Long));
  add(counts.verifications, [&] { return draw_verification(random, locations); });
  return drawn;
}

std::vector<Bench> draw_steps(const StepCounts& counts, std::uint64_t seed, const Wiring& wiring) {
  std::vector<Bench> steps;
  for (const Scenario& s : draw_scenarios(counts, seed, wiring.locations())) steps.push_back(step_bench(s, wiring));
  return steps;
}

}  // namespace orrery
