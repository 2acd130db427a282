// SPDX-License-Identifier: Apache-2.0
#include "sim/app/what_if.hpp"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "sim/app/wiring.hpp"
#include "sim/base/table.hpp"

namespace orrery {
namespace {

std::optional<double> factor_of(std::string_view value) {
  if (value.starts_with('x')) return parse_number(value.substr(1));
  if (!value.ends_with('%')) return {};
  value.remove_suffix(1);
  if (value.starts_with('+')) value.remove_prefix(1);
  const std::optional<double> percent = parse_number(value);
  return percent ? std::optional{1 + *percent / 100} : std::nullopt;
}

/// The class whose time changed most, in words.
std::string largest_change(const Report& base, const WhatIf& w) {
  std::map<std::string, double> change;
  for (const NamedSeconds& c : w.by_class) change[c.name] += c.seconds;
  for (const NamedSeconds& c : base.by_class) change[c.name] -= c.seconds;
  const std::pair<const std::string, double>* most = nullptr;
  for (const auto& entry : change)
    if (most == nullptr || std::abs(entry.second) > std::abs(most->second)) most = &entry;
  if (most == nullptr || most->second == 0) return "nothing changes";
  return fmt::format("{} {}{}", most->first, most->second < 0 ? "-" : "+", to_text(Seconds{std::abs(most->second)}));
}

}  // namespace

Change parse_change(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::optional<double> factor =
      equals == std::string::npos ? std::nullopt : factor_of(std::string_view{text}.substr(equals + 1));
  if (!factor)
    throw UserError{fmt::format("{} is not a change of a parameter", in_quotes(text)),
                    "write PARAMETER=x2, =x0.5 or =+10%; `orrery sensitivity` lists parameters"};
  return {text.substr(0, equals), *factor, text};
}

Report predict_changed(const Scenario& scenario, const std::vector<Change>& changes, AppContext& context) {
  const Machine machine = [&] {
    Machine m = context.wiring.machine(scenario.options, scenario.cluster);
    for (const Change& c : changes) m.cost->scale_parameter(c.parameter, c.factor);
    return m;
  }();
  const Simulation s =
      simulate_scenario(scenario, machine, context.wiring, {}, [&](std::size_t) { context.interrupt.check(); });
  Report report = make_report({scenario, *s.program, s.recording, &machine});
  report.wall_seconds = s.wall_seconds;
  return report;
}

std::vector<WhatIf> predict_changes(const Scenario& scenario, const std::vector<Change>& changes, AppContext& context) {
  std::vector<WhatIf> rows;
  const auto add = [&](std::string text, const std::vector<Change>& some) {
    Report r = predict_changed(scenario, some, context);
    rows.push_back({std::move(text), r.step, std::move(r.by_class)});
  };
  for (const Change& c : changes) add(c.text, {c});
  if (changes.size() > 1) add("all of these", changes);
  return rows;
}

std::string what_if_text(const Report& base, const std::vector<WhatIf>& rows) {
  Table table{
      {{"what if"}, {"step time", Align::Right}, {"change", Align::Right}, {"speed-up", Align::Right}, {"most of it"}}};
  table.add({"(as it is)", to_text(Seconds{base.step}), "", "", ""});
  for (const WhatIf& w : rows)
    table.add({w.text, to_text(Seconds{w.step}), fmt::format("{:+.2f} %", 100 * (w.step / base.step - 1)),
               fmt::format("{:.3f}x", base.step / w.step), largest_change(base, w)});
  return "\n" + table.text("  ");
}

nlohmann::json what_if_json(const Report& base, const std::vector<WhatIf>& rows) {
  nlohmann::json out = nlohmann::json::array();
  for (const WhatIf& w : rows)
    out.push_back({{"change", w.text},
                   {"step_time", w.step},
                   {"relative", w.step / base.step - 1},
                   {"speed_up", base.step / w.step}});
  return out;
}

}  // namespace orrery
