// SPDX-License-Identifier: Apache-2.0
#include "sim/app/accuracy/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "sim/app/accuracy/left_out.hpp"
#include "sim/base/table.hpp"

namespace orrery {
namespace {

constexpr std::size_t kShownRows = 6;  // of those that are skipped for one reason

std::string percent(double v) { return fmt::format("{:.1f} %", 100 * v); }

std::vector<std::string> cells(const std::string& by, const std::string& name, const Score& s) {
  return {by,
          name,
          std::to_string(s.points),
          percent(s.median_abs_error),
          percent(s.mean_abs_error),
          percent(s.p90_abs_error),
          percent(s.worst),
          percent(s.median_signed_error),
          percent(s.coverage),
          percent(s.median_half_width),
          s.spearman ? fmt::format("{:.3f}", *s.spearman) : "-"};
}

std::string quantity_text(const JudgedQuantity& q) {
  Table table{{{q.name},
               {""},
               {"points", Align::Right},
               {"median", Align::Right},
               {"mean", Align::Right},
               {"p90", Align::Right},
               {"worst", Align::Right},
               {"bias", Align::Right},
               {"inside", Align::Right},
               {"half-width", Align::Right},
               {"rank", Align::Right}}};
  table.add(cells("all", "", q.all));
  for (const TableSlice& s : q.slices) table.add(cells(s.by, s.name, s.score));
  std::string text = table.text("  ");
  text += fmt::format("  worst is {}\n", q.all.worst_row);
  if (q.sweeps.sweeps > 0)
    text += fmt::format("  rank correlation within {} sweeps: mean {:.3f}, least {:.3f}\n", q.sweeps.sweeps,
                        q.sweeps.mean_spearman, q.sweeps.least_spearman);
  return text;
}

/// Rows by reason and detail, the most frequent first.
std::string skipped_text(const EvaluatedTable& t) {
  std::map<std::pair<SkipReason, std::string>, std::vector<std::string>> by_reason;
  for (std::size_t i = 0; i < t.results.size(); ++i)
    if (const auto* s = std::get_if<Skip>(&t.results[i])) by_reason[{s->reason, s->detail}].push_back(t.row_ids[i]);
  std::string text;
  for (const auto& [reason, rows] : by_reason) {
    const std::vector<std::string> shown{rows.begin(),
                                         rows.begin() + std::ptrdiff_t(std::min(rows.size(), kShownRows))};
    text +=
        fmt::format("  {} {} {}: {} ({}{})\n", rows.size(), rows.size() == 1 ? "row" : "rows", name_of(reason.first),
                    reason.second, fmt::join(shown, ", "), rows.size() > kShownRows ? ", …" : "");
  }
  return text;
}

nlohmann::json score_json(const Score& s) {
  return {{"points", s.points},
          {"median_abs_error", s.median_abs_error},
          {"mean_abs_error", s.mean_abs_error},
          {"p90_abs_error", s.p90_abs_error},
          {"worst", s.worst},
          {"worst_row", s.worst_row},
          {"median_signed_error", s.median_signed_error},
          {"coverage", s.coverage},
          {"median_half_width", s.median_half_width},
          {"spearman", s.spearman ? nlohmann::json(*s.spearman) : nlohmann::json()}};
}

nlohmann::json slices_json(const std::vector<TableSlice>& slices) {
  nlohmann::json all = nlohmann::json::array();
  for (const TableSlice& s : slices) {
    nlohmann::json one = score_json(s.score);
    one["by"] = s.by;
    one["name"] = s.name;
    all.push_back(std::move(one));
  }
  return all;
}

nlohmann::json sweeps_json(const SweepScore& s) {
  return {{"sweeps", s.sweeps}, {"mean_spearman", s.mean_spearman}, {"least_spearman", s.least_spearman}};
}

nlohmann::json skipped_json(const EvaluatedTable& t) {
  nlohmann::json all = nlohmann::json::array();
  for (std::size_t i = 0; i < t.results.size(); ++i)
    if (const auto* s = std::get_if<Skip>(&t.results[i]))
      all.push_back({{"row_id", t.row_ids[i]}, {"why", name_of(s->reason)}, {"detail", s->detail}});
  return all;
}

nlohmann::json rows_json(const EvaluatedTable& t) {
  nlohmann::json all = nlohmann::json::array();
  for (std::size_t i = 0; i < t.results.size(); ++i) {
    const auto* row = std::get_if<RowPrediction>(&t.results[i]);
    if (!row) continue;
    for (const Observation& o : row->observations)
      all.push_back({{"row_id", t.row_ids[i]},
                     {"quantity", o.quantity},
                     {"profile", o.profile},
                     {"forecast", o.forecast},
                     {"measured", o.measured},
                     {"predicted", o.predicted},
                     {"low", o.low},
                     {"high", o.high}});
    for (const YesNo& o : row->outcomes)
      all.push_back({{"row_id", t.row_ids[i]},
                     {"quantity", o.name},
                     {"measured", o.measured},
                     {"predicted", o.predicted()},
                     {"amount", o.amount},
                     {"limit", o.limit}});
  }
  return all;
}

std::vector<JudgedOutcome> judge_outcomes(const EvaluatedTable& table) {
  std::map<std::string, JudgedOutcome> by_name;
  for (const RowResult& r : table.results)
    if (const auto* row = std::get_if<RowPrediction>(&r))
      for (const YesNo& o : row->outcomes) {
        JudgedOutcome& j = by_name[o.name];
        j.name = o.name;
        ++j.rows;
        j.right += o.measured == o.predicted();
        j.yes += o.measured;
        j.yes_right += o.measured && o.predicted();
      }
  std::vector<JudgedOutcome> all;
  for (auto& [name, j] : by_name) all.push_back(std::move(j));
  return all;
}

}  // namespace

JudgedTable judge(EvaluatedTable table) {
  JudgedTable j;
  for (const std::string& name : quantities_of(table)) {
    JudgedQuantity q{name, points_of(table, name), {}, {}, {}};
    PointRefs all;
    for (const AccuracyPoint& p : q.points) all.push_back(&p);
    q.all = score(all);
    q.slices = slices(q.points);
    q.sweeps = score_sweeps(q.points);
    j.quantities.push_back(std::move(q));
  }
  j.outcomes = judge_outcomes(table);
  j.table = std::move(table);
  return j;
}

std::string to_text(const JudgedTable& j, const Console& console) {
  const std::size_t rows = j.table.results.size(), predicted = j.table.num_predicted();
  std::string text = fmt::format("{}: {}, {} rows, {} predicted, {} skipped\n", console.bold(j.table.file),
                                 j.table.kind, rows, predicted, rows - predicted);
  for (const JudgedQuantity& q : j.quantities) text += quantity_text(q);
  for (const JudgedOutcome& o : j.outcomes)
    text += fmt::format("  {}: {} of {} rows right; of {} that do, {} right\n", o.name, o.right, o.rows, o.yes,
                        o.yes_right);
  return text + skipped_text(j.table);
}

nlohmann::json to_json(const JudgedTable& j, PerRow per_row) {
  const Score main = j.quantities.empty() ? Score{} : j.quantities.front().all;
  nlohmann::json out = score_json(main);
  out["file"] = j.table.file;
  out["kind"] = j.table.kind;
  out["rows"] = j.table.results.size();
  out["predicted"] = j.table.num_predicted();
  out["skipped"] = skipped_json(j.table);
  out["quantities"] = nlohmann::json::array();
  for (const JudgedQuantity& q : j.quantities) {
    nlohmann::json one = score_json(q.all);
    one["name"] = q.name;
    one["slices"] = slices_json(q.slices);
    one["sweeps"] = sweeps_json(q.sweeps);
    out["quantities"].push_back(std::move(one));
  }
  out["outcomes"] = nlohmann::json::array();
  for (const JudgedOutcome& o : j.outcomes)
    out["outcomes"].push_back(
        {{"name", o.name}, {"rows", o.rows}, {"right", o.right}, {"yes", o.yes}, {"yes_right", o.yes_right}});
  if (per_row == PerRow::Yes) out["per_row"] = rows_json(j.table);
  return out;
}

}  // namespace orrery
