// SPDX-License-Identifier: Apache-2.0
// The texts of a validation: for people and as JSON.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "calibrate/statistics.hpp"
#include "sim/app/calibration.hpp"
#include "sim/app/instances.hpp"
#include "sim/app/validation.hpp"
#include "sim/base/table.hpp"

namespace orrery {
namespace {

constexpr double kMuchSlower = 0.05, kMuchDisturbed = 0.1;

std::string seconds(double s) { return to_text(Seconds{s}); }

/// The steady steps of a recording alone, as far as both sides have them.
Timeline comparable(const Timeline& t) {
  std::vector<std::uint32_t> steady = steady_instances(t);
  return packed(t, steady);
}

std::string peak_text(const ValidatedPlan& p) {
  const std::string predicted = to_text(Bytes{double(p.peak_predicted)});
  if (p.peak_predicted == p.peak_measured) return predicted + " =";
  return fmt::format("{} / {}", predicted, to_text(Bytes{double(p.peak_measured)}));
}

/// On how many plans the prediction of the peak is exact, and how far it is off on the others.
std::string peaks_text(Validations validations) {
  std::size_t exact = 0, all = 0;
  double above = 0, below = 0;
  for (const Validation* v : validations)
    for (const ValidatedPlan& p : v->plans) {
      ++all;
      exact += p.peak_predicted == p.peak_measured;
      if (p.peak_measured == 0) continue;
      const double error = double(p.peak_predicted) / double(p.peak_measured) - 1;
      above = std::max(above, error), below = std::min(below, error);
    }
  std::string text = fmt::format("peak memory is exact on {} of {} plan{}", exact, all, all == 1 ? "" : "s");
  if (exact < all)
    text +=
        fmt::format(", off by {:+.1f} % to {:+.1f} % on the others: streams of a rank free storage in another order",
                    100 * below, 100 * above);
  return text;
}

/// Whether the machine was idle, and as fast as when it was calibrated.
std::string drift_text(const Validation& v) {
  if (!v.is_probed) return "on GPUs one plan after another";
  std::string text = fmt::format("a fixed work between them varied by {:.1f} % (at most {:.1f} %)", 100 * v.drift,
                                 100 * v.worst_drift);
  if (std::abs(v.slowdown) > kMuchSlower)
    text += fmt::format("\n  the machine is {:.0f} % {} than when it was calibrated", 100 * std::abs(v.slowdown),
                        v.slowdown > 0 ? "slower" : "faster");
  if (std::abs(v.memory_slowdown) > kMuchSlower)
    text += fmt::format("\n  a pass over memory takes {:.2f} times as long as when it was calibrated",
                        1 + v.memory_slowdown);
  if (v.cores) text += fmt::format("\n  all cores together did the work of {:.2f}", *v.cores);
  if (v.disturbed > kMuchDisturbed)
    text += fmt::format("\n  the machine was not idle: something else used the cores at {:.0f} % of those samples",
                        100 * v.disturbed);
  return text;
}

/// How many rounds count, and how much something else slowed the cores meanwhile.
std::string rounds_text(const Validation& v) {
  const std::size_t count = v.plans.front().samples.size();
  std::size_t fewest = SIZE_MAX, most = 0;
  double mean = 0, worst = 0;
  for (const ValidatedPlan& p : v.plans) {
    fewest = std::min(fewest, p.rounds), most = std::max(most, p.rounds);
    mean += p.disturbed / double(v.plans.size()), worst = std::max(worst, p.disturbed);
  }
  if (most <= count) return fmt::format("median of {} rounds in turns", count);
  return fmt::format(
      "median of {} rounds of {} in turns, in which the cores were slowed least: by {:.0f} % on average, {:.0f} % at "
      "worst",
      count, fewest == most ? fmt::format("{}", most) : fmt::format("{} to {}", fewest, most),
      100 * std::max(0.0, mean), 100 * worst);
}

/// What others took of the cores in the rounds that count is not of the plans, nor is another clock.
std::string taken_out_text(const Validation& v) {
  const bool any =
      std::any_of(v.plans.begin(), v.plans.end(), [](const ValidatedPlan& p) { return p.as_run != p.measured; });
  if (!any) return "";
  return fmt::format(
      "  what others slowed, and another clock, is taken out of the measured times; as they ran: mean error {:.1f} %, "
      "worst {:.1f} %\n",
      100 * v.mean_abs_error_as_run(), 100 * v.worst_abs_error_as_run());
}

std::string intervals_text(Validations validations) {
  Table table{{{"90 % intervals"},
               {"predictions", Align::Right},
               {"inside", Align::Right},
               {"median half-width", Align::Right},
               {"median error", Align::Right}}};
  for (const IntervalCheck& c : intervals_of(validations))
    table.add({c.what, std::to_string(c.count), fmt::format("{:.1f} %", 100 * c.coverage),
               fmt::format("{:.1f} %", 100 * c.median_half_width), fmt::format("{:.1f} %", 100 * c.median_abs_error)});
  return table.text("  ");
}

/// Its intervals of ops and plans together.
IntervalCheck all_intervals(Validations validations) {
  for (IntervalCheck& c : intervals_of(validations))
    if (c.what == kOpsAndPlans) return std::move(c);
  return {};
}

double worst_abs_error(Validations validations) {
  double worst = 0;
  for (const Validation* v : validations) worst = std::max(worst, v->worst_abs_error());
  return worst;
}

/// Each plan's errors behind each calibration, beside the median of what it took.
std::string errors_text(Validations validations) {
  std::vector<Table::Column> columns{{"plan"}, {"measured", Align::Right}};
  for (std::size_t i = 0; i < validations.size(); ++i)
    columns.push_back({fmt::format("error {}", i + 1), Align::Right});
  columns.push_back({"inside", Align::Right});
  Table table{columns};
  for (std::size_t p = 0; p < validations.front()->plans.size(); ++p) {
    std::vector<double> measured;
    std::vector<std::string> errors;
    std::size_t inside = 0;
    for (const Validation* v : validations) {
      measured.push_back(v->plans[p].measured);
      errors.push_back(fmt::format("{:+.1f} %", 100 * v->plans[p].error()));
      inside += v->plans[p].is_covered();
    }
    std::vector<std::string> row{validations.front()->plans[p].name, seconds(median(std::move(measured)))};
    row.insert(row.end(), errors.begin(), errors.end());
    row.push_back(fmt::format("{} of {}", inside, validations.size()));
    table.add(std::move(row));
  }
  return table.text("  ");
}

std::string calibrations_text(Validations validations) {
  Table table{{{"calibration"},
               {"mean error", Align::Right},
               {"worst", Align::Right},
               {"ops and plans", Align::Right},
               {"inside", Align::Right},
               {"median half-width", Align::Right},
               {"median error", Align::Right},
               {"cores used by others", Align::Right}}};
  const auto add = [&](std::string name, Validations some) {
    const IntervalCheck c = all_intervals(some);
    double disturbed = 0;
    for (const Validation* v : some) disturbed += v->disturbed / double(some.size());
    table.add({std::move(name), fmt::format("{:.1f} %", 100 * mean_abs_error(some)),
               fmt::format("{:.1f} %", 100 * worst_abs_error(some)), std::to_string(c.count),
               fmt::format("{:.1f} %", 100 * c.coverage), fmt::format("{:.1f} %", 100 * c.median_half_width),
               fmt::format("{:.1f} %", 100 * c.median_abs_error), fmt::format("{:.0f} %", 100 * disturbed)});
  };
  std::vector<const Validation*> idle;
  for (std::size_t i = 0; i < validations.size(); ++i) {
    add(std::to_string(i + 1), validations.subspan(i, 1));
    if (validations[i]->is_idle()) idle.push_back(validations[i]);
  }
  add("together", validations);
  if (!idle.empty() && idle.size() < validations.size())
    add(fmt::format("idle below {:.0f} %", 100 * kOftenDisturbed), idle);
  return table.text("  ");
}

/// The plans with their intervals, and what the machine did meanwhile.
std::string text_of_one(const Validation& v, const Console& console) {
  Table table{{{"plan"},
               {"predicted", Align::Right},
               {"90 % interval", Align::Right},
               {"measured", Align::Right},
               {"error", Align::Right},
               {""},
               {"peak memory", Align::Right}}};
  for (const ValidatedPlan& p : v.plans)
    table.add({p.name, seconds(p.predicted), fmt::format("{} … {}", seconds(p.low), seconds(p.high)),
               seconds(p.measured), fmt::format("{:+.1f} %", 100 * p.error()), p.is_covered() ? "inside" : "outside",
               peak_text(p)});
  std::string text = fmt::format("{} on {}\n\n", console.bold("predicted and measured"), v.machine) + table.text("  ");
  text += fmt::format(
      "\n  mean error {} over {} plan{}, worst {:.1f} %; {:.0f} % of measurements inside of their 90 % interval\n",
      console.bold(fmt::format("{:.1f} %", 100 * v.mean_abs_error())), v.plans.size(), v.plans.size() == 1 ? "" : "s",
      100 * v.worst_abs_error(), 100 * v.coverage());
  text += fmt::format("  {}\n", peaks_text(std::array{&v}));
  text += fmt::format("  {}; {}\n", rounds_text(v), drift_text(v));
  text += taken_out_text(v);
  return text + "\n" + intervals_text(std::array{&v});
}

}  // namespace

std::string to_text(Validations validations, const Console& console) {
  if (validations.size() == 1) return text_of_one(*validations.front(), console);
  std::string text = fmt::format("{} behind each of {} calibrations of {}\n\n", console.bold("predicted and measured"),
                                 validations.size(), validations.front()->machine);
  text += errors_text(validations) + fmt::format("\n  {}\n\n", peaks_text(validations));
  return text + calibrations_text(validations) + "\n" + intervals_text(validations);
}

double mean_abs_error(Validations validations) {
  double mean = 0;  // each has the same plans
  for (const Validation* v : validations) mean += v->mean_abs_error() / double(validations.size());
  return mean;
}

std::string worst_ops_text(const ValidatedPlan& p, std::size_t rows) {
  const Timeline reference = comparable(p.measurement), candidate = comparable(p.prediction);
  const Comparison c = compare(reference, p.plans, candidate, p.plans);
  const double steps = double(reference.instance_ends_ps.size());
  Table table{{{"ops"}, {"predicted", Align::Right}, {"measured", Align::Right}, {"of the step", Align::Right}}};
  for (std::size_t i = 0; i < std::min(rows, c.by_pattern.size()); ++i) {
    const ErrorRow& r = c.by_pattern[i];
    table.add({r.name, seconds(r.candidate / steps), seconds(r.reference / steps),
               fmt::format("{:+.1f} %", 100 * r.difference() / c.reference_seconds)});
  }
  return table.text("  ");
}

namespace {

nlohmann::json intervals_json(Validations validations) {
  nlohmann::json intervals = nlohmann::json::array();
  for (const IntervalCheck& c : intervals_of(validations))
    intervals.push_back({{"of", c.what},
                         {"count", c.count},
                         {"coverage", c.coverage},
                         {"median_half_width", c.median_half_width},
                         {"median_abs_error", c.median_abs_error}});
  return intervals;
}

nlohmann::json json_of_one(const Validation& v) {
  nlohmann::json plans = nlohmann::json::array();
  for (const ValidatedPlan& p : v.plans) {
    nlohmann::json ops = nlohmann::json::array();
    for (const ValidatedOp& o : p.ops)
      ops.push_back({{"class", name_of(o.kind)},
                     {"work", o.text},
                     {"predicted", o.predicted},
                     {"low", o.low},
                     {"high", o.high},
                     {"measured", o.measured}});
    plans.push_back({{"name", p.name},
                     {"predicted", p.predicted},
                     {"low", p.low},
                     {"high", p.high},
                     {"measured", p.measured},
                     {"as_run", p.as_run},
                     {"error", p.error()},
                     {"peak_predicted", p.peak_predicted},
                     {"peak_measured", p.peak_measured},
                     {"samples", p.samples},
                     {"rounds", p.rounds},
                     {"disturbed", p.disturbed},
                     {"inside", p.is_covered()},
                     {"model_flops", p.report.model_flops},
                     {"calibrated", p.report.calibrated},
                     {"ops", ops}});
  }
  return {{"schema_version", kSchemaVersion},
          {"plans", plans},
          {"intervals", intervals_json(std::array{&v})},
          {"mean_abs_error", v.mean_abs_error()},
          {"worst_abs_error", v.worst_abs_error()},
          {"mean_abs_error_as_run", v.mean_abs_error_as_run()},
          {"worst_abs_error_as_run", v.worst_abs_error_as_run()},
          {"coverage", v.coverage()},
          {"machine", v.machine},
          {"parameters", v.parameters},
          {"drift", v.drift},
          {"worst_drift", v.worst_drift},
          {"disturbed", v.disturbed},
          {"slowdown", v.slowdown},
          {"memory_slowdown", v.memory_slowdown},
          {"cores", v.cores ? nlohmann::json(*v.cores) : nlohmann::json()},
          {"wall_seconds", v.seconds}};
}

}  // namespace

nlohmann::json to_json(Validations validations) {
  if (validations.size() == 1) return json_of_one(*validations.front());
  nlohmann::json each = nlohmann::json::array();
  for (const Validation* v : validations) each.push_back(json_of_one(*v));
  return {{"schema_version", kSchemaVersion},
          {"validations", each},
          {"intervals", intervals_json(validations)},
          {"mean_abs_error", mean_abs_error(validations)},
          {"worst_abs_error", worst_abs_error(validations)}};
}

}  // namespace orrery
