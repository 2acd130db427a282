// SPDX-License-Identifier: Apache-2.0
#include "sim/app/speculation_study.hpp"

#include <fmt/format.h>

#include "sim/base/yaml.hpp"
#include "sim/model/load.hpp"
#include "sim/program/speculation/speculation.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kVocabulary = 32000, kTimedTokens = 16;

}  // namespace

SpeculateOptions speculate_options(const std::string& text) {
  SpeculateOptions o;
  read_options(parse_yaml(text, "speculate"), o);
  return o;
}

/// On a model that is next to nothing: acceptance does not ask it.
double drawn_tokens_per_round(const SpeculateOptions& options, std::uint64_t seed, std::int64_t rounds) {
  constexpr std::int64_t kBatch = 64;
  Model model = model_from_config(
      parse_yaml(fmt::format("{{model_type: llama, hidden_size: 16, intermediate_size: 16, num_hidden_layers: 1, "
                             "num_attention_heads: 1, vocab_size: {}}}",
                             kVocabulary),
                 "model"),
      "none");
  GenerateOptions o{.batch = kBatch, .prompt = 1, .tokens = 1 << 20, .speculate = options};
  o.speculate->network = {};
  set_usual_accuracy(*o.speculate);
  if (options.method == DraftMethod::Draft || options.method == DraftMethod::Glide) o.speculate->network.hidden = 16;
  const SpeculationLayout layout = layout_of(*o.speculate, 0, kVocabulary);
  const Drafter drafter = add_drafter(model, *o.speculate, layout.depth);
  const auto program =
      speculation_program(model, drafter, o, layout, lower_speculation(model, drafter, o, layout, nullptr), {});
  const auto source = speculation_outcomes(*o.speculate, layout, kBatch, kVocabulary, seed, {});
  while (program->progress().sequence_rounds < rounds) {
    const std::optional<Step> step = program->next();
    if (!step) break;
    program->told(source->outcome(program->plans()[step->plan], *step));
  }
  return program->progress().tokens_per_round();
}

GenerationSpeed generation_speed(const Reproducer& reproducer, const GenerationCase& at, const std::string& speculate) {
  const std::string text = fmt::format(
      "model: {}\ncluster: {}\n{}{}workload: {{generate: {{batch: {}, prompt: {}, tokens: {}, dtype: {}{}}}}}\n",
      at.model, at.cluster, at.profile.empty() ? "" : fmt::format("profile: {}\n", at.profile),
      at.engine ? "launch: graph\n" : "", at.batch, at.prompt, kTimedTokens, at.dtype,
      speculate.empty() ? "" : ", speculate: " + speculate);
  const Report r = reproducer.predict(text, {}, at.engine).report;
  GenerationSpeed s{.step = r.step, .prefill = r.prefill.value_or(0), .bytes = r.memory.bytes, .fits = r.memory.fits()};
  if (!r.speculation) return s;
  s.drafting = r.speculation->drafting;
  s.verified = r.speculation->verified_per_round;
  s.tokens = drawn_tokens_per_round(speculate_options(speculate), 1);
  return s;
}

double speedup(const GenerationSpeed& speculating, const GenerationSpeed& plain) {
  return speculating.of_sequence() / plain.of_sequence();
}

}  // namespace orrery
