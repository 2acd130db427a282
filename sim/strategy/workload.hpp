// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/base/options.hpp"
#include "sim/base/units.hpp"
#include "sim/plan/kinds/common.hpp"
#include "sim/strategy/dense_to_sparse.hpp"
#include "sim/strategy/packing/packed_training.hpp"
#include "sim/strategy/remat.hpp"
#include "sim/strategy/speculation/options.hpp"

namespace orrery {

/// Types that a plan's activations and weights may have.
enum class Precision : std::uint8_t { F32, F64, BF16, F16 };
/// What of the forward pass is made again in the backward pass.
enum class Recompute : std::uint8_t { None, Selective, Full, Whole, Rotor, Checkmate };
/// What `selective` makes again, each from what it reads: attention from queries, keys and values; norms in front of
/// the halves of a block; queries, keys and values of latent attention from its latents; activations between the two
/// products of feed-forward layers and experts; whole feed-forward layers; whole layers of experts, exchanges included.
/// They are the modules of Megatron-Core's selective recomputation. `AllButEverySecondProduct` keeps the input of a
/// block, its first product and each second one behind it, attention, and sums over tp (torchtitan's per op).
enum class RecomputePart : std::uint8_t {
  Core,
  Norms,
  Latents,
  Activations,
  FeedForward,
  Experts,
  AllButEverySecondProduct
};
/// Whether only the inputs of blocks are kept.
constexpr bool keeps_only_inputs(Recompute r) { return r == Recompute::Full || r == Recompute::Whole; }
enum class OptimizerKind : std::uint8_t { AdamW, Sgd };
/// How the loss of logits in 16 bits is computed: in their place; in that of a copy in f32; there op by op, each a pass
/// over memory (Megatron-LM's vocabulary-parallel loss in PyTorch); the same on one more copy (BigScience's fork of
/// it); with logits, log-probabilities and both gradients in f32 (PyTorch's cross_entropy).
enum class LossKind : std::uint8_t { Fused, Widened, Megatron, MegatronCopied, Torch };
constexpr bool is_op_by_op(LossKind k) { return k == LossKind::Megatron || k == LossKind::MegatronCopied; }

inline std::span<const EnumName<Precision>> enum_names(Precision) {
  static constexpr EnumName<Precision> names[] = {
      {Precision::F32, "f32"}, {Precision::F64, "f64"}, {Precision::BF16, "bf16"}, {Precision::F16, "f16"}};
  return names;
}
inline std::span<const EnumName<Recompute>> enum_names(Recompute) {
  static constexpr EnumName<Recompute> names[] = {{Recompute::None, "none"},   {Recompute::Selective, "selective"},
                                                  {Recompute::Full, "full"},   {Recompute::Whole, "whole"},
                                                  {Recompute::Rotor, "rotor"}, {Recompute::Checkmate, "checkmate"}};
  return names;
}
inline std::span<const EnumName<RecomputePart>> enum_names(RecomputePart) {
  static constexpr EnumName<RecomputePart> names[] = {
      {RecomputePart::Core, "core"},
      {RecomputePart::Norms, "norms"},
      {RecomputePart::Latents, "latents"},
      {RecomputePart::Activations, "activations"},
      {RecomputePart::FeedForward, "feed_forward"},
      {RecomputePart::Experts, "experts"},
      {RecomputePart::AllButEverySecondProduct, "all_but_every_second_product"}};
  return names;
}
inline std::span<const EnumName<Narrow>> enum_names(Narrow) {
  static constexpr EnumName<Narrow> names[] = {
      {Narrow::None, "none"}, {Narrow::EightBits, "eight_bits"}, {Narrow::FourBits, "four_bits"}};
  return names;
}

inline std::span<const EnumName<Quantised>> enum_names(Quantised) {
  static constexpr EnumName<Quantised> names[] = {
      {Quantised::None, "none"}, {Quantised::F8, "fp8"}, {Quantised::I8, "int8"}, {Quantised::I4, "int4"}};
  return names;
}
inline std::span<const EnumName<LossKind>> enum_names(LossKind) {
  static constexpr EnumName<LossKind> names[] = {{LossKind::Fused, "fused"},
                                                 {LossKind::Widened, "widened"},
                                                 {LossKind::Megatron, "megatron"},
                                                 {LossKind::MegatronCopied, "megatron_copied"},
                                                 {LossKind::Torch, "torch"}};
  return names;
}
inline std::span<const EnumName<OptimizerKind>> enum_names(OptimizerKind) {
  static constexpr EnumName<OptimizerKind> names[] = {{OptimizerKind::AdamW, "adamw"}, {OptimizerKind::Sgd, "sgd"}};
  return names;
}

constexpr DType dtype_of(Precision p) {
  constexpr DType types[] = {DType::F32, DType::F64, DType::BF16, DType::F16};
  return types[static_cast<int>(p)];
}
/// The type that a loss of logits of `dtype` is computed in.
constexpr DType loss_type(LossKind loss, DType dtype) {
  const bool is_narrow = dtype == DType::BF16 || dtype == DType::F16;
  return loss != LossKind::Fused && is_narrow ? DType::F32 : dtype;
}

/// Tokens on the decoder side of an encoder-decoder: as many as on the other where nothing is said.
constexpr std::int64_t target_length(std::int64_t target, std::int64_t sequence) {
  return target > 0 ? target : sequence;
}

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::AdamW;
  double rate = 1e-3, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, momentum = 0.9, decay = 0.01;
  double clip = 1.0;
  bool narrow_moments = false;
  bool widen_gradients = false;

  template <class V>
  void visit(V& v) {
    v.field("kind", kind, "how gradients change weights");
    v.field("rate", rate, "learning rate", at_least(0));
    v.field("beta1", beta1, "adamw: decay of the first moment", less_than(1));
    v.field("beta2", beta2, "adamw: decay of the second moment", less_than(1));
    v.field("epsilon", epsilon, "adamw: added to the root of the second moment", at_least(0));
    v.field("momentum", momentum, "sgd: decay of the velocity", less_than(1));
    v.field("decay", decay, "weight decay of matrices; norms and biases have none", at_least(0));
    v.field("clip", clip, "largest global norm of the gradient; 0: not clipped", at_least(0));
    v.field("narrow_moments", narrow_moments,
            "adamw: both moments in the 16 bits of the weights, 8 bytes a parameter in place of 12 (Megatron-Core's "
            "precision-aware optimizer)");
    v.field("widen_gradients", widen_gradients,
            "bf16 and f16: the update reads copies of all gradients in f32, which are made before its norm "
            "(Megatron-Core without that optimizer)");
  }
};

/// How often the experts of a layer are chosen. Predictions go by it; an executed step counts its own choices.
struct RoutingOptions {
  double skew = 0;
  std::int64_t seed = 0;
  std::vector<double> shares, placed_by;

  bool is_even() const { return skew == 0 && shares.empty(); }
  /// What replicas of experts are placed by.
  RoutingOptions placing() const {
    return placed_by.empty() ? *this : RoutingOptions{.shares = placed_by, .placed_by = {}};
  }

  template <class V>
  void visit(V& v) {
    v.field("skew", skew,
            "Zipf exponent: the k-th hottest expert of a layer is chosen in proportion to k^-skew, at most once by a "
            "token; 0: all equally often",
            at_least(0));
    v.field("seed", seed, "draws the order of experts by heat, anew for each layer; 0: expert 0 is the hottest in all");
    v.field("shares", shares, "how often each expert was chosen, in any unit, in all layers; in place of skew",
            at_least(0));
    v.field("placed_by", placed_by,
            "the shares that `expert_slots` were placed by, where others hold by now; empty: those that hold",
            at_least(0));
  }
};

/// One training step: `batch` samples in `microbatches` passes, then the update.
struct TrainOptions {
  std::int64_t batch = 8, microbatches = 1, sequence = 128;
  std::int64_t target_sequence = 0;
  Precision dtype = Precision::F32;
  Recompute recompute = Recompute::None;
  std::vector<RecomputePart> recompute_parts{RecomputePart::Core};
  std::int64_t recompute_interval = 1;
  std::optional<Bytes> activation_budget = std::nullopt;
  const RematSolver* remat = nullptr;  // not an option: finds the schedules of `recompute: checkmate`
  bool stored_scores = false, eager_attention = false;
  bool wide_gradients = false;
  LossKind loss = LossKind::Fused;
  bool waits_for_loss = false, waits_for_experts = false, weigh_inside = false, copied_values = false;
  Narrow narrow = Narrow::None;
  bool keep_narrow = false;
  bool frozen = false;
  double dropout = 0, attention_dropout = 0;
  bool dropout_masks = false;
  double capacity_factor = 0;
  std::int64_t capacity_groups = 0;
  std::optional<DenseToSparseOptions> dense_to_sparse = std::nullopt;
  RoutingOptions routing;
  OptimizerOptions optimizer;
  std::int64_t steps = 3;
  std::int64_t seed = 1;
  std::optional<PackingOptions> packing = std::nullopt;
  std::vector<double> id_skew;
  std::string text;

  template <class V>
  void visit(V& v) {
    v.field("batch", batch, "samples per step over all ranks; a multiple of `microbatches`", at_least(1));
    v.field("microbatches", microbatches, "passes per step whose gradients are summed", between(1, 65535));
    v.field("sequence", sequence, "tokens per sample (encoder side of an encoder-decoder)", at_least(1));
    v.field("target_sequence", target_sequence,
            "tokens per sample on the decoder side of an encoder-decoder; 0: as `sequence`", at_least(0));
    v.field("dtype", dtype, "type of weights and activations; bf16 and f16 keep a master copy of the weights in f32");
    v.field(
        "recompute", recompute,
        "what is computed again in the backward pass: nothing, `recompute_parts` (selective), what it reads of a block "
        "(full), "
        "blocks to their end, as torch.utils.checkpoint does (whole), or as the least work under `activation_budget` "
        "wants it: blocks that run again or stay until they are read (rotor), any parts of the step (checkmate)");
    v.field("recompute_parts", recompute_parts,
            "selective: attention (core), norms in front of halves of blocks, queries, keys and values from latents, "
            "activations between products, whole feed-forward layers, whole layers of experts; "
            "all_but_every_second_product keeps but each second product of a block, attention, and sums over tp");
    v.field("recompute_interval", recompute_interval,
            "full: the input of every n-th block stays, those between are computed again from it", at_least(1));
    v.field("activation_budget", activation_budget,
            "rotor and checkmate: most bytes that activations of a rank may take in one pass of a microbatch",
            more_than(Bytes{0}));
    v.field("stored_scores", stored_scores,
            "attention as two products and a softmax between them, whose scores are kept, in place of one fused op");
    v.field("eager_attention", eager_attention,
            "stored scores op by op, in memory that stays until attention returns (BERT of transformers 4)");
    v.field("wide_gradients", wide_gradients,
            "bf16 and f16: gradients of weights are added up and summed over ranks in f32");
    v.field("loss", loss,
            "fused: in the place of the logits; widened: in that of a copy in f32; megatron: there, op by op (the "
            "vocabulary-parallel loss of Megatron-LM); megatron_copied: there in a second copy (BigScience's fork); "
            "torch: logits, log-probabilities and gradients have a copy in f32 each (PyTorch's cross_entropy)");
    v.field("waits_for_loss", waits_for_loss,
            "the host waits for the loss of a microbatch before it goes backward, as where a program asserts that it "
            "is a number");
    v.field("waits_for_experts", waits_for_experts,
            "in each layer of experts that take all rows the host waits for their numbers before it starts what moves "
            "and multiplies them, as where a program gives them to its calls");
    v.field("weigh_inside", weigh_inside,
            "rows of experts are weighted in front of the product back, to where their weights go with them; what "
            "comes back is then not kept for the gradients of the weights (Megatron-Core)");
    v.field("copied_values", copied_values,
            "latent attention: values are copied out of what latents are expanded to, which is then not kept beside "
            "keys (Megatron-Core, whose attention takes whole tensors)");
    v.field("narrow", narrow,
            "what products with weights of blocks, but those that choose experts, cast both operands to first: "
            "eight_bits (fp8 training) or four_bits (NVFP4, 16 numbers to a scale)");
    v.field("keep_narrow", keep_narrow,
            "with narrow eight_bits: inputs of products are kept for the gradients of weights as they were cast, where "
            "they are not made again (Transformer Engine)");
    v.field("frozen", frozen,
            "matrices and tables stay as they are: only norms and biases are trained, and gradients pass through (what "
            "adapters of low rank leave of a step; the adapters themselves are not in it)");
    visit_dropped(v);
    v.field("optimizer", optimizer, "the update");
    visit_data(v);
  }
  /// What is trained on, and for how long.
  template <class V>
  void visit_data(V& v) {
    v.field("steps", steps, "steps to run", at_least(1));
    v.field("seed", seed, "of initial weights, data order and dropout");
    v.field("packing", packing, "samples are windows of documents; left out: each is one stretch of text");
    v.field(
        "id_skew", id_skew,
        "exponents of the Zipf distributions that ids of embedding tables are drawn from, one for each table or one "
        "for all; row 0 comes most often; empty: all rows alike",
        at_least(0));
    v.field("text", text, "file to train on, relative to the scenario; empty: random tokens");
  }
  /// What is left out at random, what experts are chosen, what does not fit, and how many experts tokens visit.
  template <class V>
  void visit_dropped(V& v) {
    v.field("dropout", dropout, "probability, behind embeddings and each half of a block", less_than(1));
    v.field("attention_dropout", attention_dropout, "probability, of stored scores behind their softmax", less_than(1));
    v.field("dropout_masks", dropout_masks,
            "what dropouts keep is kept for the backward pass, a byte a number, as PyTorch does; else it is drawn "
            "again there");
    v.field("capacity_factor", capacity_factor,
            "rows that an expert takes, over those of even experts: later tokens are dropped; 0: it takes all",
            at_least(0));
    v.field("capacity_groups", capacity_groups,
            "runs of samples of a microbatch whose tokens share the capacity; 0: one per replica of the mesh",
            at_least(0));
    v.field("dense_to_sparse", dense_to_sparse,
            "experts: tokens visit all whose noisy weight is above a threshold, fewer as a temperature falls, in the "
            "end one (arXiv 2112.14397)");
    v.field("routing", routing, "how often experts are chosen, for predictions (and for `expert_slots`)");
  }
};

/// What a network that does not train keeps in fewer bits than it computes with.
struct QuantisedOptions {
  Quantised weights = Quantised::None, cache = Quantised::None;
  Narrow narrow = Narrow::None;

  template <class V>
  void visit(V& v) {
    v.field("weights", weights, "matrices of blocks in memory; each 128 numbers share a scale");
    v.field("cache", cache, "keys and values in memory; those of a head share a scale");
    v.field("narrow", narrow, "what rows are cast to in front of products with matrices of blocks, computed there");
  }
  bool operator==(const QuantisedOptions&) const = default;
};

/// Prefill of `prompt` tokens, then `tokens` decode steps, for `batch` sequences side by side.
struct GenerateOptions {
  std::int64_t batch = 1, prompt = 16, tokens = 32;
  std::int64_t microbatches = 1, chunk = 0;
  std::vector<std::int64_t> lengths;
  QuantisedOptions quantised;
  Precision dtype = Precision::F32;
  double temperature = 0;
  std::int64_t top_k = 0;
  double top_p = 1;
  std::int64_t seed = 1;
  std::string text;
  std::optional<SpeculateOptions> speculate;

  template <class V>
  void visit(V& v) {
    v.field("batch", batch, "sequences generated together", at_least(1));
    v.field("prompt", prompt, "tokens of each prompt", at_least(1));
    v.field("tokens", tokens, "tokens to generate per sequence", at_least(1));
    v.field("microbatches", microbatches, "parts of the batch that go through a pipeline one behind another",
            between(1, 65535));
    v.field("chunk", chunk,
            "prompts are read in pieces of so many tokens, each of which attends to the cache and itself; 0: whole",
            at_least(0));
    v.field("lengths", lengths,
            "tokens of each prompt, where they differ: shorter ones are padded behind, and decode at places of their "
            "own; empty: all have `prompt`",
            at_least(1));
    v.field("quantised", quantised, "what is kept in fewer bits (predicted, not executed)");
    v.field("dtype", dtype, "type of weights, activations and cache");
    v.field("temperature", temperature, "0: the most likely token", at_least(0));
    v.field("top_k", top_k, "draw from the k most likely tokens; 0: all", at_least(0));
    v.field("top_p", top_p, "draw from the most likely tokens that together have this probability",
            {.min = 0, .max = 1, .above_min = true});
    v.field("seed", seed, "of weights that are not loaded, and of the sampling");
    v.field("text", text, "prompt as text; empty: random tokens");
    v.field("speculate", speculate, "tokens that a drafter proposes and the model verifies several at a time");
  }
};

/// One step of a server: `rows` new tokens of up to `sequences` sequences, whose keys and values lie in pages of a
/// pool.
struct ServingStepOptions {
  std::int64_t rows = 1, sequences = 1;
  std::int64_t page = 16;      // tokens of a page
  std::int64_t pages = 1;      // of the pool
  std::int64_t max_pages = 1;  // of one sequence
  Precision dtype = Precision::F32;
  bool placed = true;  // tells where parameters lie, which plans that are only timed need not
};

/// Copies of keys and values between a server's pool and one of `host_pages` pages in the memory of the host.
struct ServingSwapOptions {
  std::int64_t slots = 1;  // tokens of one copy
  std::int64_t host_pages = 1;
  bool out = true;
};

/// One forward pass without a cache: encoders, classifiers, scoring.
struct InferOptions {
  std::int64_t batch = 1, sequence = 128, target_sequence = 0;
  std::int64_t microbatches = 1;
  std::vector<std::int64_t> lengths;
  bool last = false;
  QuantisedOptions quantised;
  Precision dtype = Precision::F32;
  std::int64_t steps = 3;
  std::int64_t seed = 1;

  template <class V>
  void visit(V& v) {
    v.field("batch", batch, "samples per pass", at_least(1));
    v.field("sequence", sequence, "tokens per sample", at_least(1));
    v.field("target_sequence", target_sequence, "decoder tokens per sample of an encoder-decoder; 0: as `sequence`",
            at_least(0));
    v.field("microbatches", microbatches, "batches that go through a pipeline one behind another", between(1, 65535));
    v.field("lengths", lengths,
            "valid tokens of each sample: what stands behind them is padding, which no token attends to; empty: all",
            at_least(1));
    v.field("last", last, "logits of the last valid token of each sample only");
    v.field("quantised", quantised, "what is kept in fewer bits (predicted, not executed)");
    v.field("dtype", dtype, "type of weights and activations");
    v.field("steps", steps, "passes to run", at_least(1));
    v.field("seed", seed, "of weights that are not loaded and of the inputs");
  }
};

}  // namespace orrery
