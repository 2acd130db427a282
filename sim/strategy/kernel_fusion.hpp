// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/plan/plan.hpp"

namespace orrery {

/// A plan of inference with the kernels of an engine, for predictions: nobody executes it, and its memory is not asked.
/// Of the ops of a block on one stream, the later one joins the earlier one where
///
///   products read the same rows             one product, n₁ + n₂ … columns (q, k, v; gate and up, of experts too)
///   rotations, or writes to the cache, follow one another   one over the heads or columns of all
///   norms of equal length follow one another                one over the rows of both (of q and of k)
///   rows are brought to experts, activated, added up behind them   nothing: the law of products over experts has it
///   a norm reads the sum in front of it     one pass with two reads and two writes: 4/3 of the sum's traffic
///
/// Left out: what engines put into the kernels of attention, activations behind products, sums inside of collectives.
Plan fuse_kernels(const Plan& plan);

/// The same with attention over keys of the pass itself as programs without a fused kernel have it: heads of q, k and v
/// brought side by side in one pass, scores as a product, softmax, a product with v, heads brought back. Attention over
/// a cache, and with a bias, stays one kernel. `padded`: where rows are packed, that of so many tokens each sequence is
/// filled up to for its scores; 0: of as many as it has.
Plan store_scores(const Plan& plan, std::int64_t padded = 0);

/// A plan with stored scores, of one device, with a kernel for each line of a model in PyTorch, as without a compiler:
/// scores are scaled and masked before the softmax, dropped behind it in training, and an activation by tanh is eight
/// kernels (NewGELUActivation of Hugging Face). For predictions, as above.
Plan split_kernels(const Plan& plan);

}  // namespace orrery
