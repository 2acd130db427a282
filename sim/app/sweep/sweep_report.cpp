// SPDX-License-Identifier: Apache-2.0
#include "sim/app/sweep/sweep_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

#include "sim/app/report.hpp"
#include "sim/base/table.hpp"

namespace orrery {
namespace {

using nlohmann::json;

/// The number at "a.b" of a result.
std::optional<double> number_in(const json& result, std::string_view path) {
  const json* at = &result;
  for (std::size_t from = 0; from <= path.size();) {
    const std::size_t dot = std::min(path.find('.', from), path.size());
    const auto found = at->find(std::string{path.substr(from, dot - from)});
    if (found == at->end()) return {};
    at = &*found;
    from = dot + 1;
    if (!at->is_object() && from <= path.size()) return {};
  }
  return at->is_number() ? std::optional{at->get<double>()} : std::nullopt;
}

enum class Shown { Time, Interval, Rate, Share, Bytes };

/// A column of the table: where its value, or its interval, stands in results.
struct ResultColumn {
  std::string_view name, path;
  Shown shown;
};

/// Those of steps, of serving and of cached training: a table has those that any of its results has.
constexpr ResultColumn kResultColumns[] = {{"step time", "step_time.seconds", Shown::Time},
                                           {"90 % interval", "step_time", Shown::Interval},
                                           {"tokens/s", "tokens_per_second", Shown::Rate},
                                           {"MFU", "mfu", Shown::Share},
                                           {"samples/s", "samples_per_second", Shown::Rate},
                                           {"miss rate", "miss_rate", Shown::Share},
                                           {"output tokens/s", "output_tokens_per_second", Shown::Rate},
                                           {"goodput", "goodput", Shown::Rate},
                                           {"mean TTFT", "ttft.mean", Shown::Time},
                                           {"p99 TTFT", "ttft.p99", Shown::Time},
                                           {"mean TPOT", "tpot.mean", Shown::Time},
                                           {"peak memory", "peak_memory.bytes", Shown::Bytes}};

constexpr std::string_view kRates[] = {"tokens_per_second", "output_tokens_per_second", "samples_per_second"};

std::string value_text(double v, Shown shown) {
  switch (shown) {
    case Shown::Time:
      return to_text(Seconds{v});
    case Shown::Rate:
      return rate_text(v);
    case Shown::Share:
      return fmt::format("{:.1f} %", 100 * v);
    default:
      return to_text(Bytes{v});
  }
}

/// Empty where a result has no such value.
std::string cell_of(const json& result, const ResultColumn& column) {
  const std::string path{column.path};
  if (column.shown == Shown::Interval) {
    const auto low = number_in(result, path + ".low"), high = number_in(result, path + ".high");
    return low && high ? fmt::format("{} … {}", to_text(Seconds{*low}), to_text(Seconds{*high})) : "";
  }
  const std::optional<double> v = number_in(result, path);
  return v ? value_text(*v, column.shown) : "";
}

const json* result_of(const SweepResults& sweep, const SweptPoint& p) {
  const SweepRecord* r = sweep.record_of(p);
  return r != nullptr && r->status == PointStatus::Done ? &r->result : nullptr;
}

std::vector<ResultColumn> columns_of(const SweepResults& sweep) {
  std::vector<ResultColumn> columns;
  for (const ResultColumn& c : kResultColumns)
    if (std::any_of(sweep.points.begin(), sweep.points.end(), [&](const SweptPoint& p) {
          const json* result = result_of(sweep, p);
          return result != nullptr && !cell_of(*result, c).empty();
        }))
      columns.push_back(c);
  return columns;
}

std::string marks(bool is_best, bool is_on_front) {
  return std::string{is_best ? "best" : ""} + (is_best && is_on_front ? ", " : "") + (is_on_front ? "front" : "");
}

bool is_to_be_high(std::string_view metric) {
  return metric.ends_with("per_second") || metric == "mfu" || metric == "goodput" || metric == "within_slo";
}

/// Why points have no result, each reason once.
std::string failures_text(const SweepResults& sweep, const Console& console) {
  std::vector<std::pair<std::string, std::string>> reasons;  // with the points that have them
  for (std::size_t i = 0; i < sweep.points.size(); ++i) {
    const SweepRecord* r = sweep.record_of(sweep.points[i]);
    if (r == nullptr || r->status == PointStatus::Done) continue;
    const std::string why = r->status == PointStatus::Refused
                                ? fmt::format("refused: {}", r->error)
                                : fmt::format("given up after {} failures: {}", r->attempts, r->error);
    const auto found = std::find_if(reasons.begin(), reasons.end(), [&](const auto& x) { return x.first == why; });
    if (found == reasons.end())
      reasons.emplace_back(why, std::to_string(i));
    else
      found->second += fmt::format(", {}", i);
  }
  std::string text;
  for (const auto& [why, points] : reasons) {
    const bool is_one = points.find(',') == std::string::npos;
    text += fmt::format("{} {}\n", console.bad(fmt::format("point{} {}", is_one ? "" : "s", points)), why);
  }
  return text;
}

}  // namespace

std::vector<std::string> short_names(const std::vector<std::string>& keys) {
  std::vector<std::string> names;
  for (const std::string& key : keys) {
    std::size_t at = key.rfind('.');
    const auto same = [&] {
      return std::count_if(keys.begin(), keys.end(),
                           [&](const std::string& k) { return ("." + k).ends_with("." + key.substr(at + 1)); });
    };
    while (at != std::string::npos && same() > 1) at = at == 0 ? std::string::npos : key.rfind('.', at - 1);
    names.push_back(at == std::string::npos ? key : key.substr(at + 1));
  }
  return names;
}

bool has_several_scenarios(const SweepResults& sweep) {
  return std::any_of(sweep.points.begin(), sweep.points.end(),
                     [&](const SweptPoint& p) { return p.scenario != sweep.points.front().scenario; });
}

std::optional<double> metric_in(const json& result, const std::string& name) {
  if (const auto v = number_in(result, name)) return v;
  for (const char* value : {".seconds", ".bytes", ".mean"})
    if (const auto v = number_in(result, name + value)) return v;
  return {};
}

std::string metric_text(std::string_view name, double value) {
  const std::string_view group = name.substr(0, name.find('.'));
  for (const ResultColumn& c : kResultColumns)
    if (c.shown != Shown::Interval && c.path.substr(0, c.path.find('.')) == group) return value_text(value, c.shown);
  return fmt::format("{:.4g}", value);
}

bool fits(const json& result) {
  for (const auto& [key, value] : result.items()) {
    if (key == "fits" && value == false) return false;
    if (value.is_object() && !fits(value)) return false;
  }
  return true;
}

std::optional<std::size_t> best_point(const SweepResults& sweep) {
  std::optional<std::size_t> best;
  double most = 0;
  for (std::size_t i = 0; i < sweep.points.size(); ++i) {
    const json* result = result_of(sweep, sweep.points[i]);
    if (result == nullptr || !fits(*result)) continue;
    for (const std::string_view name : kRates)
      if (const auto rate = number_in(*result, name); rate && *rate > most) most = *rate, best = i;
  }
  return best;
}

std::vector<std::size_t> pareto_front(const SweepResults& sweep, const std::vector<std::string>& metrics) {
  struct Candidate {
    std::vector<double> losses;  // low is good
    std::size_t point;
  };
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < sweep.points.size(); ++i) {
    const json* result = result_of(sweep, sweep.points[i]);
    if (result == nullptr || !fits(*result)) continue;
    Candidate c{{}, i};
    for (const std::string& metric : metrics)
      if (const auto v = metric_in(*result, metric)) c.losses.push_back(is_to_be_high(metric) ? -*v : *v);
    if (c.losses.size() == metrics.size()) candidates.push_back(std::move(c));
  }
  // Whatever beats a point stands before it.
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.losses < b.losses; });
  std::vector<const Candidate*> front;
  for (const Candidate& c : candidates) {
    const bool is_beaten = std::any_of(front.begin(), front.end(), [&](const Candidate* f) {
      return f->losses != c.losses &&
             std::equal(f->losses.begin(), f->losses.end(), c.losses.begin(), std::less_equal<>{});
    });
    if (!is_beaten) front.push_back(&c);
  }
  std::vector<std::size_t> points;
  for (const Candidate* c : front) points.push_back(c->point);
  std::sort(points.begin(), points.end());
  return points;
}

std::string to_text(const SweepResults& sweep, const Console& console, const std::vector<std::size_t>& front) {
  const std::vector<ResultColumn> columns = columns_of(sweep);
  const bool has_scenarios = has_several_scenarios(sweep);
  std::vector<Table::Column> head{{"point", Align::Right}};
  if (has_scenarios) head.push_back({"scenario"});
  for (const std::string& name : short_names(sweep.keys)) head.push_back({name, Align::Right});
  for (const ResultColumn& c : columns) head.push_back({std::string{c.name}, Align::Right});
  head.push_back({""});
  Table table{std::move(head)};
  const std::optional<std::size_t> best = best_point(sweep);
  for (std::size_t i = 0; i < sweep.points.size(); ++i) {
    const SweptPoint& p = sweep.points[i];
    const json* result = result_of(sweep, p);
    const SweepRecord* r = sweep.record_of(p);
    std::vector<std::string> row{std::to_string(i)};
    if (has_scenarios) row.push_back(p.scenario);
    row.insert(row.end(), p.values.begin(), p.values.end());
    for (const ResultColumn& c : columns) row.push_back(result == nullptr ? "" : cell_of(*result, c));
    row.emplace_back(r == nullptr        ? "missing"
                     : result == nullptr ? std::string{enum_name(r->status)}
                     : !fits(*result)    ? "does not fit"
                                         : marks(i == best, std::binary_search(front.begin(), front.end(), i)));
    table.add(std::move(row));
  }
  std::string text = table.text("  ");
  if (const std::string failures = failures_text(sweep, console); !failures.empty()) text += "\n" + failures;
  return text;
}

json to_json(const SweepResults& sweep, std::size_t i) {
  const SweptPoint& p = sweep.points[i];
  const SweepRecord* r = sweep.record_of(p);
  json out = r != nullptr ? to_json(*r) : json{{"id", p.id}, {"status", "missing"}};
  out["point"] = i;
  out["scenario"] = p.scenario;
  out["values"] = json::object();
  for (std::size_t k = 0; k < sweep.keys.size(); ++k) out["values"][sweep.keys[k]] = p.values[k];
  return out;
}

json to_json(const SweepResults& sweep) {
  json points = json::array();
  for (std::size_t i = 0; i < sweep.points.size(); ++i) points.push_back(to_json(sweep, i));
  const std::optional<std::size_t> best = best_point(sweep);
  return {{"schema_version", kSchemaVersion},
          {"keys", sweep.keys},
          {"points", std::move(points)},
          {"best", best ? json(*best) : json()},
          {"done", sweep.count(PointStatus::Done)},
          {"refused", sweep.count(PointStatus::Refused)},
          {"quarantined", sweep.count(PointStatus::Quarantined)},
          {"missing", sweep.missing()},
          {"conflicts", sweep.conflicts}};
}

}  // namespace orrery
