// SPDX-License-Identifier: Apache-2.0
// Suites of what streams through memory.
#include "calibrate/suites_streams.hpp"

#include <algorithm>

#include "calibrate/draw.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMostStreamed = 1 << 21;  // of one operand

struct MatrixSize {
  std::int64_t rows, cols;
};
/// Tokens by width.
MatrixSize draw_matrix(Random& r, std::int64_t widest = 4096) {
  for (;;) {
    const MatrixSize m{log_integer(r, 1, 8192), width(r, 32, widest)};
    if (m.rows * m.cols <= kMostStreamed) return m;
  }
}
constexpr ActivationKind kCommon[] = {ActivationKind::GeluTanh, ActivationKind::Silu, ActivationKind::Relu};
constexpr ActivationKind kRare[] = {ActivationKind::GeluErf, ActivationKind::Tanh, ActivationKind::QuickGelu,
                                    ActivationKind::Sigmoid};

}  // namespace

Work draw_layer_norm(Random& r) {
  const auto [n, d] = draw_matrix(r);
  return NormForward{NormKind::Layer, n, d};
}
Work draw_rms_norm(Random& r) {
  const auto [n, d] = draw_matrix(r);
  return NormForward{NormKind::Rms, n, d};
}
Work draw_layer_norm_backward(Random& r) {
  const auto [n, d] = draw_matrix(r);
  return NormBackward{.kind = NormKind::Layer, .rows = n, .dim = d};
}
Work draw_rms_norm_backward(Random& r) {
  const auto [n, d] = draw_matrix(r);
  return NormBackward{.kind = NormKind::Rms, .rows = n, .dim = d};
}
Work draw_activation(Random& r) {
  const auto [n, d] = draw_matrix(r);
  return ActivationForward{one_of(r, kCommon), n, d};
}
Work draw_activation_backward(Random& r) {
  const auto [n, d] = draw_matrix(r);
  return ActivationBackward{one_of(r, kCommon), n, d};
}
Work draw_rare_activation(Random& r) {
  const auto [n, d] = draw_matrix(r);
  return ActivationForward{one_of(r, kRare), n, d};
}
Work draw_rare_activation_backward(Random& r) {
  const auto [n, d] = draw_matrix(r);
  return ActivationBackward{one_of(r, kRare), n, d};
}
Work draw_gated(Random& r) {
  const auto [n, d] = draw_matrix(r);
  return GatedForward{ActivationKind::Silu, n, d};
}
Work draw_gated_backward(Random& r) {
  const auto [n, d] = draw_matrix(r);
  return GatedBackward{ActivationKind::Silu, n, d};
}
Work draw_add(Random& r) {
  const auto [n, d] = draw_matrix(r);
  return Add{n, d};
}
Work draw_multiply(Random& r) {
  const auto [n, d] = draw_matrix(r);
  return Multiply{n, d};
}
Work draw_scale(Random& r) {
  const auto [n, d] = draw_matrix(r);
  return ScaleRows{.rows = n, .cols = d, .factor = 0.5};
}
Work draw_scale_by_row(Random& r) {
  const auto [n, d] = draw_matrix(r);
  return ScaleRows{.rows = n, .cols = d, .by_row = true};
}
Work draw_row_dot(Random& r) {
  const auto [n, d] = draw_matrix(r);
  return RowDot{n, d};
}
Work draw_add_rows(Random& r) {
  const auto [n, d] = draw_matrix(r);
  return AddRows{n, d, std::max<std::int64_t>(1, n / log_integer(r, 1, 64))};
}
Work draw_sum_rows(Random& r) {
  const auto [n, d] = draw_matrix(r);
  return SumRows{.rows = n, .cols = d, .accumulate = r.below(2) == 0};
}
Work draw_fill(Random& r) { return Fill{log_integer(r, 64, kMostStreamed)}; }
Work draw_dropout(Random& r) {
  const auto [n, d] = draw_matrix(r, 1024);
  return Dropout{.rows = n, .cols = d, .global_cols = d, .probability = 0.1};
}
Work draw_cast(Random& r) { return Cast{log_integer(r, 64, kMostStreamed), DType::F32, DType::F64}; }
Work draw_broadcast_heads(Random& r) {
  const auto [n, d] = draw_matrix(r, 128);
  return BroadcastHeads{n, log_integer(r, 2, 16), d};
}
Work draw_sum_heads(Random& r) {
  const auto [n, d] = draw_matrix(r, 128);
  return SumHeads{n, log_integer(r, 2, 16), d};
}
Work draw_copy_rows(Random& r) {
  const auto [n, d] = draw_matrix(r);
  return CopyRows{n, d};
}
Work draw_copy(Random& r) { return Copy{Bytes{double(log_integer(r, 64, 2 * kMostStreamed) * 4)}}; }

Work draw_gather(Random& r) {
  const auto [n, d] = draw_matrix(r, 1024);
  const std::int64_t table = log_integer(r, 256, 32768);
  return Gather{.rows = n, .cols = d, .table_rows = table, .first = 0, .last = table};
}
Work draw_scatter(Random& r) {
  const auto [n, d] = draw_matrix(r, 1024);
  const std::int64_t table = log_integer(r, 256, 32768);
  return ScatterAdd{.rows = n, .cols = d, .table_rows = table, .first = 0, .last = table};
}
Work draw_scatter_rows(Random& r) {
  const auto [n, d] = draw_matrix(r, 1024);
  return ScatterRows{.rows = n, .cols = d, .table_rows = log_integer(r, 256, 32768)};
}
RotaryEmbedding rotation(Random& r) {
  constexpr std::int64_t kDims[] = {32, 64, 64, 96, 128};
  const std::int64_t dim = one_of(r, kDims);
  const std::int64_t sequence = log_integer(r, 1, 1024), batch = log_integer(r, 1, 16);
  return {
      .rows = sequence * batch, .heads = log_integer(r, 1, 16), .head_dim = dim, .rot_dim = dim, .sequence = sequence};
}
Work draw_rope(Random& r) { return rotation(r); }
Work draw_rope_interleaved(Random& r) {
  RotaryEmbedding w = rotation(r);
  w.interleaved = true;
  return w;
}
Work draw_append(Random& r) {
  AppendCache a{
      .batch = log_integer(r, 1, 16), .rows = r.below(2) == 0 ? 1 : log_integer(r, 2, 512), .cols = width(r, 32, 1024)};
  a.capacity = std::max<std::int64_t>(a.rows, 512);
  return a;
}
Work draw_relative_bias(Random& r) {
  const std::int64_t n = log_integer(r, 16, 256);
  return RelativeBiasForward{.heads = log_integer(r, 2, 12), .q = n, .buckets = 32, .kv = n};
}
Work draw_relative_bias_backward(Random& r) {
  const std::int64_t n = log_integer(r, 16, 256);
  return RelativeBiasBackward{.heads = log_integer(r, 2, 12), .q = n, .kv = n, .buckets = 32};
}
Work draw_bag(Random& r) {
  const std::int64_t bags = log_integer(r, 8, 2048);
  return EmbeddingBagForward{.bags = bags,
                             .lookups = bags * log_integer(r, 1, 16),
                             .cols = width(r, 16, 128),
                             .table_rows = log_integer(r, 1000, 100000)};
}
Work draw_bag_backward(Random& r) {
  const std::int64_t bags = log_integer(r, 8, 2048);
  return EmbeddingBagBackward{.bags = bags,
                              .lookups = bags * log_integer(r, 1, 16),
                              .cols = width(r, 16, 128),
                              .table_rows = log_integer(r, 1000, 100000)};
}

Work draw_cross_entropy(Random& r) {
  const auto [n, d] = draw_matrix(r, 32768);
  return CrossEntropyForward{n, d, 1.0 / double(n)};
}
Work draw_cross_entropy_backward(Random& r) {
  const auto [n, d] = draw_matrix(r, 32768);
  return CrossEntropyBackward{n, d, 1.0 / double(n)};
}
Work draw_binary(Random& r) { return BinaryCrossEntropyForward{log_integer(r, 16, 65536)}; }
Work draw_binary_backward(Random& r) { return BinaryCrossEntropyBackward{log_integer(r, 16, 65536)}; }
Work draw_greedy(Random& r) { return Sample{.rows = log_integer(r, 1, 16), .vocab = width(r, 256, 32768)}; }
Work draw_drawn(Random& r) {
  return Sample{
      .rows = log_integer(r, 1, 16), .vocab = width(r, 256, 32768), .temperature = 1, .top_k = 40, .top_p = 0.9};
}

Work draw_tree_mask(Random& r) {
  const std::int64_t slots = log_integer(r, 1, 64);
  return TreeMask{.batch = log_integer(r, 1, 16), .rows = log_integer(r, 1, slots), .slots = slots};
}
Work draw_compaction(Random& r) {
  return CompactCache{.caches = 2 * log_integer(r, 1, 8),
                      .batch = log_integer(r, 1, 8),
                      .rows = log_integer(r, 1, 8),
                      .cols = width(r, 32, 512),
                      .capacity = 64};
}
Work draw_candidates(Random& r) {
  return DraftCandidates{
      .rows = log_integer(r, 1, 16), .vocab = width(r, 256, 32768), .k = log_integer(r, 1, 10), .temperature = 1};
}
Work draw_acceptance(Random& r) {
  return AcceptTree{.batch = log_integer(r, 1, 8),
                    .nodes = log_integer(r, 2, 32),
                    .depth = log_integer(r, 1, 6),
                    .vocab = width(r, 256, 8192)};
}

std::int64_t draw_tokens(Random& r) { return log_integer(r, 8, 4096); }
Work draw_gate(Random& r) {
  const std::int64_t tokens = draw_tokens(r), experts = log_integer(r, 4, 64);
  return TopKGate{.tokens = tokens,
                  .experts = experts,
                  .top_k = log_integer(r, 1, 4),
                  .score = r.below(2) == 0 ? RouterScore::Softmax : RouterScore::Sigmoid};
}
Work draw_gate_backward(Random& r) {
  const std::int64_t tokens = draw_tokens(r), experts = log_integer(r, 4, 64);
  return TopKGateBackward{.tokens = tokens,
                          .experts = experts,
                          .top_k = log_integer(r, 1, 4),
                          .score = r.below(2) == 0 ? RouterScore::Softmax : RouterScore::Sigmoid};
}
Work draw_route(Random& r) {
  return RouteMap{.tokens = draw_tokens(r), .top_k = log_integer(r, 1, 4), .experts = log_integer(r, 4, 64)};
}
Work draw_split_routes(Random& r) {
  const std::int64_t experts = log_integer(r, 4, 64);
  return SplitRoutes{.experts = experts, .parts = experts * log_integer(r, 1, 4)};
}
Work draw_merge_routes(Random& r) {
  const std::int64_t ranks = log_integer(r, 2, 16), experts = log_integer(r, 1, 64);
  return MergeRoutes{.ranks = ranks, .experts = experts, .max_rows = ranks * experts};
}
Work draw_permute(Random& r) { return Permute{log_integer(r, 8, 1024), log_integer(r, 1, 4), width(r, 64, 512)}; }
Work draw_permute_backward(Random& r) {
  return PermuteBackward{log_integer(r, 8, 1024), log_integer(r, 1, 4), width(r, 64, 512)};
}
Work draw_unpermute(Random& r) { return Unpermute{log_integer(r, 8, 1024), log_integer(r, 1, 4), width(r, 64, 512)}; }
Work draw_unpermute_backward(Random& r) {
  return UnpermuteBackward{log_integer(r, 8, 1024), log_integer(r, 1, 4), width(r, 64, 512)};
}

Work draw_patchify(Random& r) {
  const std::int64_t patch = r.below(2) == 0 ? 8 : 16;
  return Patchify{log_integer(r, 1, 8), 3, patch * log_integer(r, 4, 14), patch};
}
Work draw_prefix(Random& r) { return ConcatPrefix{log_integer(r, 1, 16), log_integer(r, 16, 256), width(r, 64, 768)}; }
Work draw_prefix_backward(Random& r) {
  return ConcatPrefixBackward{
      .batch = log_integer(r, 1, 16), .rows = log_integer(r, 16, 256), .cols = width(r, 64, 768)};
}
Work draw_pool(Random& r) { return MeanPool{log_integer(r, 1, 16), log_integer(r, 16, 256), width(r, 64, 768)}; }
Work draw_pool_backward(Random& r) {
  return MeanPoolBackward{log_integer(r, 1, 16), log_integer(r, 16, 256), width(r, 64, 768)};
}

Work draw_sum_squares(Random& r) { return SumSquares{log_integer(r, 64, kMostStreamed)}; }
Work draw_sgd(Random& r) { return Sgd{.elements = log_integer(r, 64, kMostStreamed)}; }
Work draw_adamw(Random& r) {
  return AdamW{.elements = log_integer(r, 64, kMostStreamed), .decay = 0.01, .step = Extent{0, Symbol::Step}};
}

Work draw_merge(Random& r) {
  const auto [n, d] = draw_matrix(r, 128);
  return MergeAttention{n, log_integer(r, 2, 16), d};
}
Work draw_softmax(Random& r) {
  const auto [n, d] = draw_matrix(r);
  return SoftmaxForward{.rows = n, .cols = d, .scale = 0.125, .period = n, .causal = r.below(2) == 0};
}
Work draw_softmax_backward(Random& r) {
  const auto [n, d] = draw_matrix(r);
  return SoftmaxBackward{.rows = n, .cols = d, .scale = 0.125};
}
NormKind draw_norm(Random& r) { return r.below(2) == 0 ? NormKind::Layer : NormKind::Rms; }
Work draw_norm_sums(Random& r) {
  const auto [n, d] = draw_matrix(r);
  return NormSums{draw_norm(r), n, d};
}
Work draw_norm_apply(Random& r) {
  const auto [n, d] = draw_matrix(r);
  return NormApply{draw_norm(r), n, d, d};
}
Work draw_norm_backward_sums(Random& r) {
  const auto [n, d] = draw_matrix(r);
  return NormBackwardSums{draw_norm(r), n, d};
}
Work draw_norm_backward_apply(Random& r) {
  const auto [n, d] = draw_matrix(r);
  return NormBackwardApply{draw_norm(r), n, d, d};
}
Work draw_local_indices(Random& r) { return LocalIndices{log_integer(r, 16, 65536), log_integer(r, 256, 32768)}; }
Work draw_mask_columns(Random& r) {
  const auto [n, d] = draw_matrix(r, 32768);
  return MaskColumns{n, d, d - 1};
}
Work draw_row_max(Random& r) {
  const auto [n, d] = draw_matrix(r, 32768);
  return RowMax{n, d};
}
Work draw_loss_sums(Random& r) {
  const auto [n, d] = draw_matrix(r, 32768);
  return CrossEntropySums{n, d};
}
Work draw_loss_finish(Random& r) { return CrossEntropyFinish{log_integer(r, 16, 65536)}; }
Work draw_swap_axes(Random& r) {
  const auto [n, d] = draw_matrix(r, 512);
  const std::int64_t a = log_integer(r, 1, std::min<std::int64_t>(n, 64));
  return SwapAxes{.outer = log_integer(r, 1, 4), .a = a, .b = std::max<std::int64_t>(1, n / a), .inner = d};
}

}  // namespace orrery
