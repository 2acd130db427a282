// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/base/options.hpp"
#include "sim/program/embedding/row_cache.hpp"

namespace orrery {

/// Where workers keep the rows of embedding tables. `Het`: on parameter servers, and in a cache of each worker;
/// `Hybrid`: on parameter servers alone; both reduce gradients of all else among workers. `ParameterServer`: all else
/// is on the servers, too. `AllGather`: workers have all rows, and gather their gradients, those of a row that comes
/// twice in a batch twice.
enum class EmbeddingSystem : std::uint8_t { Het, Hybrid, ParameterServer, AllGather };
inline std::span<const EnumName<EmbeddingSystem>> enum_names(EmbeddingSystem) {
  static constexpr EnumName<EmbeddingSystem> names[] = {{EmbeddingSystem::Het, "het"},
                                                        {EmbeddingSystem::Hybrid, "hybrid"},
                                                        {EmbeddingSystem::ParameterServer, "parameter_server"},
                                                        {EmbeddingSystem::AllGather, "all_gather"}};
  return names;
}

/// Training of a recommendation model by workers that meet after each batch.
struct CachedTrainingOptions {
  EmbeddingSystem system = EmbeddingSystem::Het;
  std::int64_t workers = 8, servers = 1, batch = 128;
  std::int64_t staleness = 100;
  double cache = 0.1;
  CachePolicy policy = CachePolicy::Lfu;
  bool warm = true;
  std::vector<double> skew = {1.05};
  std::int64_t steps = 200, warm_up = 100, seed = 0;
  std::optional<std::int64_t> dense_parameters;
  std::optional<Seconds> compute;
  std::optional<BytesPerSecond> reduce_bandwidth;

  template <class V>
  void visit(V& v) {
    v.field("system", system, "where rows of embedding tables are kept");
    v.field("workers", workers, "workers, one a device of the cluster", at_least(1));
    v.field("servers", servers, "parameter servers, each on a node of its own with such a card as the workers' nodes",
            at_least(1));
    v.field("batch", batch, "samples of a step of one worker", at_least(1));
    v.field("staleness", staleness,
            "updates that a cached row may miss, and updates of a worker that its server may miss", at_least(0));
    v.field("cache", cache, "part of all rows that a worker's cache holds", between(0, 1));
    v.field("policy", policy,
            "which row leaves a full cache; of a warm one the rarest of those that it began with leave first");
    v.field("warm", warm,
            "caches begin full, with the most frequent rows, each as long after its last messages as chance has it");
    v.field("skew", skew, "Zipf exponents of ids, one for all tables or one each", at_least(0));
    v.field("steps", steps, "steps that are counted", at_least(1));
    v.field("warm_up", warm_up, "steps before them", at_least(0));
    v.field("seed", seed, "seed of the ids");
    v.field("dense_parameters", dense_parameters, "parameters beside the tables; left out: those of the model",
            at_least(0));
    v.field("compute", compute,
            "time that a worker computes a step; left out: predicted for the model, with tables of one row",
            at_least(Seconds{0}));
    v.field("reduce_bandwidth", reduce_bandwidth,
            "rate of a link apart over which workers sum gradients; left out: over their cards",
            more_than(BytesPerSecond{0}));
  }
};

}  // namespace orrery
