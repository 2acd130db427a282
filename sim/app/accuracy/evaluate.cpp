// SPDX-License-Identifier: Apache-2.0
#include "sim/app/accuracy/evaluate.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <thread>

#include "calibrate/published/kernels.hpp"
#include "sim/app/accuracy/left_out.hpp"
#include "sim/base/parallel.hpp"

namespace orrery {
namespace {

void add_repeat(AccuracyPoint& point, const Observation& o) {
  const double n = double(point.repeats);
  const auto mean = [n](double& all, double one) { all = (all * n + one) / (n + 1); };
  mean(point.value.measured, o.measured);
  mean(point.value.predicted, o.predicted);
  mean(point.value.low, o.low);
  mean(point.value.high, o.high);
  ++point.repeats;
}

void assign_splits(std::vector<AccuracyPoint>& points) {
  std::vector<std::string> groups;
  for (const AccuracyPoint& p : points) groups.push_back(p.value.gpu + " " + p.value.op);
  std::vector<SplitItem> items;
  for (std::size_t i = 0; i < points.size(); ++i) items.push_back({points[i].row_id, groups[i], points[i].value.size});
  const std::vector<RowSplit> splits = split_rows(items);
  for (std::size_t i = 0; i < points.size(); ++i) points[i].split = splits[i];
}

/// Rows that are predicted one after another, the most first.
std::vector<std::vector<std::size_t>> groups_of(const CsvTable& table, const RowPredictor& predictor) {
  std::vector<std::vector<std::size_t>> groups;
  std::map<std::string, std::size_t> by_name;
  for (std::size_t i = 0; i < table.num_rows(); ++i) {
    const std::string name = predictor.shared_by(table.row(i));
    const auto [at, is_new] = by_name.try_emplace(name, groups.size());
    if (is_new || name.empty()) at->second = groups.size(), groups.emplace_back();
    groups[at->second].push_back(i);
  }
  std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return groups;
}

}  // namespace

std::size_t EvaluatedTable::num_predicted() const {
  return static_cast<std::size_t>(std::count_if(
      results.begin(), results.end(), [](const RowResult& r) { return std::holds_alternative<RowPrediction>(r); }));
}

EvaluatedTable evaluate(const CsvTable& table, const RowKind& kind, const Wiring& wiring,
                        const std::function<void(double)>& progress) {
  EvaluatedTable out{table.file(), std::string{kind.name}, {}, std::vector<RowResult>(table.num_rows())};
  for (std::size_t i = 0; i < table.num_rows(); ++i) out.row_ids.push_back(id_of(table.row(i)));
  const std::unique_ptr<RowPredictor> predictor = kind.make(wiring);
  const std::vector<std::vector<std::size_t>> groups = groups_of(table, *predictor);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<std::size_t> done{0};
  in_parallel(groups.size(), [&](std::size_t g) {
    for (const std::size_t i : groups[g]) {
      if (std::this_thread::get_id() == caller) progress(double(done) / double(table.num_rows()));
      const CsvRow row = table.row(i);
      std::optional<Skip> skip = left_out(row);
      out.results[i] = skip ? RowResult{std::move(*skip)} : predictor->predict(row);
      ++done;
    }
  });
  return out;
}

double AccuracyPoint::error() const { return std::abs(signed_error()); }

std::vector<AccuracyPoint> points_of(const EvaluatedTable& table, std::string_view quantity) {
  std::vector<AccuracyPoint> points;
  std::map<std::string, std::size_t> by_key;
  for (std::size_t i = 0; i < table.results.size(); ++i) {
    const auto* row = std::get_if<RowPrediction>(&table.results[i]);
    if (!row) continue;
    for (const Observation& o : row->observations) {
      if (o.quantity != quantity) continue;
      const auto known = o.key.empty() ? by_key.end() : by_key.find(o.key);
      if (known != by_key.end()) {
        add_repeat(points[known->second], o);
        continue;
      }
      if (!o.key.empty()) by_key[o.key] = points.size();
      points.push_back({table.row_ids[i], o, RowSplit::Fit, 1});
    }
  }
  assign_splits(points);
  return points;
}

std::vector<std::string> quantities_of(const EvaluatedTable& table) {
  std::vector<std::pair<std::string, std::size_t>> found;  // with how many observations
  for (const RowResult& r : table.results)
    if (const auto* row = std::get_if<RowPrediction>(&r))
      for (const Observation& o : row->observations) {
        const auto it = std::find_if(found.begin(), found.end(), [&](const auto& f) { return f.first == o.quantity; });
        if (it == found.end())
          found.emplace_back(o.quantity, 1);
        else
          ++it->second;
      }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> names;
  for (auto& [name, observations] : found) names.push_back(std::move(name));
  return names;
}

}  // namespace orrery
