// SPDX-License-Identifier: Apache-2.0
#include "sim/program/embedding/embedding_traffic.hpp"

#include <algorithm>
#include <limits>

namespace orrery {
namespace {

constexpr std::int64_t kNumberBytes = 4, kIndexBytes = 8;

}  // namespace

EmbeddingTraffic::EmbeddingTraffic(const CachedTrainingOptions& options, const IdStream& stream, std::int64_t dim,
                                   std::int64_t dense_parameters)
    : options_{options},
      stream_{stream},
      dim_{dim},
      dense_parameters_{dense_parameters},
      pushes_(static_cast<std::size_t>(options.workers)),
      written_(static_cast<std::size_t>(options.workers)) {
  if (options_.system != EmbeddingSystem::Het) return;
  const auto slots = static_cast<std::int32_t>(
      std::clamp(options_.cache * double(stream.rows()), 1.0, double(std::numeric_limits<std::int32_t>::max())));
  for (std::int64_t w = 0; w < options_.workers; ++w) {
    std::optional<WarmRows> warm;
    if (options_.warm) warm.emplace(stream, slots);
    caches_.emplace_back(options_.policy, slots, options_.staleness, std::move(warm),
                         static_cast<std::uint64_t>(options_.seed * options_.workers + w));
  }
}

StepTraffic EmbeddingTraffic::step() {
  const std::int64_t n = options_.workers;
  StepTraffic t{.servers = options_.servers, .up = {}, .down = {}};
  t.up.resize(static_cast<std::size_t>(n * t.servers));
  t.down.resize(t.up.size());
  std::vector<std::vector<std::int64_t>> rows;
  for (std::int64_t w = 0; w < n; ++w)
    rows.push_back(unique_ids(stream_.batch((step_ * n + w) * options_.batch, options_.batch)));
  ++step_;
  for (const auto& of_worker : rows) t.rows += std::ssize(of_worker);
  if (options_.system == EmbeddingSystem::AllGather)
    t.gathered = options_.batch * stream_.fields() * (kNumberBytes * dim_ + kIndexBytes);
  else if (options_.system == EmbeddingSystem::Het)
    cached(t, rows);
  else
    uncached(t, rows);
  add_dense(t, options_, dense_parameters_);
  return t;
}

void add_dense(StepTraffic& t, const CachedTrainingOptions& options, std::int64_t parameters) {
  const std::int64_t bytes = kNumberBytes * parameters;
  if (options.system != EmbeddingSystem::ParameterServer) {
    t.reduced += bytes;
    return;
  }
  for (auto* way : {&t.up, &t.down})
    for (std::int64_t& each : *way) each += bytes / t.servers;
}

void EmbeddingTraffic::cached(StepTraffic& t, const std::vector<std::vector<std::int64_t>>& rows) {
  const std::int64_t bytes = row_bytes(dim_);
  for (std::int64_t w = 0; w < options_.workers; ++w)
    for (const RowPush& push : pushes_[static_cast<std::size_t>(w)]) {
      versions_.push(push);
      t.up[t.at(w, server_of(push.row))] += bytes;
      ++t.pushed;
    }
  for (std::int64_t w = 0; w < options_.workers; ++w) {
    WorkerCopies& cache = caches_[static_cast<std::size_t>(w)];
    const auto& wanted = rows[static_cast<std::size_t>(w)];
    const std::int64_t missed_before = cache.misses();
    for (const RowRequest& request : cache.read(wanted)) {
      t.up[t.at(w, server_of(request.row))] += kRequestBytes;
      if (!versions_.sends(request, options_.staleness)) continue;
      cache.received(request.row, versions_.of(request.row));
      t.down[t.at(w, server_of(request.row))] += bytes;
      ++t.sent;
    }
    t.misses += cache.misses() - missed_before;
    pushes_[static_cast<std::size_t>(w)] = cache.write(wanted);
  }
}

void EmbeddingTraffic::uncached(StepTraffic& t, const std::vector<std::vector<std::int64_t>>& rows) {
  const std::int64_t bytes = row_bytes(dim_);
  for (std::int64_t w = 0; w < options_.workers; ++w) {
    auto& written = written_[static_cast<std::size_t>(w)];
    for (const std::int64_t row : written) t.up[t.at(w, server_of(row))] += bytes;
    t.pushed += std::ssize(written);
    written = rows[static_cast<std::size_t>(w)];
    for (const std::int64_t row : written) {
      t.up[t.at(w, server_of(row))] += kRequestBytes;
      t.down[t.at(w, server_of(row))] += bytes;
    }
    t.sent += std::ssize(written);
  }
  t.misses = t.rows;
}

}  // namespace orrery
