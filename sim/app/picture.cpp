// SPDX-License-Identifier: Apache-2.0
#include "sim/app/picture.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/app/uncertainty.hpp"
#include "sim/strategy/pipeline/draw.hpp"
#include "sim/timeline/render_text.hpp"

namespace orrery {
namespace {

constexpr double kMilli = 1e3, kMostCost = 1e9;
constexpr int kUsualWidth = 120, kMostWidth = 240;  // of pictures, in columns

/// Whether an op makes a gradient of weights, which schedules may put off.
bool is_weight_gradient(std::string_view name) { return name.ends_with(".dw") || name.ends_with(".db"); }

/// Durations of all forward passes, and of what backward passes do for inputs and for weights, over the stages of one
/// pipeline. Ops of the compute stream alone: what runs beside them does not make a pass longer.
struct PassSums {
  double forward = 0, input = 0, weight = 0;
  double hop = 0;  // the longest message
};

PassSums sum_passes(const Plan& plan, const OpCosts& costs) {
  PassSums sums;
  for (const RankClass& c : plan.classes)
    for (std::size_t i = c.first_op; i < c.first_op + c.num_ops; ++i) {
      const Op& op = plan.ops[i];
      const double t = costs[i].duration.base();
      if (std::holds_alternative<Send>(plan.work(op))) sums.hop = std::max(sums.hop, t);
      if (op.stream != Stream::Compute) continue;
      if (op.phase == Phase::Forward)
        sums.forward += t;
      else if (op.phase == Phase::Recompute || op.phase == Phase::Backward)
        (is_weight_gradient(plan.name_of(op)) ? sums.weight : sums.input) += t;
    }
  return sums;
}

/// Mean costs of the passes of a chunk in milliseconds.
PassCosts costs_of(const Plan& plan, const Schedule& schedule, const Machine& machine) {
  const PassSums sums = sum_passes(plan, OpCosts{*machine.cost, plan, {}});
  const double passes = double(schedule.parts) * schedule.microbatches;
  PassCosts c;
  c.forward = kMilli * sums.forward / passes;
  c.input_gradient = kMilli * sums.input / passes;
  c.weight_gradient = kMilli * sums.weight / passes;
  c.hop = kMilli * sums.hop;
  return c;
}

std::string draw_schedule(const Scenario& s, const Schedule& schedule, const Wiring& wiring,
                          const PictureOptions& options) {
  const DrawOptions how{.width = options.width.value_or(kUsualWidth),
                        .colours = options.colours ? DrawColours::Ansi : DrawColours::None,
                        .most = options.width ? 0 : kMostWidth};
  if (options.costs) return draw(schedule, time_schedule(schedule, *options.costs), how);
  const Machine machine = wiring.machine(s.options, s.cluster);
  const auto program = make_program(s, wiring, {.steps = 1});
  const PassCosts c = costs_of(program->plans().front(), schedule, machine);
  return draw(schedule, time_schedule(schedule, c), how) +
         fmt::format(
             "a chunk: forward {:.3g} ms, input gradient {:.3g} ms, weight gradient {:.3g} ms, message {:.3g} ms\n",
             c.forward, c.input_gradient, c.weight_gradient, c.hop);
}

}  // namespace

PassCosts parse_costs(const std::string& text) {
  std::vector<double> numbers;
  for (std::size_t first = 0; first <= text.size();) {
    const std::size_t end = std::min(text.find(',', first), text.size());
    const std::optional<double> v = parse_number(text.substr(first, end - first));
    if (!v || *v < 0 || *v > kMostCost) {
      numbers.clear();
      break;
    }
    numbers.push_back(*v);
    first = end + 1;
  }
  if (numbers.size() < 3 || numbers.size() > 4 || *std::max_element(numbers.begin(), numbers.begin() + 3) <= 0)
    throw UserError{fmt::format("option --costs is {}", in_quotes(text)),
                    "give three or four numbers, not all 0: forward, input gradient, weight gradient and, if you like, "
                    "a hop, such as 1,1,1,0.1"};
  return {.forward = numbers[0],
          .input_gradient = numbers[1],
          .weight_gradient = numbers[2],
          .hop = numbers.size() == 4 ? numbers[3] : 0};
}

std::string picture(const Scenario& s, const Wiring& wiring, const PictureOptions& options) {
  const auto strategy = wiring.strategy(s.strategy, s.strategy_options);
  const std::optional<Schedule> schedule =
      s.options.workload.train ? strategy->schedule(*s.options.workload.train) : std::nullopt;
  if (schedule) return draw_schedule(s, *schedule, wiring, options);
  if (options.costs)
    throw UserError{"--costs are those of a pipeline's passes, and the scenario has no pipeline",
                    "leave --costs out: the picture shows the simulated step"};
  const Machine machine = wiring.machine(s.options, s.cluster);
  const Simulation one = simulate_scenario(s, machine, wiring, 1, [](std::size_t) {});
  return render_text(one.recording.timeline, digests_of(*one.program), {.width = options.width.value_or(kUsualWidth)});
}

}  // namespace orrery
