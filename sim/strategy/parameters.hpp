// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/model/model.hpp"
#include "sim/plan/builder.hpp"
#include "sim/strategy/arrangement.hpp"
#include "sim/strategy/tape.hpp"
#include "sim/strategy/workload.hpp"

namespace orrery {

/// Gradients of which a step computes several at a time, each on a rank and at a point of its own, the next ones at
/// points that a prediction of gradients leads to (OptEx, arXiv 2402.11427).
struct PredictOptions {
  std::int64_t points = 1;    // N: points of a step
  std::int64_t history = 20;  // T0: latest points and gradients that predictions are made from
  CovarianceKind kernel = CovarianceKind::Matern52;
  double length_scale = 1, noise = 1e-3;
  std::int64_t kernel_elements = 0;  // weights that distances are over; 0: all
};

/// What replicas do with what they share.
struct DataOptions {
  DataKind kind = DataKind::Ddp;
  std::int64_t bucket = 25'000'000;
  std::int64_t part = 0;
  std::int64_t prefetch = 1;
  bool reshard = true;
  bool overlap = true;
  bool owners = false;
  std::optional<PredictOptions> predict = {};  // not an option: see the strategy optex

  template <class V>
  void visit(V& v) {
    v.field("kind", kind, "what is split over the replicas: nothing, optimizer states, and gradients, and weights");
    v.field("bucket", bucket, "bytes of gradients that are summed together: blocks join a bucket until it has as many",
            at_least(0));
    v.field("part", part,
            "zero3: elements of a block that are gathered right before their first use and whose gradients are summed "
            "as soon as they are complete, while nothing is computed; 0: a whole block, around it",
            at_least(0));
    v.field("prefetch", prefetch, "zero3: buckets whose weights are gathered ahead of their use", between(0, 1000));
    v.field("reshard", reshard, "zero3: drop gathered weights behind the forward pass and gather them again");
    v.field(
        "overlap", overlap,
        "ddp, zero1: sum gradients of a bucket while earlier blocks compute theirs, in place of all behind the passes");
    v.field(
        "owners", owners,
        "zero1: gradients are summed whole; a rank updates whole parameters, and ranks broadcast theirs one after "
        "another (InternEvo); zero3: ranks keep whole buckets in turn, which their owner broadcasts before they are "
        "used, and whose gradients add up there (PatrickStar)");
  }
};

/// Blocks whose weights lie on a neighbouring device and come over while those before them are computed (EnergonAI's
/// peer memory pooling, arXiv 2209.02341): the last one of each `every`; 0: none. `write_back`: they go back the same
/// way although nothing has changed them.
struct PeerOptions {
  std::int64_t every = 0;
  bool write_back = true;
};

/// What a pass goes through one after another: blocks by their number, and what lies outside of them.
constexpr int kEmbeddingPart = -1, kHeadPart = -2;

/// A part of the model whose parameters a rank class keeps.
struct HeldPart {
  int part = 0;
  int chunk = 0;            // parts of a chunk are passed one after another
  std::int64_t passes = 1;  // backward passes per step
  std::vector<ParameterId> parameters;
  bool shares_embedding = false;  // the head of a stage that keeps the tied table with the embedding
};

/// Storage of the parameters that a rank class keeps, of their gradients and optimizer states, and the communication
/// that keeps replicas equal. Blocks form units: the parameters of a unit lie in flat buckets, one per set of ranks
/// that share them, so that one collective serves all. The experts of a block lie in one tensor [experts, out, in] per
/// matrix, so that one grouped GEMM serves them; each expert's parameter is a view of it.
class ParameterStorage {
 public:
  struct Options {
    DType dtype = DType::F32;
    DType gradient = DType::F32;
    bool trains = false;
    bool frozen = false;                    // what has weight decay: no gradients and no states
    Quantised quantised = Quantised::None;  // matrices of blocks in memory
    bool placed = true;                     // the plan tells where parameters lie
    bool separate = false;        // each parameter has storage of its own; not with replicas that split anything
    PeerOptions peer;             // with `separate`
    DataOptions data;             // its kind aside: that is a matter of the arrangement
    std::vector<HeldPart> parts;  // in the order of their first use
    std::unordered_map<std::uint32_t, Group> ties;  // parameter → the ranks that keep copies of it on other stages
  };
  ParameterStorage(PlanBuilder& builder, const Model& model, const Arrangements& arrangements, Options options);
  ParameterStorage(const ParameterStorage&) = delete;
  ParameterStorage& operator=(const ParameterStorage&) = delete;

  TensorId operator[](ParameterId id) const { return weights_[id.index()]; }
  /// All experts of a matrix, given the first expert's parameter.
  TensorId stack(ParameterId first_expert) const { return stacks_.at(first_expert.value); }
  /// Rows [i · n/count, (i + 1) · n/count) of a weight of n rows that ops read now: what sub-layer i of `count` has.
  TensorId way(TensorId weight, std::int64_t i, std::int64_t count);
  GradientTargets& targets() { return targets_; }

  /// A pass comes to a part, or has left it. Gathers weights where they are split, and sees to it that the backward
  /// pass sums gradients as soon as they are complete.
  void before(Tape& tape, int part);
  void after(Tape& tape, int part);

  /// Whether all backward passes of a part but its first and its last do the same.
  bool passes_repeat() const;
  /// A backward pass of a chunk went by that repeats another one, so that `before` and `after` were not told.
  void skip_pass(int chunk);

  /// With predictions: emits the way to the points of a step. From here on weights of a rank are those of its point.
  void begin_points(const OptimizerOptions& options);

  /// Emits the update of every parameter: the global norm if it is clipped, then one op per bucket. Adds the optimizer
  /// states. Parameters that no gradient reached (selection biases, unused embeddings) stay as they are.
  void update(const OptimizerOptions& options);

 private:
  struct Piece {
    ParameterId parameter;             // of a stack: the first expert
    std::vector<ParameterId> experts;  // of a stack: of all ranks, or where they are placed of this class
    int block = -1;                    // of a stack
    Shape shape;                       // as a rank holds it
    std::int64_t first = 0;            // element of the bucket
    bool decay = true;
  };
  struct Bucket {
    std::vector<Piece> pieces;  // those with weight decay first
    std::string name;
    const Arrangement* arrangement = nullptr;
    std::int64_t elements = 0, decayed = 0;            // with padding; that have weight decay
    std::int64_t filled = 0;                           // without padding
    std::vector<std::int8_t> sum, scatter, replicate;  // axes: gradients add up over; split over; both but split
    const Group* tie = nullptr;
    bool frozen = false;
    bool is_placed = false;                  // experts with replicas on some ranks: see ExpertLayout
    double copies = 1;                       // ranks of the mesh that hold the same part of the complete gradient
    std::optional<std::int64_t> root;        // zero3: who of those that share it keeps all of it, if not all a part
    bool is_owned = false, is_rest = false;  // see Owned; rest: what has no weight decay, of all units
    std::int64_t begin = 0;                  // element of the weights that are owned together
    std::vector<std::int64_t> starts;  // per position: element of the bucket that it updates first, if not own · r
    std::int64_t users = 0;            // units whose backward passes are to come
    TensorId weight, own_weight, gradient, own_gradient;  // own: the part that the rank updates
    TensorId on_peer;                                     // where the weight lies for good
    TensorId read_gradient;                               // own_gradient, or what the update reads in its place
    std::vector<TensorId> piece_gradients;                // parts of `gradient`
    bool has_gradient = false, accumulates = false;       // in this step
  };
  /// Buckets whose weights lie in one tensor of `parts` parts of `part` elements. Position r owns parts [first[r],
  /// first[r + 1]) and updates `window` parts, those among them.
  struct Owned {
    std::vector<std::size_t> buckets;
    std::int64_t part = 0, parts = 0, window = 0;
    std::vector<std::int64_t> first;
    Bucket all;                      // what is updated
    std::vector<Operand> gradients;  // all of them
    TensorId nothing;                // zeros: gradients of parts that are not there
  };
  /// What an update keeps from step to step, and how many of its elements have weight decay where not all have.
  struct UpdateState {
    std::vector<Operand> states;
    TensorId decayed;
  };
  /// One update: of these weights with this gradient, so many updates behind the first of a step.
  struct UpdateStep {
    std::string name;
    TensorId weight, gradient, norm2;
    std::int64_t ahead = 0;
  };
  /// Where predictions come from and lead to.
  struct Points {
    TensorId points, slots, history, gradients;  // [N, d]; rows of the history that they go to; [T0, d] each
    UpdateState update;
  };
  using Used = std::vector<std::vector<TensorId>>;  // per bucket of a unit and piece: the weight that a pass has read
  struct Unit {
    const Arrangement* arrangement = nullptr;
    int chunk = 0, first = 0, last = 0;  // parts of the chunk that it serves
    std::vector<std::size_t> buckets;
    std::int64_t left = 1;  // backward passes to come in this step
    std::int64_t open = 0;  // that have begun: gradients of weights may be deferred behind the next pass
    bool gathered = false;
  };

  // parameters.cpp: what lies where
  void make_units(const Options& o);
  std::int64_t gradient_bytes(const HeldPart& part) const;
  void add_part(Unit& unit, const HeldPart& part);
  void add_stacks(Unit& unit, const HeldPart& part);
  void add_piece(Unit& unit, std::vector<ParameterId> ids, int block = -1);
  Bucket& bucket_of(Unit& unit, ParameterId id);
  Bucket& used_by(Unit& unit, std::size_t bucket);
  bool has_room(const Bucket& b, ParameterId id) const;
  void set_axes(Bucket& b, const Cut& cut) const;
  void choose_roots();
  void lay_out(Bucket& b);
  Shape local_shape(const Arrangement& arrangement, ParameterId id) const;
  // parameter_storage.cpp: tensors
  void add_storage(Bucket& b);
  Quantised quantised(const Bucket& b) const;
  TensorId make(const Bucket& b, std::string_view what, std::int64_t elements, TensorRole role, bool persistent);
  TensorId piece_of(const Bucket& b, const Piece& p, TensorId base, std::string_view suffix);
  std::int64_t begin_in(const Bucket& b, TensorId base) const;
  bool is_all_of(const Bucket& b, const Shape& shape, TensorId base) const;
  void bind_weights(Bucket& b, TensorId base);
  void set_gradient(Bucket& b, TensorId base);
  void bind_gradients(const Bucket& b, const std::vector<TensorId>& weights);
  std::vector<TensorId> weights_of(const Bucket& b) const;
  void place(const Bucket& b);
  Stored stored(const Bucket& b, const Piece& p, ParameterId id, bool gradient);
  // owned_parts.cpp: ranks that own stretches of all weights
  void make_owned();
  void lay_out(Owned& o);
  void add_storage(Owned& o);
  TensorId owned_view(const Owned& o, std::string_view name, std::int64_t parts,
                      const std::function<RankView::Place(std::int64_t)>& at);
  RankView::Place gradient_of(const Owned& o, std::int64_t part) const;
  void lay_out_gradients(Owned& o);
  void add_norm(const Owned& o, TensorId norm2);
  void broadcast_owned(const Owned& o);
  // placed_experts.cpp: experts that some ranks have
  const std::vector<HeldExpert>& held_experts(const Bucket& b, const Piece& p) const;
  TensorId expert_of(const Bucket& b, const Piece& p, TensorId base, std::size_t at);
  void sum_replicas(const Bucket& b);
  void add_norm_of_placed(const Bucket& b, TensorId norm2);
  // data_parallel.cpp: what is communicated when
  DataKind kind_of(const Bucket& b) const {
    return b.scatter.empty() || b.is_owned ? DataKind::Ddp : b.arrangement->data;
  }
  std::int64_t parts_of(const Bucket& b) const { return b.root || b.is_owned ? 1 : ranks_over(b.scatter); }
  OpId gather(const Bucket& b);
  OpId meet_root(CollectiveKind kind, const std::string& name, const Bucket& b, TensorId in, TensorId out);
  void gather_ahead(std::size_t unit, int direction);
  void gather_unit(Unit& unit, bool ahead);
  Used used_weights(const Unit& unit) const;
  void begin_backward(Tape& tape, std::size_t unit, const Used& used);
  void finish_backward(std::size_t unit);
  void reduce(Bucket& b, bool last);
  void sum_whole(Bucket& b);
  void zero(const Bucket& b, TensorId part);
  bool complete_gradient(const Bucket& b);
  void add_part(Bucket& b, const std::string& name, std::int64_t own);
  void sum_copies();
  OpId collect(CollectiveKind kind, const std::string& name, const std::vector<std::int8_t>& axes, TensorId in,
               TensorId out, std::int64_t elements);
  OpId collect(CollectiveKind kind, const std::string& name, GroupId group, TensorId in, TensorId out,
               std::int64_t elements);
  std::int64_t ranks_over(const std::vector<std::int8_t>& axes) const;
  // peer_memory.cpp: blocks on a neighbouring device
  bool is_on_peer(int block) const;
  void peer_before(int part);
  void peer_after(int part);
  void fetch(Unit& unit);
  void give_back(Unit& unit);
  void copy_layer(Bucket& b, TensorId from, TensorId to, std::string_view what);
  // update.cpp
  void read_gradients(const OptimizerOptions& options);
  DType type_of_tensor(TensorId t) const { return builder_->plan().tensors[t.index()].dtype; }
  TensorId sum_norm();
  UpdateState update_state(const Bucket& b, const OptimizerOptions& options);
  void emit_update(const Bucket& b, const UpdateState& state, const UpdateStep& step, const OptimizerOptions& options);
  void update_bucket(Bucket& b, TensorId norm2, const OptimizerOptions& options);
  std::vector<Bucket*> updated();
  TensorId decayed_elements(const Bucket& b, std::int64_t own);
  // predicted_points.cpp: gradients at several points
  void make_points(const OptimizerOptions& options);
  TensorId point(TensorId all, std::int64_t i);
  TensorId kernel_coordinates();
  TensorId factor_history(const Covariance& kernel, TensorId coordinates);
  TensorId predict(const Covariance& kernel, TensorId coordinates, TensorId factor, std::int64_t from);
  TensorId norm_of(TensorId gradient, const std::string& name, const OptimizerOptions& options);
  void finish_points(const OptimizerOptions& options);

  PlanBuilder* builder_;
  const Model* model_;
  const Arrangements* arrangements_;
  DType dtype_, gradient_;
  Quantised quantised_;
  bool trains_, frozen_, separate_, shares_embedding_ = false, gathers_ = false;  // gathers: some weights are split
  DataOptions data_;
  PeerOptions peer_;
  GradientTargets targets_;
  std::vector<TensorId> weights_;                       // per parameter: what ops read now
  std::unordered_map<std::uint32_t, TensorId> stacks_;  // first expert → what ops read now
  std::unordered_map<std::uint32_t, Group> ties_;
  std::map<std::pair<std::uint32_t, std::int64_t>, TensorId> ways_;  // weight and sub-layer → its part
  std::unordered_map<int, std::size_t> unit_of_part_;
  std::vector<Unit> units_;
  std::vector<Bucket> buckets_;
  std::vector<Owned> owned_;
  std::optional<Points> points_;
  OpId gather_limit_;  // gathers ahead start behind this op
};

}  // namespace orrery
