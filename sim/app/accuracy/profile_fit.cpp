// SPDX-License-Identifier: Apache-2.0
#include "sim/app/accuracy/profile_fit.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "calibrate/published/split.hpp"
#include "sim/base/parallel.hpp"

namespace orrery {
namespace {

constexpr double kMostFitted = 0.3, kHeldOut = 2.0 / 3;
constexpr double kPull = 0.01;  // per squared logarithm
constexpr double kFirstStep = 0.32;
constexpr double kDoubt = 0.01;  // of effects that are added up, by the step
constexpr double kLeastProfileDeviation = 0.03;

template <double SoftwareProfile::*kMember>
ProfileNumber factor(double least, double most, std::vector<double> tries = {}) {
  return {[](const SoftwareProfile& p) { return p.*kMember; }, [](SoftwareProfile& p, double v) { p.*kMember = v; },
          least, most, std::move(tries)};
}
template <Seconds SoftwareProfile::*kMember>
ProfileNumber time_of_host(double most, std::vector<double> tries = {}) {
  return {[](const SoftwareProfile& p) { return std::max((p.*kMember).base() * 1e6, 1e-2); },
          [](SoftwareProfile& p, double v) { p.*kMember = Seconds{v * 1e-6}; }, 1e-2, most, std::move(tries)};
}

using Numbers = std::vector<double>;  // logarithms

/// One search: the numbers of a profile between their bounds.
class Search {
 public:
  Search(const SoftwareProfile& start, const ProfileCases& cases, const std::vector<std::size_t>& fitted)
      : start_{start}, cases_{cases}, fitted_{fitted} {
    for (const ProfileNumber& n : *cases.numbers) first_.push_back(std::log(std::clamp(n.get(start), n.least, n.most)));
  }

  /// Single values that may be far away, then a step up and down on each number, then one up on one and down on
  /// another; halves the step when none helps.
  SoftwareProfile run() {
    best_ = trial(first_);
    for (std::size_t i = 0; i < first_.size(); ++i)
      for (const double v : (*cases_.numbers)[i].tries) {
        Numbers next = first_;
        next[i] = std::log(v);
        take(trial(next));
      }
    for (double step = kFirstStep; step >= cases_.last_step; step /= 2) {
      effects_.assign(first_.size(), {});
      while (improve(step) || trade(step)) {
      }
    }
    return with(best_.numbers);
  }

 private:
  struct Trial {
    Numbers numbers;
    std::vector<double> errors;
    double cost = 0;
  };
  /// What a step up and one down on a number added to each error, when they were tried last; empty where unknown.
  struct Effect {
    std::vector<double> up, down;
  };

  SoftwareProfile with(const Numbers& n) const {
    SoftwareProfile p = start_;
    for (std::size_t i = 0; i < n.size(); ++i) (*cases_.numbers)[i].set(p, std::exp(n[i]));
    return p;
  }

  double cost(const Numbers& n, const std::vector<double>& errors) const {
    double pull = 0, sum = 0;
    for (std::size_t i = 0; i < n.size(); ++i) pull += (n[i] - first_[i]) * (n[i] - first_[i]);
    for (const double e : errors) sum += std::abs(e);
    return sum / double(std::max<std::size_t>(1, errors.size())) + kPull * pull / double(n.size());
  }

  Trial trial(const Numbers& n) const {
    Trial t{n, cases_.errors(fitted_, with(n))};
    t.cost = cost(n, t.errors);
    return t;
  }

  bool take(Trial next) {
    if (next.cost >= best_.cost - 1e-6) return false;
    best_ = std::move(next);
    return true;
  }

  bool is_legal(const Numbers& n, std::size_t i) const {
    const ProfileNumber& number = (*cases_.numbers)[i];
    return n[i] >= std::log(number.least) && n[i] <= std::log(number.most);
  }

  bool improve(double step) {
    bool helped = false;
    for (std::size_t i = 0; i < first_.size(); ++i)
      for (const double by : {step, -step}) {
        Numbers next = best_.numbers;
        next[i] += by;
        if (!is_legal(next, i)) continue;
        Trial t = trial(next);
        learn(i, by > 0, t);
        if (take(std::move(t))) {
          helped = true;
          break;
        }
      }
    return helped;
  }

  void learn(std::size_t i, bool is_up, const Trial& t) {
    if (t.errors.size() != best_.errors.size()) return;
    std::vector<double> by = t.errors, back = by;
    for (std::size_t k = 0; k < by.size(); ++k) by[k] -= best_.errors[k], back[k] = -by[k];
    (is_up ? effects_[i].up : effects_[i].down) = std::move(by);
    std::vector<double>& other = is_up ? effects_[i].down : effects_[i].up;
    if (other.empty()) other = std::move(back);
  }

  /// What one number takes too much another may take too little of.
  bool trade(double step) {
    bool helped = false;
    for (std::size_t i = 0; i < first_.size(); ++i)
      for (std::size_t j = 0; j < first_.size(); ++j) {
        Numbers next = best_.numbers;
        next[i] += step, next[j] -= step;
        if (i == j || !is_legal(next, i) || !is_legal(next, j) || !promises(next, i, j, step)) continue;
        helped = take(trial(next)) || helped;
      }
    return helped;
  }

  /// Whether both steps together may help: their effects added up are better, or not worse by more than what the sum
  /// may be wrong by.
  bool promises(const Numbers& next, std::size_t i, std::size_t j, double step) const {
    std::vector<double> errors = best_.errors;
    const std::vector<double>&up = effects_[i].up, &down = effects_[j].down;
    if (up.size() != errors.size() || down.size() != errors.size()) return true;
    for (std::size_t k = 0; k < errors.size(); ++k) errors[k] += up[k] + down[k];
    return cost(next, errors) < best_.cost + kDoubt * step;
  }

  const SoftwareProfile& start_;
  const ProfileCases& cases_;
  const std::vector<std::size_t>& fitted_;
  Numbers first_;
  Trial best_;
  std::vector<Effect> effects_;  // of steps of the present size, by number
};

double mean_relative(const std::vector<double>& logs) {
  double sum = 0;
  for (const double x : logs) sum += std::abs(std::exp(x) - 1);
  return logs.empty() ? 0 : sum / double(logs.size());
}

/// The six numbers of steps, one of them replaced: 3 is the time of a launch, 5 the rate between nodes.
std::vector<ProfileNumber> steps_with(std::size_t index, ProfileNumber number) {
  std::vector<ProfileNumber> numbers = step_numbers();
  numbers.at(index) = std::move(number);
  return numbers;
}

}  // namespace

const std::vector<ProfileNumber>& step_numbers() {
  static const std::vector<ProfileNumber> all = {
      factor<&SoftwareProfile::products>(0.2, 2), factor<&SoftwareProfile::attention>(0.2, 2),
      factor<&SoftwareProfile::streams>(0.2, 2),  factor<&SoftwareProfile::launch>(0.2, 24, {3, 5, 8, 12, 16, 24}),
      factor<&SoftwareProfile::links>(0.02, 2),   factor<&SoftwareProfile::network>(0.2, 2)};
  return all;
}

const std::vector<ProfileNumber>& expert_numbers() {
  static const std::vector<ProfileNumber> all =
      steps_with(3, time_of_host<&SoftwareProfile::host_experts>(50000, {1000, 3000, 10000}));
  return all;
}

const std::vector<ProfileNumber>& pass_numbers() {
  static const std::vector<ProfileNumber> all =
      steps_with(5, time_of_host<&SoftwareProfile::host_step>(20000, {100, 300, 1000, 3000}));
  return all;
}

const std::vector<ProfileNumber>& sequence_numbers() {
  static const std::vector<ProfileNumber> all =
      steps_with(5, time_of_host<&SoftwareProfile::host_sequence>(1000, {10, 30, 100, 300}));
  return all;
}

const std::vector<ProfileNumber>& server_numbers() {
  static const std::vector<ProfileNumber> all = {
      factor<&SoftwareProfile::products>(0.2, 2),          factor<&SoftwareProfile::streams>(0.2, 2),
      factor<&SoftwareProfile::launch>(0.2, 24, {4, 8}),   time_of_host<&SoftwareProfile::host_step>(20000),
      time_of_host<&SoftwareProfile::host_sequence>(1000), time_of_host<&SoftwareProfile::host_request>(1e6),
      time_of_host<&SoftwareProfile::host_token>(1000)};
  return all;
}

ProfileCases cases_of_steps(std::vector<ProfileCase>& cases, const std::vector<ProfileNumber>& numbers) {
  ProfileCases out{.rows = {}, .numbers = &numbers, .errors = {}};
  for (const ProfileCase& c : cases) out.rows.push_back({c.row_id, c.model});
  out.errors = [&cases](const std::vector<std::size_t>& rows, const SoftwareProfile& profile) {
    std::vector<double> errors(rows.size());
    in_parallel(rows.size(), [&](std::size_t i) {
      const ProfileCase& c = cases[rows[i]];
      c.machine.cost->reset_parameters();
      profile.apply(*c.machine.cost);
      errors[i] = std::log(c.predict(c.machine, profile) / c.measured);
    });
    return errors;
  };
  return out;
}

double place_of(std::string_view id) { return double(hash_of_id(id) >> 11) * 0x1p-53; }

ProfileSplit split_for_profile(const std::vector<RowOfModel>& cases) {
  std::set<std::string> models;
  for (const RowOfModel& c : cases) models.insert(c.model);
  ProfileSplit split;
  if (models.size() > 1) {
    for (const std::string& m : models)
      if (place_of(m) >= kHeldOut && split.held_out.size() + 1 < models.size()) split.held_out.push_back(m);
    if (split.held_out.empty())
      split.held_out.push_back(*std::max_element(
          models.begin(), models.end(), [](const auto& a, const auto& b) { return place_of(a) < place_of(b); }));
  }
  std::vector<std::size_t> rest;
  for (std::size_t i = 0; i < cases.size(); ++i)
    if (std::find(split.held_out.begin(), split.held_out.end(), cases[i].model) == split.held_out.end())
      rest.push_back(i);
  std::sort(rest.begin(), rest.end(),
            [&](std::size_t a, std::size_t b) { return place_of(cases[a].row_id) < place_of(cases[b].row_id); });
  rest.resize(std::min(rest.size(), static_cast<std::size_t>(kMostFitted * double(cases.size()))));
  split.fitted.assign(cases.size(), false);
  for (const std::size_t i : rest) split.fitted[i] = true;
  return split;
}

ProfileFit fit_profile(const SoftwareProfile& start, const ProfileCases& cases) {
  const ProfileSplit split = split_for_profile(cases.rows);
  std::vector<std::size_t> fitted, rest, held;
  for (std::size_t i = 0; i < cases.rows.size(); ++i) {
    const bool out =
        std::find(split.held_out.begin(), split.held_out.end(), cases.rows[i].model) != split.held_out.end();
    (split.fitted[i] && fitted.size() < cases.most ? fitted : out ? held : rest).push_back(i);
  }
  ProfileFit fit{.profile = start, .rows = cases.rows.size(), .fitted = fitted.size(), .held_out = split.held_out};
  fit.profile = Search{start, cases, fitted}.run();
  const std::vector<double> errors = cases.errors(fitted, fit.profile);
  fit.error_fitted = mean_relative(errors);
  fit.error_rest = mean_relative(cases.errors(rest, fit.profile));
  fit.error_held_out = mean_relative(cases.errors(held, fit.profile));
  double squares = 0;
  for (const double e : errors) squares += e * e;
  fit.profile.deviation =
      std::max(kLeastProfileDeviation, std::sqrt(squares / double(std::max<std::size_t>(1, errors.size()))));
  return fit;
}

}  // namespace orrery
