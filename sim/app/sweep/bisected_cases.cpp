// SPDX-License-Identifier: Apache-2.0
#include "sim/app/sweep/bisected_cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sim/app/sweep/sweep_report.hpp"
#include "sim/base/table.hpp"

namespace orrery {
namespace {

using nlohmann::json;
using State = Boundary::State;

bool is_open(const BisectedCase& c) { return c.failure.empty() && c.boundary.state() == State::Open; }

/// Results at these values; nothing, and why, where one has none.
std::vector<const json*> results_at(BisectedCase& c, const std::vector<double>& values, const SweepResults& sweep) {
  std::vector<const json*> out;
  for (const double v : values) {
    const SweptPoint& point = sweep.points[c.seen.at(v)];
    const SweepRecord* r = sweep.record_of(point);
    if (r == nullptr || r->status != PointStatus::Done) {
      c.failure = fmt::format("no result at {}{}", point.values.back(), r == nullptr ? "" : ": " + r->error);
      return {};
    }
    out.push_back(&r->result);
  }
  return out;
}

void judge(BisectedCase& c, const std::vector<double>& values, const Condition& condition, const SweepResults& sweep) {
  const std::vector<const json*> results = results_at(c, values, sweep);
  if (results.empty()) return;
  if (c.seen.size() == values.size()) c.better = better_of(condition, results);  // both ends
  std::map<double, bool> seen;
  for (std::size_t i = 0; i < values.size(); ++i) seen[values[i]] = meets(condition, *results[i], c.better);
  c.boundary.tell(seen);
}

/// What the condition looks at, at a value: the memory where it only has to fit.
std::string shown_at(const BisectedCase& c, double value, const Condition& condition, const SweepResults& sweep) {
  const json& result = sweep.record_of(sweep.points[c.seen.at(value)])->result;
  if (!fits(result) && !condition.metric.empty()) return "does not fit";
  const std::string metric = condition.metric.empty() ? "peak_memory" : condition.metric;
  const std::optional<double> seen = metric_in(result, metric);
  return seen ? metric_text(metric, *seen) : "";
}

std::string remark_on(const BisectedCase& c) {
  if (!c.failure.empty()) return "no answer";
  switch (c.boundary.state()) {
    case State::Everywhere:
      return "holds at both ends";
    case State::Nowhere:
      return "holds at neither end";
    default:
      return c.boundary.changes_again() ? "holds again behind" : "";
  }
}

/// The values that are told of a case: where the condition holds and where not. Of a case in which it does at both
/// ends, or at neither, all that there is to see are the ends.
std::pair<std::optional<double>, std::optional<double>> told_values(const BisectedCase& c, const BisectedKey& key) {
  if (!c.failure.empty()) return {};
  switch (c.boundary.state()) {
    case State::Everywhere:
      return {key.range.from, {}};
    case State::Nowhere:
      return {{}, key.range.to};
    default:
      return {c.boundary.holds(), c.boundary.fails()};
  }
}

}  // namespace

void bisect(const BisectedKey& key, const Condition& condition, std::size_t jobs, std::vector<BisectedCase>& cases,
            const SweepResults& sweep, const std::function<void(const std::vector<SweepPoint>&)>& compute) {
  for (;;) {
    const auto open = static_cast<std::size_t>(std::ranges::count_if(cases, is_open));
    if (open == 0) return;
    std::vector<SweepPoint> points;
    std::vector<std::pair<BisectedCase*, std::vector<double>>> asked;
    for (BisectedCase& c : cases) {
      if (!is_open(c)) continue;
      asked.emplace_back(&c, c.boundary.next(jobs / open));
      for (const double v : asked.back().second) {
        c.seen[v] = sweep.points.size() + points.size();
        points.push_back({c.scenario, c.values});
        points.back().values.push_back(key.range.text(v));
      }
    }
    compute(points);
    for (const auto& [c, values] : asked) judge(*c, values, condition, sweep);
  }
}

bool are_answered(const std::vector<BisectedCase>& cases) {
  return std::ranges::all_of(cases, [](const BisectedCase& c) { return c.failure.empty(); });
}

std::string to_text(const std::vector<BisectedCase>& cases, const BisectedKey& key, const Condition& condition,
                    const SweepResults& sweep, const Console& console) {
  const bool has_scenarios = has_several_scenarios(sweep);
  std::vector<Table::Column> head;
  if (has_scenarios) head.push_back({"scenario"});
  std::vector<std::string> names = short_names(sweep.keys);
  names.pop_back();
  for (const std::string& name : names) head.push_back({name, Align::Right});
  const std::string metric = condition.metric.empty() ? "peak memory" : condition.metric;
  for (const std::string& column : {std::string{"holds at"}, metric, std::string{"not at"}, metric})
    head.push_back({column, Align::Right});
  if (condition.is_part) head.push_back({"better end", Align::Right});
  head.push_back({"points", Align::Right});
  head.push_back({""});
  Table table{std::move(head)};
  std::string failures;
  for (const BisectedCase& c : cases) {
    std::vector<std::string> row;
    if (has_scenarios) row.push_back(sweep.points[c.seen.begin()->second].scenario);
    row.insert(row.end(), c.values.begin(), c.values.end());
    const auto [holds, fails] = told_values(c, key);
    for (const std::optional<double>& v : {holds, fails}) {
      row.push_back(v ? key.range.text(*v) : "");
      row.push_back(v ? shown_at(c, *v, condition, sweep) : "");
    }
    if (condition.is_part) row.push_back(c.failure.empty() ? metric_text(condition.metric, c.better) : "");
    row.push_back(std::to_string(c.seen.size()));
    row.push_back(remark_on(c));
    table.add(std::move(row));
    if (!c.failure.empty()) failures += fmt::format("{} {}\n", console.bad("no answer:"), c.failure);
  }
  return fmt::format("{} from {} to {}: {}\n{}{}{}", key.key, key.range.text(key.range.from),
                     key.range.text(key.range.to), condition.text, table.text("  "), failures.empty() ? "" : "\n",
                     failures);
}

json to_json(const std::vector<BisectedCase>& cases, const BisectedKey& key, const Condition& condition,
             const SweepResults& sweep) {
  json all = json::array();
  for (const BisectedCase& c : cases) {
    const Boundary& b = c.boundary;
    json one{{"scenario", sweep.points[c.seen.begin()->second].scenario},
             {"values", json::object()},
             {"holds", nullptr},
             {"fails", nullptr},
             {"everywhere", b.state() == State::Everywhere},
             {"nowhere", b.state() == State::Nowhere},
             {"changes_again", b.changes_again()},
             {"better", condition.is_part ? json(c.better) : json()},
             {"points", json::array()}};
    for (std::size_t k = 0; k < c.values.size(); ++k) one["values"][sweep.keys[k]] = c.values[k];
    for (const auto& [value, point] : c.seen) one["points"].push_back(point);
    if (!c.failure.empty()) one["error"] = c.failure;
    if (c.failure.empty() && b.state() == State::Found) {
      one["holds"] = {{"value", key.range.text(b.holds())}, {"point", c.seen.at(b.holds())}};
      one["fails"] = {{"value", key.range.text(b.fails())}, {"point", c.seen.at(b.fails())}};
    }
    all.push_back(std::move(one));
  }
  return {{"key", key.key}, {"until", condition.text}, {"cases", std::move(all)}};
}

}  // namespace orrery
