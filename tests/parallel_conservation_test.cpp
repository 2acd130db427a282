// SPDX-License-Identifier: Apache-2.0
// What splitting a training step must leave alone, and what it must cost: arithmetic, bytes of communication, of model
// state and of activations. Published formulas stand beside ours where the two differ.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <set>

#include "tests/parallel_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

/// h hidden, a heads, V words: sizes that 4 divides, so that nothing is padded.
constexpr double kHidden = 32, kHeads = 4, kVocab = 64;

Model gpt(int layers) { return gpt2_of({.hidden = 32, .layers = layers, .heads = 4, .vocab = 64}); }

/// Two key-value heads for four heads, an inner width of 48.
Model llama(int layers) { return llama_of({.hidden = 32, .inner = 48, .layers = layers, .heads = 4, .vocab = 64}); }

TrainOptions options(std::int64_t batch = 8, std::int64_t microbatches = 1) {
  TrainOptions o;
  o.batch = batch;
  o.microbatches = microbatches;
  o.sequence = 16;
  return o;
}

Plan lower(const Model& model, const TrainOptions& o, const std::string& strategy) {
  return parallel(strategy)->train_step(model, o, nullptr);
}

double flops(const Plan& plan, const Op& op) { return amount(plan.work(op)).flops.base(); }

/// Arithmetic of GEMMs and attention over all ranks, recomputation excluded.
double model_arithmetic(const Plan& plan) {
  double sum = 0;
  for (const RankClass& c : plan.classes)
    for (const Op& op : plan.ops_of(c)) {
      const OpClass kind = class_of(plan.work(op));
      if (op.phase != Phase::Recompute && (kind == OpClass::Gemm || kind == OpClass::Attention))
        sum += flops(plan, op) * double(c.size());
    }
  return sum;
}

/// Arithmetic of both passes over all ranks, by the name of the op.
std::map<std::string, double> arithmetic_by_name(const Plan& plan) {
  std::map<std::string, double> out;
  for (const RankClass& c : plan.classes)
    for (const Op& op : plan.ops_of(c))
      if (op.phase == Phase::Forward || op.phase == Phase::Backward)
        if (const double f = flops(plan, op); f > 0) out[std::string{plan.name_of(op)}] += f * double(c.size());
  return out;
}

/// What a rank of a class sends on rings: 2(n−1)/n of the bytes of an all-reduce, (n−1)/n of a gather or scatter.
double wire_bytes(const Plan& plan, const Collective& c) {
  double n = 1;
  for (const std::uint8_t a : plan.groups[c.group.index()].axes) n *= double(plan.mesh.axes[a].size);
  return (c.kind == CollectiveKind::AllReduce ? 2 : 1) * (n - 1) / n * c.bytes.base();
}

/// Of all collectives of the first class that `counts`.
template <class F>
double wire_bytes(const Plan& plan, F counts) {
  double sum = 0;
  for (const Op& op : plan.ops_of(plan.classes.front()))
    if (const auto* c = std::get_if<Collective>(&plan.work(op)); c && counts(op)) sum += wire_bytes(plan, *c);
  return sum;
}

/// Of gradients and weights: all but the two numbers that a step sums at its end.
double replica_bytes(const Plan& plan) {
  return wire_bytes(plan, [&](const Op& op) {
    return plan.name_of(op).starts_with("sum.") || plan.name_of(op).starts_with("gather.");
  });
}

double elements(const Model& model, bool blocks_only = false) {
  double n = 0;
  for (const Parameter& p : model.parameters)
    if (!blocks_only || p.layer >= 0) n += double(p.elements());
  return n;
}

double sent_bytes(const Plan& plan, std::size_t stage) {
  double sum = 0;
  for (const Op& op : plan.ops_of(plan.classes[stage]))
    if (const auto* s = std::get_if<Send>(&plan.work(op))) sum += s->bytes.base();
  return sum;
}

double persistent_bytes(const Plan& plan, TensorRole role) {
  double sum = 0;
  for (std::size_t t = 0; t < plan.tensors.size(); ++t)
    if (plan.tensors[t].base.is_none() && plan.tensors[t].persistent && plan.tensors[t].role == role)
      sum += plan.size(TensorId{t}).base();
  return sum;
}

}  // namespace

TEST_CASE("ranks together do the GEMMs and the attention of one device", "[parallel]") {
  const auto make = GENERATE(&gpt, &llama);
  const auto* strategy =
      GENERATE("{mesh: dp4}", "{mesh: dp2, data: {kind: zero3}}", "{mesh: tp2}", "{mesh: tp2, sequence_parallel: true}",
               "{mesh: tp2, sequence_parallel: true, tp_comm_overlap: true}", "{mesh: pp4}",
               "{mesh: pp2, schedule: interleaved, chunks: 2}", "{mesh: pp2, schedule: chimera}",
               "{mesh: pp4, schedule: zb-h1}", "{mesh: pp2, schedule: zb-v}", "{mesh: pp2, schedule: dualpipe}",
               "{mesh: dp2 pp2 tp2, sequence_parallel: true, data: {kind: zero2}}");
  const Recompute recompute = GENERATE(Recompute::None, Recompute::Selective, Recompute::Full);
  TrainOptions o = options(16, 4);
  o.recompute = recompute;
  const Model model = make(4);
  const Plan one = single()->train_step(model, o, nullptr), many = lower(model, o, strategy);
  INFO(model.name << " " << strategy << " recompute " << static_cast<int>(recompute));
  CHECK(model_arithmetic(many) == model_arithmetic(one));
  CHECK(many.purpose.model_flops.base() == model_arithmetic(one));
  CHECK(many.purpose.tokens == one.purpose.tokens);
}

/// Between blocks every rank of tp has all rows: norms, sums, dropout and what embeddings add are computed by each.
/// With sequence parallelism each has its rows; but each looks through all rows for those of its part of the
/// vocabulary.
TEST_CASE("ranks of tp repeat what lies between blocks, but not with sequence parallelism", "[parallel]") {
  const bool sequence = GENERATE(false, true);
  const double t = GENERATE(2, 4);
  TrainOptions o = options();
  o.dropout = 0.1;
  const Model model = gpt(2);
  const auto one = arithmetic_by_name(single()->train_step(model, o, nullptr));
  const auto many =
      arithmetic_by_name(lower(model, o, fmt::format("{{mesh: tp{}, sequence_parallel: {}}}", t, sequence)));
  std::set<std::string> repeated;
  for (const auto& [name, f] : many) {
    const auto it = one.find(name);
    if (it == one.end() || name.starts_with("loss")) continue;  // other ops: the loss over a split vocabulary
    INFO(name);
    if (f != it->second) {
      CHECK(f == t * it->second);
      repeated.insert(name);
    }
  }
  for (const std::string& name : repeated) {
    INFO(name);
    const auto is = [&](std::string_view part) { return name.find(part) != std::string::npos; };
    CHECK((is("norm") || is("residual") || is("dropout") || is("embedding")));
  }
  if (sequence) CHECK(repeated == std::set<std::string>{"embedding.dw"});
  const auto is_repeated = [&](const std::string& name) { return repeated.contains(name); };
  for (const auto* name :
       {"layers.0.attention_norm", "layers.1.ffn_norm", "layers.1.ffn_residual", "final_norm.backward"})
    CHECK(is_repeated(name) != sequence);
}

/// Ψ parameters of 4 bytes on d replicas, per rank and step:
///   ddp     2(d−1)/d·Ψ    zero1  (d−1)/d·(Ψ + Ψ)
///   zero2   (d−1)/d·(m·Ψ + Ψ) for m microbatches: the published 2Ψ has one
///   zero3   (d−1)/d·(m·Ψ + 2m·Ψ_blocks + Ψ_outside): the published 3Ψ, but embeddings and head are gathered once per
///           step and kept; without resharding blocks are gathered once per microbatch; in parts 3m·Ψ
TEST_CASE("replicas send what ZeRO says", "[parallel]") {
  const double m = GENERATE(1, 4), d = 4;
  const Model model = GENERATE(gpt(4), llama(4));
  const double psi = 4 * elements(model), blocks = 4 * elements(model, true), outside = psi - blocks;
  const auto bytes = [&](std::string_view data) {
    return replica_bytes(lower(model, options(32, std::int64_t(m)), fmt::format("{{mesh: dp4, data: {}}}", data)));
  };
  const double part = (d - 1) / d;
  CHECK(bytes("{kind: ddp}") == 2 * part * psi);
  CHECK(bytes("{kind: ddp, bucket: 0}") == 2 * part * psi);
  CHECK(bytes("{kind: zero1}") == part * (psi + psi));
  CHECK(bytes("{kind: zero2}") == part * (m * psi + psi));
  CHECK(bytes("{kind: zero3, bucket: 0}") == part * (m * psi + 2 * m * blocks + outside));
  CHECK(bytes("{kind: zero3, bucket: 0, reshard: false}") == part * (m * psi + psi));
  CHECK(bytes("{kind: zero3, part: 1000000}") == part * 3 * m * psi);
  const double published = 3 * part * psi;
  if (m == 1)
    WARN(
        fmt::format("{}: zero3 sends {} B per rank and step, published 1.5 x 2(d-1)/d.params = {} B; {} B of the "
                    "difference are embeddings and head, which are gathered once",
                    model.name, bytes("{kind: zero3, bucket: 0}"), published, part * outside));
}

/// Hybrid shards over f ranks, d copies: scatter and gather inside, all-reduce of the parts between copies.
TEST_CASE("hybrid shards send (f-1)/f of all and 2(d-1)/d of a part", "[parallel]") {
  const Model model = gpt(4);
  const double psi = 4 * elements(model);
  const Plan plan = lower(model, options(32, 1), "{mesh: dp2 fsdp4, data: {kind: zero1}}");
  CHECK(replica_bytes(plan) == 3.0 / 4 * 2 * psi + 2 * 1.0 / 2 * psi / 4);
}

/// Per block and rank, in units of (t−1)/t·bsh: an all-reduce is 2, a gather or scatter 1.
///   forward and backward 2 all-reduces each: 8; with sequence parallelism as many halves, and two gathers for the
///   gradients of weights, which Megatron hides behind products as we do: 10 (8 with keep_gathered)
///   full recompute: the published 12 run the whole forward pass again. Ours ends at the last kept tensor: the sum
///   behind the feed-forward is not needed again: 10, and 11 with the gathers of sequence parallelism sequence
///   parallel, once per step: gradients of what all ranks hold, weight and bias of two norms and the biases behind two
///   projections, 6h; outside the positions (32 rows) and the last norm
TEST_CASE("ranks of tp send what Megatron says", "[parallel]") {
  const double t = GENERATE(2, 4);
  const bool sequence = GENERATE(false, true);
  const Recompute recompute = GENERATE(Recompute::None, Recompute::Selective, Recompute::Full);
  TrainOptions o = options();
  o.recompute = recompute;
  const double bsh = 4 * 8 * 16 * kHidden, bs = 4 * 8 * 16, part = (t - 1) / t;
  const Plan plan = lower(gpt(4), o, fmt::format("{{mesh: tp{}, sequence_parallel: {}}}", t, sequence));
  const auto of_layer = [&](int layer, Phase first, Phase last) {
    return wire_bytes(plan, [&](const Op& op) {
      return op.layer == layer && op.phase >= first && op.phase <= last && !plan.name_of(op).starts_with("sum.");
    });
  };
  const double again = recompute == Recompute::Full ? (sequence ? 3 : 2) : sequence ? 2 : 0;
  for (const int layer : {0, 1, 3})
    CHECK(of_layer(layer, Phase::Forward, Phase::Recompute) == Approx((8 + again) * part * bsh));
  // The sum of the embedding, the gradient of what the logits read and, split in rows, what they read once more; the
  // largest logit and two sums of each row.
  const double outside = sequence ? 5 : 4;
  CHECK(of_layer(-1, Phase::Forward, Phase::Recompute) == Approx(outside * part * bsh + 2 * part * (bs + 2 * bs)));
  CHECK(replica_bytes(plan) == Approx(sequence ? 2 * part * 4 * kHidden * (4 * 6 + 32 + 2) : 0));
  if (recompute == Recompute::Full && t == 2)
    WARN(
        fmt::format("full recompute, sequence_parallel {}: {} (t-1)/t.bsh per block, published 12: the last sum of a "
                    "block is not computed again",
                    sequence, 8 + again));
}

TEST_CASE("stages send bsh per microbatch, boundary and direction", "[parallel]") {
  const double m = 6, bsh = 4 * 2 * 16 * kHidden;
  const auto plan = [&](std::string_view strategy) { return lower(gpt(8), options(12, 6), std::string{strategy}); };
  const auto* schedule = GENERATE("gpipe", "1f1b", "zb-h1");
  const Plan plain = plan(fmt::format("{{mesh: pp4, schedule: {}}}", schedule));
  CHECK(sent_bytes(plain, 0) == m * bsh);
  CHECK(sent_bytes(plain, 1) == 2 * m * bsh);
  CHECK(sent_bytes(plain, 2) == 2 * m * bsh);
  CHECK(sent_bytes(plain, 3) == m * bsh);
  // v chunks: v·p − 1 boundaries. Stage 0 sends its v chunks on, and the gradients of all but its first.
  const Plan chunks = plan("{mesh: pp4, schedule: interleaved, chunks: 2}");
  CHECK(sent_bytes(chunks, 0) == (2 + 1) * m * bsh);
  CHECK(sent_bytes(chunks, 1) == 2 * 2 * m * bsh);
  CHECK(sent_bytes(chunks, 3) == (1 + 2) * m * bsh);
  // Every rank of tp sends all rows, or its part of them.
  CHECK(sent_bytes(plan("{mesh: pp4 tp2}"), 1) == 2 * m * bsh);
  CHECK(sent_bytes(plan("{mesh: pp4 tp2, sequence_parallel: true}"), 1) == 2 * m * bsh / 2);
}

/// Weights and gradients of 2 bytes, master weights and two moments of 4: K = 12 (arXiv 1910.02054, table 1).
TEST_CASE("model state per rank is that of the ZeRO table", "[parallel]") {
  const double n = GENERATE(2, 4), psi = elements(gpt(4));
  TrainOptions o = options();
  o.dtype = Precision::BF16;
  const auto states = [&](std::string_view kind) {
    const Plan p = lower(gpt(4), o, fmt::format("{{mesh: dp{}, data: {{kind: {}}}}}", n, kind));
    return std::array{persistent_bytes(p, TensorRole::Parameter), persistent_bytes(p, TensorRole::Gradient),
                      persistent_bytes(p, TensorRole::OptimizerState)};
  };
  CHECK(states("ddp") == std::array{2 * psi, 2 * psi, 12 * psi});
  CHECK(states("zero1") == std::array{2 * psi, 2 * psi, 12 * psi / n});
  CHECK(states("zero2") == std::array{2 * psi, 2 * psi / n, 12 * psi / n});
  CHECK(states("zero3") == std::array{2 * psi / n, 2 * psi / n, 12 * psi / n});
  o.optimizer.narrow_moments = true;  // of 2 bytes: K = 8
  CHECK(states("ddp") == std::array{2 * psi, 2 * psi, 8 * psi});
  CHECK(states("zero1") == std::array{2 * psi, 2 * psi, 8 * psi / n});
}

TEST_CASE("gradients that are widened take four bytes of each parameter that a rank updates", "[parallel]") {
  const double n = GENERATE(2, 4), psi = elements(gpt(4));
  TrainOptions o = options();
  o.dtype = Precision::BF16;
  o.optimizer.widen_gradients = true;
  const Plan plan = lower(gpt(4), o, fmt::format("{{mesh: dp{}, data: {{kind: zero1}}}}", n));
  double widened = 0;
  for (const Op& op : plan.ops) {
    const Work& work = plan.work(op);
    if (const auto* c = std::get_if<Cast>(&work)) widened += size_of(c->to, c->elements).base();
    if (const auto* a = std::get_if<AdamW>(&work)) CHECK(a->gradient == DType::F32);
    if (const auto* s = std::get_if<SumSquares>(&work)) {
      CHECK(s->dtype == DType::F32);
      CHECK(widened == 4 * psi / n);  // all of them before the norm
    }
  }
  CHECK(widened == 4 * psi / n);
}

/// Stages hold every parameter once, but the tied table twice; two directions hold all twice.
TEST_CASE("stages share the model state", "[parallel]") {
  TrainOptions o = options(8, 4);
  o.dtype = Precision::BF16;
  const double psi = elements(gpt(4)), table = kVocab * kHidden;
  const auto weights = [&](const std::string& strategy) {
    return persistent_bytes(lower(gpt(4), o, strategy), TensorRole::Parameter);
  };
  CHECK(weights("{mesh: pp4}") == 2 * (psi + table));
  CHECK(weights("{mesh: pp2, schedule: zb-v}") == 2 * psi);  // first and last part are on the same stage
  CHECK(weights("{mesh: pp2, schedule: chimera}") == 2 * 2 * psi);
}

/// What a block keeps, in bytes of bf16. With B = sbh, and per rank of t (arXiv 2205.05198 in brackets, per B):
///   input and sum behind attention 2·2 [4]; both norms' results 2·2 [in 4 + 24/t: 4]; q, k, v 6/t, result of the core
///   2/t, inner width before and behind its activation 16/t [24/t]; masks of dropout 0 [2]: drawn again from a counter;
///   scores and their softmax 0 [5as/(ht)]: the core is computed again from the log-sum-exp, 2as/(ht)·1/s of it;
///   mean and 1/σ of the norms' rows 8/h [0]
///   sequence parallel: input and sum 4/t [4/t], norms' results 4/t [4/t], gathered again in the backward pass; with
///   keep_gathered what was gathered stays, 4
TEST_CASE("a block keeps what the closed form says", "[parallel]") {
  std::string table;
  for (const double t : {1.0, 2.0, 4.0})
    for (const bool sequence : {false, true})
      for (const Recompute recompute : {Recompute::None, Recompute::Selective, Recompute::Full}) {
        TrainOptions o = options();
        o.dtype = Precision::BF16;
        o.dropout = 0.1;
        o.recompute = recompute;
        const double s = 16, b = 8, sbh = s * b * kHidden, rows = 2 * s * b, a = kHeads;
        const double outer = sequence ? t : 1;  // rows between blocks are split
        const double core = 2 * sbh / t + rows * a / t, scores = 5 * a * s / (kHidden * t);
        double ours = 4 * sbh / outer + 4 * sbh / outer + (6 + 16) * sbh / t + 4 * rows / outer + core;
        double published = (sequence ? 34 / t : 10 + 24 / t) + scores;
        if (recompute == Recompute::Selective) {
          ours -= core;
          published -= scores;
        }
        if (recompute == Recompute::Full) {
          ours = 2 * sbh / outer;
          published = 2 / outer;
        }
        const Plan plan = lower(gpt(4), o, fmt::format("{{mesh: tp{}, sequence_parallel: {}}}", t, sequence));
        CHECK(kept_bytes(plan, 1) == ours);
        table += fmt::format("\nt {}, sequence_parallel {}, recompute {}: {:.3f} sbh, published {:.3f}", t, sequence,
                             static_cast<int>(recompute), ours / sbh, published);
      }
  WARN("what a block keeps; published with masks (2) and scores (5as/ht)" << table);
}

/// With scores in memory (arXiv 2205.05198, table 2): two masks of rows between blocks, sbh/outer each, and of as²b/t
/// scores what dropout leaves (2 B) and its mask, beside the softmax.
TEST_CASE("masks of dropout and dropped scores are kept, a byte a number and two", "[parallel]") {
  const double t = GENERATE(1.0, 2.0);
  const bool sequence = GENERATE(false, true);
  TrainOptions o = options();
  o.dtype = Precision::BF16;
  o.stored_scores = true;
  const std::string strategy = fmt::format("{{mesh: tp{}, sequence_parallel: {}}}", t, sequence);
  const double s = 16, b = 8, sbh = s * b * kHidden, scores = kHeads * s * s * b / t, outer = sequence ? t : 1;
  const double none = kept_bytes(lower(gpt(4), o, strategy), 1);
  o.dropout = o.attention_dropout = 0.1;
  CHECK(kept_bytes(lower(gpt(4), o, strategy), 1) - none == 2 * scores);
  o.dropout_masks = true;
  CHECK(kept_bytes(lower(gpt(4), o, strategy), 1) - none == 2 * sbh / outer + 3 * scores);
}

/// Without copies keys and values of the expanded latents stay whole: 4 numbers of keys for each of 2 heads.
TEST_CASE("values that are copied leave the keys beside them behind", "[parallel]") {
  TrainOptions o = options();
  o.dtype = Precision::BF16;
  const double whole = kept_bytes(lower(small_model("deepseek"), o, "{mesh: dp1}"), 1);
  o.copied_values = true;
  CHECK(whole - kept_bytes(lower(small_model("deepseek"), o, "{mesh: dp1}"), 1) == 16 * 8 * 2 * 4 * 2);
}

/// The same with products in 8 bits and inputs kept so: norms' results and the inner width behind its activation in 1
/// B, the result of the core in 1 B beside the 2 that its gradient reads, and four scales.
TEST_CASE("a block that keeps inputs in 8 bits keeps what the closed form says", "[parallel]") {
  const double t = GENERATE(1, 2);
  const bool sequence = GENERATE(false, true);
  TrainOptions o = options();
  o.dtype = Precision::BF16;
  o.narrow = Narrow::EightBits;
  o.keep_narrow = true;
  const double sb = 16 * 8, sbh = sb * kHidden, outer = sequence ? t : 1;
  const double core = 2 * sbh / t + 2 * sb * kHeads / t;
  const Plan plan = lower(gpt(4), o, fmt::format("{{mesh: tp{}, sequence_parallel: {}}}", t, sequence));
  CHECK(kept_bytes(plan, 1) == (4 + 2) * sbh / outer + 4 * 2 * sb / outer + (6 + 1 + 8 + 4) * sbh / t + core + 4 * 4);
}

/// x, norm, q, o, sum, norm of width h; k and v of half of it; gate, up and their product of 48; 1/σ twice per row.
TEST_CASE("a block with a gate and grouped heads keeps what the closed form says", "[parallel]") {
  const double t = GENERATE(1, 2), rows = 2 * 16 * 8;
  TrainOptions o = options();
  o.dtype = Precision::BF16;
  CHECK(kept_bytes(lower(llama(4), o, fmt::format("{{mesh: tp{}}}", t)), 1) ==
        rows * (4 * kHidden + (2 * kHidden + 2 * kHidden / 2 + 3 * 48 + kHeads) / t + 2));
}
