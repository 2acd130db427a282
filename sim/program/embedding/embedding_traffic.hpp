// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/embedding/cached_options.hpp"
#include "sim/program/embedding/het.hpp"
#include "sim/program/embedding/id_stream.hpp"

namespace orrery {

/// What workers send in one step.
struct StepTraffic {
  std::int64_t servers = 1;
  std::vector<std::int64_t> up, down;  // bytes between workers and servers: worker by worker, its servers
  std::int64_t gathered = 0;           // bytes that each worker gives all others
  std::int64_t reduced = 0;            // bytes that are summed over the workers
  /// Over all workers: different rows of their batches, those that were not in the cache, those that servers sent, and
  /// those that were pushed.
  std::int64_t rows = 0, misses = 0, sent = 0, pushed = 0;

  std::size_t at(std::int64_t worker, std::int64_t server) const {
    return static_cast<std::size_t>(worker * servers + server);
  }
};

/// What parameters beside the tables add: sums among workers, or ways to servers and back.
void add_dense(StepTraffic& traffic, const CachedTrainingOptions& options, std::int64_t parameters);

/// The messages of workers that train in step: the pushes of all from the step before reach the servers before these
/// answer what is asked for this one. A row is on server `row modulo servers`. Left out: what a worker that is early or
/// late would be sent.
class EmbeddingTraffic {
 public:
  /// The stream outlives it.
  EmbeddingTraffic(const CachedTrainingOptions& options, const IdStream& stream, std::int64_t dim,
                   std::int64_t dense_parameters);

  StepTraffic step();

 private:
  void cached(StepTraffic& t, const std::vector<std::vector<std::int64_t>>& rows);
  void uncached(StepTraffic& t, const std::vector<std::vector<std::int64_t>>& rows);
  std::int64_t server_of(std::int64_t row) const { return row % options_.servers; }

  CachedTrainingOptions options_;
  const IdStream& stream_;
  std::int64_t dim_, dense_parameters_, step_ = 0;
  std::vector<WorkerCopies> caches_;
  RowVersions versions_;
  std::vector<std::vector<RowPush>> pushes_;        // of each worker, from the step before
  std::vector<std::vector<std::int64_t>> written_;  // rows of the step before, where nothing is cached
};

}  // namespace orrery
