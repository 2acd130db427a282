// SPDX-License-Identifier: Apache-2.0
// Prefill and decode with a cache give the logits of a whole forward pass over the same tokens.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/network_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr std::int64_t kBatch = 2, kPrompt = 19, kTokens = 5;

/// Logits of the last row of each sample after a whole pass over these tokens.
std::vector<double> whole_pass(const Model& model, const std::vector<std::vector<std::int32_t>>& prompts,
                               const std::vector<std::vector<std::int32_t>>& decoded) {
  const bool pair = !std::get<Transformer>(model.network).encoder.empty();
  InferOptions o;
  o.batch = kBatch;
  o.dtype = Precision::F64;
  std::vector<std::int32_t> tokens, decoder;
  for (std::size_t b = 0; b < prompts.size(); ++b) {
    tokens.insert(tokens.end(), prompts[b].begin(), prompts[b].end());
    if (pair) {
      decoder.push_back(0);
      decoder.insert(decoder.end(), decoded[b].begin(), decoded[b].end());
    } else {
      tokens.insert(tokens.end(), decoded[b].begin(), decoded[b].end());
    }
  }
  o.sequence = static_cast<std::int64_t>(tokens.size()) / kBatch;
  o.target_sequence = static_cast<std::int64_t>(decoder.size()) / kBatch;
  const Plan plan = single()->inference(model, o, &host_workspaces());
  auto executor = make_host_executor();
  executor->prepare(plan);
  fill(*executor, plan, model, 5, 0.05);
  put(*executor, plan, {{"tokens", tokens, {}}});
  if (pair) put(*executor, plan, {{"decoder_tokens", decoder, {}}});
  executor->execute(plan, {});
  const auto all = executor->read(plan, plan.find_port("logits"), RankId{0});
  const std::size_t vocab = static_cast<std::size_t>(output_size(plan)), rows = all.size() / vocab / kBatch;
  std::vector<double> last;
  for (std::size_t b = 0; b < kBatch; ++b) {
    const auto row = all.begin() + static_cast<std::ptrdiff_t>(((b + 1) * rows - 1) * vocab);
    last.insert(last.end(), row, row + static_cast<std::ptrdiff_t>(vocab));
  }
  return last;
}

}  // namespace

TEST_CASE("decoding with a cache equals whole passes, token by token, on one rank and on two", "[generation]") {
  const auto* name = GENERATE("gpt2-tiny", "llama-tiny", "opt-tiny", "mixtral-tiny", "qwen3-moe-tiny", "deepseek-tiny",
                              "llama4-tiny", "gemma2-tiny", "gemma3-tiny", "granite-tiny", "t5-tiny");
  const auto* mesh = GENERATE("", "{mesh: tp2}");
  const bool split = *mesh != 0;
  const std::set<std::string> splits{"gpt2-tiny",   "llama-tiny",  "llama4-tiny",
                                     "gemma2-tiny", "gemma3-tiny", "granite-tiny"};
  if (split && !splits.contains(name)) return;
  const std::unique_ptr<Strategy> strategy =
      split ? find_strategy("parallel").make(parse_yaml(mesh, "strategy")) : single();
  const Model model = load_model(shipped_model(name));
  GenerateOptions o;
  o.batch = kBatch;
  o.prompt = kPrompt;
  o.tokens = kTokens;
  o.dtype = Precision::F64;
  auto program = generation_program(model, o, strategy->generation(model, o, &host_workspaces()), {});
  auto executor = make_host_executor();
  for (const Plan& plan : program->plans()) {
    executor->prepare(plan);
    fill(*executor, plan, model, 5, 0.05);
  }
  std::vector<std::vector<std::int32_t>> prompts(kBatch), decoded(kBatch);
  while (auto step = program->next()) {
    const Plan& plan = program->plans()[step->plan];
    put(*executor, plan, step->inputs);
    if (step->plan == 0)
      for (std::size_t b = 0; b < kBatch; ++b)
        prompts[b].assign(step->inputs[0].indices.begin() + static_cast<std::ptrdiff_t>(b * kPrompt),
                          step->inputs[0].indices.begin() + static_cast<std::ptrdiff_t>((b + 1) * kPrompt));
    executor->execute(plan, step->bindings);
    const auto logits = executor->read(plan, plan.find_port("logits"), RankId{0});
    const auto expected = whole_pass(model, prompts, decoded);
    INFO(name << " after " << decoded[0].size() << " tokens");
    CHECK(largest_difference(logits, expected) <= 1e-9);
    const auto next = executor->read(plan, plan.find_port("next_tokens"), RankId{0});
    for (std::size_t b = 0; b < kBatch; ++b) {
      const auto row = logits.begin() + static_cast<std::ptrdiff_t>(b * logits.size() / kBatch);
      CHECK(next[b] ==
            double(std::max_element(row, row + static_cast<std::ptrdiff_t>(logits.size() / kBatch)) - row));  // greedy
      decoded[b].push_back(static_cast<std::int32_t>(next[b]));
    }
    program->told({{{"next_tokens", next}}});
  }
}
