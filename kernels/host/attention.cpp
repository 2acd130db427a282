// SPDX-License-Identifier: Apache-2.0
// Forward attention by tiles with a running softmax: per key tile m' = max(m, max s), o ← o·e^(m−m') + p·v,
// l ← l·e^(m−m') + Σp, p = e^(s−m'). Few queries (decoding) go to attention_decode.cpp.
#include "kernels/host/attention.hpp"

#include <cmath>

#include "kernels/host/attention_decode.hpp"
#include "kernels/host/attention_tile.hpp"

namespace orrery::kernels {
namespace {

template <class T>
struct Buffers {
  T *keys, *values;  // packed, all key tiles of one kv head
  T *query, *scores, *out, *max, *sum;

  Buffers(const AttentionDims& d, void* workspace) {
    Arena arena{workspace};
    const std::int64_t padded = round_up(d.kv_len, kKeyTile);
    keys = arena.take<T>(padded * d.qk_dim);
    values = arena.take<T>(padded * padded_cols<T>(d.v_dim));
    query = arena.take<T>(kQueryTile * d.qk_dim);
    scores = arena.take<T>(kQueryTile * kKeyTile);
    out = arena.take<T>(kQueryTile * padded_cols<T>(d.v_dim));
    max = arena.take<T>(kQueryTile);
    sum = arena.take<T>(kQueryTile);
  }
};

/// Queries [first, first + rows) of head h.
struct QueryTile {
  std::int64_t h, first, rows;
};

/// Scores to probabilities of one row; rescales its sum and output to the new maximum.
template <class T>
void softmax_row(const Buffers<T>& x, std::int64_t r, std::int64_t keys, std::int64_t width) {
  T* s = x.scores + r * kKeyTile;
  const T m = std::max(x.max[r], reduce_max<T>(keys, [&](auto at) { return at(s); }));
  if (m == -std::numeric_limits<T>::infinity()) return std::fill(s, s + keys, T(0));
  const T keep = exp(x.max[r] - m);
  const T sum = reduce_add<T>(keys, [&](auto at) {
    const auto p = exp(at(s) - m);
    put(s, at.i, p);
    return p;
  });
  T* o = x.out + r * width;
  if (keep != T(1)) map(width, o, [&](auto at) { return at(o) * keep; });
  x.sum[r] = x.sum[r] * keep + sum;
  x.max[r] = m;
}

template <class T>
void key_tile(const AttentionArgs<T>& args, const Sequence& s, const QueryTile& t, const Buffers<T>& x,
              const KeyTile& tile, RowsAhead<T>& ahead) {
  const std::int64_t dim = args.dims.qk_dim, width = padded_cols<T>(args.dims.v_dim);
  const std::int64_t rows = round_up(t.rows, kTileRows);
  multiply_panels<Write::Overwrite>(
      rows, tile.count, dim,
      [&](std::int64_t i) {
        return StepRows<T>{x.query + i * dim, kTileRows};
      },
      columns_of_keys(x.keys, dim, tile), x.scores, kKeyTile);
  for (std::int64_t r = 0; r < t.rows; ++r) {
    bound_scores(args.cap, tile.count, x.scores + r * kKeyTile);
    mask_scores(args.mask, s, t.h, t.first + r, tile, x.scores + r * kKeyTile);
    softmax_row(x, r, tile.count, width);
    ahead.fetch();
  }
  multiply_panels<Write::Accumulate>(
      rows, width, tile.count, [&](std::int64_t i) { return tile_rows(x.scores + i * kKeyTile, kKeyTile, kTileRows); },
      rows_of_keys(x.values, args.dims.v_dim, tile), x.out, width);
}

template <class T>
void query_tile(const AttentionArgs<T>& args, const Sequence& s, const QueryTile& t, const Buffers<T>& x,
                RowsAhead<T>& ahead) {
  const std::int64_t dim = args.dims.qk_dim, width = padded_cols<T>(args.dims.v_dim);
  const T* q = args.q + query_at(s, args.layout, args.q_strides, t.h) + t.first * args.q_strides.token;
  pack_row_tiles(t.rows, dim, q, {1, args.q_strides.token}, x.query);
  map(round_up(t.rows, kTileRows) * dim, x.query, [&](auto at) { return at(x.query) * args.scale; });
  std::fill(x.out, x.out + kQueryTile * width, T(0));
  std::fill(x.sum, x.sum + kQueryTile, T(0));
  std::fill(x.max, x.max + kQueryTile, -std::numeric_limits<T>::infinity());
  each_key_tile(args.mask, s, t.first, t.rows, [&](const KeyTile& tile) { key_tile(args, s, t, x, tile, ahead); });
  T* o = args.o + query_at(s, args.layout, args.o_strides, t.h) + t.first * args.o_strides.token;
  T* lse = lse_row(args, s, t.h) + t.first;
  for (std::int64_t r = 0; r < t.rows; ++r) {
    const T inverse = x.sum[r] > 0 ? T(1) / x.sum[r] : T(0);
    const T* from = x.out + r * width;
    map(args.dims.v_dim, o + r * args.o_strides.token, [&](auto at) { return at(from) * inverse; });
    lse[r] = x.max[r] + std::log(x.sum[r]);
  }
}

template <class T>
void kv_head(const AttentionArgs<T>& args, const Sequence& s, std::int64_t kv, const Buffers<T>& x,
             RowsAhead<T>& ahead) {
  pack_keys_as_columns(key_rows(s, args.layout, args.k, args.k_strides, kv), s.kv_len, args.dims.qk_dim, x.keys);
  pack_keys_as_rows(key_rows(s, args.layout, args.v, args.v_strides, kv), s.kv_len, args.dims.v_dim, x.values);
  const KvGroup group = group_of(args.dims, kv);
  for (std::int64_t h = group.first; h < group.first + group.heads; ++h)
    for (std::int64_t i = 0; i < s.q_len; i += kQueryTile)
      query_tile(args, s, {h, i, std::min(kQueryTile, s.q_len - i)}, x, ahead);
}

}  // namespace

std::size_t attention_workspace(const AttentionDims& d, std::size_t element_size) {
  const std::int64_t padded = round_up(d.kv_len, kKeyTile), lanes = 128 / static_cast<std::int64_t>(element_size);
  const std::int64_t v = round_up(d.v_dim, lanes);
  const std::int64_t elements = padded * (d.qk_dim + v) + kQueryTile * (d.qk_dim + kKeyTile + v + 2);
  return std::max(static_cast<std::size_t>(elements) * element_size + 7 * 64, decode_workspace(d, element_size));
}

template <class T>
void attention(const AttentionArgs<T>& args) {
  attend_few(args);
  if (!args.layout.cu_q && args.dims.q_len <= kDecodeQueries) return;
  const Buffers<T> buffers{args.dims, args.workspace};
  each_kv_head(args, [&](const KvHead& head, const KvHead* next) {
    if (head.s.q_len <= kDecodeQueries) return;
    RowsAhead<T> ahead;
    if (next) add_operands(ahead, args, *next);
    ahead.add_queries(head.s, args.layout, args.o, args.o_strides, group_of(args.dims, head.kv), args.dims.v_dim, true);
    kv_head(args, head.s, head.kv, buffers, ahead);
  });
}

template <class T>
void attention_merge(const AttentionMergeArgs<T>& args) {
  const auto& d = args.dims;
  for (std::int64_t b = 0; b < d.batch; ++b)
    for (std::int64_t i = 0; i < d.q_len; ++i)
      for (std::int64_t h = 0; h < d.heads; ++h) {
        T& lse = args.lse[(b * d.heads + h) * d.q_len + i];
        const T part = args.part_lse[(b * d.heads + h) * d.q_len + i];
        const T m = std::max(lse, part);
        const bool any = m != -std::numeric_limits<T>::infinity(), old = lse != -std::numeric_limits<T>::infinity();
        const T total = any ? m + std::log(std::exp(lse - m) + std::exp(part - m)) : m;
        const T keep = old ? std::exp(lse - total) : T(0), take = any ? std::exp(part - total) : T(0);
        T* o = args.o + ((b * d.q_len + i) * d.heads + h) * d.v_dim;
        const T* p = args.part_o + ((b * d.q_len + i) * d.heads + h) * d.v_dim;
        if (old)
          map(d.v_dim, o, [&](auto at) { return at(o) * keep + at(p) * take; });
        else
          map(d.v_dim, o, [&](auto at) { return at(p) * take; });
        lse = total;
      }
}

template void attention<float>(const AttentionArgs<float>&);
template void attention<double>(const AttentionArgs<double>&);
template void attention_merge<float>(const AttentionMergeArgs<float>&);
template void attention_merge<double>(const AttentionMergeArgs<double>&);

}  // namespace orrery::kernels
