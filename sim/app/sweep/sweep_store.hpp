// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/app/sweep/sweep_axis.hpp"
#include "sim/app/sweep/sweep_record.hpp"

namespace orrery {

/// A point of a sweep by what was changed.
struct SweptPoint {
  std::string id, scenario;
  SweptValues values;
};

/// A sweep and what is known of it. In its folder: `sweep.json` has the keys and how it was called, `points.jsonl` the
/// points, `shards/` the records in the order in which they came, `results.csv` the same as a table.
struct SweepResults {
  std::vector<std::string> keys;
  std::vector<SweptPoint> points;  // as given; some may have the same id
  std::map<std::string, SweepRecord> records;
  std::vector<std::string> conflicts;  // ids with several results
  std::vector<std::string> notes;      // what is wrong with files

  const SweepRecord* record_of(const SweptPoint& point) const;
  std::size_t count(PointStatus status) const;  // points
  std::size_t missing() const;
  bool is_whole() const;  // every point has a result, and one
  /// Takes a record unless a better one is known: results stand before failures.
  void add(const SweepRecord& record);
};

/// Adds the records of a folder's shards, whose torn ends are cut off.
void read_shards(const std::string& folder, SweepResults& results);
/// Reads folders whose points have the same keys, as one sweep. Throws UserError.
SweepResults load_sweeps(const std::vector<std::string>& folders);

/// Writes `sweep.json` and `points.jsonl` with these points.
void write_points(const std::string& folder, const std::vector<std::string>& keys,
                  const std::vector<SweptPoint>& points, const std::string& command);
/// Writes a CSV file: a row for each point, a column for each value that any result has.
void write_results(const std::string& path, const SweepResults& sweep);

}  // namespace orrery
