// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "sim/plan/extent.hpp"
#include "sim/program/serving/expected_lengths.hpp"
#include "sim/program/serving/kv_blocks.hpp"
#include "sim/program/serving/request.hpp"
#include "sim/program/serving/serving_options.hpp"

namespace orrery {

/// A request that a replica works on. `known` tokens are its prompt and what was generated; keys and values of the
/// first `computed` lie in the pool. When all known ones are computed, there is one more.
struct Sequence {
  Request request;
  std::int64_t generated = 0, computed = 0;
  BlockTable table;
  std::vector<std::uint64_t> hashes;  // of full blocks of the prompt that others may share
  std::vector<std::int32_t> tokens;   // known ones, where they are executed
  std::int64_t preemptions = 0, shared = 0;
  double first_token = -1, last_token = -1;

  std::int64_t known() const { return request.prompt + generated; }
  bool is_done() const { return generated >= request.output; }
  /// Whether its next row is the one that it generated last.
  bool decodes() const { return generated > 0 && computed + 1 == known(); }
};

/// Rows of one sequence in a step: known tokens [first, first + rows).
struct Part {
  Sequence* sequence = nullptr;
  std::int64_t first = 0, rows = 0;
  bool emits = false;  // gives a token
};

/// What the time of a step depends on; see Symbol for the last six.
struct BatchShape {
  std::int64_t rows = 0, emitting = 0;
  std::int64_t decodes = 0, decode_keys = 0, prompts = 0, prompt_rows = 0, prompt_keys = 0, prompt_pairs = 0;

  void add(std::int64_t first, std::int64_t count, bool is_decode);
  Bindings bindings() const;
  bool operator==(const BatchShape&) const = default;
};

/// One step of a replica. Blocks move before its rows are computed.
struct StepBatch {
  std::vector<Part> parts;
  BatchShape shape;
  std::vector<BlockCopy> to_host, from_host;

  bool is_empty() const { return parts.empty(); }
};

/// What distinguishes schedulers.
struct SchedulerRules {
  std::string_view name, summary;
  bool continuous = true;       // requests join while others run; else when all have been answered
  bool waits_for_full = false;  // a batch starts when it is full, or no more requests come
  bool together = false;        // who is done keeps computing until all of the batch are
  bool mixed = true;            // prompts and sequences that decode share a step; else prompts go first, alone
  bool chunked = true;          // prompts may be cut where a step is full
  bool decodes_first = false;   // within a step; else in order of arrival
  bool reserves = false;        // room for the whole answer is taken in advance, so that nobody has to make room
  bool ahead = false;           // the next step is decided while one runs: who comes meanwhile joins the one after it
  bool expects = false;         // answers are expected to have a part of their length, see ExpectedLengths
};
/// The table of schedulers, in the order of `orrery list schedulers`.
std::span<const SchedulerRules> schedulers();
/// Throws UserError that names them.
const SchedulerRules& find_scheduler(std::string_view name);

/// Decides what each step of one replica does, and keeps its sequences and blocks. Sequences belong to it from
/// `submit` until they are done or handed over. The simulator and the runtime drive the same.
class Scheduler {
 public:
  Scheduler(const ReplicaOptions& options, const KvBlocks::Sizes& blocks);

  /// Whether a request of this size can ever be answered.
  bool can_hold(const Request& request) const;
  void submit(Request request);
  /// A sequence whose prompt another replica has read.
  void accept(std::unique_ptr<Sequence> sequence);
  /// No more requests come: batches need not wait to be full.
  void close() { closed_ = true; }

  /// The next step; empty when there is nothing to do yet.
  StepBatch begin();
  /// The step is over. Gives the sequences that are done, in order.
  std::vector<std::unique_ptr<Sequence>> end(const StepBatch& batch);
  /// Takes a running sequence out, with its blocks given back: it goes on elsewhere.
  std::unique_ptr<Sequence> hand_over(Sequence& sequence);

  const KvBlocks& blocks() const { return blocks_; }
  std::size_t waiting() const { return waiting_.size() + coming_.size(); }
  std::size_t running() const { return running_.size(); }
  std::size_t swapped() const { return swapped_.size(); }
  /// Tokens that are still to be computed or generated.
  std::int64_t load() const { return load_; }
  std::int64_t preemptions() const { return preemptions_; }

 private:
  using Owned = std::unique_ptr<Sequence>;
  StepBatch decide();
  std::vector<Sequence*>& in_order();
  void take_running(StepBatch& batch);
  void take_cut_prompts(StepBatch& batch);
  void take_waiting(StepBatch& batch);
  void take_swapped(StepBatch& batch);
  void notice_coming();
  bool is_time_to_look();
  bool make_room(Sequence& sequence, std::int64_t tokens, std::vector<Sequence*>& order, StepBatch& batch);
  void preempt(Sequence& sequence, StepBatch& batch);
  void take_back(StepBatch& batch);
  bool is_expected_to_fit(const Sequence& sequence, const KvBlocks::Found& found);
  void learn(const StepBatch& batch);
  bool admit(Sequence& sequence, StepBatch& batch);
  void add(StepBatch& batch, Sequence& sequence, std::int64_t rows);
  std::int64_t room(const StepBatch& batch) const { return options_.max_tokens - batch.shape.rows; }
  bool has_seats() const { return static_cast<std::int64_t>(running_.size()) < options_.max_sequences; }
  Owned remove(const Sequence& sequence);

  ReplicaOptions options_;
  const SchedulerRules& rules_;
  KvBlocks blocks_;
  ExpectedLengths expected_;
  std::deque<Owned> waiting_, swapped_;
  std::deque<Owned> coming_;              // behind `waiting_`: not seen by the next decision
  std::vector<Owned> running_;            // in order of admission
  std::vector<Sequence*> order_, later_;  // of a step, see in_order
  std::vector<Owned> finished_;           // of a batch that goes together
  bool closed_ = false, preempted_ = false;
  bool has_read_ = false;          // the last step had prompts
  bool is_full_ = false;           // nobody is let in until a step of decoding finds somebody gone: where `expects`
  bool has_left_ = false;          // somebody is gone since
  std::int64_t since_looked_ = 0;  // steps
  std::int64_t load_ = 0, preemptions_ = 0;
};

}  // namespace orrery
