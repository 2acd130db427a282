// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/base/random.hpp"
#include "sim/plan/work.hpp"

namespace orrery {

// Ops of the table in suites.cpp, of random sizes.
Work draw_layer_norm(Random&);
Work draw_rms_norm(Random&);
Work draw_layer_norm_backward(Random&);
Work draw_rms_norm_backward(Random&);
Work draw_activation(Random&);
Work draw_activation_backward(Random&);
Work draw_rare_activation(Random&);
Work draw_rare_activation_backward(Random&);
Work draw_gated(Random&);
Work draw_gated_backward(Random&);
Work draw_add(Random&);
Work draw_multiply(Random&);
Work draw_scale(Random&);
Work draw_scale_by_row(Random&);
Work draw_row_dot(Random&);
Work draw_add_rows(Random&);
Work draw_sum_rows(Random&);
Work draw_fill(Random&);
Work draw_dropout(Random&);
Work draw_cast(Random&);
Work draw_broadcast_heads(Random&);
Work draw_sum_heads(Random&);
Work draw_copy_rows(Random&);
Work draw_copy(Random&);
Work draw_gather(Random&);
Work draw_scatter(Random&);
Work draw_scatter_rows(Random&);
Work draw_rope(Random&);
Work draw_rope_interleaved(Random&);
Work draw_append(Random&);
Work draw_relative_bias(Random&);
Work draw_relative_bias_backward(Random&);
Work draw_bag(Random&);
Work draw_bag_backward(Random&);
Work draw_cross_entropy(Random&);
Work draw_cross_entropy_backward(Random&);
Work draw_binary(Random&);
Work draw_binary_backward(Random&);
Work draw_greedy(Random&);
Work draw_tree_mask(Random&);
Work draw_compaction(Random&);
Work draw_candidates(Random&);
Work draw_acceptance(Random&);
Work draw_drawn(Random&);
Work draw_gate(Random&);
Work draw_gate_backward(Random&);
Work draw_route(Random&);
Work draw_split_routes(Random&);
Work draw_merge_routes(Random&);
Work draw_permute(Random&);
Work draw_permute_backward(Random&);
Work draw_unpermute(Random&);
Work draw_unpermute_backward(Random&);
Work draw_patchify(Random&);
Work draw_prefix(Random&);
Work draw_prefix_backward(Random&);
Work draw_pool(Random&);
Work draw_pool_backward(Random&);
Work draw_sum_squares(Random&);
Work draw_sgd(Random&);
Work draw_adamw(Random&);
Work draw_merge(Random&);
Work draw_softmax(Random&);
Work draw_softmax_backward(Random&);
Work draw_norm_sums(Random&);
Work draw_norm_apply(Random&);
Work draw_norm_backward_sums(Random&);
Work draw_norm_backward_apply(Random&);
Work draw_local_indices(Random&);
Work draw_mask_columns(Random&);
Work draw_row_max(Random&);
Work draw_loss_sums(Random&);
Work draw_loss_finish(Random&);
Work draw_swap_axes(Random&);

}  // namespace orrery
