// SPDX-License-Identifier: Apache-2.0
#include "calibrate/suites.hpp"

#include <algorithm>

#include "calibrate/suites_products.hpp"
#include "calibrate/suites_streams.hpp"

namespace orrery {
namespace {

constexpr Suite kSuites[] = {
    {"forward_nt", "packed product with B transposed: forward, weights [out, in]", draw_forward_nt, 110},
    {"forward_nn", "packed product: forward, weights [in, out], and gradients of inputs", draw_forward_nn, 110},
    {"gradient_tn", "packed product with A transposed: gradients of weights", draw_gradient_tn, 110},
    {"tt", "packed product with both transposed", draw_tt, 16},
    {"batched", "batches of small products", draw_batched, 24},
    {"few_nt", "product of up to 8 rows, B transposed: decoding", draw_few_nt, 60},
    {"few_nn", "product of up to 8 rows", draw_few_nn, 60},
    {"few_tn", "product of up to 8 rows, A transposed", draw_few_tn, 12},
    {"grouped", "products per expert", draw_grouped, 24},
    {"attention_forward", "attention forward", draw_attention_forward, 48},
    {"attention_backward", "attention backward", draw_attention_backward, 48},
    {"attention_decode", "attention decode", draw_attention_decode, 40},
    {"cholesky", "cholesky", draw_cholesky, 16},
    {"cholesky_solve", "cholesky solve", draw_cholesky_solve, 16},
    {"covariance", "covariance", draw_covariance, 16},
    {"dots", "dots", draw_dots, 16},
    {"dots_backward", "dots backward", draw_dots_backward, 16},
    {"layer_norm", "layer norm", draw_layer_norm, 24},
    {"rms_norm", "rms norm", draw_rms_norm, 24},
    {"layer_norm_backward", "layer norm backward", draw_layer_norm_backward, 24},
    {"rms_norm_backward", "rms norm backward", draw_rms_norm_backward, 24},
    {"activation", "activation", draw_activation, 36},
    {"activation_backward", "activation backward", draw_activation_backward, 36},
    {"rare_activation", "rare activation", draw_rare_activation, 24},
    {"rare_activation_backward", "rare activation backward", draw_rare_activation_backward, 24},
    {"gated", "gated", draw_gated, 16},
    {"gated_backward", "gated backward", draw_gated_backward, 16},
    {"add", "add", draw_add, 24},
    {"multiply", "multiply", draw_multiply, 16},
    {"scale", "scale", draw_scale, 16},
    {"scale_by_row", "scale by row", draw_scale_by_row, 16},
    {"row_dot", "row dot", draw_row_dot, 16},
    {"add_rows", "add rows", draw_add_rows, 16},
    {"sum_rows", "sum rows", draw_sum_rows, 16},
    {"fill", "fill", draw_fill, 8},
    {"dropout", "dropout", draw_dropout, 16},
    {"cast", "cast", draw_cast, 16},
    {"broadcast_heads", "broadcast heads", draw_broadcast_heads, 16},
    {"sum_heads", "sum heads", draw_sum_heads, 16},
    {"copy_rows", "copy rows", draw_copy_rows, 16},
    {"copy", "copy", draw_copy, 16},
    {"gather", "gather", draw_gather, 24},
    {"scatter", "scatter", draw_scatter, 24},
    {"scatter_rows", "scatter rows", draw_scatter_rows, 16},
    {"rope", "rope", draw_rope, 24},
    {"rope_interleaved", "rope interleaved", draw_rope_interleaved, 16},
    {"append", "append", draw_append, 16},
    {"relative_bias", "relative bias", draw_relative_bias, 16},
    {"relative_bias_backward", "relative bias backward", draw_relative_bias_backward, 16},
    {"bag", "bag", draw_bag, 16},
    {"bag_backward", "bag backward", draw_bag_backward, 16},
    {"cross_entropy", "cross entropy", draw_cross_entropy, 28},
    {"cross_entropy_backward", "cross entropy backward", draw_cross_entropy_backward, 28},
    {"binary", "binary", draw_binary, 16},
    {"binary_backward", "binary backward", draw_binary_backward, 16},
    {"greedy", "greedy", draw_greedy, 16},
    {"drawn", "drawn", draw_drawn, 16},
    {"tree_mask", "tree mask", draw_tree_mask, 16},
    {"compaction", "compaction of caches", draw_compaction, 16},
    {"candidates", "candidates of a drafter", draw_candidates, 16},
    {"acceptance", "acceptance of drafts", draw_acceptance, 16},
    {"gate", "gate", draw_gate, 16},
    {"gate_backward", "gate backward", draw_gate_backward, 16},
    {"route", "route", draw_route, 16},
    {"split_routes", "split routes", draw_split_routes, 16},
    {"merge_routes", "merge routes", draw_merge_routes, 16},
    {"permute", "permute", draw_permute, 16},
    {"permute_backward", "permute backward", draw_permute_backward, 16},
    {"unpermute", "unpermute", draw_unpermute, 16},
    {"unpermute_backward", "unpermute backward", draw_unpermute_backward, 16},
    {"patchify", "patchify", draw_patchify, 16},
    {"prefix", "prefix", draw_prefix, 16},
    {"prefix_backward", "prefix backward", draw_prefix_backward, 16},
    {"pool", "pool", draw_pool, 16},
    {"pool_backward", "pool backward", draw_pool_backward, 16},
    {"sum_squares", "sum squares", draw_sum_squares, 16},
    {"sgd", "sgd", draw_sgd, 16},
    {"adamw", "adamw", draw_adamw, 28},
    {"merge", "merge of attention", draw_merge, 16},
    {"softmax", "softmax", draw_softmax, 16},
    {"softmax_backward", "softmax backward", draw_softmax_backward, 16},
    {"norm_sums", "norm sums", draw_norm_sums, 24},
    {"norm_apply", "norm from sums", draw_norm_apply, 24},
    {"norm_backward_sums", "norm backward sums", draw_norm_backward_sums, 24},
    {"norm_backward_apply", "norm backward from sums", draw_norm_backward_apply, 24},
    {"local_indices", "local indices", draw_local_indices, 16},
    {"mask_columns", "mask columns", draw_mask_columns, 16},
    {"row_max", "row max", draw_row_max, 16},
    {"loss_sums", "loss sums of a shard", draw_loss_sums, 16},
    {"loss_finish", "loss from sums", draw_loss_finish, 16},
    {"swap_axes", "swap axes", draw_swap_axes, 16},
};

constexpr int kFewestPoints = 4;

}  // namespace

std::span<const Suite> suites() { return kSuites; }

std::vector<Work> draw_works(Random& random, double share) {
  std::vector<Work> works;
  for (const Suite& suite : kSuites) {
    const int points = std::max(kFewestPoints, static_cast<int>(share * suite.points));
    for (int i = 0; i < points; ++i) works.push_back(suite.draw(random));
  }
  return works;
}

}  // namespace orrery
