// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "sim/program/embedding/embedding_traffic.hpp"

namespace orrery {

/// What a worker makes of the rows that it read: `values` are those of `rows`, one behind the other, and `updates` (all
/// 0 at first) is what is to be added to each, for instance −rate · gradient. Called by the threads of all workers.
using RowUpdates = std::function<void(std::int64_t step, std::int64_t worker, std::span<const std::int64_t> rows,
                                      std::span<const double> values, std::span<double> updates)>;

struct ExecutedCaches {
  std::vector<double> rows;          // of all tables, in the end, with what workers had not told servers yet
  std::vector<StepTraffic> traffic;  // of each step: bytes of messages that were sent, 8 B a number; nothing dense
};

/// HET with real rows: a thread for each worker and each server, messages as bytes from one to another, numbers in f64.
/// Workers keep step: a server adds the pushes of all, in the order of workers, before it answers anybody. `rows` are
/// those that servers start with, `dim` numbers each; caches start empty.
ExecutedCaches execute_caches(const CachedTrainingOptions& options, const IdStream& stream, std::int64_t dim,
                              std::vector<double> rows, const RowUpdates& updates);

}  // namespace orrery
