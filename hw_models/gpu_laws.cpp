// SPDX-License-Identifier: Apache-2.0
#include "hw_models/gpu_laws.hpp"

#include <algorithm>
#include <cmath>

namespace orrery {
namespace {

constexpr double kMostCorrection = 0.7;  // |ln| beyond which a smooth correction is not trusted
constexpr double kSlack = 1.0;           // log₂ outside of the fitted range that counts as inside
constexpr double kLeastSpread = 0.01, kMostSpread = 0.6;
constexpr double kLaunchInPlan = 2.5e-6;  // s; laws of harnesses that replay graphs have 1.4 to 2.4 us

/// Where a value lies between knots: linear in between, constant outside.
struct HatPlace {
  std::size_t index = 0;
  double above = 0;  // weight of index + 1
};

HatPlace place(std::span<const double> knots, double x) {
  if (x <= knots.front()) return {0, 0};
  if (x >= knots.back()) return {knots.size() - 2, 1};
  std::size_t i = 0;
  while (x > knots[i + 1]) ++i;
  return {i, (x - knots[i]) / (knots[i + 1] - knots[i])};
}

using Places = std::array<HatPlace, kMaxLawAxes>;

Places places(const GpuLawForm& form, const LawTime& at) {
  Places p;
  for (std::size_t i = 0; i < form.axes.size(); ++i) p[i] = place(form.axes[i].knots, at.axes[i]);
  return p;
}

/// Calls f(index, value) for each term of the correction's basis that is not 0.
template <class F>
void each_term(const GpuLawForm& form, const LawTime& at, F&& f) {
  const Places p = places(form, at);
  f(std::size_t{0}, 1.0);
  std::size_t first = 1;
  for (std::size_t i = 0; i < form.axes.size(); ++i)
    for (std::size_t j = i + 1; j < form.axes.size(); ++j) {
      const std::size_t columns = form.axes[j].knots.size();
      const std::size_t corner = first + p[i].index * columns + p[j].index;
      f(corner, (1 - p[i].above) * (1 - p[j].above));
      f(corner + 1, (1 - p[i].above) * p[j].above);
      f(corner + columns, p[i].above * (1 - p[j].above));
      f(corner + columns + 1, p[i].above * p[j].above);
      first += form.axes[i].knots.size() * columns;
    }
  for (std::size_t m = 0; m < form.marks.size(); ++m) f(first + m, at.marks[m]);
}

}  // namespace

std::size_t basis_size(const GpuLawForm& form) {
  std::size_t n = 1 + form.marks.size();
  for (std::size_t i = 0; i < form.axes.size(); ++i)
    for (std::size_t j = i + 1; j < form.axes.size(); ++j) n += form.axes[i].knots.size() * form.axes[j].knots.size();
  return n;
}

void basis_row(const GpuLawForm& form, const LawTime& at, double weight, std::span<double> row) {
  each_term(form, at, [&](std::size_t i, double v) { row[i] += weight * v; });
}

FittedLaw::FittedLaw(const GpuLawForm& form, const GpuLaw& law)
    : form_{&form}, eager_loop_{law.eager_loop}, loop_clock_{law.loop_clock}, growth_{law.growth} {
  for (std::size_t i = 0; i < form.parameters.size(); ++i)
    parameters_[i] = law.parameters.at(std::string{form.parameters[i].name});
  for (const std::vector<double>& row : law.correction) correction_.insert(correction_.end(), row.begin(), row.end());
  for (const std::vector<double>& row : law.spread) spread_.insert(spread_.end(), row.begin(), row.end());
  for (const LawAxis& a : form.axes) {
    const auto found = law.range.find(std::string{a.name});
    range_.emplace_back(found == law.range.end() ? -HUGE_VAL : found->second[0],
                        found == law.range.end() ? HUGE_VAL : found->second[1]);
  }
  const auto seconds = law.range.find("seconds");
  long_ = seconds == law.range.end() ? HUGE_VAL : seconds->second[1];
}

LawTime FittedLaw::in_place(const Work& work, const Bindings& bindings, GpuFacts gpu) const {
  const bool in_plan = gpu.sustained > 0;
  if (eager_loop_ && in_plan && loop_clock_ > 0) {
    gpu.peak *= gpu.sustained / loop_clock_;
    gpu.vector_rate *= gpu.sustained / loop_clock_;
  }
  if (eager_loop_) gpu.sustained = 0;
  LawTime t = form_->time(parameters_.data(), work, bindings, gpu);
  if (!eager_loop_ || !in_plan) return t;
  const double harness = std::max(0.0, t.launch - kLaunchInPlan * gpu.launch);
  t.launch -= harness, t.seconds -= harness;
  return t;
}

FittedLaw::Answer FittedLaw::operator()(const Work& work, const Bindings& bindings, const GpuFacts& gpu) const {
  Answer a;
  a.form = in_place(work, bindings, gpu);
  double correction = 0, spread = 0;
  if (is_corrected())
    each_term(*form_, a.form, [&](std::size_t i, double v) {
      correction += correction_[i] * v;
      spread += spread_[i] * v;
    });
  a.seconds = a.form.seconds * std::exp(std::clamp(correction, -kMostCorrection, kMostCorrection));
  const double beyond = std::max(0.0, std::log2(std::max(1e-12, a.form.seconds)) - long_);
  a.deviation =
      spread_.empty() ? 0 : std::hypot(std::clamp(std::exp(spread), kLeastSpread, kMostSpread), growth_ * beyond);
  return a;
}

std::optional<std::string> FittedLaw::outside(const Work& work, const Bindings& bindings, const GpuFacts& gpu) const {
  const LawTime at = form_->time(parameters_.data(), work, bindings, gpu);
  for (std::size_t i = 0; i < range_.size(); ++i)
    if (at.axes[i] < range_[i].first - kSlack || at.axes[i] > range_[i].second + kSlack)
      return std::string{form_->axes[i].name};
  return {};
}

}  // namespace orrery
