// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "kernels/host/attention.hpp"
#include "kernels/host/softmax.hpp"
#include "kernels/host/vision.hpp"
#include "runtime/host/families.hpp"
#include "runtime/host/find_kernel.hpp"
#include "runtime/host/workspaces.hpp"

namespace orrery {
namespace {

/// Sequences of unequal length, and who sees whom in the token tree behind them.
template <class T>
void add_contexts(const AttentionShape& s, const OpContext<T>& c, int& next, kernels::AttentionArgs<T>& a) {
  a.layout.kv_lens = c.ints(next++);
  a.layout.kv_tail = s.kv.base;
  const auto [least, most] = std::minmax_element(a.layout.kv_lens, a.layout.kv_lens + s.batch);
  if (*least < 0) c.fail(fmt::format("a context of {} tokens", *least));
  a.dims.kv_len = *most + s.kv.base;
  if (const auto room = c.capacity(1, s.batch, s.kv_heads, s.qk_dim); a.dims.kv_len > room)
    c.fail(fmt::format("{} keys per sequence, but '{}' holds {}", a.dims.kv_len, c.operand_name(1), room));
  if (s.tree == 0) return;
  a.mask.tree_mask = c.dense(next++);
  a.mask.tree_keys = s.tree;
  a.mask.tree_groups = s.batch;
}

/// The first key that each query sees: its own or an earlier one, and none before that of the query in front of it.
template <class T>
const std::int32_t* first_keys(const AttentionShape& s, const OpContext<T>& c, int operand) {
  const std::int32_t* first = c.ints(operand);
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t i = 0, before = 0; i < s.q; ++i) {
      const std::int64_t now = first[b * s.q + i];
      if (now < before || now > i)
        c.fail(
            fmt::format("query {} of sequence {} sees keys from {} on: from {} to {} is legal", i, b, now, before, i));
      before = now;
    }
  return first;
}

/// Reads of q, k, v, bias, mask and positions, which both directions begin with. `next` is the operand after them.
template <class T>
kernels::AttentionArgs<T> common_args(const AttentionShape& s, const OpContext<T>& c, int& next) {
  const std::int64_t kv = c.at(s.kv);
  for (int i : {1, 2})
    if (const auto room = c.capacity(i, s.batch, s.kv_heads, i == 1 ? s.qk_dim : s.v_dim); kv > room)
      c.fail(fmt::format("{} keys per sequence, but '{}' holds {}", kv, c.operand_name(i), room));
  kernels::AttentionArgs<T> a;
  a.dims = {s.batch, s.q, kv, s.heads, s.kv_heads, s.qk_dim, s.v_dim};
  a.scale = T(s.scale);
  a.cap = T(s.cap);
  a.q = c.data(0);
  a.q_strides = c.tokens(0, s.batch, s.heads, s.qk_dim);
  a.k = c.data(1);
  a.k_strides = c.tokens(1, s.batch, s.kv_heads, s.qk_dim);
  a.v = c.data(2);
  a.v_strides = c.tokens(2, s.batch, s.kv_heads, s.v_dim);
  a.mask.causal = s.causal;
  if (s.window > 0) a.mask.window = s.window;
  a.mask.chunked = s.chunked;
  next = 3;
  if (s.bias) a.mask.bias = c.dense(next++);
  if (s.mask_groups > 0) {
    a.mask.group_mask = c.dense(next++);
    a.mask.groups = s.mask_groups;
  }
  if (s.positions) {
    a.mask.q_positions = c.ints(next++);
    a.mask.kv_positions = c.ints(next++);
  }
  if (s.documents > 0) a.mask.first_keys = first_keys(s, c, next++);
  if (s.contexts) add_contexts(s, c, next, a);
  a.workspace = c.workspace();
  return a;
}

void check_keys(const AttentionShape& shape, std::int64_t keys, const OpContextBase& c) {
  if (const std::int64_t planned = planned_keys(shape); keys > planned)
    c.fail(fmt::format("{} keys per sequence, but scratch was planned for {}", keys, planned));
}

}  // namespace

template <class T>
void run(const AttentionForward& w, const OpContext<T>& c) {
  int next = 0;
  auto a = common_args(w.shape, c, next);
  if (w.shape.q > kFewQueries) check_keys(w.shape, a.dims.kv_len, c);
  a.o = c.data(next);
  a.o_strides = c.tokens(next, w.shape.batch, w.shape.heads, w.shape.v_dim);
  const std::size_t scratch = attention_scratch(w.shape, sizeof(T));
  a.lse = w.keep_lse ? c.dense(next + 1) : reinterpret_cast<T*>(static_cast<std::byte*>(c.workspace()) + scratch);
  kernels::attention(a);
}

template <class T>
void run(const AttentionBackward& w, const OpContext<T>& c) {
  const AttentionShape& s = w.shape;
  int o = 0;
  kernels::AttentionBackwardArgs<T> a;
  a.forward = common_args(s, c, o);
  check_keys(s, a.forward.dims.kv_len, c);
  a.forward.o = c.data(o);
  a.forward.o_strides = c.tokens(o, s.batch, s.heads, s.v_dim);
  a.forward.lse = c.dense(o + 1);
  a.d_o = c.data(o + 2);
  a.d_o_strides = c.tokens(o + 2, s.batch, s.heads, s.v_dim);
  const int dq = o + 3;
  a.dq = c.data(dq);
  a.dq_strides = c.tokens(dq, s.batch, s.heads, s.qk_dim);
  a.dk = c.data(dq + 1);
  a.dk_strides = c.tokens(dq + 1, s.batch, s.kv_heads, s.qk_dim);
  a.dv = c.data(dq + 2);
  a.dv_strides = c.tokens(dq + 2, s.batch, s.kv_heads, s.v_dim);
  a.write_dq = c.write_mode(dq);
  a.write_dk = c.write_mode(dq + 1);
  a.write_dv = c.write_mode(dq + 2);
  if (s.bias && c.size() > dq + 3) {
    a.dbias = c.dense(dq + 3);
    a.write_dbias = c.write_mode(dq + 3);
  }
  a.workspace = c.workspace();
  kernels::attention_backward(a);
}

/// Rows behind those of the last sequence are zeros: what follows them in the plan reads whole tensors.
template <class T>
void run(const PagedAttention& w, const OpContext<T>& c) {
  const std::int32_t *starts = c.ints(4), *lengths = c.ints(5);
  const std::int64_t used = starts[w.sequences], keys = w.page * w.max_pages;
  for (std::int64_t s = 0; s < w.sequences; ++s)
    if (lengths[s] > keys || starts[s + 1] < starts[s] || used > w.rows)
      c.fail(fmt::format("sequence {} has {} keys in rows {} to {}: there is room for {} keys and {} rows", s,
                         lengths[s], starts[s], starts[s + 1], keys, w.rows));
  const auto pool = [&](int i, std::int64_t dim) {
    const auto strides = c.tokens(i, 1, w.kv_heads, dim);
    return kernels::TokenStrides{.batch = w.page * strides.token, .token = strides.token, .head = strides.head};
  };
  kernels::AttentionArgs<T> a;
  a.dims = {w.sequences, w.rows, keys, w.heads, w.kv_heads, w.qk_dim, w.v_dim};
  a.scale = T(w.scale);
  a.cap = T(w.cap);
  a.q = c.data(0);
  a.q_strides = c.tokens(0, 1, w.heads, w.qk_dim);
  a.k = c.data(1);
  a.k_strides = pool(1, w.qk_dim);
  a.v = c.data(2);
  a.v_strides = pool(2, w.v_dim);
  a.o = c.data(6);
  a.o_strides = c.tokens(6, 1, w.heads, w.v_dim);
  a.mask.causal = true;
  if (w.window > 0) a.mask.window = w.window;
  a.mask.chunked = w.chunked;
  a.layout = {.cu_q = starts, .kv_lens = lengths, .block_table = c.ints(3), .max_blocks = w.max_pages, .page = w.page};
  a.workspace = c.workspace();
  a.lse = reinterpret_cast<T*>(static_cast<std::byte*>(c.workspace()) + attention_scratch(w, sizeof(T)));
  kernels::attention(a);
  for (std::int64_t r = used; r < w.rows; ++r)
    for (std::int64_t h = 0; h < w.heads; ++h)
      std::fill_n(a.o + r * a.o_strides.token + h * a.o_strides.head, w.v_dim, T(0));
}

template <class T>
void run(const MergeAttention& w, const OpContext<T>& c) {
  const Shape& lse = c.layout(1).shape;  // [batch, heads, q], or [heads, q] of one sequence
  const std::int64_t batch = lse.rank == 3 ? lse[0] : 1;
  kernels::attention_merge(kernels::AttentionMergeArgs<T>{
      .dims = {.batch = batch, .q_len = w.rows / batch, .heads = w.heads, .v_dim = w.dim},
      .part_o = c.dense(0),
      .part_lse = c.dense(1),
      .o = c.dense(2),
      .lse = c.dense(3)});
}

template <class T>
void run(const SoftmaxForward& w, const OpContext<T>& c) {
  const int y = c.output();
  kernels::SoftmaxArgs<T> a;
  a.rows = w.rows;
  a.cols = w.cols;
  a.scale = T(w.scale);
  a.x = c.data(0);
  a.x_stride = c.row_stride(0, w.rows, w.cols);
  a.y = c.data(y);
  a.y_stride = c.row_stride(y, w.rows, w.cols);
  if (w.causal) {
    a.period = w.period;
    a.row_positions = c.ints(1);
    a.col_positions = c.ints(2);
    a.window = w.window;
    a.chunked = w.chunked;
  }
  kernels::softmax(a);
}

template <class T>
void run(const SoftmaxBackward& w, const OpContext<T>& c) {
  const auto stride = [&](int i) { return c.row_stride(i, w.rows, w.cols); };
  const int dx = c.output();
  kernels::softmax_backward(kernels::SoftmaxBackwardArgs<T>{.rows = w.rows,
                                                            .cols = w.cols,
                                                            .scale = T(w.scale),
                                                            .y = c.data(0),
                                                            .y_stride = stride(0),
                                                            .dy = c.data(1),
                                                            .dy_stride = stride(1),
                                                            .dx = c.data(dx),
                                                            .dx_stride = stride(dx)});
}

/// Rows [at, at + rows) of each sequence, or, one sequence after another, those behind its own length.
template <class T>
void run(const AppendCache& w, const OpContext<T>& c) {
  const int cache = c.output();
  Layout from = c.layout(0);
  const auto append = [&](const Layout& part, const T* rows, T* to) {
    copy_elements(from, reinterpret_cast<const std::byte*>(rows), part, reinterpret_cast<std::byte*>(to + part.offset),
                  sizeof(T));
  };
  if (!w.contexts || w.batch == 1) {
    const std::int64_t first = w.contexts ? w.at.base + c.ints(1)[0] : c.at(w.at);
    return append(c.appended_part(w, cache, first), c.data(0), c.data(cache));
  }
  const std::int64_t rows_stride = from.shape.rank > 2 ? from.strides[0] : w.rows * from.strides[0];
  from.shape.sizes[0] = from.shape.rank > 2 ? 1 : w.rows;
  for (std::int64_t b = 0; b < w.batch; ++b) {
    Layout part = c.appended_part(w, cache, w.at.base + c.ints(1)[b]);
    part.shape.sizes[0] = 1;
    append(part, c.data(0) + b * rows_stride, c.data(cache) + b * part.strides[0]);
  }
}

template <class T>
void run(const RelativeBiasForward& w, const OpContext<T>& c) {
  kernels::relative_bias(kernels::RelativeBiasArgs<T>{
      .heads = w.heads, .pairs = w.q * c.at(w.kv), .index = c.ints(1), .table = c.dense(0), .bias = c.dense(2)});
}

template <class T>
void run(const RelativeBiasBackward& w, const OpContext<T>& c) {
  kernels::relative_bias_backward(kernels::RelativeBiasBackwardArgs<T>{.heads = w.heads,
                                                                       .pairs = w.q * w.kv,
                                                                       .buckets = w.buckets,
                                                                       .index = c.ints(0),
                                                                       .dbias = c.dense(1),
                                                                       .dtable = c.dense(2),
                                                                       .write = kernels::Write::Accumulate});
}

/// Sequences of unequal length have no operands that say where they begin: there is no function for them, nor for the
/// gradient of a bias beside bounded scores.
Kernel find_attention(const Work& work) {
  const AttentionShape* shape = nullptr;
  if (const auto* f = std::get_if<AttentionForward>(&work)) shape = &f->shape;
  if (const auto* b = std::get_if<AttentionBackward>(&work)) shape = &b->shape;
  if (shape && shape->ragged_pairs > 0) return nullptr;
  if (const auto* b = std::get_if<AttentionBackward>(&work); b && b->shape.bias && b->shape.cap > 0) return nullptr;
  if (const auto* p = std::get_if<PagedAttention>(&work); p && p->stored != p->dtype) return nullptr;
  return find_typed<AttentionForward, AttentionBackward, PagedAttention, MergeAttention, SoftmaxForward,
                    SoftmaxBackward, AppendCache, RelativeBiasForward, RelativeBiasBackward>(work);
}

}  // namespace orrery
