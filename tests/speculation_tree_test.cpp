// SPDX-License-Identifier: Apache-2.0
// Token trees without tokens: shapes, policies, drawn acceptance against closed forms, traces.
#include <catch2/catch.hpp>
#include <cmath>

#include "sim/base/yaml.hpp"
#include "sim/model/load.hpp"
#include "sim/program/speculation/draft_tree.hpp"
#include "sim/program/speculation/speculation.hpp"
#include "tests/user_error.hpp"

using namespace orrery;

namespace {

constexpr std::int64_t kVocab = 1000, kBatch = 16;

SpeculateOptions options_of(const std::string& text) {
  SpeculateOptions o;
  read_options(parse_yaml(text, "speculate"), o);
  return o;
}

/// Rounds of a program whose acceptance is drawn, or traced.
SpeculationProgress progress_of(const SpeculateOptions& speculate, std::int64_t tokens,
                                std::vector<std::vector<std::int64_t>> trace = {}) {
  Model model = model_from_config(
      parse_yaml("{model_type: llama, hidden_size: 8, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: "
                 "1, vocab_size: 1000}",
                 "model"),
      "none");
  GenerateOptions o{.batch = kBatch, .prompt = 1, .tokens = tokens, .speculate = speculate};
  const SpeculationLayout layout = layout_of(speculate, 0, kVocab);
  const Drafter drafter = add_drafter(model, speculate, layout.depth);
  const auto program =
      speculation_program(model, drafter, o, layout, lower_speculation(model, drafter, o, layout, nullptr), {});
  const auto source = speculation_outcomes(speculate, layout, kBatch, kVocab, 5, std::move(trace));
  while (const auto step = program->next()) program->told(source->outcome(program->plans()[step->plan], *step));
  return program->progress();
}

double tokens_per_round(const std::string& speculate) {
  return progress_of(options_of(speculate), 1500).tokens_per_round();
}

}  // namespace

TEST_CASE("the tree of 63 from the accuracy of Medusa's heads has 10, 28, 23 and 2 nodes by depth", "[speculation]") {
  const TreeShape s = best_first_shape(medusa_accuracy(), 63, 5, 10);
  CHECK(s.nodes.size() == 64);
  CHECK(std::vector<std::int64_t>{s.width(1), s.width(2), s.width(3), s.width(4), s.width(5)} ==
        std::vector<std::int64_t>{10, 28, 23, 2, 0});
  for (std::size_t i = 1; i < s.nodes.size(); ++i) {
    const auto& parent = s.nodes[static_cast<std::size_t>(s.nodes[i].parent)];
    CHECK((s.nodes[i].parent < static_cast<std::int32_t>(i) && s.nodes[i].depth == parent.depth + 1));
  }
}

TEST_CASE("EAGLE's tree of 25 has 4, 8, 8, 3 and 2 nodes by depth", "[speculation]") {
  const TreeShape s = eagle_shape();
  CHECK(s.nodes.size() == 26);
  CHECK(std::vector<std::int64_t>{s.width(1), s.width(2), s.width(3), s.width(4), s.width(5)} ==
        std::vector<std::int64_t>{4, 8, 8, 3, 2});
}

TEST_CASE("drawn rounds keep as many tokens as closed forms say", "[speculation]") {
  // A chain: (1 − α^5)/(1 − α) at α = 0.7; 24,000 tokens, a standard error below 0.6 %.
  CHECK(tokens_per_round("{method: draft, depth: 4, accuracy: {hits: [[0.7]]}}") ==
        Approx((1 - std::pow(0.7, 5)) / 0.3).epsilon(0.02));
  // A static tree: 1 + Σ of the probabilities of its paths.
  const auto tree =
      options_of("{method: eagle, depth: 3, nodes: 12, accuracy: {hits: [[0.6, 0.2, 0.04], [0.5, 0.2, 0.04]]}}");
  CHECK(progress_of(tree, 1500).tokens_per_round() ==
        Approx(expected_tokens(layout_of(tree, 0, kVocab).shape, tree.accuracy)).epsilon(0.02));
  // A caterpillar whose confidence is near 1/2 (5 alternatives, 0.4 + 0.2 of what is left): a = 0.5, h = 0.6,
  // E = 1 + Σ_{i<4} a^i (a + (1 − a) h).
  const double e = 1 + (1 + 0.5 + 0.25 + 0.125) * (0.5 + 0.5 * 0.6);
  CHECK(tokens_per_round("{method: glide, accuracy: {alpha: 4000, beta: 4000, tail: [0.4, 0.2]}}") ==
        Approx(e).epsilon(0.02));
}

TEST_CASE("alternatives of a caterpillar go by confidence", "[speculation]") {
  CHECK(alternatives(0.05) == 7);
  CHECK(alternatives(0.45) == 5);
  CHECK(alternatives(0.7) == 3);
  CHECK(alternatives(0.95) == 1);
  const SpeculateOptions o = options_of("{method: glide, depth: 2}");
  const SpeculationLayout l = layout_of(o, 0, kVocab);
  DraftTree t{l, o, 1};
  const std::vector<std::int32_t> tokens{10, 11, 12, 13, 14, 15, 16, 17}, none{-1};
  const std::vector<double> p{0.7, 0.1, 0.05, 0.04, 0.03, 0.02, 0.01, 0.01};
  t.expand(8, tokens, p, none);
  CHECK(t.nodes().size() == 1 + 1 + 3);
  REQUIRE(t.frontier().size() == 1);
  CHECK(t.nodes()[static_cast<std::size_t>(t.frontier()[0])].token == 10);
}

TEST_CASE("a budget goes to the likeliest paths, level by level", "[speculation]") {
  const SpeculateOptions o = options_of("{method: clover, nodes: 4, depth: 3}");
  const SpeculationLayout l = layout_of(o, 0, kVocab);
  DraftTree t{l, o, 1};
  const std::vector<std::int32_t> none{-1, -1, -1};
  // 0.5 + 0.35 reach top-p 0.8: two nodes; the third choice would have been allowed by its share.
  t.expand(4, std::vector<std::int32_t>{10, 11, 12, 13}, std::vector<double>{0.5, 0.35, 0.13, 0.02}, none);
  CHECK(t.frontier().size() == 2);
  // Two are left: of 0.5·0.9, 0.35·0.5 and 0.35·0.4 the best; then the budget is used up.
  t.expand(4, std::vector<std::int32_t>{20, 21, 22, 23, 30, 31, 32, 33},
           std::vector<double>{0.9, 0.05, 0.03, 0.02, 0.5, 0.4, 0.05, 0.05}, none);
  CHECK(t.nodes().size() == 5);
  CHECK(t.nodes()[3].token == 20);
  CHECK(t.nodes()[4].token == 30);
  CHECK(t.frontier().empty());
}

TEST_CASE("a dynamic tree keeps the best paths and their beginnings", "[speculation]") {
  const SpeculateOptions o = options_of("{method: eagle, tree: dynamic, width: 2, depth: 2, nodes: 3}");
  const SpeculationLayout l = layout_of(o, 0, kVocab);
  DraftTree t{l, o, 1};
  const std::vector<std::int32_t> none{-1, -1};
  t.expand(2, std::vector<std::int32_t>{10, 11}, std::vector<double>{0.8, 0.1}, none);
  t.expand(2, std::vector<std::int32_t>{20, 21, 30, 31}, std::vector<double>{0.6, 0.3, 0.9, 0.1}, none);
  t.finish();  // 0.8, 0.48, 0.24 stay; 0.1 and what follows it go
  REQUIRE(t.nodes().size() == 4);
  CHECK(t.nodes()[1].token == 10);
  CHECK((t.nodes()[2].token == 20 && t.nodes()[2].parent == 1));
  CHECK((t.nodes()[3].token == 21 && t.nodes()[3].parent == 1));
}

TEST_CASE("beams keep the paths that reach the last level, whatever else is likely", "[speculation]") {
  const SpeculateOptions o = options_of("{method: glide, tree: beams, width: 2, depth: 2}");
  const SpeculationLayout l = layout_of(o, 0, kVocab);
  CHECK(l.nodes == 4);
  DraftTree t{l, o, 1};
  const std::vector<std::int32_t> none{-1, -1};
  t.expand(2, std::vector<std::int32_t>{10, 11}, std::vector<double>{0.6, 0.3}, none);
  t.expand(2, std::vector<std::int32_t>{20, 21, 30, 31}, std::vector<double>{0.6, 0.4, 0.5, 0.4}, none);
  t.finish();  // 0.36 and 0.24 are the best paths; the second beam, 0.3 at its first level, has ended
  REQUIRE(t.nodes().size() == 4);
  CHECK(t.nodes()[1].token == 10);
  CHECK((t.nodes()[2].token == 20 && t.nodes()[2].parent == 1));
  CHECK((t.nodes()[3].token == 21 && t.nodes()[3].parent == 1));
}

TEST_CASE("a trace says how many drafts are accepted, round after round", "[speculation]") {
  std::string text = "# accepted\n";
  for (int i = 0; i < kBatch; ++i) text += "2 ";
  text += "\n";
  for (int i = 0; i < kBatch; ++i) text += "0 ";
  const auto trace = parse_acceptance_trace(text, "trace.txt", kBatch);
  REQUIRE(trace.size() == 2);
  const SpeculationProgress p = progress_of(options_of("{method: draft, depth: 4}"), 41, trace);
  // One token of the prefill, then 3 and 1 in turns: 40 tokens are 20 rounds.
  CHECK(p.rounds == 20);
  CHECK(p.accepted == std::vector<std::int64_t>{10 * kBatch, 0, 10 * kBatch, 0, 0});
  CHECK(user_error([] { parse_acceptance_trace("1 2\n1 x\n", "trace.txt", 2); }) ==
        "trace.txt:2:1: expected 2 numbers of accepted drafts\n  1 x\n  ^\n  hint: one per sequence, each 0 or more, "
        "with blanks between them");
}

TEST_CASE("trees that cannot be are refused", "[speculation]") {
  CHECK(user_error([] { layout_of(options_of("{method: medusa}"), 0, 5); }) ==
        "a tree of 10 choices for a token of a vocabulary of 5\n  hint: take fewer nodes, or more depth");
  Model bert = load_model(std::string{ORRERY_SOURCE_DIR} + "/scenarios/models/bert-tiny.json");
  CHECK(user_error([&] { add_drafter(bert, {}, 3); }) ==
        "bert-tiny cannot be speculated with: it is no decoder of text");
}
