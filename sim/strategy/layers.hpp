// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/strategy/arrangement.hpp"
#include "sim/strategy/chain_schedule.hpp"
#include "sim/strategy/dense_to_sparse.hpp"
#include "sim/strategy/parameters.hpp"
#include "sim/strategy/tape.hpp"
#include "sim/strategy/tensor_scheme.hpp"

namespace orrery {

/// Where the rows of a step stand whose sequences lie in pages of a pool; see PagedAttention.
struct PagedRows {
  std::int64_t sequences = 1, page = 16, max_pages = 1, slots = 0;  // slots: tokens that the pool has room for
  TensorId positions, slot, table, starts, lengths;                 // inputs; `slot`: of each new row in the pool
  TensorId last;                                                    // input: the last new row of each sequence
  std::vector<std::pair<TensorId, TensorId>> picked;  // tables of positions, and what of them the rows need
};

/// Keys and values that outlive a step, per block (encoder blocks count, theirs are none; of sub-layers side by side
/// each counts): [batch, capacity, kv_heads, dim], or for latent attention one tensor [batch, capacity, kv_rank +
/// rope_dim] in `keys`. In pages: batch 1, and as many as the pool has slots.
struct KvCache {
  std::int64_t capacity = 0;
  PagedRows paged;
  std::vector<TensorId> keys, values;              // self-attention
  std::vector<TensorId> cross_keys, cross_values;  // of the encoder's output (encoder-decoder), filled in the prefill
};

/// Rows of padded samples that are computed: the valid ones, one sample behind another. Attention alone sees samples
/// side by side.
struct Packing {
  std::int64_t rows = 0;  // 0: all are computed
  TensorId valid;         // [rows]: which of the padded rows
  TensorId padded;        // [batch · sequence]: which of the valid rows, −1 for padding
  bool restored = false;  // behind the blocks all rows again
};

/// How many rows find room at the experts, see TrainOptions and ParallelOptions.
struct ExpertRoom {
  double capacity_factor = 0;
  std::int64_t capacity_groups = 0;  // of a microbatch; 0: one on each rank
  double buffer = 0;
};

/// What attention does with a cache. Tree: rows of token trees go behind sequences of different lengths.
enum class CacheUse : std::uint8_t { None, Fill, Extend, Paged, Tree };

/// Rows of token trees behind sequences in a cache, as inputs of the plan tell them.
struct TreePass {
  std::int64_t slots = 0;  // rows of a tree that the cache holds after the pass, those of the pass last
  TensorId contexts;       // [batch]: rows of each sequence before the tree
  TensorId positions;      // [batch · sequence]: of rotary embeddings
  TensorId mask;           // [batch, sequence, slots]
};

/// Where the documents of samples begin that hold several, [batch · sequence] each.
struct DocumentRows {
  TensorId first_keys;  // the place in its sample of the first row of a row's document
  TensorId positions;   // of a row in its document; none: nobody asks
};

/// What attention is told of the documents of a sample; a count of 0: it is one.
struct DocumentSizes {
  std::int64_t count = 0, pairs = 0;  // documents, and what is visible, in the mean
};

/// Numbers; products in 8 bits take rows of so many.
constexpr std::int64_t kWholeRow = 16;

/// Lowers the layers of a model to ops on a tape. Activations are matrices [rows, width] with rows = batch · sequence.
class Layers {
 public:
  struct Sizes {
    std::int64_t batch = 1;  // follows from the arrangement
    std::int64_t sequence = 1;
    DType dtype = DType::F32;
    double dropout = 0, attention_dropout = 0;
    bool dropout_masks = false;
    std::int64_t seed = 1;
    std::int64_t microbatch = 0;
    bool training = false;
    bool stored_scores = false, eager_attention = false;
    Narrow narrow = Narrow::None;  // of products with weights of blocks
    bool keep_narrow = false;      // their inputs, as they were cast
    LossKind loss = LossKind::Fused;
    std::span<const RecomputePart> recompute_parts;  // of blocks that recompute selectively
    const ChainSchedule* chain = nullptr;  // what blocks compute again, where that is not a matter of each alone
    Quantised weights = Quantised::None, cache = Quantised::None;  // in memory
    CacheUse cache_use = CacheUse::None;
    ExpertRoom room;
    const SparseGating* gating = nullptr;  // of experts, where a token may visit any number of them
    bool expert_overlap = false;           // exchanges of experts run on a stream of their own
    bool waits_for_experts = false;
    bool weigh_inside = false;  // rows of experts, in front of the product back
    bool copied_values = false;
    DocumentSizes documents = {};  // of samples that hold several
  };

  /// Begins in the arrangement of what lies outside of blocks.
  Layers(Tape& tape, const Arrangements& arrangements, ParameterStorage& weights, const Sizes& sizes);
  Layers(Tape&, Arrangements&&, ParameterStorage&, const Sizes&) = delete;

  /// How ranks share what is lowered now. The model at hand is what a rank computes of it.
  const Arrangement& arrangement() const { return *arrangement_; }
  const Arrangement& outside() const { return arrangements_.outside(); }
  /// From here on activations lie as in `arrangement`.
  void start_in(const Arrangement& arrangement);
  /// The same, with the rows of x, an activation between blocks, moved to the ranks that want them (relayout.cpp).
  TensorId turn_to(const Arrangement& arrangement, std::string_view name, TensorId x);
  TensorId turn_outside(TensorId x) { return turn_to(outside(), "outside", x); }

  std::int64_t rows() const { return packed_ ? packing_.rows : padded_rows(); }
  std::int64_t padded_rows() const { return sizes_.batch * sizes_.sequence; }
  /// How rows are packed from the next `pack` on.
  void set_packing(const Packing& packing) {
    packing_ = packing;
    packed_ = false;
  }
  /// The rows that are computed of all rows of x, an embedding; x where nothing is packed.
  TensorId pack(TensorId x);
  /// Of packed rows all again where that is asked for, zeros in place of padding; else x.
  TensorId restore(TensorId x);
  /// The same for states that another stage has packed.
  std::int64_t packed_or(std::int64_t rows) const { return packing_.rows > 0 ? packing_.rows : rows; }
  void assume_packed() { packed_ = packing_.rows > 0; }
  const Sizes& sizes() const { return sizes_; }
  const Roles& roles() const { return arrangement_->roles(); }
  const Slices& slices() const { return arrangement_->slices; }
  ParameterStorage& weights() { return weights_; }
  /// Rows of an activation between blocks: a part of them under sequence parallelism.
  std::int64_t outer_rows() const { return roles().sequence_parallel ? rows() / roles().tp.ranks : rows(); }
  void set_sequence(std::int64_t sequence) { sizes_.sequence = sequence; }
  /// Attention windows as sequences (Swin).
  void set_windows(std::int64_t count, std::int64_t tokens) {
    sizes_.batch = count;
    sizes_.sequence = tokens;
  }

  /// Of the block whose ops are being added.
  const ExpertLayout& expert_layout() const {
    return arrangements_.experts[static_cast<std::size_t>(tape_.builder().layer())];
  }
  /// Groups of tokens that a rank has, each with a capacity of its own at every expert.
  std::int64_t capacity_groups() const {
    return sizes_.room.capacity_groups > 0 ? sizes_.room.capacity_groups / slices().replicas() : 1;
  }

  // What ranks may compute together, in the way of the mesh: see TensorScheme.
  TensorId enter(std::string_view name, TensorId x, std::span<const Reader> readers = {}) {
    return scheme_->enter(*this, name, x, readers);
  }
  /// Of feed-forward layers, which may be split in a way of their own.
  TensorId enter_feed_forward(std::string_view name, TensorId x, std::span<const Reader> readers = {}) {
    return ffn_scheme_->enter(*this, name, x, readers);
  }
  TensorId leave_feed_forward(std::string_view name, TensorId y) { return ffn_scheme_->leave(*this, name, y); }
  TensorId linear(std::string_view name, TensorId x, std::int64_t rows, const Linear& l) {
    return scheme_->linear(*this, name, x, rows, l);
  }
  /// The same in the type of the activations, whatever other products of a training step cast their operands to.
  TensorId linear_as_is(std::string_view name, TensorId x, std::int64_t rows, const Linear& l);
  TensorId project_back(std::string_view name, TensorId x, const Linear& l) {
    return scheme_->project_back(*this, name, x, l);
  }
  TensorId project_outside(std::string_view name, TensorId x, const Linear& l) {
    return scheme_->project_outside(*this, name, x, l);
  }
  /// Whether blocks as they are arranged now make this part again in the backward pass.
  bool recomputes(RecomputePart part) const;
  /// In front of (or behind) a half of a block.
  TensorId block_norm(std::string_view name, TensorId x, std::int64_t rows, const Norm& n);
  TensorId norm(std::string_view name, TensorId x, std::int64_t rows, const Norm& n) {
    return scheme_->norm(*this, name, x, rows, n);
  }
  TensorId embed(std::string_view name, TensorId table, TensorId index) {
    return scheme_->embed(*this, name, table, index);
  }
  TensorId logits(std::string_view name, TensorId x, const Linear& l) { return scheme_->logits(*this, name, x, l); }
  /// Adds the loss of these rows to `loss`: cross-entropy over classes that may be split over ranks, or binary
  /// cross-entropy of one logit. `classes`: of the whole model (sim/strategy/losses.cpp).
  void add_loss(TensorId logits, TensorId targets, TensorId loss, std::int64_t classes, double weight);
  /// Indices into a table whose rows are split over an axis, `each` per rank, as this rank counts them.
  TensorId local_indices(std::string_view name, TensorId index, std::int64_t each, const Split& over);
  /// Of x, which every rank of tp has whole, the columns that are its inputs of a matrix split by inputs.
  TensorId own_columns(std::string_view name, TensorId x);
  /// Where the part of a table or of the classes that a rank holds begins.
  TensorId first_of_shard(std::int64_t each, const Split& over);

  /// What a product writes beside its result where its input x is kept as it was cast; none where it is not
  /// (kept_casts.cpp).
  struct KeptCast {
    TensorId first, numbers, scale;
    std::int64_t rows = 0;  // of x; not all: those of this rank, which begin at `first`

    bool is_none() const { return numbers.is_none(); }
  };
  /// For a product of x [rows, cols] with `weight`, called `name`: the first one is asked to write, for all of them.
  KeptCast keep_cast(std::string_view name, TensorId x, std::int64_t rows, std::int64_t cols, TensorId weight);
  /// `all` are the rows x of all ranks of tp, and gathered again in the backward pass.
  void set_gathered(TensorId all, TensorId x) { gathered_[all.value] = x; }
  /// The same for products in pieces, of which the first reads x alone: all ranks' numbers are gathered, each rank's
  /// with a scale of its own.
  KeptCast keep_own_cast(std::string_view name, TensorId all, TensorId x, TensorId weight);
  /// The result of a projection that was made when its input entered.
  void set_made(std::string name, TensorId y) { made_[std::move(name)] = y; }
  /// Gives it away; none: it is still to be made.
  TensorId take_made(std::string_view name);
  /// The product of `rows` rows with `l`, as the layer at hand multiplies.
  Gemm product_of(std::int64_t rows, const Linear& l) const;

  // One op each (sim/strategy/layers.cpp). The result is a new activation named after the op.
  TensorId product(std::string_view name, TensorId x, std::int64_t rows, const Linear& l);
  TensorId row_norm(std::string_view name, TensorId x, std::int64_t rows, const Norm& n);
  TensorId add_bias(std::string_view name, TensorId x, ParameterId bias);
  TensorId activation(std::string_view name, ActivationKind kind, TensorId x, std::int64_t rows, std::int64_t cols);
  TensorId add(std::string_view name, TensorId a, TensorId b);
  TensorId gather(std::string_view name, TensorId table, TensorId index, std::int64_t rows);
  TensorId dropout(std::string_view name, TensorId x);
  /// factor·x; x itself for a factor of 1.
  TensorId scale(std::string_view name, TensorId x, double factor);
  /// cap·tanh(scale·x/cap) as programs that fuse nothing compute it, up to the last factor, which is left to the
  /// reader: tanh(scale·x/cap).
  TensorId soft_step(std::string_view name, TensorId x, double scale, double cap);
  /// cap·tanh(x/cap) where the model bounds its logits, else x.
  TensorId bounded_logits(TensorId x);

  // Parts of a block.
  TensorId mlp(std::string_view name, TensorId x, const Mlp& m);
  TensorId mlp_inner(std::string_view name, TensorId x, std::int64_t rows, const Mlp& m);
  TensorId moe(std::string_view name, TensorId x, std::int64_t rows, const MoE& m);  // moe.cpp
  TensorId attention(std::string_view name, TensorId x, const Attention& a, KvCache* cache,
                     int block);  // attention.cpp
  /// Queries from x, keys and values from `memory` [batch · memory_sequence, hidden] (or from the cache when it is
  /// extended).
  TensorId cross_attention(std::string_view name, TensorId x, TensorId memory, std::int64_t memory_sequence,
                           const Attention& a, KvCache* cache, int block);
  /// A whole block: attention, optional cross-attention and feed-forward with their residual connections.
  struct Memory {
    TensorId states;
    std::int64_t sequence = 0;
  };
  TensorId block(int index, TensorId x, const Memory& memory, KvCache* cache);
  /// Queries from x against keys and values that somebody else has stored, [batch, capacity, kv_heads, dim]: as many
  /// as `contexts` says of each sequence, or, where it is none, those of a causal prompt.
  TensorId reading_attention(std::string_view name, TensorId x, const Attention& a, TensorId keys, TensorId values,
                             TensorId contexts);

  /// The additive bias that all blocks of a stack share, made by the first block that asks.
  void set_bias(TensorId bias, std::int64_t mask_groups = 0, TensorId mask = {}) {
    bias_ = bias;
    mask_ = mask;
    mask_groups_ = mask_groups;
  }

  /// Where a cache is extended by one token of each sequence and they differ: the tokens of each that stand in it;
  /// none: all have the context.
  void set_contexts(TensorId contexts) { contexts_ = contexts; }
  /// Samples that hold several documents: attention and positions are of these from here on.
  void set_documents(const DocumentRows& documents) { documents_ = documents; }
  /// How matrices lie in memory that what is lowered now reads: only those of blocks are quantised.
  Quantised quantised_weights() const { return tape_.builder().layer() >= 0 ? sizes_.weights : Quantised::None; }

  TensorId activation_tensor(std::string_view name, const Shape& shape);
  TensorId index_tensor(std::string_view name, const Shape& shape);
  /// Where the step says so: the host waits for the rows of a layer's experts, which begin at `offsets`.
  void wait_for_rows(std::string_view name, TensorId offsets);
  /// Gives a gate over `rows` rows its random numbers; the numbers of the rows, if they have any.
  TensorId place_gate(SparseGate& gate, std::int64_t rows);
  /// A persistent tensor whose contents follow from shapes; made once per name.
  TensorId constant(std::string_view name, const Shape& shape, DType dtype,
                    std::function<std::vector<double>()> values);
  /// The same where contents depend on the rank.
  TensorId rank_constant(std::string_view name, const Shape& shape, DType dtype,
                         std::function<std::vector<double>(std::span<const std::int64_t> coordinates)> values);
  TensorId weight(ParameterId id) const { return weights_.way(weights_[id], way_, ways_); }
  /// From here on sub-layer i of `count` on this rank: its part of each parameter, and nobody to sum up with. 0 of 1:
  /// whole layers again.
  void set_way(std::int64_t i, std::int64_t count, bool is_alone);
  const Model& model() const { return arrangement_->local.network; }
  Tape& tape() { return tape_; }
  /// Where the rows of this step stand; rotations and attention under CacheUse::Paged read it.
  void set_paged(PagedRows* paged) { paged_ = paged; }
  const PagedRows* paged() const { return paged_; }
  /// The trees of the pass at hand, under CacheUse::Tree.
  void set_tree(const TreePass& tree) { tree_ = tree; }
  /// Rotary tables from here on have this name: blocks of one plan may turn by different angles.
  void set_rotary(std::string name) { rotary_ = std::move(name); }
  /// Dropouts from here on draw from streams counted from this one.
  void set_dropout_stream(std::int64_t stream) { dropout_stream_ = stream; }
  /// [batch, sequence, heads, dim] view of columns [offset, offset + heads·dim) of a matrix [rows, width].
  TensorId heads_view(TensorId x, std::int64_t batch, std::int64_t sequence, std::int64_t heads, std::int64_t dim,
                      std::int64_t head_stride, std::int64_t offset);

 private:
  struct Projected {
    TensorId q, k, v;
  };  // 4-D views
  struct Latent;
  Projected project(std::string_view name, TensorId x, const Attention& a, const StandardAttention& s);
  TensorId project_heads(std::string_view name, TensorId x, const Linear& l, const std::optional<Norm>& n,
                         std::int64_t heads, std::int64_t dim);
  struct Turns;
  void turn(std::string_view name, TensorId x, const Turns& turns, std::int64_t heads, std::int64_t head_stride,
            std::int64_t first, std::int64_t width);
  void rotate(std::string_view name, TensorId x, const Rope& rope, std::int64_t heads, std::int64_t head_stride,
              std::int64_t first, std::int64_t width);
  std::string rotary_of(const Rope& rope) const;
  void grow_scores(std::string_view name, TensorId q, const ScoreGrowth& growth, std::int64_t width);
  TensorId latent_attention(std::string_view name, TensorId x, const Attention& a, const LatentAttention& l,
                            KvCache* cache, int block);
  Projected expand_latents(std::string_view name, TensorId q, TensorId compressed, TensorId shared_key,
                           const Attention& a, const LatentAttention& l);
  TensorId absorbed_attention(std::string_view name, TensorId q, const Attention& a, const LatentAttention& l,
                              TensorId cache, std::int64_t capacity);
  TensorId attend(std::string_view name, const Projected& p, const Attention& a, std::int64_t batch, std::int64_t q,
                  Extent kv, bool biased);
  TensorId attend_here(std::string_view name, const Projected& p, const Attention& a, std::int64_t batch,
                       std::int64_t q, Extent kv, bool biased);
  TensorId stored_attention(std::string_view name, const Projected& p, const Attention& a, std::int64_t batch,
                            std::int64_t q, std::int64_t kv);  // stored_attention.cpp
  TensorId heads_first(std::string_view name, TensorId x, std::int64_t kv_heads);
  TensorId drop(std::string_view name, TensorId x, Dropout op, TensorId ids);
  TensorId drop_scores(std::string_view name, TensorId scores, std::int64_t heads, std::int64_t q);
  TensorId places(std::int64_t n);
  void let_go(std::string_view name, std::span<const TensorId> held, TensorId result);
  TensorId pad(std::string_view name, TensorId x);
  TensorId unpad(std::string_view name, TensorId x);
  bool in_tree() const { return sizes_.cache_use == CacheUse::Tree; }
  /// Tokens of each sequence in the cache before the pass, where they differ; none: as many as the context.
  TensorId contexts() const {
    return in_tree() ? tree_.contexts : sizes_.cache_use == CacheUse::Extend ? contexts_ : TensorId{};
  }
  TensorId positions_of_rows() const;
  AttentionShape attention_shape(const Attention& a, std::int64_t batch, std::int64_t q, Extent kv) const;
  /// Keys that attention over the cache reads, of a sequence or in the mean.
  Extent cached_keys() const { return {in_tree() ? tree_.slots : sizes_.sequence, Symbol::Context}; }
  // Over keys of all ranks of cp: ring_attention.cpp, ulysses.cpp, ring_self_attention.cpp.
  TensorId ring_attention(std::string_view name, const Projected& p, const Attention& a);
  TensorId ulysses(std::string_view name, const Projected& p, const Attention& a);
  TensorId ring_self_attention(std::string_view name, const Projected& p, const Attention& a);
  Projected append(std::string_view name, const Projected& p, const Attention& a, KvCache& cache, int block);
  // Over pages: paged_attention.cpp.
  TensorId picked_rows(TensorId table);
  void store_rows(std::string_view name, TensorId rows, TensorId pool, std::int64_t cols);
  TensorId paged_attention(std::string_view name, const Projected& p, const Attention& a);
  void append_rows(std::string_view name, TensorId rows, TensorId cache, std::int64_t cols, std::int64_t capacity);
  void follow_chain(int index, std::size_t first, TensorId output);
  TensorId feed_forward(std::string_view name, TensorId x, const Block& b);
  TensorId context_positions(std::int64_t first_hop, std::int64_t hops);
  void add_split_loss(TensorId from, TensorId targets, TensorId loss, std::int64_t classes, double weight);
  TensorId copied_for_loss(TensorId logits);
  void add_copied_loss(TensorId wide, TensorId targets, TensorId loss, const CrossEntropyForward& work);
  /// What the loss reads: the logits, or a copy of them in f32.
  TensorId widened(TensorId logits);
  DType loss_type() const { return orrery::loss_type(sizes_.loss, sizes_.dtype); }
  TensorId loss_tensor(std::string_view name, const Shape& shape) {
    return tape_.builder().tensor(name, shape, {.dtype = loss_type()});
  }

  Tape& tape_;
  const Arrangements& arrangements_;
  ParameterStorage& weights_;
  const Arrangement* arrangement_;
  const TensorScheme *scheme_, *ffn_scheme_;
  Sizes sizes_;
  TensorId bias_, mask_, contexts_;
  std::int64_t mask_groups_ = 0;
  PagedRows* paged_ = nullptr;
  DocumentRows documents_;
  std::int64_t dropout_stream_ = 0;
  TreePass tree_;
  std::string rotary_ = "rotary";
  std::int64_t way_ = 0, ways_ = 1;
  Packing packing_;
  bool packed_ = false;
  std::int64_t products_ = 0;  // of the block at hand
  std::unordered_map<std::uint32_t, TensorId> gathered_;
  std::unordered_map<std::string, TensorId> made_;
};

}  // namespace orrery
