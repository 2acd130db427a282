// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "kernels/cuda/attention_hopper.hpp"
#include "kernels/cuda/attention_rows.hpp"
#include "kernels/cuda/attention_tile_slopes.hpp"
#include "kernels/cuda/rows.hpp"
#include "kernels/cuda/shapes.hpp"
#include "kernels/cuda/tokens.hpp"
#include "runtime/cuda/attention_trial.hpp"
#include "runtime/cuda/families.hpp"
#include "runtime/cuda/host_side.hpp"
#include "runtime/cuda/op_context.hpp"
#include "runtime/cuda/workspaces.hpp"

namespace orrery {
namespace {

/// An operand read as [batch, tokens, heads, dim].
gpu::HeadView head_view(const GpuContextBase& c, int i, std::int64_t batch, std::int64_t heads, std::int64_t dim) {
  const kernels::TokenStrides s = c.tokens(i, batch, heads, dim);
  return {c.element<void>(i), s.batch, s.token, s.head};
}

/// Sequences of unequal length, and who sees whom in the token tree behind them. Lengths are seen on the device only.
void add_contexts(const AttentionShape& s, const GpuContextBase& c, int& next, gpu::AttentionProblem& p) {
  p.kv_lens = c.ints(next++);
  p.kv_tail = s.kv.base;
  p.room = c.capacity(1, s.batch, s.kv_heads, s.qk_dim);
  c.launch(gpu::CheckRangeKernel{s.batch, p.kv_lens, p.room - p.kv_tail + 1, c.fault()}, 1);
  if (s.tree == 0) return;
  p.tree_mask = c.numbers(next++);
  p.tree_keys = s.tree;
}

/// Reads of q, k, v, bias, mask and positions, which both directions begin with. `next` is the operand after them.
gpu::AttentionProblem problem(const AttentionShape& s, const GpuContextBase& c, int& next) {
  const std::int64_t kv = c.at(s.kv);
  for (int i : {1, 2})
    if (const auto room = c.capacity(i, s.batch, s.kv_heads, i == 1 ? s.qk_dim : s.v_dim); kv > room)
      c.fail(fmt::format("{} keys per sequence, but '{}' holds {}", kv, c.operand_name(i), room));
  gpu::AttentionProblem p{.batch = s.batch,
                          .heads = s.heads,
                          .kv_heads = s.kv_heads,
                          .q_len = s.q,
                          .kv_len = kv,
                          .qk_dim = s.qk_dim,
                          .v_dim = s.v_dim,
                          .window = s.window,
                          .scale = static_cast<float>(s.scale),
                          .cap = static_cast<float>(s.cap),
                          .causal = s.causal,
                          .chunked = s.chunked,
                          .q = head_view(c, 0, s.batch, s.heads, s.qk_dim),
                          .k = head_view(c, 1, s.batch, s.kv_heads, s.qk_dim),
                          .v = head_view(c, 2, s.batch, s.kv_heads, s.v_dim),
                          .bias = {},
                          .group_mask = {},
                          .tree_mask = {},
                          .pages = {}};
  next = 3;
  if (s.bias) p.bias = c.numbers(next++);
  if (s.mask_groups > 0) {
    p.group_mask = c.numbers(next++);
    p.groups = s.mask_groups;
  }
  if (s.positions) {
    p.q_positions = c.ints(next++);
    p.kv_positions = c.ints(next++);
  }
  if (s.documents > 0) {
    p.first_keys = c.ints(next++);
    c.launch(gpu::CheckRangeKernel{s.batch * s.q, p.first_keys, s.q, c.fault()}, 1);
  }
  if (s.contexts) add_contexts(s, c, next, p);
  return p;
}

std::int64_t warps_in_blocks(std::int64_t warps) {
  return std::min<std::int64_t>(gpu::blocks_of<std::int64_t>(warps, gpu::kAttentionWarps), 1 << 20);
}

/// Whether rows of a view are whole 16-byte chunks.
bool has_wide_rows(const gpu::HeadView& x, std::int64_t element_bytes) {
  return are_whole_chunks(reinterpret_cast<std::uintptr_t>(x.at), x.batch * element_bytes) &&
         x.token * element_bytes % 16 == 0 && x.head * element_bytes % 16 == 0;
}

/// Tensor cores take 16-bit types, heads of whole 16 bytes up to 128 numbers, many queries, scores as they are, and no
/// mask but the causal one.
template <class T>
bool fits_tiles(const AttentionShape& s, std::initializer_list<gpu::HeadView> views) {
  if constexpr (sizeof(T) != 2) return false;
  const bool plain =
      !s.bias && s.mask_groups == 0 && !s.positions && s.documents == 0 && s.window == 0 && !s.contexts && s.cap == 0;
  const bool wide = std::all_of(views.begin(), views.end(), [](const gpu::HeadView& x) { return has_wide_rows(x, 2); });
  return plain && wide && s.q >= 16 && s.scale > 0 && s.qk_dim == s.v_dim && s.qk_dim % 8 == 0 &&
         s.qk_dim <= gpu::kMostTiledDims;
}

/// Products of four warps: whole groups of queries, on devices that have been tried.
bool is_quick(const AttentionShape& s, const GpuContextBase& c) {
  const std::uint32_t bit = quick_attention_bit(s.dtype, s.qk_dim, s.v_dim);
  return s.q >= gpu::kGroupQueries && (c.queue().quick_attention & bit) != 0;
}

template <class T, int D>
void tiles(const AttentionShape& s, const gpu::AttentionKernel<T>& k, const GpuContext<T>& c) {
  if constexpr (sizeof(T) == 2) {
    if constexpr (D % 64 == 0) {
      const gpu::HopperAttentionKernel<T, D> quick{.p = k.p, .o = k.o, .lse = k.lse, .fault = c.fault()};
      if (is_quick(s, c)) return c.launch(quick, quick.tiles(), quick.kShared);
    }
    const gpu::TileAttentionKernel<T, D> known{.p = k.p, .o = k.o, .lse = k.lse};
    c.launch(known, known.tiles(), known.kShared);
  }
}

/// Whether a warp can take rows that share their keys together: heads are whole 16-byte chunks, one for a lane.
template <class T>
bool fits_rows(const gpu::AttentionProblem& p, std::initializer_list<gpu::HeadView> views) {
  constexpr std::int64_t kChunk = gpu::kPack<T>;
  const std::int64_t most = std::max(p.qk_dim, p.v_dim);
  return p.qk_dim % kChunk == 0 && p.v_dim % kChunk == 0 && most <= kChunk * gpu::kMostChunks &&
         std::all_of(views.begin(), views.end(), [](const gpu::HeadView& x) { return has_wide_rows(x, sizeof(T)); });
}

template <int R, class T>
void launch_rows(const gpu::AttentionKernel<T>& k, const GpuContext<T>& c) {
  gpu::AttentionRowsKernel<T, R> rows{
      .p = k.p, .o = k.o, .lse = k.lse, .splits = k.splits, .part_o = k.part_o, .part_lse = k.part_lse, .lanes = 1};
  while (rows.lanes * gpu::kPack<T> < std::max(k.p.qk_dim, k.p.v_dim)) rows.lanes *= 2;
  c.launch(rows, warps_in_blocks(rows.units() * k.splits));
}

/// Without tensor cores, in so many shares of the keys, which are then joined.
template <class T>
void few_at_a_time(gpu::AttentionKernel<T>& k, std::int64_t splits, const GpuContext<T>& c) {
  const std::int64_t queries = k.p.num_queries();
  k.splits = splits;
  k.part_o = c.template scratch<float>();
  k.part_lse = k.part_o + splits * queries * k.p.v_dim;
  if (!fits_rows<T>(k.p, {k.p.q, k.p.k, k.p.v, k.o}))
    c.launch(k, warps_in_blocks(queries * splits));
  else
    switch (gpu::rows_together(k.p.heads / k.p.kv_heads * (k.p.cu_q ? 1 : k.p.q_len), sizeof(T))) {
      case 8:
        if constexpr (sizeof(T) == 4) launch_rows<8>(k, c);
        break;
      case 4:
        launch_rows<4>(k, c);
        break;
      case 2:
        launch_rows<2>(k, c);
        break;
      default:
        launch_rows<1>(k, c);
    }
  if (splits > 1)
    c.each_row(
        gpu::JoinSplitsKernel<T>{
            .p = k.p, .o = k.o, .lse = k.lse, .splits = splits, .part_o = k.part_o, .part_lse = k.part_lse},
        queries);
}

/// The two passes of the gradients.
template <class T>
struct Slopes {
  gpu::AttentionQuerySlopeKernel<T> queries;
  gpu::AttentionKeySlopeKernel<T> keys;
};

template <class T, int D>
void slope_tiles(const Slopes<T>& s, const GpuContext<T>& c) {
  if constexpr (sizeof(T) == 2) {
    const gpu::AttentionProblem& p = s.queries.p;
    float* level = c.template scratch<float>() + p.num_queries();  // behind δ
    const gpu::TileQuerySlopeKernel<T, D> of_queries{p,     s.queries.d_o, s.queries.dq, s.queries.lse, s.queries.delta,
                                                     level, s.queries.adds};
    const gpu::TileKeySlopeKernel<T, D> of_keys{p,     s.keys.d_o,   s.keys.dk,     s.keys.dv,
                                                level, s.keys.delta, s.keys.adds_k, s.keys.adds_v};
    c.launch(of_queries, of_queries.tiles(), of_queries.kShared);
    c.launch(of_keys, of_keys.tiles(), of_keys.kShared);
  }
}

}  // namespace

template <class T>
void run(const AttentionForward& w, const GpuContext<T>& c) {
  const AttentionShape& s = w.shape;
  int out = 0;
  gpu::AttentionKernel<T> k{.p = problem(s, c, out), .o = {}, .lse = {}};
  k.o = head_view(c, out, s.batch, s.heads, s.v_dim);
  if (w.keep_lse) k.lse = c.numbers(out + 1);
  if (fits_tiles<T>(s, {k.p.q, k.p.k, k.p.v, k.o}))
    return gpu::in_narrowest_tiles(s.qk_dim, [&](auto d) { tiles<T, d()>(s, k, c); });
  few_at_a_time(k, key_splits(s, k.p.kv_len), c);
}

template <class T>
void run(const AttentionBackward& w, const GpuContext<T>& c) {
  const AttentionShape& s = w.shape;
  int o = 0;
  const gpu::AttentionProblem p = problem(s, c, o);
  const gpu::Numbers lse = c.numbers(o + 1);
  const gpu::HeadView d_o = head_view(c, o + 2, s.batch, s.heads, s.v_dim);
  const int dq = o + 3;
  const auto adds = [&](int i) { return c.write_mode(i) == kernels::Write::Accumulate; };
  auto* delta = c.template scratch<float>();
  const std::int64_t queries = warps_in_blocks(s.batch * s.heads * s.q);
  c.launch(gpu::DeltaKernel<T>{.p = p, .o = head_view(c, o, s.batch, s.heads, s.v_dim), .d_o = d_o, .delta = delta},
           queries);
  const Slopes<T> slopes{{.p = p,
                          .d_o = d_o,
                          .dq = head_view(c, dq, s.batch, s.heads, s.qk_dim),
                          .lse = lse,
                          .delta = delta,
                          .adds = adds(dq)},
                         {.p = p,
                          .d_o = d_o,
                          .dk = head_view(c, dq + 1, s.batch, s.kv_heads, s.qk_dim),
                          .dv = head_view(c, dq + 2, s.batch, s.kv_heads, s.v_dim),
                          .lse = lse,
                          .delta = delta,
                          .adds_k = adds(dq + 1),
                          .adds_v = adds(dq + 2)}};
  if (fits_tiles<T>(s, {p.q, p.k, p.v, d_o, slopes.queries.dq, slopes.keys.dk, slopes.keys.dv}))
    return gpu::in_narrowest_tiles(s.qk_dim, [&](auto d) { slope_tiles<T, d()>(slopes, c); });
  c.launch(slopes.queries, queries);
  c.launch(slopes.keys, warps_in_blocks(s.batch * s.kv_heads * p.kv_len));
  if (s.bias && c.size() > dq + 3)
    c.launch(
        gpu::AttentionBiasSlopeKernel<T>{
            .p = p, .d_o = d_o, .lse = lse, .delta = delta, .dbias = c.dense(dq + 3), .adds = adds(dq + 3)},
        warps_in_blocks(s.heads * s.q));
}

/// Rows behind those of the last sequence are zeros.
template <class T>
void run(const PagedAttention& w, const GpuContext<T>& c) {
  const auto pool = [&](int i, std::int64_t dim) {
    const kernels::TokenStrides s = c.tokens(i, 1, w.kv_heads, dim);
    return gpu::HeadView{c.data(i), w.page * s.token, s.token, s.head};
  };
  gpu::AttentionKernel<T> k{.p = {.batch = w.sequences,
                                  .heads = w.heads,
                                  .kv_heads = w.kv_heads,
                                  .q_len = w.rows,
                                  .kv_len = w.page * w.max_pages,
                                  .qk_dim = w.qk_dim,
                                  .v_dim = w.v_dim,
                                  .window = w.window,
                                  .scale = static_cast<float>(w.scale),
                                  .cap = static_cast<float>(w.cap),
                                  .causal = true,
                                  .chunked = w.chunked,
                                  .q = head_view(c, 0, 1, w.heads, w.qk_dim),
                                  .k = pool(1, w.qk_dim),
                                  .v = pool(2, w.v_dim),
                                  .bias = {},
                                  .group_mask = {},
                                  .tree_mask = {},
                                  .pages = {c.ints(3), w.max_pages, w.page}},
                            .o = head_view(c, 6, 1, w.heads, w.v_dim),
                            .lse = {}};
  k.p.cu_q = c.ints(4);
  k.p.kv_lens = c.ints(5);
  k.p.room = k.p.kv_len;
  c.launch(gpu::CheckRangeKernel{w.sequences, k.p.kv_lens, k.p.room + 1, c.fault()}, 1);
  c.launch(gpu::CheckRangeKernel{w.sequences + 1, k.p.cu_q, w.rows + 1, c.fault()}, 1);
  few_at_a_time(k, key_splits(w), c);
}

template <class T>
void run(const RelativeBiasForward& w, const GpuContext<T>& c) {
  const std::int64_t pairs = w.q * c.at(w.kv);
  c.over(
      gpu::RelativeBiasKernel<T>{
          .heads = w.heads, .pairs = pairs, .index = c.ints(1), .table = c.dense(0), .bias = c.dense(2)},
      w.heads * pairs);
}

template <class T>
void run(const RelativeBiasBackward& w, const GpuContext<T>& c) {
  c.each_row(gpu::RelativeBiasSlopeKernel<T>{.heads = w.heads,
                                             .pairs = w.q * w.kv,
                                             .buckets = w.buckets,
                                             .index = c.ints(0),
                                             .dbias = c.dense(1),
                                             .dtable = c.dense(2)},
             w.buckets * w.heads, gpu::kRowShared);
}

template <class T>
void run(const MergeAttention& w, const GpuContext<T>& c) {
  const Shape& lse = c.layout(1).shape;  // [batch, heads, q], or [heads, q] of one sequence
  const std::int64_t batch = lse.rank == 3 ? lse[0] : 1;
  c.each_row(gpu::MergeKernel<T>{.batch = batch,
                                 .q_len = w.rows / batch,
                                 .heads = w.heads,
                                 .dim = w.dim,
                                 .part_o = c.dense(0),
                                 .o = c.dense(2),
                                 .part_lse = c.numbers(1),
                                 .lse = c.numbers(3)},
             w.rows * w.heads);
}

/// Not here: sequences of unequal length without operands that say where they begin, quantised caches, heads of more
/// than 576.
Kernel find_gpu_attention(const Work& work) {
  constexpr std::int64_t kMostDims = gpu::kLaneDims * gpu::kWarp;
  const auto is_legal = [](const AttentionShape& s) {
    return s.ragged_pairs == 0 && s.cache == Quantised::None && s.qk_dim <= kMostDims && s.v_dim <= kMostDims;
  };
  if (const auto* f = std::get_if<AttentionForward>(&work); f && !is_legal(f->shape)) return nullptr;
  if (const auto* b = std::get_if<AttentionBackward>(&work); b && (!is_legal(b->shape) || b->shape.contexts))
    return nullptr;
  if (const auto* p = std::get_if<PagedAttention>(&work);
      p && (p->stored != p->dtype || p->qk_dim > kMostDims || p->v_dim > kMostDims))
    return nullptr;
  return find_gpu_typed<AttentionForward, AttentionBackward, PagedAttention, MergeAttention, RelativeBiasForward,
                        RelativeBiasBackward>(work);
}

}  // namespace orrery
