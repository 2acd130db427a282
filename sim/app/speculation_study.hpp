// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "sim/app/reproduce/reproduction.hpp"
#include "sim/strategy/speculation/token_tree.hpp"

namespace orrery {

/// Tokens that a sequence gets from a round in the mean, the one that the model adds included: `rounds` rounds of the
/// program under drawn acceptance.
double drawn_tokens_per_round(const SpeculateOptions& options, std::uint64_t seed, std::int64_t rounds = 20'000);

/// Where a generation runs: everything of its scenario but how it speculates.
struct GenerationCase {
  std::string model, cluster, profile;  // as scenario files write them; the profile may be empty
  std::int64_t batch = 1, prompt = 512;
  std::string dtype = "bf16";
  bool engine = false;  // passes are recorded graphs of an engine's kernels; then memory is not asked
};

/// One simulated generation.
struct GenerationSpeed {
  double step = 0;         // seconds of a round, or of a token without speculation
  double prefill = 0;      // of the prompts, the drafter's pass included
  double drafting = 0;     // of it
  double tokens = 1;       // of a sequence per step
  double verified = 1;     // tokens that the model looks at, per step and sequence
  std::int64_t bytes = 0;  // peak of memory
  bool fits = true;
  double of_sequence() const { return tokens / step; }  // tokens per second
};

/// `speculate`: options as a scenario writes them, "{method: eagle}"; empty: plain decoding. Steps are those of a few
/// rounds, tokens of a step those of many.
GenerationSpeed generation_speed(const Reproducer& reproducer, const GenerationCase& at, const std::string& speculate);

/// How many times faster.
double speedup(const GenerationSpeed& speculating, const GenerationSpeed& plain);

/// Options from their text.
SpeculateOptions speculate_options(const std::string& text);

}  // namespace orrery
