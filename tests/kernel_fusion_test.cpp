// SPDX-License-Identifier: Apache-2.0
// Plans with the kernels of an engine: fewer ops, the same arithmetic.
#include "sim/strategy/kernel_fusion.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

#include "sim/model/load.hpp"
#include "sim/strategy/strategy.hpp"

using namespace orrery;

namespace {

Model model_of(const std::string& name) { return load_model(ORRERY_SOURCE_DIR "/scenarios/models/" + name + ".json"); }

Plan serving_step(const Model& model, const std::string& mesh) {
  return find_strategy("parallel")
      .make(parse_yaml("{mesh: " + mesh + "}", "test"))
      ->serving_step(model, {.rows = 24, .sequences = 24}, nullptr);
}

template <class Kind>
std::size_t count(const Plan& plan, int layer) {
  return static_cast<std::size_t>(std::count_if(plan.ops.begin(), plan.ops.end(), [&](const Op& op) {
    return op.layer == layer && std::holds_alternative<Kind>(plan.work(op));
  }));
}

double flops_of_products(const Plan& plan) {
  double sum = 0;
  for (const Op& op : plan.ops)
    if (class_of(plan.work(op)) == OpClass::Gemm) sum += amount(plan.work(op)).flops.base();
  return sum;
}

}  // namespace

// A block of Llama: q, k, v, out, gate, up, down; two norms behind sums; two rotations; two writes to the pool.
TEST_CASE("an engine has four products, one rotation and one write to the cache in a block, and no norm of its own",
          "[fusion]") {
  const auto* mesh = GENERATE("tp1", "tp2");
  const Plan plan = serving_step(model_of("llama-tiny"), mesh), fused = fuse_kernels(plan);
  REQUIRE(count<Gemm>(plan, 1) == 7);
  REQUIRE(count<RotaryEmbedding>(plan, 1) == 2);
  REQUIRE(count<ScatterRows>(plan, 1) == 2);
  REQUIRE(count<NormForward>(plan, 1) == 2);
  CHECK(count<Gemm>(fused, 1) == 4);
  CHECK(count<RotaryEmbedding>(fused, 1) == 1);
  CHECK(count<ScatterRows>(fused, 1) == 1);
  CHECK(count<NormForward>(fused, 1) == 0);  // in the sum at the end of block 0, and in that behind attention
  CHECK(count<PagedAttention>(fused, 1) == 1);
  CHECK(count<Collective>(fused, 1) == count<Collective>(plan, 1));
  CHECK(flops_of_products(fused) == Approx(flops_of_products(plan)));
}

TEST_CASE("gate and up of experts are one product, norms of q and of k one norm", "[fusion]") {
  const Plan plan = serving_step(model_of("qwen3-moe-tiny"), "tp1"), fused = fuse_kernels(plan);
  REQUIRE(count<GroupedGemm>(plan, 0) == 3);
  CHECK(count<GroupedGemm>(fused, 0) == 2);
  REQUIRE(count<Permute>(plan, 0) + count<GatedForward>(plan, 0) + count<Unpermute>(plan, 0) == 3);
  CHECK(count<Permute>(fused, 0) + count<GatedForward>(fused, 0) + count<Unpermute>(fused, 0) == 0);
  CHECK(count<NormForward>(plan, 1) - count<NormForward>(fused, 1) == 3);  // k's joins q's, two join sums
  CHECK(flops_of_products(fused) == Approx(flops_of_products(plan)));
}

// Scores and their product with v are 2·2·heads·q·kv·dim FLOP, whatever a causal mask leaves out.
TEST_CASE("stored scores are two products and a softmax in place of attention, and the rest stays", "[fusion]") {
  const Model model = model_of("llama-tiny");
  const auto& a = std::get<Transformer>(model.network).decoder.front().attention;
  const InferOptions o{.batch = 2, .sequence = 8};
  const Plan plan = find_strategy("single").make(Node::map())->inference(model, o, nullptr),
             stored = store_scores(plan);
  REQUIRE(count<AttentionForward>(plan, 1) == 1);
  CHECK(count<AttentionForward>(stored, 1) == 0);
  CHECK(count<SoftmaxForward>(stored, 1) == 1);
  CHECK(count<Gemm>(stored, 1) == count<Gemm>(plan, 1) + 2);
  const double layers = double(std::get<Transformer>(model.network).decoder.size());
  CHECK(flops_of_products(stored) ==
        Approx(flops_of_products(plan) + layers * 4.0 * 2 * double(a.heads * 8 * 8 * a.qk_dim)));
  CHECK(stored.ops.size() == plan.ops.size() + 4 * static_cast<std::size_t>(layers));
  CHECK(flops_of_products(store_scores(plan, 16)) - flops_of_products(plan) ==
        Approx(4 * (flops_of_products(stored) - flops_of_products(plan))));  // filled up to twice the length
}

// Forward: scale and mask, in training dropout; backward: scale and dropout. gelu_new: six kernels of one operand, two
// of two; back five and six, as the comments of split_kernels count them.
TEST_CASE("a model without a compiler has kernels of its own for masks and the parts of an activation", "[fusion]") {
  const Model model = model_of("gpt2-tiny");
  const auto one = find_strategy("single").make(Node::map());
  const Plan inference = store_scores(one->inference(model, {.batch = 2, .sequence = 8}, nullptr)),
             split = split_kernels(inference);
  REQUIRE(count<ActivationForward>(inference, 1) == 1);
  CHECK(count<ActivationForward>(split, 1) == 2 + 6);
  CHECK(count<Add>(split, 1) == count<Add>(inference, 1) + 2);
  CHECK(split.ops.size() == inference.ops.size() + 9 * std::get<Transformer>(model.network).decoder.size());

  const Plan train = one->train_step(model, {.batch = 2, .sequence = 8, .stored_scores = true}, nullptr),
             split_train = split_kernels(train);
  REQUIRE(count<ActivationBackward>(train, 1) == 1);
  CHECK(count<ActivationBackward>(split_train, 1) == 0);
  CHECK(count<ActivationForward>(split_train, 1) == (3 + 6) + (2 + 5));
  CHECK(count<Add>(split_train, 1) == count<Add>(train, 1) + 2 + 6);
  CHECK(flops_of_products(split_train) == Approx(flops_of_products(train)));
}

TEST_CASE("what waited for an op waits for the one that it joined", "[fusion]") {
  const Plan fused = fuse_kernels(serving_step(model_of("llama-tiny"), "tp2"));
  for (const RankClass& c : fused.classes)
    for (std::size_t i = c.first_op; i < std::size_t{c.first_op} + c.num_ops; ++i)
      for (const OpId d : fused.deps_of(fused.ops[i])) {
        CHECK(d.index() >= c.first_op);
        CHECK(d.index() < i);
        CHECK(fused.ops[d.index()].stream != fused.ops[i].stream);
      }
}
