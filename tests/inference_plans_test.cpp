// SPDX-License-Identifier: Apache-2.0
// Every way of generating tokens gives the logits of the plain one: one device, the whole prompt at once, equal
// lengths.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>

#include "tests/network_testing.hpp"
#include "tests/parallel_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr std::int64_t kPrompt = 9, kTokens = 3;

GenerateOptions options(std::int64_t batch) {
  GenerateOptions o;
  o.batch = batch;
  o.prompt = kPrompt;
  o.tokens = kTokens;
  o.dtype = Precision::F64;
  return o;
}

/// Logits of all sequences after the prompt and after each token but the last.
std::vector<std::vector<double>> generate(const Model& model, const GenerateOptions& o, const std::string& strategy,
                                          const std::vector<std::int32_t>& prompt) {
  const auto lowered = strategy.empty() ? single() : parallel(strategy);
  auto program = generation_program(model, o, lowered->generation(model, o, &host_workspaces()), prompt);
  auto executor = make_host_executor();
  for (const Plan& plan : program->plans()) {
    executor->prepare(plan);
    fill(*executor, plan, model, 5, 0.05);
  }
  std::vector<std::vector<double>> logits;
  while (auto step = program->next()) {
    const Plan& plan = program->plans()[step->plan];
    put(*executor, plan, step->inputs);
    executor->execute(plan, step->bindings);
    if (step->outputs.empty()) {
      program->told({});
      continue;
    }
    logits.push_back(read_port(*executor, plan, "logits"));
    program->told({{{"next_tokens", read_port(*executor, plan, "next_tokens")}}});
  }
  return logits;
}

std::vector<std::int32_t> tokens(std::int64_t count) {
  std::vector<std::int32_t> out;
  Random random{11};
  for (std::int64_t i = 0; i < count; ++i) out.push_back(static_cast<std::int32_t>(random.below(61)));
  return out;
}

void check_equal(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    INFO("after " << i << " tokens");
    CHECK(largest_difference(a[i], b[i]) <= 1e-9);
  }
}

}  // namespace

TEST_CASE("tokens that ranks generate together are those of one device", "[inference]") {
  const auto [family, strategy, microbatches] =
      GENERATE(table<std::string, std::string, int>({{"llama", "{mesh: pp2}", 1},
                                                     {"llama", "{mesh: pp4}", 2},
                                                     {"gpt2", "{mesh: pp2 tp2}", 2},
                                                     {"tied", "{mesh: pp2, blocking: true}", 4},
                                                     {"gpt2", "{mesh: dp2 pp2}", 2},
                                                     {"mixtral", "{mesh: ep2}", 1},
                                                     {"mixtral", "{mesh: pp2 ep2}", 2},
                                                     {"qwen", "{mesh: ep2 tp2}", 1},
                                                     {"llama", "{mesh: tp4, data_attention: true}", 1},
                                                     {"mixtral", "{mesh: tp2, data_attention: true}", 2},
                                                     {"deepseek", "{mesh: pp3, stage_layers: [1, 1, 1]}", 2},
                                                     {"deepseek", "{mesh: tp2, data_attention: true}", 1}}));
  INFO(family << " " << strategy);
  const Model model = small_model(family);
  GenerateOptions o = options(4);
  const auto plain = generate(model, o, "", tokens(4 * kPrompt));
  o.microbatches = microbatches;
  check_equal(generate(model, o, strategy, tokens(4 * kPrompt)), plain);
}

TEST_CASE("prompts read in pieces give the logits of whole ones", "[inference]") {
  const auto [family, strategy, chunk] = GENERATE(table<std::string, std::string, int>({{"llama", "", 4},
                                                                                        {"gpt2", "", 3},
                                                                                        {"mixtral", "", 8},
                                                                                        {"deepseek", "", 4},
                                                                                        {"llama", "{mesh: pp2 tp2}", 2},
                                                                                        {"llama", "", 20}}));
  INFO(family << " " << strategy << " in pieces of " << chunk);
  const Model model = small_model(family);
  GenerateOptions o = options(2);
  const auto plain = generate(model, o, "", tokens(2 * kPrompt));
  o.chunk = chunk;
  check_equal(generate(model, o, strategy, tokens(2 * kPrompt)), plain);
}

TEST_CASE("sequences of different lengths decode together as each of them alone", "[inference]") {
  const auto [family, strategy, microbatches] =
      GENERATE(table<std::string, std::string, int>({{"llama", "", 1},
                                                     {"gpt2", "", 1},
                                                     {"deepseek", "", 1},
                                                     {"mixtral", "{mesh: tp2}", 1},
                                                     {"llama", "{mesh: dp2 pp2}", 2}}));
  INFO(family << " " << strategy);
  const Model model = small_model(family);
  GenerateOptions o = options(4);
  o.lengths = {4, kPrompt, 1, 7};
  o.microbatches = microbatches;
  const std::vector<std::int32_t> prompts = tokens(4 * kPrompt);
  const auto together = generate(model, o, strategy, prompts);
  for (std::size_t b = 0; b < 4; ++b) {
    GenerateOptions one = options(1);
    one.prompt = o.lengths[b];
    const auto first = prompts.begin() + static_cast<std::ptrdiff_t>(b * kPrompt);
    const auto alone = generate(model, one, "", {first, first + one.prompt});
    for (std::size_t i = 0; i < alone.size(); ++i) {
      const auto row = together[i].begin() + static_cast<std::ptrdiff_t>(b * 61);
      INFO("sequence " << b << " after " << i << " tokens");
      CHECK(largest_difference({row, row + 61}, alone[i]) <= 1e-9);
    }
  }
}

TEST_CASE("a forward pass over stages and experts gives the logits of one device", "[inference]") {
  const auto [family, strategy] =
      GENERATE(table<std::string, std::string>({{"gpt2", "{mesh: pp4}"},
                                                {"bert", "{mesh: pp2 tp2}"},
                                                {"mixtral", "{mesh: dp2 ep2}"},
                                                {"llama", "{mesh: tp2, data_attention: true}"}}));
  INFO(family << " " << strategy);
  const Model model = small_model(family);
  InferOptions o;
  o.batch = 4;
  o.sequence = 7;
  o.dtype = Precision::F64;
  o.microbatches = 1;
  const auto pass = [&](const Strategy& s) {
    const Plan plan = s.inference(model, o, &host_workspaces());
    auto executor = make_host_executor();
    executor->prepare(plan);
    fill(*executor, plan, model, 5, 0.05);
    put(*executor, plan, {{"tokens", tokens(4 * 7), {}}});
    executor->execute(plan, {});
    return read_port(*executor, plan, "logits");
  };
  CHECK(largest_difference(pass(*parallel(strategy)), pass(*single())) <= 1e-9);
}

TEST_CASE("quantised weights and caches are what plans read and memory holds", "[inference]") {
  const Model model = small_model("llama");
  GenerateOptions o = options(2);
  o.dtype = Precision::BF16;
  const auto decode = [&] { return single()->generation(model, o, nullptr).decode; };
  const auto bytes = [](const Plan& plan, TensorRole role) {
    double sum = 0;
    for (const Tensor& t : plan.tensors)
      if (t.role == role && t.base.is_none())
        sum += size_of(t.dtype, plan.layouts[t.layout.index()].shape.elements()).base();
    return sum;
  };
  const Plan plain = decode();
  o.quantised = {.weights = Quantised::I4, .cache = Quantised::F8};
  const Plan narrow = decode();
  // Blocks: q 16·16, k and v 8·16, out 16·16, three of 28·16 numbers, times 8; embeddings and head stay in 16 bits.
  const double matrices = 8.0 * (256 + 128 + 128 + 256 + 3 * 448);
  const double scales = 8.0 * 2 * (2 + 1 + 1 + 2 + 3 * 4);  // one per 128 numbers, of 2 bytes, rounded up
  CHECK(bytes(plain, TensorRole::Parameter) - bytes(narrow, TensorRole::Parameter) == Approx(matrices * 1.5 - scales));
  // 2 sequences, 12 places, 4 heads of 2 numbers, keys and values of 8 layers; a scale for each head.
  const double kept = 2.0 * 12 * 4 * 2 * 2 * 8;
  CHECK(bytes(plain, TensorRole::KvCache) == kept * 2);
  CHECK(bytes(narrow, TensorRole::KvCache) == kept + kept / 2 * 2);
  double weights = 0, attended = 0;
  Bindings b;
  b[Symbol::Context] = 9;
  for (const Op& op : narrow.ops) {
    if (const auto* g = std::get_if<Gemm>(&narrow.work(op)); g && op.layer >= 0) {
      CHECK(g->weights == Quantised::I4);
      weights += size_quantised(g->weights, g->arithmetic(), g->k * g->n).base();
    }
    if (const auto* a = std::get_if<AttentionForward>(&narrow.work(op))) attended += a->shape.kv_bytes(b).base();
  }
  CHECK(weights == matrices / 2 + scales);
  CHECK(attended == 2.0 * 10 * 4 * (2 + 2 + 2 + 2) * 8);  // 10 keys: a byte a number and 2 for the scale of a head
}

TEST_CASE("what inference cannot do is refused with a way out", "[inference]") {
  const Model model = small_model("llama");
  GenerateOptions o = options(4);
  const auto refuses = [&](const std::string& strategy, const std::string& text) {
    CHECK_THAT(user_error([&] { parallel(strategy)->generation(model, o, nullptr); }), Catch::Matchers::Contains(text));
  };
  refuses("{mesh: cp2}", "axis cp of the mesh is for training");
  refuses("{mesh: tp2, blocking: true}", "blocking is for pipelines");
  o.lengths = {1, 2};
  refuses("{mesh: tp2}", "2 lengths are given for a batch of 4");
  o.lengths = {4, 9, 9, 9};
  o.chunk = 4;
  refuses("{mesh: tp2}", "prompts of different lengths are read whole");
  o = options(4);
  o.temperature = 1;
  refuses("{mesh: dp2}", "parts of a batch would draw the same numbers");
}
