// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/pipeline/timing.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/strategy/pipeline/run_lists.hpp"

namespace orrery {
namespace {

double duration(const PassCosts& costs, Pass pass) {
  switch (pass) {
    case Pass::Forward:
      return costs.forward;
    case Pass::Backward:
      return costs.input_gradient + costs.weight_gradient;
    case Pass::InputGradient:
      return costs.input_gradient;
    case Pass::WeightGradient:
      break;
  }
  return costs.weight_gradient;
}

/// The clocks of all stages and the ends of what they wait for.
class Clock {
 public:
  Clock(const Schedule& schedule, const PassCosts& costs)
      : schedule_{schedule},
        costs_{costs},
        free_(schedule.actions.size(), 0),
        ends_(2 * static_cast<std::size_t>(schedule.parts) * static_cast<std::size_t>(schedule.microbatches)) {}

  /// The time of actions that overlap, or of one; nothing while something that they need has no end yet.
  bool start(std::int32_t stage, std::span<const Action> actions, std::span<TimeRange> times) {
    const std::optional<double> ready = ready_at(stage, actions);
    if (!ready) return false;
    double& now = free_[static_cast<std::size_t>(stage)];
    now = std::max(now, *ready);
    const double end = now + (actions.size() == 2 ? *costs_.pair : duration(costs_, actions[0].pass));
    std::fill(times.begin(), times.end(), TimeRange{now, end});
    now = end;
    for (const Action& a : actions)
      if (const auto result = result_of(schedule_, stage, a)) ends_[result->index(schedule_)] = end;
    return true;
  }

 private:
  std::optional<double> ready_at(std::int32_t stage, std::span<const Action> actions) const {
    double ready = 0;
    for (const Action& a : actions)
      for (const PassResult& need : needs_of(schedule_, stage, a)) {
        const std::optional<double>& end = ends_[need.index(schedule_)];
        if (!end) return {};
        const bool is_local = schedule_.home(need.part, need.microbatch).stage == stage;
        ready = std::max(ready, *end + (is_local ? 0 : costs_.hop));
      }
    return ready;
  }

  const Schedule& schedule_;
  const PassCosts& costs_;
  std::vector<double> free_;
  std::vector<std::optional<double>> ends_;
};

double peak_activations(const std::vector<Action>& actions, double kept) {
  double live = 0, peak = 0;
  for (const Action& a : actions) {
    if (a.pass == Pass::Forward) live += 1;
    peak = std::max(peak, live);
    if (a.pass == Pass::Backward) live -= 1;
    if (a.pass == Pass::InputGradient) live -= 1 - kept;
    if (a.pass == Pass::WeightGradient) live -= kept;
  }
  return peak;
}

/// Actions of a pair have the same range, which counts once.
double busy_time(const std::vector<TimeRange>& times) {
  double busy = 0, until = 0;
  for (const TimeRange& t : times) {
    busy += t.end - std::max(t.start, until);
    until = t.end;
  }
  return busy;
}

}  // namespace

double Timing::bubble() const {
  double idle = 0;
  for (const StageTiming& s : stages) idle += s.idle;
  return makespan > 0 ? idle / (makespan * static_cast<double>(stages.size())) : 0;
}

double Timing::peak() const {
  double most = 0;
  for (const StageTiming& s : stages) most = std::max(most, s.peak);
  return most;
}

Timing time_schedule(const Schedule& schedule, const PassCosts& costs) {
  Schedule s = schedule;
  s.pairs = schedule.pairs && costs.pair;
  Timing timing;
  for (const auto& list : s.actions) timing.actions.emplace_back(list.size());
  Clock clock{s, costs};
  const auto next = run_lists(s, [&](std::int32_t stage, std::span<const Action> actions, std::size_t first) {
    const std::span<TimeRange> times = timing.actions[static_cast<std::size_t>(stage)];
    return clock.start(stage, actions, times.subspan(first, actions.size()));
  });
  for (std::size_t stage = 0; stage < next.size(); ++stage) {
    if (next[stage] != s.actions[stage].size()) bug("the stages of a checked pipeline schedule wait for each other");
    for (const TimeRange& t : timing.actions[stage]) timing.makespan = std::max(timing.makespan, t.end);
  }
  for (std::size_t stage = 0; stage < next.size(); ++stage) {
    const auto& times = timing.actions[stage];
    const double busy = busy_time(times), span = times.empty() ? 0 : times.back().end - times.front().start;
    timing.stages.push_back(
        {busy, timing.makespan - busy, span - busy, peak_activations(s.actions[stage], costs.kept)});
  }
  return timing;
}

}  // namespace orrery
