// SPDX-License-Identifier: Apache-2.0
// The texts of a comparison: for people and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sim/base/table.hpp"
#include "sim/base/units.hpp"
#include "sim/timeline/compare.hpp"

namespace orrery {
namespace {

using nlohmann::json;

std::string_view source_name(TimelineSource s) { return s == TimelineSource::Measured ? "measured" : "predicted"; }

/// What the columns of the two are called: what they are, where that tells them apart.
std::string column_name(const Comparison& c, TimelineSource source, const char* side) {
  return c.reference_source == c.candidate_source ? side : std::string{source_name(source)};
}

/// "+8.33 %"; a reference of nothing has no relative error.
std::string percent(double reference, double ratio) {
  return reference > 0 ? fmt::format("{:+.2f} %", 100 * ratio) : std::string{"-"};
}

std::string signed_text(double seconds) {
  return (seconds < 0 ? "-" : "+") + to_text(Seconds{seconds < 0 ? -seconds : seconds});
}

std::string rows_text(std::string_view head, const Comparison& c, const std::vector<ErrorRow>& rows,
                      std::size_t max_rows) {
  if (rows.empty()) return {};
  Table table{{{std::string{head}},
               {"count", Align::Right},
               {column_name(c, c.reference_source, "reference"), Align::Right},
               {column_name(c, c.candidate_source, "candidate"), Align::Right},
               {"difference", Align::Right},
               {"error", Align::Right}}};
  for (std::size_t i = 0; i < std::min(max_rows, rows.size()); ++i) {
    const ErrorRow& r = rows[i];
    table.add({r.name, std::to_string(r.count), to_text(Seconds{r.reference}), to_text(Seconds{r.candidate}),
               signed_text(r.difference()), percent(r.reference, r.error())});
  }
  std::string text = "\n" + table.text();
  if (rows.size() > max_rows) text += fmt::format("… and {} more\n", rows.size() - max_rows);
  return text;
}

std::string peaks_text(const Comparison& c, std::size_t max_rows) {
  if (c.peaks.empty()) return {};
  Table table{{{"peak memory"},
               {column_name(c, c.reference_source, "reference"), Align::Right},
               {column_name(c, c.candidate_source, "candidate"), Align::Right},
               {"error", Align::Right}}};
  for (std::size_t i = 0; i < std::min(max_rows, c.peaks.size()); ++i) {
    const PeakDifference& p = c.peaks[i];
    const double reference = double(p.reference);
    table.add({fmt::format("rank {} {}", p.rank.value, name_of(p.tier)), to_text(Bytes{reference}),
               to_text(Bytes{double(p.candidate)}), percent(reference, double(p.candidate) / reference - 1)});
  }
  return "\n" + table.text();
}

json rows_json(const std::vector<ErrorRow>& rows) {
  json out = json::array();
  for (const ErrorRow& r : rows)
    out.push_back({{"name", r.name},
                   {"count", r.count},
                   {"reference", r.reference},
                   {"candidate", r.candidate},
                   {"difference", r.difference()},
                   {"absolute", r.absolute},
                   {"error", r.error()}});
  return out;
}

json side_json(const std::string& name, TimelineSource source, double seconds) {
  return {{"name", name}, {"source", source_name(source)}, {"seconds", seconds}};
}

}  // namespace

std::string to_text(const Comparison& c, std::size_t max_rows) {
  std::string text = fmt::format("reference  {} {}: {}\n", source_name(c.reference_source), c.reference_name,
                                 to_text(Seconds{c.reference_seconds}));
  text += fmt::format("candidate  {} {}: {}  ({})\n", source_name(c.candidate_source), c.candidate_name,
                      to_text(Seconds{c.candidate_seconds}), percent(c.reference_seconds, c.error));
  if (c.joined) {
    text += fmt::format("{} spans matched; only in the reference: {} ({}); only in the candidate: {} ({})\n", c.matched,
                        c.only_reference.spans, to_text(Seconds{c.only_reference.seconds}), c.only_candidate.spans,
                        to_text(Seconds{c.only_candidate.seconds}));
  } else {
    text += "the plans differ: ops are added up by name, not matched one by one\n";
  }
  text += rows_text("exposed time of a mean rank", c, c.exposed, max_rows + kNumOpClasses);
  text += rows_text("class", c, c.by_class, max_rows + kNumOpClasses);
  text += rows_text("kind", c, c.by_kind, max_rows);
  text += rows_text("ops of all layers", c, c.by_pattern, max_rows);
  text += rows_text("op", c, c.by_op, max_rows);
  return text + peaks_text(c, max_rows);
}

json to_json(const Comparison& c) {
  json peaks = json::array();
  for (const PeakDifference& p : c.peaks)
    peaks.push_back(
        {{"rank", p.rank.value}, {"tier", name_of(p.tier)}, {"reference", p.reference}, {"candidate", p.candidate}});
  const auto unmatched = [](const Unmatched& u) { return json{{"spans", u.spans}, {"seconds", u.seconds}}; };
  return {{"schema_version", 1},
          {"reference", side_json(c.reference_name, c.reference_source, c.reference_seconds)},
          {"candidate", side_json(c.candidate_name, c.candidate_source, c.candidate_seconds)},
          {"error", c.error},
          {"joined", c.joined},
          {"matched", c.matched},
          {"only_reference", unmatched(c.only_reference)},
          {"only_candidate", unmatched(c.only_candidate)},
          {"instances", rows_json(c.instances)},
          {"exposed", rows_json(c.exposed)},
          {"by_class", rows_json(c.by_class)},
          {"by_kind", rows_json(c.by_kind)},
          {"by_pattern", rows_json(c.by_pattern)},
          {"by_op", rows_json(c.by_op)},
          {"peaks", std::move(peaks)}};
}

}  // namespace orrery
