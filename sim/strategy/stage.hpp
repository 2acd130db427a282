// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/strategy/model_parts.hpp"
#include "sim/strategy/network.hpp"
#include "sim/strategy/packing/packed_training.hpp"
#include "sim/strategy/pipeline/schedules.hpp"
#include "sim/strategy/train_step.hpp"

namespace orrery {

/// What all rank classes of a training step have in common.
struct StepPlan {
  const Model& model;
  const TrainOptions& train;
  const ParallelOptions& parallel;
  Arrangements arrangements;
  std::optional<Schedule> schedule;  // with an axis pp
  std::vector<int> bounds;           // part k of the pipeline has blocks [bounds[k], bounds[k + 1])
  Repeats repeats = Repeats::Copied;
  std::optional<ChainSchedule> chain = {};   // recomputation of whole chains
  std::optional<SparseGating> gating = {};   // of gates that begin dense
  std::optional<PackedAmounts> packed = {};  // of windows of documents

  const Slices& slices() const { return arrangements.outside().slices; }
  const Roles& roles() const { return slices().roles; }
  bool has_blocks(int part) const {
    return bounds[static_cast<std::size_t>(part)] < bounds[static_cast<std::size_t>(part) + 1];
  }
};

/// Each of `from` replaced by its counterpart.
std::vector<Replacement> replacements(std::span<const TensorId> from, std::span<const TensorId> to);

/// Lowers what one stage of a pipeline does in a training step; without a pipeline, everything. A microbatch of a chunk
/// is one tape: forward ops, then its backward pass when the schedule says so. States cross stages as messages; a
/// neighbour's messages are received in the order in which it sends them, whatever they are.
class StageLowering {
 public:
  /// `pairs` are those of attention in a window of documents.
  StageLowering(PlanBuilder& builder, const StepPlan& step, int stage, std::int64_t pairs = 0);
  void run();

 private:
  /// Passes of a chunk over a microbatch. What the forward pass, the backward pass (or its part for inputs) and its
  /// part for weights have added lies in `blocks`.
  struct PassState {
    std::unique_ptr<Tape> tape;            // none where the passes repeat others
    TensorId received, gradient_received;  // none at the ends of the network
    TensorId in, out, gradient_out;        // of the pass: what it differentiates for, and gives to its neighbours
    std::array<std::optional<OpBlock>, 3> blocks;
  };
  /// The microbatch whose passes of a chunk all others repeat but those that stand apart: the first ones write
  /// gradients and make constants, the last ones reduce gradients.
  struct Pattern {
    int microbatch = -1;
    std::set<int> apart;
    std::array<bool, 3> receives{};  // each pass of a kind: the message it needs, and no other
  };
  /// A message between two stages, in the order in which the sender produces them.
  struct Message {
    int part = 0, microbatch = 0;  // of the sender
    bool is_gradient = false;
    bool operator==(const Message&) const = default;
  };

  // What the stage holds.
  ParameterStorage::Options storage_options() const;
  std::vector<HeldPart> held_parts() const;
  std::unordered_map<std::uint32_t, Group> ties() const;
  bool runs(int part) const;
  std::int64_t passes_of(int stage, int chunk) const;
  Layers make_layers(Tape& tape, std::int64_t microbatch);
  DocumentSizes document_sizes() const;

  // Passes.
  void make_ports();
  void make_documents(Layers& layers);
  void forward(const Action& a);
  void backward(const Action& a);
  void emit_forward(const Action& a, PassState& pass);
  void emit_backward(const Action& a, PassState& pass);
  void lower_loss(Layers& layers, TensorId logits, std::int64_t microbatch);
  void run_whole();
  void run_schedule();
  void finish_loss();

  // Repetition (repetition.cpp).
  bool may_repeat() const;
  void find_patterns();
  void find_receivers();
  static std::size_t block_of(Pass pass);
  bool repeats(const Action& a) const;
  bool receives(const Action& a) const;
  void repeat(const Action& a, PassState& pass);
  std::vector<TensorId> given_to(std::int64_t microbatch) const;

  // Messages (pipeline_stage.cpp).
  int part_of(const Action& a) const { return step_.schedule->part(stage_, a.chunk); }
  std::vector<Message> messages_to(int from, int to) const;
  std::optional<std::pair<int, Message>> needed_by(const Action& a) const;
  TensorId receive(int from, const Message& wanted);
  TensorId receive_ahead(const Action& a);
  TensorId receive_next(const Action& a);
  OpId pass_before_last() const;
  TensorId add_receive(int from, const Message& m);
  void wait_for_messages();
  void wait_for_loss();
  void send(int to, const Message& m, TensorId what);
  void hand_over(int to, const Message& m, TensorId what);
  const Arrangement& behind(int part) const;
  const Arrangement& between(int part) const;
  Peer peer(int stage) const;
  std::int64_t tag(const Message& m) const;
  bool is_next(int from, int to) const;

  PlanBuilder& b_;
  const StepPlan& step_;
  int stage_;
  std::int64_t pairs_ = 0;
  NetworkSizes sizes_;
  std::unique_ptr<ParameterStorage> weights_;
  std::vector<NetworkInputs> inputs_;
  std::vector<DocumentRows> documents_;  // per microbatch; empty: a sample is one, or nobody tells them apart
  TensorId loss_;
  std::vector<TensorId> targets_;                    // per microbatch
  std::map<std::pair<int, int>, PassState> passes_;  // (chunk, microbatch)
  std::map<int, Pattern> patterns_;                  // by chunk
  struct Channel {
    std::vector<Message> messages;
    std::vector<TensorId> tensors;                           // of those that have been received
    std::map<std::tuple<int, bool, Phase>, OpBlock> blocks;  // the first message of its kind
  };
  Channel& channel_of(int from);
  std::map<int, Channel> channels_;                  // by sending stage
  std::vector<std::pair<Message, TensorId>> local_;  // what a stage hands to itself
  std::vector<OpId> action_ends_;
};

}  // namespace orrery
