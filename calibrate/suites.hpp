// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "calibrate/measure.hpp"

namespace orrery {

/// One kind of op over random sizes: `draw` makes an op of sizes spread evenly on a logarithmic scale.
struct Suite {
  std::string_view name;
  std::string_view summary;
  Work (*draw)(Random&);
  int points = 20;  // of a full calibration; a quick one has a third
};

/// All suites of single ops, in the order of `orrery list benchmarks`.
std::span<const Suite> suites();

/// Draws the ops of all suites. `share` of the points of each, at least 4.
std::vector<Work> draw_works(Random& random, double share);

/// The sizes of a small language model's step.
struct StepShape {
  bool llama = false;  // gated feed-forward, RMS norms, rotary positions, no biases; else as GPT-2
  std::int64_t hidden = 256, heads = 4, kv_heads = 4, ffn = 1024, layers = 1, vocab = 1024, batch = 2, sequence = 64;
};
StepShape draw_step(Random& random);
StepShape draw_decode(Random& random);

/// A training step as a strategy would lower it, and a decode step with `sequence` tokens in its cache: each op in the
/// state of the caches in which real steps run it.
Bench train_step_bench(const StepShape& shape, Random& random);
Bench decode_step_bench(const StepShape& shape, Random& random);

/// Ranks of this computer that exchange messages of many sizes.
std::vector<Bench> message_benches(std::int64_t ranks, Random& random);

}  // namespace orrery
