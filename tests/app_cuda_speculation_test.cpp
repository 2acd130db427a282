// SPDX-License-Identifier: Apache-2.0
// Tokens that are drafted and verified on a GPU: those that the processor generates, by each method.
#include <nlohmann/json.hpp>

#include "tests/app_testing.hpp"
#include "tests/cuda_testing.hpp"

using namespace orrery;
using namespace orrery::testing;
using nlohmann::json;

namespace {

/// What one sequence of bytes goes on with.
std::vector<int> tokens(const std::string& speculate, bool gpu) {
  std::vector<std::string> arguments{
      "run",
      "--json",
      "--no-out",
      "--set",
      "model={model_type: llama, hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: "
      "2, "
      "intermediate_size: 24, max_position_embeddings: 64, vocab_size: 40, rms_norm_eps: 1.0e-5, rope_theta: 10000.0, "
      "tie_word_embeddings: false}",
      "--set",
      "workload={generate: {batch: 1, prompt: 5, tokens: 8, dtype: f32" + speculate + "}}"};
  if (gpu) arguments.insert(arguments.end(), {"--device", "cuda"});
  const CommandResult r = orrery::testing::orrery(arguments, {}, gpu ? GpuSource{gpu_under_test} : GpuSource{});
  INFO(r.err);
  REQUIRE(r.code == 0);
  return json::parse(r.out).at("tokens").get<std::vector<int>>();
}

}  // namespace

TEST_CASE("each method of speculation generates on a GPU what the processor generates", "[cuda]") {
  const std::string methods[] = {
      "",
      ", speculate: {method: draft, depth: 2, network: {layers: 1, hidden: 16, heads: 2, intermediate: 24}}",
      ", speculate: {method: skip, depth: 2, network: {layers: 1}}",
      ", speculate: {method: medusa, nodes: 6, depth: 2}",
      ", speculate: {method: hydra, nodes: 6, depth: 2}",
      ", speculate: {method: eagle, nodes: 6, depth: 2}",
      ", speculate: {method: glide, depth: 2}",
      ", speculate: {method: clover, nodes: 6, depth: 2}"};
  for (const std::string& m : methods) {
    INFO(m);
    const std::vector<int> want = tokens(m, false);
    CHECK(want.size() == 8);
    CHECK(tokens(m, true) == want);
  }
}
