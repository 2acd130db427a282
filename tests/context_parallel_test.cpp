// SPDX-License-Identifier: Apache-2.0
// Sequences cut over ranks: attention over keys of all of them is that of one device, and moves and stores what the
// papers say.
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <map>

#include "sim/plan/reuse.hpp"
#include "sim/strategy/train_step.hpp"
#include "tests/parallel_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr double kTolerance = 1e-9;

TrainOptions options(Recompute recompute = Recompute::None) {
  TrainOptions o;
  o.batch = 8;
  o.microbatches = 2;
  o.sequence = 16;
  o.steps = 2;
  o.dtype = Precision::F64;
  o.recompute = recompute;
  o.dropout = 0.1;
  o.optimizer = clipped_optimizer();
  return o;
}

void check(const Model& model, const std::string& strategy, const TrainOptions& o) {
  INFO(model.name << " " << strategy);
  static std::map<std::pair<std::string, Recompute>, Trained> on_one_device;
  const auto [one, fresh] = on_one_device.try_emplace({model.name, o.recompute});
  if (fresh) one->second = train(model, o, *single());
  CHECK(worst_difference(train(model, o, *parallel(strategy)), one->second) < kTolerance);
}

constexpr std::array kContexts{"context: ring", "zigzag: false", "context: ulysses", "context: rsa"};
constexpr std::array kModels{"gpt2", "llama", "bert"};

std::string with(const std::string& mesh, const std::string& context) { return "{" + mesh + ", " + context + "}"; }

/// One pass over 4 sequences of 32 tokens.
TrainOptions one_pass(std::int64_t sequence = 32) {
  TrainOptions o;
  o.batch = 4;
  o.sequence = sequence;
  o.dtype = Precision::F64;
  return o;
}

Plan lower(const char* model, const std::string& strategy, const TrainOptions& o = one_pass()) {
  return parallel(strategy)->train_step(small_model(model), o, nullptr);
}

/// Numbers that leave a rank for the attention of block 1, in a phase.
double numbers_moved(const Plan& plan, Phase phase, double ranks) {
  double sum = 0;
  for (const Op& op : plan.ops_of(plan.classes.back())) {
    const auto* c = std::get_if<Collective>(&plan.work(op));
    if (!c || op.phase != phase || plan.name_of(op).find("layers.1.attention.") != 0) continue;
    const double numbers = c->bytes.base() / 8;
    sum += c->kind == CollectiveKind::Shift      ? numbers
           : c->kind == CollectiveKind::AllToAll ? numbers * (ranks - 1) / ranks
                                                 : numbers * 2 * (ranks - 1) / ranks;
  }
  return sum;
}

/// The largest tensor that a pass makes.
std::int64_t largest_activation(const Plan& plan) {
  std::int64_t most = 0;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i)
    if (plan.tensors[i].role == TensorRole::Activation && !plan.tensors[i].persistent)
      most = std::max(most, plan.shape(TensorId{i}).elements());
  return most;
}

}  // namespace

// Of all combinations, as many as it takes for each two choices to meet.

TEST_CASE("sequences cut over ranks train as on one device", "[context]") {
  constexpr std::array meshes{"mesh: cp2",
                              "mesh: cp4",
                              "mesh: cp2 tp2",
                              "mesh: dp2 cp2",
                              "mesh: pp2 cp2",
                              "mesh: cp2 pp2, schedule: zb-h1",
                              "mesh: cp2 tp2, sequence_parallel: true",
                              "mesh: fsdp2 cp2, data: {kind: zero3}",
                              "mesh: cp2 pp2 tp2, data: {kind: zero1}"};
  const std::size_t m = GENERATE(range(std::size_t{0}, std::size_t{9})), c = GENERATE(0, 1, 2, 3);
  check(small_model(kModels[(m + c) % 3]), with(meshes[m], kContexts[c]), options());
}

TEST_CASE("sequences cut over ranks train as on one device when attention is recomputed", "[context]") {
  constexpr std::array meshes{"mesh: cp4", "mesh: pp2 cp2, schedule: zb-h1"};
  const std::size_t r = GENERATE(0, 1), m = GENERATE(0, 1), c = GENERATE(0, 1, 2, 3);
  const Recompute recompute = r == 0 ? Recompute::Selective : Recompute::Full;
  check(small_model(kModels[(r + 2 * m + c) % 3]), with(meshes[m], kContexts[c]), options(recompute));
}

TEST_CASE("latent attention and experts work over cut sequences", "[context]") {
  const std::size_t c = GENERATE(0, 1, 2, 3);
  const char *const one = c % 2 == 0 ? "mesh: cp2" : "mesh: cp2 tp2",
                    *other = c % 2 == 0 ? "mesh: cp2 tp2" : "mesh: cp2";
  check(small_model("mixtral"), with(one, kContexts[c]), options());
  check(load_model(shipped_model("deepseek-tiny")), with(other, kContexts[c]), options());
}

TEST_CASE("attention that stores its scores computes what fused attention does", "[context][stored]") {
  constexpr std::array meshes{"{mesh: tp2}", "{mesh: row2 col2}", "{mesh: pp2 dp2}"};
  const std::size_t m = GENERATE(0, 1, 2), r = GENERATE(0, 1, 2, 3);
  const Model model = small_model(kModels[m]);
  const TrainOptions fused =
      options(std::array{Recompute::None, Recompute::Selective, Recompute::Full, Recompute::Whole}[r]);
  TrainOptions stored = fused;
  stored.stored_scores = true;
  const Trained one = train(model, fused, *single());
  CHECK(worst_difference(train(model, stored, *single()), one) < kTolerance);
  const char* const mesh = meshes[(m + r) % 3];
  INFO(model.name << " " << mesh);
  CHECK(worst_difference(train(model, stored, *parallel(mesh)), one) < kTolerance);
}

TEST_CASE("stored scores are b·heads·s² elements, on t ranks 1/t of them", "[context][stored]") {
  // gpt2: 4 sequences, 4 heads, 32 tokens: 4·4·32² = 16,384; no other activation of 16 wide layers comes near.
  TrainOptions o = one_pass();
  CHECK(largest_activation(lower("gpt2", "{mesh: tp2}", o)) < 16384 / 2);
  o.stored_scores = true;
  CHECK(largest_activation(lower("gpt2", "{}", o)) == 16384);
  CHECK(largest_activation(lower("gpt2", "{mesh: tp2}", o)) == 16384 / 2);
}

TEST_CASE("scores that a causal mask drops are no arithmetic that a model needs", "[context][stored]") {
  // Products over stored scores are whole: 6·2·heads·dim per pair of a query and a key, b·s² of them per block; needed
  // are those of b·s(s + 1)/2 pairs.
  const Model model = small_model("gpt2");
  const auto& blocks = std::get<Transformer>(model.network).decoder;
  const double width = double(blocks.front().attention.heads * blocks.front().attention.qk_dim);
  const double wasted = double(blocks.size()) * 12 * width * 4 * 32 * 31 / 2;
  TrainOptions o = one_pass();
  o.stored_scores = true;
  for (const auto& [strategy, options] : {std::pair{"{}", o},
                                          {"{mesh: tp2}", o},
                                          {"{mesh: cp2, context: rsa}", one_pass()},
                                          {"{mesh: cp4, context: rsa}", one_pass()}}) {
    INFO(strategy);
    const Plan plan = lower("gpt2", strategy, options);
    CHECK((model_flops(plan) - plan.purpose.model_flops).base() == Approx(wasted));
  }
  CHECK(model_flops(lower("gpt2", "{}")) == lower("gpt2", "{}").purpose.model_flops);
  const Plan bert = lower("bert", "{mesh: cp2, context: rsa}");  // no mask
  CHECK(model_flops(bert) == bert.purpose.model_flops);
}

TEST_CASE("on several ranks scores are stored by ring self-attention alone", "[context][stored][error]") {
  TrainOptions o = one_pass();
  o.stored_scores = true;
  for (const auto* context : {"context: ring", "context: rsa"})
    CHECK(user_error([&] { lower("gpt2", with("mesh: cp2", context), o); }) ==
          "stored_scores is for sequences on one rank\n  hint: leave it out: on an axis cp scores are stored with "
          "context: "
          "rsa, and with no other");
}

TEST_CASE("blocks run again to their end make what nobody reads again", "[context][stored]") {
  TrainOptions o = one_pass();
  const auto again = [&](Recompute r) {
    o.recompute = r;
    std::size_t sums = 0;
    const Plan plan = lower("gpt2", "{mesh: tp2}", o);
    for (const Op& op : plan.ops)
      sums += op.phase == Phase::Recompute && std::holds_alternative<Collective>(plan.work(op)) ? 1 : 0;
    return sums;
  };
  const std::size_t blocks = std::get<Transformer>(small_model("gpt2").network).decoder.size();
  CHECK(again(Recompute::Full) == blocks);  // the sum behind attention
  CHECK(again(Recompute::Whole) ==
        2 * blocks);  // and behind the feed-forward, whose result is the next block's kept input
}

TEST_CASE("a ring moves keys and values once forward and twice back", "[context]") {
  // b·s·h_kv = 4·32·8 = 1024 in llama (4 key heads of 2); forward 2·(n − 1)/n of it: keys and values of all others.
  const auto [mesh, n] = GENERATE(table<const char*, double>({{"mesh: cp2", 2}, {"mesh: cp4", 4}}));
  const Plan plan = lower("llama", with(mesh, GENERATE("zigzag: true", "zigzag: false")));
  CHECK(numbers_moved(plan, Phase::Forward, n) == 2 * (n - 1) / n * 1024);
  CHECK(numbers_moved(plan, Phase::Backward, n) == 4 * (n - 1) / n * 1024);
  for (const Op& op : plan.ops)
    if (const auto* c = std::get_if<Collective>(&plan.work(op)); c && c->kind == CollectiveKind::Shift)
      CHECK(op.stream == Stream::Ring);
}

TEST_CASE("the all-to-alls of Ulysses move a part of what a ring moves", "[context]") {
  // q, k, v and the output, b·s·h/n = 4·32·16/n each, of which 1/n stays: 4·(n − 1)/n²·bsh.
  const auto [mesh, n] = GENERATE(table<const char*, double>({{"mesh: cp2", 2}, {"mesh: cp4", 4}}));
  const Plan plan = lower("gpt2", with(mesh, "context: ulysses"));
  const double each_way = 4 * (n - 1) / (n * n) * 2048;
  CHECK(numbers_moved(plan, Phase::Forward, n) == each_way);
  CHECK(numbers_moved(plan, Phase::Backward, n) == each_way);
}

TEST_CASE("ring self-attention moves as much as the all-reduces of split matrices", "[context]") {
  // bsh = 4·32·16 = 2048. Forward rings of K and V: 2(n − 1)/n. Back the same rings, and two all-reduces of 2(n − 1)/n
  // each. Together 8(n − 1)/n.
  const auto [mesh, n] = GENERATE(table<const char*, double>({{"mesh: cp2", 2}, {"mesh: cp4", 4}}));
  const Plan plan = lower("gpt2", with(mesh, "context: rsa"));
  CHECK(numbers_moved(plan, Phase::Forward, n) == 2 * (n - 1) / n * 2048);
  CHECK(numbers_moved(plan, Phase::Backward, n) == 6 * (n - 1) / n * 2048);
}

TEST_CASE("ring self-attention stores scores, a ring does not", "[context]") {
  // Scores of a rank: b·heads·(s/n)·s = 4·4·16·32 = 8192 in each of 8 layers. The widest other activation is the inner
  // one of the feed-forward half, b·s/n·4h = 4·16·64 = 4096.
  const Plan rsa = lower("gpt2", "{mesh: cp2, context: rsa}"), ring = lower("gpt2", "{mesh: cp2}");
  CHECK(largest_activation(rsa) == 8192);
  CHECK(largest_activation(ring) == 4096);
  CHECK(working_set(rsa, {}) - working_set(ring, {}) > Bytes{8.0 * 8192 * 8});
}

TEST_CASE("each pair of query and key is counted once", "[context]") {
  const auto* strategy = GENERATE("{mesh: cp4}", "{mesh: cp4, zigzag: false}", "{mesh: cp4, context: ulysses}",
                                  "{mesh: dp2 cp2, zigzag: false}");
  const auto* model = GENERATE("llama", "bert");
  const Flops one = single()->train_step(small_model(model), one_pass(), nullptr).purpose.model_flops;
  CHECK(lower(model, strategy).purpose.model_flops.base() == Approx(one.base()).epsilon(1e-12));
}

TEST_CASE("zig-zag makes the work of ranks equal, contiguous chunks do not", "[context]") {
  CHECK(lower("llama", "{mesh: cp4}").classes.size() == 1);
  CHECK(lower("bert", "{mesh: cp4, zigzag: false}").classes.size() == 1);
  const Plan plan = lower("llama", "{mesh: cp4 dp2, zigzag: false}");
  REQUIRE(plan.classes.size() == 4);
  CHECK(plan.classes[3].name == "chunk 3");
  // Blocks of 8 · 8 pairs: the last rank sees three whole ones and the half below the diagonal, 3·64 + 36 = 228.
  std::map<std::string, double> pairs;
  for (const RankClass& c : plan.classes)
    for (const Op& op : plan.ops_of(c))
      if (const auto* a = std::get_if<AttentionForward>(&plan.work(op)); a && op.layer == 0)
        pairs[c.name] += a->shape.pairs({}) / double(a->shape.batch);
  CHECK(pairs == std::map<std::string, double>{{"chunk 0", 36}, {"chunk 1", 100}, {"chunk 2", 164}, {"chunk 3", 228}});
}

TEST_CASE("what cannot be cut over cp is said with what can", "[context]") {
  const auto message = [](const char* model, const char* strategy, std::int64_t sequence) {
    return user_error([&] { lower(model, strategy, one_pass(sequence)); });
  };
  CHECK(message("gpt2", "{mesh: cp4}", 12) ==
        "sequence 12 is not a multiple of 8, two chunks for each rank of cp\n  hint: sequence can be 8 or 16");
  CHECK(message("gpt2", "{mesh: cp4, context: rsa}", 18) ==
        "sequence 18 is not a multiple of 4, the ranks of cp\n  hint: sequence can be 16 or 20");
  CHECK(message("llama", "{mesh: cp8, context: ulysses}", 16) ==
        "cp (ulysses) 8 does not divide 4 key and value heads of a rank\n  hint: cp (ulysses) can be 1, 2, 4");
  CHECK(message("llama", "{mesh: tp4 cp2, context: ulysses}", 16) ==
        "cp (ulysses) 2 does not divide 1 key and value heads of a rank\n  hint: cp (ulysses) can be 1");
  CHECK(user_error([] { parallel("{mesh: cp2, context: star}"); }) ==
        "strategy:1:22: unknown value 'star'\n  {mesh: cp2, context: star}\n                       ^\n  hint: known "
        "values: ring, ulysses, rsa");
  const Model t5 = load_model(shipped_model("t5-tiny"));
  CHECK(user_error([&] { parallel("{mesh: cp2}")->train_step(t5, one_pass(), nullptr); }) ==
        "attention of t5-tiny cannot be cut over cp\n  hint: cp needs one stack of plain attention and a "
        "language-model head");
}
