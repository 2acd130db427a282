// SPDX-License-Identifier: Apache-2.0
// Gemma 2, Gemma 3 and Granite: logits and gradients against straight-line implementations, every way to store scores
// and to split a step against one device.
#include <catch2/catch.hpp>

#include "tests/gemma_reference.hpp"
#include "tests/parallel_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr int kBatch = 2, kSequence = 19;
constexpr double kTolerance = 1e-9;

/// scenarios/models/{gemma2,gemma3,granite}-tiny.json
GemmaNetwork network_of(const std::string& name) {
  GemmaNetwork n{.hidden = 64, .heads = 4, .kv_heads = 2, .dim = 16, .layers = 4, .inner = 128, .vocab = 4096};
  if (name == "granite-tiny") {
    n.layers = 3, n.epsilon = 1e-5, n.score_scale = 0.125;
    n.embedding = 3, n.residual = 0.22, n.logits = 4;
    n.one_plus = n.norms_behind = n.gelu = false;
    return n;
  }
  n.score_scale = 1 / std::sqrt(24.0), n.embedding = 8, n.window = 6;
  if (name == "gemma2-tiny") {
    n.score_cap = 0.5, n.logit_cap = 2, n.period = 2;
  } else {
    n.layers = 7, n.period = 3, n.qk_norm = true;
    n.local_theta = 100, n.stretch = 8;
  }
  return n;
}

std::map<std::string, std::vector<double>> weights_of(Executor& executor, const Plan& plan, const Model& model) {
  std::map<std::string, std::vector<double>> w;
  for (std::size_t i = 0; i < model.parameters.size(); ++i)
    w[model.parameters[i].name] = read_parameter(executor, plan, ParameterId{i}, model.parameters[i].elements());
  return w;
}

std::vector<double> logits_of(const std::string& name, double* without_caps = nullptr) {
  const Model model = load_model(shipped_model(name));
  InferOptions o;
  o.batch = kBatch, o.sequence = kSequence;
  o.dtype = Precision::F64;
  const Plan plan = single()->inference(model, o, &host_workspaces());
  auto executor = make_host_executor();
  executor->prepare(plan);
  fill(*executor, plan, model, 5, 0.2);
  Random random{23};
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < kBatch * kSequence; ++i) tokens.push_back(static_cast<std::int32_t>(random.below(4096)));
  put(*executor, plan, {{"tokens", tokens, {}}});
  executor->execute(plan, {});
  const auto logits = read_port(*executor, plan, "logits");
  GemmaNetwork n = network_of(name);
  const auto w = weights_of(*executor, plan, model);
  CHECK(largest_difference(logits, StraightGemma<double>{n, w, kBatch, kSequence}.logits(tokens)) < 1e-12);
  n.score_cap = n.logit_cap = 0;
  if (without_caps)
    *without_caps = largest_difference(logits, StraightGemma<double>{n, w, kBatch, kSequence}.logits(tokens));
  return logits;
}

/// Eight heads' worth of everything that differs, small enough for many ranks.
Model small(const std::string& family) {
  const std::string sizes = R"("hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 4, "vocab_size": 61,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32)";
  const std::string gemma = sizes + R"(, "head_dim": 8, "query_pre_attn_scalar": 5, "sliding_window": 5)";
  if (family == "gemma2")
    return model_of_config(
        R"({"model_type": "gemma2", "attn_logit_softcapping": 0.2, "final_logit_softcapping": 0.5, )" + gemma + "}",
        family);
  if (family == "gemma3")
    return model_of_config(R"({"model_type": "gemma3_text", "sliding_window_pattern": 3, )" + gemma + "}", family);
  return model_of_config(R"({"model_type": "granite", "embedding_multiplier": 3.0, "attention_multiplier": 0.4,
    "residual_multiplier": 0.3, "logits_scaling": 4.0, "tie_word_embeddings": true, )" +
                             sizes + "}",
                         family);
}

constexpr const char* kFamilies[] = {"gemma2", "gemma3", "granite"};

TrainOptions steps(Recompute recompute = Recompute::None) {
  TrainOptions o = double_steps(8, 2, 16, 3);
  o.recompute = recompute;
  return o;
}

const Trained& alone(const std::string& family) {
  static std::map<std::string, Trained> known;
  if (!known.contains(family)) known[family] = train(small(family), steps(), *single());
  return known.at(family);
}

}  // namespace

TEST_CASE("plans of Gemma 2, Gemma 3 and Granite compute what straight-line implementations do", "[parity]") {
  const auto* name = GENERATE("gemma2-tiny", "gemma3-tiny", "granite-tiny");
  INFO(name);
  logits_of(name);
}

TEST_CASE("bounds of scores and logits change what the tiny Gemma 2 says", "[parity]") {
  double without = 0;
  logits_of("gemma2-tiny", &without);
  CHECK(without > 0.1);
}

TEST_CASE("gradients of Gemma 2, Gemma 3 and Granite are the slopes of straight-line implementations", "[parity]") {
  const auto* name = GENERATE("gemma2-tiny", "gemma3-tiny", "granite-tiny");
  const bool stored = GENERATE(false, true);
  constexpr int kRows = 9;
  const Model model = load_model(shipped_model(name));
  TrainOptions o;
  o.batch = 2, o.sequence = kRows;
  o.dtype = Precision::F64;
  o.stored_scores = stored;
  o.optimizer = {.kind = OptimizerKind::Sgd, .rate = 0, .momentum = 0, .decay = 0, .clip = 0};
  const auto program = training_program(model, o, single()->train_step(model, o, &host_workspaces()), {});
  const Plan& plan = program->plans().front();
  auto executor = make_host_executor();
  executor->prepare(plan);
  fill(*executor, plan, model, 3, 0.2);
  const Step step = *program->next();
  put(*executor, plan, step.inputs);
  executor->execute(plan, step.bindings);
  std::map<std::string, std::vector<std::int32_t>> in;
  for (const PortValues& p : step.inputs) in[p.port] = p.indices;
  const auto w = weights_of(*executor, plan, model);
  Random random{31};
  for (std::size_t i = 0; i < model.parameters.size(); i += 1 + model.parameters.size() / 24) {
    const Parameter& p = model.parameters[i];
    const std::vector<double> gradient = read_gradient(*executor, plan, ParameterId{i}, p.elements());
    const bool table = p.name == "model.embed_tokens.weight";  // rows of tokens that are there
    const std::size_t element = table ? static_cast<std::size_t>(in.at("tokens")[3] * 64 + 5)
                                      : static_cast<std::size_t>(random.below(gradient.size()));
    const Dual loss =
        StraightGemma<Dual>{network_of(name), w, 2, kRows, p.name, element}.loss(in.at("tokens"), in.at("targets"));
    INFO(name << " " << p.name << "[" << element << "]");
    CHECK(read_port(*executor, plan, "loss")[0] == Approx(loss.value).epsilon(1e-12));
    CHECK(gradient[element] == Approx(loss.slope).epsilon(1e-9).margin(1e-14));
  }
}

TEST_CASE("Gemma and Granite train on meshes as on one device", "[parallel]") {
  const auto* family = GENERATE(from_range(std::begin(kFamilies), std::end(kFamilies)));
  const auto* mesh = GENERATE("{mesh: tp2}", "{mesh: tp2, sequence_parallel: true}", "{mesh: row2 col2}",
                              "{mesh: x2 y2 z2}", "{mesh: pp2 dp2}", "{mesh: pp2, schedule: interleaved, chunks: 2}");
  INFO(family << " " << mesh);
  CHECK(worst_difference(train(small(family), steps(), *parallel(mesh)), alone(family)) < kTolerance);
}

TEST_CASE("Gemma and Granite compute the same with scores in memory and when blocks run again", "[parallel]") {
  const auto* family = GENERATE(from_range(std::begin(kFamilies), std::end(kFamilies)));
  const Recompute recompute = GENERATE(Recompute::None, Recompute::Selective, Recompute::Full, Recompute::Whole);
  const bool stored = GENERATE(true, false);
  TrainOptions o = steps(recompute);
  o.stored_scores = stored;
  INFO(family << " " << int(recompute) << " " << stored);
  CHECK(worst_difference(train(small(family), o, *single()), alone(family)) < kTolerance);
  if (stored) CHECK(worst_difference(train(small(family), o, *parallel("{mesh: tp2}")), alone(family)) < kTolerance);
}

TEST_CASE("scores behind a window are no arithmetic that a model needs", "[parallel]") {
  // Of 16² pairs a whole layer needs 16·17/2 = 136, one with a window of 5 needs 10 + 12·5 = 70. 4 heads of 8 + 8
  // numbers, 6 FLOP each, 8 sequences; of Gemma 2 two layers of four have a window, of Gemma 3 (periods of 3) three.
  TrainOptions o = steps();
  o.stored_scores = true;
  for (const auto& [family, windows] : {std::pair{"gemma2", 2}, {"gemma3", 3}}) {
    const Plan plan = single()->train_step(small(family), o, nullptr);
    const double wasted = 6.0 * 4 * 16 * 8 * ((256 - 70) * windows + (256 - 136) * (4 - windows));
    CHECK((model_flops(plan) - plan.purpose.model_flops).base() == Approx(wasted));
  }
}

TEST_CASE("what Gemma cannot do is refused with its place", "[parallel][error]") {
  const TrainOptions o = steps();
  CHECK(user_error([&] { parallel("{mesh: cp2}")->train_step(small("gemma2"), o, nullptr); }) ==
        "attention of gemma2 cannot be cut over cp\n  hint: cp needs one stack of plain attention and a language-model "
        "head");
  TrainOptions eager = o;
  eager.stored_scores = eager.eager_attention = true;
  CHECK(user_error([&] { single()->train_step(small("gemma2"), eager, nullptr); }) ==
        "eager_attention is for scores without bounds, and those of gemma2 have them\n  hint: leave it out");
  GenerateOptions lengths;
  lengths.prompt = 8, lengths.tokens = 4, lengths.batch = 2, lengths.lengths = {8, 6};
  CHECK(user_error([&] { single()->generation(small("gemma3"), lengths, nullptr); }) ==
        "gemma3 attends to a window\n  hint: leave lengths out");
}

TEST_CASE("Granite trains over cut sequences", "[parallel]") {
  const auto* context = GENERATE("{mesh: cp2}", "{mesh: cp2, context: ulysses}", "{mesh: cp2, context: rsa}");
  INFO(context);
  CHECK(worst_difference(train(small("granite"), steps(), *parallel(context)), alone("granite")) < kTolerance);
}
