// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/strategy/network.hpp"
#include "sim/strategy/speculation/plans.hpp"

namespace orrery {

/// All caches of a stack in one tensor [caches, batch, capacity, cols], so that one op compacts them.
struct SpeculationCache {
  TensorId all;
  std::int64_t caches = 0, cols = 0;
  KvCache kv;
};

/// What all plans of a speculation are built with: a model with its drafter on one rank, `rows` rows a sequence.
class SpeculationPass {
 public:
  struct Source {
    const Model& model;
    const Drafter& drafter;
    const GenerateOptions& options;
    const SpeculationLayout& layout;
  };
  SpeculationPass(const Source& source, CacheUse use, std::int64_t rows, const std::string& name);

  const Transformer& target() const { return std::get<Transformer>(source.model.network); }
  std::int64_t batch() const { return source.options.batch; }
  std::int64_t capacity() const;
  DType dtype() const { return layers.sizes().dtype; }

  TensorId input(std::string_view port, std::int64_t count);
  TensorId result(std::string_view port, std::int64_t count, DType type);
  /// Storage that plans share.
  TensorId state(std::string_view name, const Shape& shape);
  SpeculationCache model_cache();
  SpeculationCache draft_cache();
  /// A matrix [rows, parts · width] of two or more side by side.
  TensorId beside(std::string_view name, const std::vector<TensorId>& parts);

  /// States of the model's blocks (those of the drafter when it skips some); `taps` receives what the drafter taps.
  TensorId run_blocks(TensorId tokens, TensorId positions, SpeculationCache& cache, const std::vector<int>& blocks,
                      std::vector<TensorId>* taps);
  TensorId final_norm(TensorId x, std::int64_t rows);
  TensorId model_logits(TensorId normed);
  /// Logits of a matrix; of the model's own, as the model scales and bounds them.
  TensorId logits_by(const Linear& output, std::string_view name, TensorId x, std::int64_t rows);

  /// The drafter's blocks over x; `contexts` of the model's cache for those that read it, none in a prefill.
  TensorId run_draft_blocks(TensorId x, SpeculationCache& cache, const SpeculationCache* read, TensorId contexts);
  /// What a drafter's block takes in: states of the model or of itself, and tokens.
  TensorId fused(TensorId states, TensorId tokens);
  TensorId draft_embedding(TensorId tokens);
  /// Logits of a drafter with blocks.
  TensorId draft_logits(TensorId states, std::int64_t rows);
  /// state + silu(W·inputs).
  TensorId head_state(std::string_view name, const DraftHead& head, TensorId inputs, TensorId state);
  /// One step of the recurrent cell.
  TensorId cell_state(TensorId states, TensorId tokens, std::int64_t rows);

  /// Widths of the model's states as they are kept for drafters: one, or three side by side.
  std::int64_t feature_width() const;
  bool keeps_features() const;
  TensorId features();
  /// Keeps states of `rows` rows a sequence as the first of its `features`.
  void store_features(TensorId states, std::int64_t rows);
  TensorId draft_states();
  /// Keeps the drafter's own states, which later levels go on from.
  void store_states(TensorId states, std::int64_t rows, std::int64_t first);
  /// The candidates of rows of logits as ports number `index`; distributions from row `first`.
  void offer_candidates(TensorId logits, std::int64_t rows, std::int64_t k, std::int64_t index, std::int64_t first);
  void read_results(std::int64_t numbers);
  /// The host is busy before anything of the pass runs.
  void wait_for_host(Seconds time);
  Plan take(const WorkspaceModel* workspaces);

  Source source;
  PlanBuilder builder;
  Arrangements arrangements;
  ParameterStorage weights;
  Tape tape;
  Layers layers;

 private:
  SpeculationCache cache_of(std::string_view name, const std::vector<const Attention*>& blocks, std::size_t places);
};

}  // namespace orrery
