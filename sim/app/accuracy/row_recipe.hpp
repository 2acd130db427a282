// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "sim/app/accuracy/published_step.hpp"

namespace orrery {

// What rows tell of the recipes of their programs in words: recomputation, and in `extra` and `notes` experts and
// graphs.

/// What is recomputed, and in which part of the blocks: "full recompute of 4 of 24 layers", "full x5 layers per stage",
/// "selective layer" (every other one).
struct Recomputed {
  Recompute kind = Recompute::None;
  double share = 1;
  std::vector<RecomputePart> parts = TrainOptions{}.recompute_parts;
};
Recomputed recompute_of(const CsvRow& row, std::int64_t layers, std::int64_t stages);

bool is_torchtitan(const CsvRow& row);

/// A type that no op of a plan has: weights of 4 bits that are widened in front of each product.
bool widens_weights(const CsvRow& row);

/// The first number of a row's version: its year, or the release of a container; 0 where it has none.
double release_of(const CsvRow& row);

/// Recipes that drop tokens give each expert as many as even ones get, and fill up what is missing.
bool drops_tokens(const CsvRow& row);

/// Whether exchanges of experts run beside arithmetic.
bool hides_exchanges(const CsvRow& row);
/// Whether experts are not cut by tp (etp 1): where it is said, and in recipes of Megatron-Bridge that are not written
/// down, as in all that are.
bool leaves_experts_whole(const CsvRow& row);
/// Whether a token goes to each node of its experts once (DeepEP, HybridEP): where it is said, and in recipes of
/// Megatron-Bridge without dropped tokens that are not written down, as in most of those that are.
bool sends_tokens_once(const CsvRow& row);
/// Whether a recipe of NVIDIA has tp_comm_overlap where tp splits: all but those of DeepSeek and Moonlight, and in 4
/// bits (NeMo's nemo/collections/llm/recipes, Megatron-Bridge's scripts/performance/configs and recipes/moonlight).
bool multiplies_in_pieces(const CsvRow& row);

/// Share of the ops of a step that a CUDA graph starts, in the mean over dense layers and such of experts: of a layer's
/// kernels those of attention and of a feed-forward layer are two fifths each, router and preparation a tenth each.
double share_of_graphs(const CsvRow& row);

/// Of Megatron-Core: whether its host waits for the rows of experts. Its own dispatcher gives the numbers of rows to
/// its calls. DeepEP and HybridEP keep them on the device, and so do most recipes for benchmarks that force the balance
/// of experts; where tokens are dropped and in graphs of whole steps there are none to wait for.
bool waits_for_experts(const CsvRow& row);

}  // namespace orrery
