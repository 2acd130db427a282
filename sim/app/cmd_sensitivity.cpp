// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "hw_models/scales.hpp"
#include "sim/app/commands.hpp"
#include "sim/app/scenario_flags.hpp"
#include "sim/app/what_if.hpp"
#include "sim/base/table.hpp"

namespace orrery {
namespace {

/// How the step time answers to one parameter: elasticity = d ln(step time) / d ln(parameter), by central differences.
struct SensitivityRow {
  std::string_view name, summary;
  double elasticity = 0;
  double per_percent = 0;  // seconds of step time per 1 % more of the parameter
};

class Sensitivity final : public Command {
 public:
  std::string_view name() const override { return "sensitivity"; }
  std::string_view summary() const override { return "derivative of the step time by each hardware parameter"; }
  std::string_view arguments() const override { return "[SCENARIO]"; }
  Arity arity() const override { return {0, 1}; }

  std::vector<Flag> flags() override {
    std::vector<Flag> all = scenario_.flags();
    all.push_back({"--by", "PERCENT", "how far parameters are moved, up and down; default 1",
                   [this](const std::string& v) { by_ = percent_option("--by", v, 0.01, 99); }});
    return all;
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    const Scenario scenario = scenario_.load(arguments.empty() ? "" : arguments[0], context);
    const Report base = predict_changed(scenario, {}, context);
    std::vector<SensitivityRow> rows;
    for (const KnobInfo& knob : knobs()) {
      context.console.progress("re-simulating", double(rows.size()) / kNumKnobs);
      rows.push_back(row_of(knob, scenario, base, context));
    }
    std::stable_sort(rows.begin(), rows.end(), [](const SensitivityRow& a, const SensitivityRow& b) {
      return std::abs(a.elasticity) > std::abs(b.elasticity);
    });
    context.console.end_progress();
    context.console.out(context.json ? document(base, rows).dump(2) + "\n" : text(base, rows));
    return exit_code::kOk;
  }

 private:
  SensitivityRow row_of(const KnobInfo& knob, const Scenario& scenario, const Report& base, AppContext& context) const {
    const std::string name{knob.name};
    const double up = predict_changed(scenario, {{name, 1 + by_, {}}}, context).step;
    const double down = predict_changed(scenario, {{name, 1 - by_, {}}}, context).step;
    const double slope = (up - down) / (2 * by_);
    return {knob.name, knob.summary, slope / base.step, slope / 100};
  }

  static std::string text(const Report& base, const std::vector<SensitivityRow>& rows) {
    Table table{{{"parameter"}, {"elasticity", Align::Right}, {"1 % more of it", Align::Right}, {"meaning"}}};
    for (const SensitivityRow& r : rows)
      table.add({std::string{r.name}, std::abs(r.elasticity) < 5e-4 ? "0" : fmt::format("{:+.3f}", r.elasticity),
                 std::abs(r.elasticity) < 5e-4
                     ? "0 s"
                     : fmt::format("{}{}", r.per_percent < 0 ? "-" : "+", to_text(Seconds{std::abs(r.per_percent)})),
                 std::string{r.summary}});
    return fmt::format(
               "step time of {}: {}\nelasticity: relative change of the step time over relative change of the "
               "parameter\n\n",
               base.scenario, to_text(Seconds{base.step})) +
           table.text("  ");
  }

  nlohmann::json document(const Report& base, const std::vector<SensitivityRow>& rows) const {
    nlohmann::json out = {{"schema_version", kSchemaVersion},
                          {"scenario", base.scenario},
                          {"step_time", base.step},
                          {"by", by_},
                          {"parameters", nlohmann::json::array()}};
    for (const SensitivityRow& r : rows)
      out["parameters"].push_back({{"name", r.name},
                                   {"summary", r.summary},
                                   {"elasticity", r.elasticity},
                                   {"seconds_per_percent", r.per_percent}});
    return out;
  }

  ScenarioFlags scenario_;
  double by_ = 0.01;
};

}  // namespace

std::unique_ptr<Command> make_sensitivity() { return std::make_unique<Sensitivity>(); }

}  // namespace orrery
