// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "sim/strategy/parameters.hpp"

namespace orrery {

/// Parameters of a feed-forward layer that is not one of experts, and of the norms around it.
std::vector<ParameterId> feed_forward_parameters(const Block& b);
/// A block by its number; those of the encoder come first.
const Block& block_of(const Transformer& t, int index);
/// Calls f(number of the block, its experts) for each block that has some.
void for_each_experts(const Model& model, const std::function<void(int, const MoE&)>& f);
/// Whether any block is one of experts.
bool has_experts(const Model& model);
/// The layers of experts, in order.
/// Whether any of them attends through latents.
bool has_latents(const Model& model);
/// Whether experts of any of them weigh what they read, as Llama 4's do.
bool weighs_inputs(const Model& model);
/// The blocks of a language model of one stack; of other networks none.
std::span<const Block> blocks_of(const Model& model);
/// Whether attention of all blocks is over the sequence itself, without windows, biases or bounds.
bool has_plain_attention(const Model& model);
/// Throws UserError for an axis that would do nothing but what dp does.
void check_meaning(const Model& model, const Roles& roles);
/// Throws UserError unless the model is one stack of blocks over tokens with a language-model head.
void check_pipeline(const Model& model);

/// Part k of a pipeline has blocks [bounds[k], bounds[k + 1]): as many as `sizes` says, or, where it is empty, as even
/// as can be, the larger ones first.
std::vector<int> part_bounds(std::vector<std::int64_t> sizes, std::int64_t blocks, std::int64_t parts);

/// The parameters of a block, of what lies before the first one (kEmbeddingPart) or behind the last (kHeadPart). A tied
/// table is in both.
std::vector<ParameterId> parameters_of(const Model& model, int part);

/// A whole model, as one stage passes through it. Parameters of blocks that the network was cut by (its first layers
/// stand for all) are left out.
std::vector<HeldPart> whole_parts(const Model& model, std::int64_t passes);

}  // namespace orrery
