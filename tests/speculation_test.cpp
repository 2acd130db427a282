// SPDX-License-Identifier: Apache-2.0
// Speculative generation on the host runtime: every method and tree gives the tokens of plain decoding.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "sim/program/speculation/speculation.hpp"
#include "tests/network_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr std::int64_t kPrompt = 6, kTokens = 24;

/// So few tokens that untrained drafters are right now and then.
Model small_model(const std::string& family, std::int64_t vocab) {
  const std::string config =
      family == "gpt2"
          ? fmt::format("{{model_type: gpt2, n_embd: 32, n_layer: 3, n_head: 4, n_positions: 128, vocab_size: {}}}",
                        vocab)
          : fmt::format(
                "{{model_type: llama, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 3, "
                "num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 128, vocab_size: {}}}",
                vocab);
  return model_from_config(parse_yaml(config, "model"), "small");
}

/// One layer, for tests that draw hundreds of thousands of tokens.
Model tiny_model(std::int64_t vocab) {
  return model_from_config(
      parse_yaml(fmt::format("{{model_type: llama, hidden_size: 8, intermediate_size: 8, num_hidden_layers: 1, "
                             "num_attention_heads: 2, num_key_value_heads: 1, max_position_embeddings: 16, "
                             "vocab_size: {}}}",
                             vocab),
                 "model"),
      "tiny");
}

/// Writes constants, and those parameters that a plan uses. `copies`: parameters of the drafter take the numbers of the
/// model's parameter at the same place of its list; those that it has not are zeros.
void fill_used(Executor& executor, const Plan& plan, const Model& model, std::optional<std::size_t> copies = {}) {
  write_constants(executor, plan);
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    if (!plan.find_placement(ParameterId{i})) continue;
    const std::string& name = model.parameters[i].name;
    std::size_t from = i;
    if (copies && name.rfind("draft.", 0) == 0)
      for (std::size_t j = 0; j < *copies; ++j)
        if (model.parameters[j].name == name.substr(6) || model.parameters[j].name == "model." + name.substr(6))
          from = j;
    std::vector<double> values = initial_values(model, ParameterId{from}, 3);
    if (model.parameters[from].init == Init::Normal)
      for (double& v : values) v *= 6;  // far from uniform
    if (copies && from == i && i >= *copies && name.find("norm") == std::string::npos)
      values.assign(values.size(), 0.0);
    write_parameter(executor, plan, ParameterId{i}, values);
  }
}

/// A target and its drafter on a host executor.
struct Speculating {
  Speculating(Model m, const GenerateOptions& o, bool drafter_is_model = false,
              const std::vector<std::int32_t>& prompt = {})
      : model{std::move(m)} {
    const std::size_t own = model.parameters.size();
    const std::int64_t few = o.speculate->network.vocabulary;
    layout = layout_of(*o.speculate, o.temperature, few > 0 ? few : std::get<Transformer>(model.network).output.out);
    drafter = add_drafter(model, *o.speculate, layout.depth);
    program = speculation_program(model, drafter, o, layout,
                                  lower_speculation(model, drafter, o, layout, &host_workspaces()), prompt);
    for (const Plan& plan : program->plans()) {
      executor->prepare(plan);
      fill_used(*executor, plan, model, drafter_is_model ? std::optional{own} : std::nullopt);
    }
  }

  void run() {
    while (auto step = program->next()) {
      const Plan& plan = program->plans()[step->plan];
      put(*executor, plan, step->inputs);
      executor->execute(plan, step->bindings);
      Outcome outcome;
      for (const std::string& port : step->outputs) outcome.values[port] = read_port(*executor, plan, port);
      program->told(outcome);
    }
  }

  Model model;
  SpeculationLayout layout;
  Drafter drafter;
  std::unique_ptr<SpeculationProgram> program;
  std::unique_ptr<Executor> executor = make_host_executor();
};

/// Tokens of plain decoding, sequence by sequence.
std::vector<std::vector<std::int32_t>> plain_tokens(const Model& model, GenerateOptions o) {
  o.speculate.reset();
  auto program = generation_program(model, o, single()->generation(model, o, &host_workspaces()), {});
  auto executor = make_host_executor();
  for (const Plan& plan : program->plans()) {
    executor->prepare(plan);
    fill_used(*executor, plan, model);
  }
  std::vector<std::vector<std::int32_t>> out(static_cast<std::size_t>(o.batch));
  while (auto step = program->next()) {
    const Plan& plan = program->plans()[step->plan];
    put(*executor, plan, step->inputs);
    executor->execute(plan, step->bindings);
    const auto next = read_port(*executor, plan, "next_tokens");
    for (std::size_t b = 0; b < out.size(); ++b) out[b].push_back(static_cast<std::int32_t>(next[b]));
    program->told({{{"next_tokens", next}}});
  }
  return out;
}

GenerateOptions options_of(const std::string& speculate, std::int64_t batch) {
  GenerateOptions o;
  o.batch = batch;
  o.prompt = kPrompt;
  o.tokens = kTokens;
  o.dtype = Precision::F64;
  o.speculate.emplace();
  read_options(parse_yaml(speculate, "speculate"), *o.speculate);
  return o;
}

/// The most likely token behind a text, from a whole forward pass.
std::int32_t likeliest_behind(const Model& model, const std::vector<std::int32_t>& text) {
  InferOptions o;
  o.sequence = std::ssize(text);
  o.dtype = Precision::F64;
  const Plan plan = single()->inference(model, o, &host_workspaces());
  auto executor = make_host_executor();
  executor->prepare(plan);
  fill_used(*executor, plan, model);
  put(*executor, plan, {{"tokens", text, {}}});
  executor->execute(plan, {});
  const auto logits = executor->read(plan, plan.find_port("logits"), RankId{0});
  const auto last = logits.end() - output_size(plan);
  return static_cast<std::int32_t>(std::max_element(last, logits.end()) - last);
}

/// P(a, b, c) of three tokens behind a prompt, from whole forward passes over all 16 beginnings.
std::vector<double> three_tokens(const Model& model, const std::vector<std::int32_t>& prompt, double temperature) {
  InferOptions o;
  o.batch = 16, o.sequence = std::ssize(prompt) + 2;
  o.dtype = Precision::F64;
  const Plan plan = single()->inference(model, o, &host_workspaces());
  auto executor = make_host_executor();
  executor->prepare(plan);
  fill_used(*executor, plan, model);
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < 16; ++i) {
    tokens.insert(tokens.end(), prompt.begin(), prompt.end());
    tokens.push_back(i / 4);
    tokens.push_back(i % 4);
  }
  put(*executor, plan, {{"tokens", tokens, {}}});
  executor->execute(plan, {});
  const auto logits = executor->read(plan, plan.find_port("logits"), RankId{0});
  const auto p = [&](std::int64_t sample, std::int64_t row, std::int64_t token) {
    double sum = 0;
    const auto at = [&](std::int64_t c) {
      return std::exp(logits[static_cast<std::size_t>((sample * o.sequence + row) * 4 + c)] / temperature);
    };
    for (std::int64_t c = 0; c < 4; ++c) sum += at(c);
    return at(token) / sum;
  };
  std::vector<double> all;
  const std::int64_t last = std::ssize(prompt) - 1;
  for (std::int64_t i = 0; i < 64; ++i)
    all.push_back(p(i / 4, last, i / 16) * p(i / 4, last + 1, i / 4 % 4) * p(i / 4, last + 2, i % 4));
  return all;
}

}  // namespace

TEST_CASE("every method and tree gives the tokens of greedy decoding", "[speculation]") {
  const std::string speculate = GENERATE(
      "{method: draft, network: {layers: 1}}", "{method: draft, tree: static, nodes: 12, depth: 3}",
      "{method: draft, tree: dynamic, width: 3, nodes: 8, depth: 3}",
      "{method: draft, tree: budget, nodes: 5, depth: 4}", "{method: skip, network: {layers: 2}}",
      "{method: skip, tree: static, nodes: 9, depth: 3}", "{method: medusa, nodes: 40}",
      "{method: medusa, tree: chain, depth: 3}", "{method: medusa, tree: dynamic, width: 4, nodes: 12, depth: 3}",
      "{method: hydra, nodes: 30}", "{method: eagle}", "{method: eagle, tree: chain}",
      "{method: eagle, tree: dynamic, width: 4, nodes: 14, depth: 4}",
      "{method: eagle3, width: 4, nodes: 10, network: {vocabulary: 7}}", "{method: glide}",
      "{method: glide, tree: chain, network: {layers: 2, hidden: 16, heads: 2}}", "{method: glide, tree: dynamic}",
      "{method: draft, tree: beams, width: 3, depth: 3}", "{method: glide, tree: beams, width: 2}", "{method: clover}",
      "{method: clover, nodes: 9, depth: 4, top_p: 0.95}");
  const std::int64_t batch = GENERATE(1, 2, 3, 4, 5, 6, 7, 8);
  const std::string family = GENERATE("llama", "gpt2");
  if (family == "gpt2" && batch != 2) return;
  const GenerateOptions o = options_of(speculate, batch);
  const Model target = small_model(family, 11);
  Speculating s{target, o};
  s.run();
  const auto expected = plain_tokens(target, o);
  INFO(speculate << ", batch " << batch << ", " << family << ": " << s.program->progress().tokens_per_round()
                 << " tokens a round");
  for (std::int64_t b = 0; b < batch; ++b) CHECK(s.program->generated(b) == expected[static_cast<std::size_t>(b)]);
}

TEST_CASE("times of the host are waited for in a run, and change no token", "[speculation]") {
  // Two passes of the drafter and a verification of two sequences a round: 2 · 1 + 2 + 2 · 1 = 6 ms at least.
  const GenerateOptions o =
      options_of("{method: eagle, tree: chain, depth: 2, host: {level: 1 ms, round: 2 ms, sequence: 1 ms}}", 2);
  const Model target = small_model("llama", 11);
  Speculating s{target, o};
  const auto start = std::chrono::steady_clock::now();
  s.run();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  CHECK(taken.count() >= 6e-3 * double(s.program->progress().rounds));
  const auto expected = plain_tokens(target, o);
  for (std::int64_t b = 0; b < 2; ++b) CHECK(s.program->generated(b) == expected[static_cast<std::size_t>(b)]);
}

TEST_CASE("drafts are accepted", "[speculation]") {
  // 40 nodes of a vocabulary of 11: the first level of a tree alone holds the right token every second time.
  const GenerateOptions o = options_of("{method: medusa, nodes: 40}", 8);
  Speculating s{small_model("llama", 11), o};
  s.run();
  CHECK(s.program->progress().tokens_per_round() > 1.5);
}

TEST_CASE("a drafter that is the model itself is always right", "[speculation]") {
  // Its own cache, what it catches up with and where drafts stand: any slip would draft another token.
  const std::string speculate = GENERATE(
      "{method: skip, network: {layers: 3}}", "{method: skip, network: {layers: 3}, tree: static, nodes: 9, depth: 3}",
      "{method: draft, network: {layers: 3}}",
      "{method: draft, network: {layers: 3}, tree: static, nodes: 12, depth: 3}",
      "{method: draft, network: {layers: 3}, tree: caterpillar}", "{method: glide, network: {layers: 3}, tree: chain}");
  const std::int64_t batch = GENERATE(1, 3);
  const GenerateOptions o = options_of(speculate, batch);
  Speculating s{small_model("llama", 31), o, true};
  s.run();
  const SpeculationProgress& p = s.program->progress();
  INFO(speculate);
  CHECK(p.accepted.back() == p.sequence_rounds);
  CHECK(p.tokens_per_round() == double(s.layout.depth + 1));
}

TEST_CASE("drafts behind any node of a tree are those of the whole text", "[speculation]") {
  const std::string speculate = GENERATE(
      "{method: draft, network: {layers: 3}, tree: static, nodes: 14, depth: 3, accuracy: {hits: [[0.45, 0.44, "
      "0.02]]}}",
      "{method: skip, network: {layers: 3}, tree: static, nodes: 14, depth: 3, accuracy: {hits: [[0.45, 0.44, "
      "0.02]]}}");
  GenerateOptions o = options_of(speculate, 1);
  o.tokens = 13;
  const Model target = small_model("llama", 31);
  Speculating s{target, o, true};
  std::vector<std::int32_t> prompt;
  std::size_t compared = 0;
  while (auto step = s.program->next()) {
    const Plan& plan = s.program->plans()[step->plan];
    if (step->plan == 0) prompt = step->inputs.front().indices;
    if (plan.has_port("path")) {
      const auto &tokens = step->inputs[0].indices, &parents = step->inputs[2].indices;
      for (std::size_t node = 1; node < tokens.size(); ++node) {
        const bool is_first = std::find(parents.begin(), parents.end(), parents[node]) - parents.begin() ==
                              static_cast<std::ptrdiff_t>(node);
        if (!is_first) continue;
        std::vector<std::int32_t> path, text = prompt;
        for (std::int32_t n = parents[node]; n >= 0; n = parents[static_cast<std::size_t>(n)])
          path.push_back(tokens[static_cast<std::size_t>(n)]);
        const auto so_far = s.program->generated(0);
        text.insert(text.end(), so_far.begin(), so_far.end() - 1);  // the last one is the root
        text.insert(text.end(), path.rbegin(), path.rend());
        CHECK(tokens[node] == likeliest_behind(target, text));
        ++compared;
      }
    }
    put(*s.executor, plan, step->inputs);
    s.executor->execute(plan, step->bindings);
    Outcome outcome;
    for (const std::string& port : step->outputs) outcome.values[port] = read_port(*s.executor, plan, port);
    s.program->told(outcome);
  }
  CHECK(compared >= 10);
}

TEST_CASE("with a temperature the tokens have the distribution of the model", "[speculation]") {
  const std::string speculate = GENERATE("{method: draft, depth: 2}", "{method: medusa, nodes: 8, depth: 2}",
                                         "{method: eagle, nodes: 9, depth: 3}", "{method: clover, depth: 2}",
                                         "{method: hydra, nodes: 8, depth: 2}", "{method: glide, depth: 2}",
                                         "{method: eagle3, tree: dynamic, width: 3, nodes: 8, depth: 2}",
                                         "{method: draft, tree: beams, width: 2, depth: 2}");
  constexpr std::int64_t kVocab = 4, kLength = 3, kRuns = 134, kBatch = 500;
  const Model target = tiny_model(kVocab);
  GenerateOptions o = options_of(speculate, kBatch);
  o.prompt = 2, o.tokens = kLength + 1, o.temperature = 0.9;
  const std::vector<std::int32_t> start{1, 3};
  std::vector<std::int32_t> prompt;
  for (std::int64_t b = 0; b < kBatch; ++b) prompt.insert(prompt.end(), start.begin(), start.end());
  std::vector<std::int64_t> seen(64, 0);
  for (std::int64_t run = 0; run < kRuns; ++run) {
    o.seed = 7 + 100'000 * run;
    Speculating s{target, o, false, prompt};
    s.run();
    for (std::int64_t b = 0; b < kBatch; ++b) {
      const auto t = s.program->generated(b);
      ++seen[static_cast<std::size_t>((t[0] * kVocab + t[1]) * kVocab + t[2])];
    }
  }
  const std::vector<double> expected = three_tokens(target, start, o.temperature);
  // 63 degrees of freedom: below 92.0 with probability 0.99. Each method: 67,000 sequences, three tokens of each.
  static_assert(kRuns * kBatch * kLength >= 200'000);
  double chi_square = 0;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const double e = expected[i] * double(kRuns * kBatch);
    chi_square += (double(seen[i]) - e) * (double(seen[i]) - e) / e;
  }
  INFO(speculate);
  CHECK(chi_square < 92.0);
}

TEST_CASE("a model of sub-layers side by side is refused", "[speculation]") {
  Model model = model_from_config(
      parse_yaml("{model_type: kraken, n_ways: 2, n_embd: 12, n_layer: 2, n_head: 4, n_positions: 64, vocab_size: 29}",
                 "kraken"),
      "kraken");
  CHECK_THAT(user_error([&] { add_drafter(model, {}, 1); }), Catch::Contains("sub-layers side by side"));
}
