// SPDX-License-Identifier: Apache-2.0
// Matrices split over squares and cubes of ranks: training computes what one device computes, and what it communicates
// and keeps follows the closed forms of Optimus (arXiv 2104.05343), Tesseract (2105.14500) and 3-D parallelism
// (2105.14450).
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "tests/parallel_testing.hpp"
#include "tests/unit_cost.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr double kTolerance = 1e-9;

TrainOptions options(OptimizerKind kind, Recompute recompute) {
  TrainOptions o;
  o.batch = 16;
  o.microbatches = 4;
  o.sequence = 16;
  o.steps = 3;
  o.dtype = Precision::F64;
  o.recompute = recompute;
  o.dropout = 0.1;
  o.optimizer = clipped_optimizer(kind);
  return o;
}

/// Sizes that 3 divides, but for the vocabulary.
Model model_of_thirds(const std::string& family) {
  if (family == "gpt2") return gpt2_of({.hidden = 18, .heads = 3});
  if (family == "llama") return llama_of({.hidden = 18, .inner = 30, .heads = 3, .kv_heads = 3});
  return model_of_config(R"({"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 18,
    "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 36, "vocab_size": 61,
    "max_position_embeddings": 32, "type_vocab_size": 2})",
                         "bert");
}

/// GPT-2 with hidden size h.
Model gpt2(int h, int heads, int layers, int vocab = 64) {
  return gpt2_of({.hidden = h, .layers = layers, .heads = heads, .vocab = vocab});
}

/// The plan of one pass without dropout over b sequences of s tokens.
Plan plan_of(const Model& model, const std::string& strategy, std::int64_t b, std::int64_t s,
             Recompute recompute = Recompute::None) {
  TrainOptions o = options(OptimizerKind::Sgd, recompute);
  o.batch = b;
  o.microbatches = 1;
  o.sequence = s;
  o.dropout = 0;
  return parallel(strategy)->train_step(model, o, nullptr);
}

double elements(Bytes b) { return b.base() / 8; }

/// Elements of the broadcasts and sums of one layer in a phase.
double moved(const Plan& plan, int layer, Phase phase) {
  double sum = 0;
  for (const Op& op : plan.ops)
    if (const auto* c = std::get_if<Collective>(&plan.work(op)); c && op.layer == layer && op.phase == phase)
      if (c->kind == CollectiveKind::Broadcast || c->kind == CollectiveKind::Reduce) sum += elements(c->bytes);
  return sum;
}

/// What rings of q ranks cost for the collectives of one matrix, forward and backward: q − 1 times what a rank holds.
double ring_cost(const Plan& plan, std::string_view name, double q) {
  double sum = 0;
  for (const Op& op : plan.ops) {
    const auto* c = std::get_if<Collective>(&plan.work(op));
    if (!c || !plan.name_of(op).starts_with(name)) continue;
    const bool block = c->kind == CollectiveKind::Broadcast || c->kind == CollectiveKind::Reduce;
    sum += (q - 1) * elements(c->bytes) / (block ? 1 : q);
  }
  return sum;
}

/// Elements of persistent tensors of a role.
double held(const Plan& plan, TensorRole role) {
  double sum = 0;
  for (const Tensor& t : plan.tensors)
    if (t.persistent && t.base.is_none() && t.role == role)
      sum += double(plan.layouts[t.layout.index()].shape.elements());
  return sum;
}

/// The most elements of a role that are live together while the ops of blocks, or all, run one after another.
double most_live(const Plan& plan, TensorRole role, bool blocks_only) {
  double live = 0, most = 0;
  std::map<std::uint32_t, int> marks;  // that give storage back: the last of them counts
  for (const Operand& o : plan.operands) marks[plan.owner(o.tensor()).value] += o.frees() ? 1 : 0;
  const auto size = [&](const Operand& o) {
    const TensorId owner = plan.owner(o.tensor());
    return plan.tensors[owner.index()].role == role ? double(plan.shape(owner).elements()) : 0.0;
  };
  for (const Op& op : plan.ops) {
    for (const Operand& o : plan.operands_of(op))
      if (o.allocates()) live += size(o);
    if (op.layer >= 0 || !blocks_only) most = std::max(most, live);
    for (const Operand& o : plan.operands_of(op))
      if (o.frees() && --marks[plan.owner(o.tensor()).value] == 0) live -= size(o);
  }
  return most;
}

/// A multiplication takes four microseconds, everything else one.
class FourToOne final : public UnitCost {
 public:
  OpCost cost(const Work& work, const Bindings&, RankId) const override {
    return {.duration = class_of(work) == OpClass::Gemm ? 4.0_us : 1.0_us};
  }
};

/// Microseconds of a step.
double duration(const Plan& plan) { return double(simulate(plan, {}, FourToOne{}, NoSharing{}).makespan_ps) * 1e-6; }

struct Sides {
  const char* mesh;
  double q, depth, cube;  // cube: matrices lie on q³ ranks
};

}  // namespace

/// Each mesh meets each model, each way of recomputation and both optimizers, and so do these each other.
TEST_CASE("squares and cubes compute what one device computes", "[tensor_mesh]") {
  const std::size_t m = GENERATE(0, 1, 2), r = GENERATE(0, 1, 2);
  const char* const model = std::array{"gpt2", "llama", "bert"}[m];
  const Recompute recompute = std::array{Recompute::None, Recompute::Full, Recompute::Whole}[r];
  const TrainOptions o = options(m == r ? OptimizerKind::Sgd : OptimizerKind::AdamW, recompute);
  const std::array meshes{"{mesh: row2 col2}",
                          "{mesh: row2 col2, tensor_overlap: true}",
                          "{mesh: dp2 row2 col2}",
                          "{mesh: pp2 row2 col2}",
                          "{mesh: row2 col2, data: {kind: zero1}}",
                          "{mesh: depth2 row2 col2}",
                          "{mesh: x2 y2 z2}",
                          "{mesh: x2 y2 z2, keep_gathered: true, tensor_overlap: true}"};
  const Trained one = train(small_model(model), o, *single());
  for (std::size_t i = 0; i < meshes.size(); ++i) {
    if ((i + m + r) % 3 != 0) continue;
    INFO(model << " " << meshes[i] << " recompute " << static_cast<int>(recompute));
    CHECK(worst_difference(train(small_model(model), o, *parallel(meshes[i])), one) < kTolerance);
  }
}

TEST_CASE("a square of three by three computes what one device computes", "[tensor_mesh]") {
  const auto* family = GENERATE("gpt2", "llama", "bert");
  TrainOptions o = options(OptimizerKind::AdamW, Recompute::None);
  o.batch = 12;
  const Model model = model_of_thirds(family);
  const Trained one = train(model, o, *single());
  for (const auto* s : {"{mesh: row3 col3}", "{mesh: row3 col3, tensor_overlap: true}"}) {
    INFO(family << " " << s);
    CHECK(worst_difference(train(model, o, *parallel(s)), one) < kTolerance);
  }
}

TEST_CASE("squares and cubes stand beside replicas and stages of every kind", "[tensor_mesh]") {
  const auto* s = GENERATE("{mesh: row2 dp2 col2, data: {kind: zero3}, tensor_overlap: true}",
                           "{mesh: pp2 row2 col2, schedule: zb-h1}", "{mesh: z2 pp2 x2 y2, schedule: zb-h1}",
                           "{mesh: fsdp2 x2 y2 z2, data: {kind: zero2}}", "{mesh: pp2 depth2 row2 col2}");
  const TrainOptions o = options(OptimizerKind::AdamW, Recompute::None);
  TrainOptions half = o;
  half.microbatches = 2;
  const auto* model = GENERATE("gpt2", "llama");
  INFO(model << " " << s);
  const Model m = small_model(model);
  CHECK(worst_difference(train(m, half, *parallel(s)), train(m, half, *single())) < kTolerance);
}

// Four matrices of a block: h → 3h, h → h, h → 4h, 4h → h. Their inputs have bsh + bsh + bsh + 4bsh = 7bsh numbers, the
// matrices 3h² + h² + 4h² + 4h² = 12h². Forward every block of both is broadcast once, by one of q ranks: a rank takes
// part in (7bsh + 12h²)/q² · q. Backward each product of the two moves the blocks of both once more. Squares behind one
// another share the rows.
TEST_CASE("a block on a square moves (7bsh + 12h²)/q numbers per rank, backward twice that", "[tensor_mesh]") {
  const auto c = GENERATE(Sides{"row2 col2", 2, 1, 0}, Sides{"row3 col3", 3, 1, 0}, Sides{"depth2 row2 col2", 2, 2, 0},
                          Sides{"row3 col3 depth2", 3, 2, 0});
  const double h = 36, b = 12, s = 4, forward = (7 * b * s * h / c.depth + 12 * h * h) / c.q;
  INFO(c.mesh);
  const Plan plan = plan_of(gpt2(36, 6, 2), fmt::format("{{mesh: {}}}", c.mesh), 12, 4);
  CHECK(moved(plan, 1, Phase::Forward) == forward);
  CHECK(moved(plan, 1, Phase::Backward) == 2 * forward);
  const Plan again = plan_of(gpt2(36, 6, 2), fmt::format("{{mesh: {}}}", c.mesh), 12, 4, Recompute::Full);
  CHECK(moved(again, 1, Phase::Backward) == 2 * forward);
  // The last product of a block is not computed again: nothing reads it.
  CHECK(moved(again, 1, Phase::Recompute) == forward - (4 * b * s * h / c.depth + 4 * h * h) / c.q);
}

// The published table has the cost of one product with as many inputs as weights, forward and backward, on rings: on a
// square 6(q − 1)/q of them, with depth 3(q − 1)(d + 1)/(dq), on a cube 6(q − 1)/q³.
TEST_CASE("one matrix costs what the published table says", "[tensor_mesh]") {
  const auto c = GENERATE(Sides{"row2 col2", 2, 1, 0}, Sides{"row3 col3", 3, 1, 0}, Sides{"depth3 row2 col2", 2, 3, 0},
                          Sides{"depth2 row3 col3", 3, 2, 0}, Sides{"x2 y2 z2", 2, 1, 1}, Sides{"x3 y3 z3", 3, 1, 1});
  const double h = 36, square = 3 * (c.q - 1) * (c.depth + 1) / (c.depth * c.q),
               cube = 6 * (c.q - 1) / (c.q * c.q * c.q);
  INFO(c.mesh);
  const Plan plan = plan_of(gpt2(36, 6, 2), fmt::format("{{mesh: {}, keep_gathered: true}}", c.mesh), 36, 1);
  CHECK(ring_cost(plan, "layers.1.attention.out", c.q) == Approx(h * h * (c.cube > 0 ? cube : square)));
}

// Without keep_gathered inputs and weights of a cube are gathered a second time: 8 in place of 6.
TEST_CASE("a cube gathers again what it does not keep", "[tensor_mesh]") {
  const Plan plan = plan_of(gpt2(36, 6, 2), "{mesh: x2 y2 z2}", 36, 1);
  CHECK(ring_cost(plan, "layers.1.attention.out", 2) == 36 * 36 * 8 / 8.0);
}

// 12h² numbers of matrices lie on p ranks; 9h of biases and 4h of norms are split by columns only.
TEST_CASE("weights and their gradients lie on q² or q³ ranks", "[tensor_mesh]") {
  const auto c = GENERATE(Sides{"row2 col2", 2, 1, 0}, Sides{"row3 col3", 3, 1, 0}, Sides{"depth2 row2 col2", 2, 2, 0},
                          Sides{"x2 y2 z2", 2, 1, 1}, Sides{"x3 y3 z3", 3, 1, 1});
  const double h = 36, ranks = c.q * c.q * (c.cube > 0 ? c.q : 1);
  const std::string strategy = fmt::format("{{mesh: {}}}", c.mesh);
  const Plan two = plan_of(gpt2(36, 6, 2), strategy, 36, 1), four = plan_of(gpt2(36, 6, 4), strategy, 36, 1);
  for (const TensorRole role : {TensorRole::Parameter, TensorRole::Gradient, TensorRole::OptimizerState}) {
    INFO(c.mesh << " " << name_of(role));
    CHECK(held(four, role) - held(two, role) == 2 * (12 * h * h / ranks + 13 * h / c.q));
  }
}

// Recomputed blocks keep their input: bsh numbers on all p ranks. The widest product of a block has a buffer for an
// operand of 4bsh and one for a matrix of 4h²; that of the logits for bsv and vh.
TEST_CASE("checkpoints and buffers on a square follow the published table", "[tensor_mesh]") {
  const auto c = GENERATE(Sides{"row2 col2", 2, 1, 0}, Sides{"row3 col3", 3, 1, 0}, Sides{"depth2 row2 col2", 2, 2, 0});
  const double h = 36, b = 12, s = 4, v = 72, p = c.q * c.q, rows = b * s / c.depth;
  const std::string strategy = fmt::format("{{mesh: {}}}", c.mesh);
  const Plan two = plan_of(gpt2(36, 6, 2, 72), strategy, 12, 4, Recompute::Full),
             four = plan_of(gpt2(36, 6, 4, 72), strategy, 12, 4, Recompute::Full);
  INFO(c.mesh);
  CHECK(most_live(four, TensorRole::Activation, false) - most_live(two, TensorRole::Activation, false) ==
        2 * rows * h / p);
  CHECK(most_live(two, TensorRole::Communication, true) == (4 * rows * h + 4 * h * h) / p);
  CHECK(most_live(two, TensorRole::Communication, false) == std::max(4 * rows * h + 4 * h * h, rows * v + v * h) / p);
}

// Blocking, one stream does everything. Of two broadcasts, or a broadcast and a sum, in each of q steps of a product
// all but the first step's (or the last sum) fit beside the four microseconds of a multiplication. A block has four
// matrices, the logits are a fifth; each is in three products.
TEST_CASE("with overlap only the ends of a product wait for communication", "[tensor_mesh]") {
  const auto c = GENERATE(Sides{"row2 col2", 2, 1, 0}, Sides{"row3 col3", 3, 1, 0});
  const auto plan = [&](bool overlap) {
    return plan_of(gpt2(36, 6, 2), fmt::format("{{mesh: {}, tensor_overlap: {}}}", c.mesh, overlap), 12, 4);
  };
  const double blocking = duration(plan(false)), products = 3 * (2 * 4 + 1);
  CHECK(duration(plan(true)) <= blocking - products * 2 * (c.q - 1));
}

// A block enters its split part twice, the logits are a fifth sum of two blocks: each is shorter than the product for
// the gradient of a weight, and hides behind it.
TEST_CASE("with overlap sums of input gradients of tp cost no time", "[tensor_mesh]") {
  const auto* rows = GENERATE("", ", sequence_parallel: true, keep_gathered: true");
  const auto plan = [&](bool overlap) {
    return plan_of(gpt2(36, 6, 2), fmt::format("{{mesh: tp2, tensor_overlap: {}{}}}", overlap, rows), 12, 4);
  };
  CHECK(duration(plan(true)) <= duration(plan(false)) - (2 * 2 + 1));
}

TEST_CASE("meshes and models that a square or cube cannot split are refused", "[tensor_mesh]") {
  const auto refusal = [](const std::string& mesh, const Model& model, std::int64_t b = 16) {
    return user_error([&] { plan_of(model, fmt::format("{{mesh: {}}}", mesh), b, 4); });
  };
  const Model model = gpt2(32, 8, 2);
  CHECK_THAT(refusal("row2 col3", model), Catch::Contains("row 2 and col 3 are no square"));
  CHECK_THAT(refusal("depth2", model), Catch::Contains("`row2 col2`"));
  CHECK_THAT(refusal("x2 y2", model), Catch::Contains("no cube"));
  CHECK_THAT(refusal("row2 col2 tp2", model), Catch::Contains("dp, fsdp and pp"));
  CHECK_THAT(refusal("row3 col3", gpt2(36, 4, 2), 18),
             Catch::Contains("attention heads") && Catch::Contains("1, 2, 4"));
  CHECK_THAT(refusal("row3 col3", model, 18), Catch::Contains("32 hidden columns") && Catch::Contains("1, 2, 4, 8"));
  CHECK_THAT(refusal("x2 y2 z2", gpt2(6, 2, 2)), Catch::Contains("twice"));
  CHECK_THAT(refusal("row2 col2", model, 3), Catch::Contains("batch can be 2 or 4"));
  CHECK_THAT(refusal("row2 col2", small_model("mixtral")), Catch::Contains("experts"));
  CHECK_THAT(refusal("row2 col2", load_model(shipped_model("t5-tiny"))), Catch::Contains("one stack"));
  CHECK_THAT(refusal("row2 col2, sequence_parallel: true", model), Catch::Contains("sequence_parallel"));
}
