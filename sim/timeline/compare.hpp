// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sim/timeline/digest.hpp"

namespace orrery {

/// Time of one class, kind or op in two timelines, in seconds of a mean rank.
struct ErrorRow {
  std::string name;
  std::uint64_t count = 0;  // spans of the reference (pairs, where spans were joined)
  double reference = 0, candidate = 0;
  double absolute = 0;  // Σ |candidate − reference| over the pairs; |difference| where spans were not joined

  double difference() const { return candidate - reference; }
  /// (candidate − reference) / reference; 0 when the reference is 0.
  double error() const { return reference > 0 ? difference() / reference : 0; }
};

struct PeakDifference {
  RankId rank;
  Tier tier = Tier::Device;
  std::int64_t reference = 0, candidate = 0;  // bytes; 0 where one has no such peak
};

/// What is left of a timeline when the pairs are taken out.
struct Unmatched {
  std::uint64_t spans = 0;
  double seconds = 0;  // of a mean rank
};

/// Two timelines side by side: a measurement (reference) and its prediction (candidate), or two predictions. All rows
/// are sorted by the size of their difference, largest first.
struct Comparison {
  std::string reference_name, candidate_name;  // plan and machine
  TimelineSource reference_source = TimelineSource::Measured, candidate_source = TimelineSource::Predicted;
  bool joined = false;  // span by span on (instance, op, rank, part); else added up by name
  double reference_seconds = 0, candidate_seconds = 0;  // makespans
  double error = 0;                                     // (candidate − reference) / reference
  std::vector<ErrorRow> instances;                      // durations of the executions, in their order
  std::uint64_t matched = 0;
  Unmatched only_reference, only_candidate;
  std::vector<ErrorRow> exposed;  // op classes, "waiting" and "idle": their differences add up to that of the makespan
  std::vector<ErrorRow> by_class, by_kind;
  std::vector<ErrorRow> by_pattern;  // op names with layer numbers replaced: "layers.*.mlp.up"
  std::vector<ErrorRow> by_op;       // op names
  std::vector<PeakDifference> peaks;
};

/// Joins when both executed the same ops. A folded timeline stands in for ranks that it did not record: their spans
/// meet those of a recorded rank of the same class. Durations of collectives and messages count from when the last
/// partner had begun.
Comparison compare(const Timeline& reference, const PlanDigests& reference_plans, const Timeline& candidate,
                   const PlanDigests& candidate_plans);
Comparison compare(const Trace& reference, const Trace& candidate);

/// "layers.3.mlp.up" → "layers.*.mlp.up".
std::string name_pattern(std::string_view name);

std::string to_text(const Comparison& c, std::size_t max_rows = 10);
nlohmann::json to_json(const Comparison& c);

}  // namespace orrery
