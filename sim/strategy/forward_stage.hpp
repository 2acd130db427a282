// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "sim/strategy/model_parts.hpp"
#include "sim/strategy/network.hpp"
#include "sim/strategy/train_step.hpp"

namespace orrery {

/// How an engine that controls all stages hands a batch to one of them, and how many it lets into the pipeline.
struct CallOptions {
  Seconds call;                // of each stage and batch
  Seconds first, end;          // further pauses: of a stage that finds its queue empty, and behind the last stage
  std::int64_t in_flight = 0;  // 0: all
};

/// What passes that do not train are made of: sizes of the whole batch, and what is kept how.
struct ForwardWork {
  std::int64_t batch = 1, microbatches = 1, sequence = 1, target_sequence = 1;
  DType dtype = DType::F32;
  QuantisedOptions quantised;
  CacheUse cache_use = CacheUse::None;
  std::vector<std::int64_t> lengths = {};  // of padded samples; empty: all are valid
  bool packed = false;                     // only valid rows are computed
  bool restored = false;                   // behind the blocks all rows again
  PeerOptions peer = {};
  CallOptions calls = {};
  bool placed = true;  // see ServingStepOptions
};

/// What all rank classes of such a plan have in common.
struct ForwardStep {
  const Model& model;
  const ParallelOptions& parallel;
  ForwardWork work;
  Arrangements arrangements;
  std::vector<int> bounds;  // with an axis pp: stage k has blocks [bounds[k], bounds[k + 1])

  const Slices& slices() const { return arrangements.outside().slices; }
  const Roles& roles() const { return slices().roles; }
  std::int64_t stages() const { return roles().pp.ranks; }
  /// The network that a rank computes.
  const Transformer& transformer() const { return std::get<Transformer>(arrangements.outside().local.network.network); }
  /// Whether the head computes valid rows only.
  bool packed_head() const { return work.packed && !work.restored; }
  /// Samples of a rank, over all microbatches.
  std::int64_t samples() const { return slices().batch * work.microbatches; }
  /// Valid rows of microbatch m, counted from its first padded one.
  std::vector<std::int64_t> valid_rows(std::int64_t m) const;
};

/// Throws UserError where the mesh has axes that only training has, or sizes do not divide.
ForwardStep make_forward_step(PlanBuilder& builder, const Model& model, const ParallelOptions& parallel,
                              const ForwardWork& work);

/// One stage of a pipeline that does not train; without a pipeline, everything. Microbatches pass one behind another:
/// while one is computed the next one's states arrive and the last one's leave, or, with `blocking`, in between.
class ForwardStage {
 public:
  /// Starts the class of the stage.
  ForwardStage(PlanBuilder& builder, const ForwardStep& step, std::int64_t stage);

  bool is_first() const { return stage_ == 0; }
  bool is_last() const { return stage_ + 1 == step_.stages(); }
  PlanBuilder& builder() { return b_; }
  Layers& layers() { return *layers_; }
  /// Of each microbatch; empty where they are not read.
  std::vector<NetworkInputs>& inputs() { return inputs_; }
  /// Blocks of this stage.
  BlockSpan span() const;
  const Transformer& transformer() const { return step_.transformer(); }

  /// A pass of microbatch m: the logits, on the last stage.
  TensorId pass(std::int64_t m, KvCache* cache, LogitRows rows);
  /// Logits of all classes, parts of which may lie on the ranks of tp.
  TensorId all_classes(TensorId logits);
  /// A result with a port that holds `each` rows of every sample, of `cols` numbers or (0) one, and its rows of
  /// microbatch m.
  TensorId result(std::string_view port, std::int64_t each, std::int64_t cols, DType dtype);
  TensorId part_of(TensorId result, std::int64_t m);
  /// Draws a token of each row of the logits of all classes, into results that hold both.
  void draw(const Sample& sample, TensorId logits, TensorId kept, TensorId next);
  /// Behind all passes of the stage.
  void end();

 private:
  std::vector<HeldPart> held_parts() const;
  void set_packing(std::int64_t m);
  void call(std::int64_t m);
  void finish(std::int64_t m);
  TensorId receive();
  void send(TensorId states);
  Peer peer(std::int64_t stage) const;

  PlanBuilder& b_;
  const ForwardStep& step_;
  std::int64_t stage_;
  NetworkSizes sizes_;
  std::unique_ptr<ParameterStorage> weights_;
  std::unique_ptr<Tape> tape_;
  std::unique_ptr<Layers> layers_;
  std::vector<NetworkInputs> inputs_;
  std::vector<OpId> ends_;  // of the passes so far
};

}  // namespace orrery
