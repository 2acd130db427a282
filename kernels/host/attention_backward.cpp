// SPDX-License-Identifier: Apache-2.0
// Backward attention by tiles: for every kv head, query tile and key tile S = QKᵀ and dP = dO·Vᵀ give P and dS, which
// add to dQ (kept per query tile) and to dK, dV (kept per kv head).
#include <cmath>

#include "kernels/host/attention_tile.hpp"

namespace orrery::kernels {
namespace {

template <class T>
struct Buffers {
  std::int64_t dim, v_dim, width, v_width;  // width: padded to whole panels
  T *key_cols, *key_rows, *value_cols, *dk, *dv;
  T *query, *query_rows, *d_out, *d_out_rows, *delta, *probability, *d_score, *dq;

  Buffers(const AttentionDims& d, void* workspace)
      : dim{d.qk_dim}, v_dim{d.v_dim}, width{padded_cols<T>(dim)}, v_width{padded_cols<T>(v_dim)} {
    Arena arena{workspace};
    const std::int64_t padded = round_up(d.kv_len, kKeyTile);
    key_cols = arena.take<T>(padded * dim);
    key_rows = arena.take<T>(padded * width);
    value_cols = arena.take<T>(padded * v_dim);
    dk = arena.take<T>(padded * width);
    dv = arena.take<T>(padded * v_width);
    query = arena.take<T>(kQueryTile * dim);
    query_rows = arena.take<T>(kQueryTile * width);
    d_out = arena.take<T>(kQueryTile * v_dim);
    d_out_rows = arena.take<T>(kQueryTile * v_width);
    delta = arena.take<T>(kQueryTile);
    probability = arena.take<T>(kQueryTile * kKeyTile);
    d_score = arena.take<T>(kQueryTile * kKeyTile);
    dq = arena.take<T>(kQueryTile * width);
  }
};

template <class T>
struct QueryTile {
  std::int64_t h, first, rows;
  const T* lse;

  std::int64_t padded_rows() const { return round_up(rows, kTileRows); }
};

/// Q and dO in both packed forms, δ_i = dO_i·o_i, dQ = 0.
template <class T>
void load_queries(const AttentionBackwardArgs<T>& args, const Sequence& s, const QueryTile<T>& t, const Buffers<T>& x) {
  const AttentionArgs<T>& f = args.forward;
  const std::int64_t q_token = f.q_strides.token, o_token = f.o_strides.token, d_token = args.d_o_strides.token;
  const T* q = f.q + query_at(s, f.layout, f.q_strides, t.h) + t.first * q_token;
  const T* o = f.o + query_at(s, f.layout, f.o_strides, t.h) + t.first * o_token;
  const T* d = args.d_o + query_at(s, f.layout, args.d_o_strides, t.h) + t.first * d_token;
  pack_row_tiles(t.rows, x.dim, q, {1, q_token}, x.query);
  pack_row_tiles(t.rows, x.v_dim, d, {1, d_token}, x.d_out);
  pack_panels(t.rows, x.dim, q, {q_token, 1}, x.query_rows);
  pack_panels(t.rows, x.v_dim, d, {d_token, 1}, x.d_out_rows);
  for (std::int64_t r = 0; r < t.rows; ++r) {
    const T *d_row = d + r * d_token, *o_row = o + r * o_token;
    x.delta[r] = reduce_add<T>(x.v_dim, [&](auto at) { return at(d_row) * at(o_row); });
  }
  std::fill(x.dq, x.dq + kQueryTile * x.width, T(0));
}

/// slopes = 1 − (c/cap)² of n bounded scores.
template <class T>
void slopes_of(const T* bounded, T cap, std::int64_t n, T* slopes) {
  const T inverse = T(1) / cap;
  map(n, slopes, [&](auto at) {
    const auto part = at(bounded) * inverse;
    return T(1) - part * part;
  });
}

/// Turns row r of scores and dP into P = e^(S − lse) and dS = P·(dP − δ), both 0 where nothing is visible; dS is that
/// of the scores before they were bounded.
template <class T>
void probability_row(const AttentionArgs<T>& f, const Sequence& s, const QueryTile<T>& t, const Buffers<T>& x,
                     std::int64_t r, const KeyTile& tile) {
  T *p = x.probability + r * kKeyTile, *ds = x.d_score + r * kKeyTile;
  const std::int64_t n = tile.count;
  if (r >= t.rows || t.lse[r] == -std::numeric_limits<T>::infinity()) {
    std::fill(p, p + n, T(0));
    std::fill(ds, ds + n, T(0));
    return;
  }
  map(n, p, [&](auto at) { return at(p) * f.scale; });
  T slopes[kKeyTile] = {};
  bound_scores(f.cap, n, p);
  if (f.cap != T(0)) slopes_of(p, f.cap, n, slopes);
  mask_scores(f.mask, s, t.h, t.first + r, tile, p);
  each<T>(n, [&](auto at, std::int64_t j) {
    const auto probability = exp(at(p) - t.lse[r]);
    put(ds, j, probability * (at(ds) - x.delta[r]));
    put(p, j, probability);
  });
  if (f.cap != T(0)) map(n, ds, [&](auto at) { return at(ds) * at(slopes); });
}

template <class T>
void add_bias_gradient(const AttentionBackwardArgs<T>& args, const Sequence& s, const QueryTile<T>& t,
                       const Buffers<T>& x, const KeyTile& tile) {
  const std::int64_t n = std::min(tile.count, s.kv_len - tile.first);
  for (std::int64_t r = 0; r < t.rows; ++r) {
    T* row = args.dbias + (t.h * s.q_len + t.first + r) * s.kv_len + tile.first;
    const T* ds = x.d_score + r * kKeyTile;
    map(n, row, [&](auto at) { return at(row) + at(ds); });
  }
}

template <class T>
void key_tile(const AttentionBackwardArgs<T>& args, const Sequence& s, const QueryTile<T>& t, const Buffers<T>& x,
              const KeyTile& tile, RowsAhead<T>& ahead) {
  const std::int64_t rows = t.padded_rows();
  const auto packed = [](const T* a, std::int64_t k) {
    return [a, k](std::int64_t i) { return StepRows<T>{a + i * k, kTileRows}; };
  };
  const auto transposed = [](const T* a) { return [a](std::int64_t i) { return StepRows<T>{a + i, kKeyTile}; }; };
  const auto scores = [&](std::int64_t i) { return tile_rows(x.d_score + i * kKeyTile, kKeyTile, kTileRows); };
  multiply_panels<Write::Overwrite>(rows, tile.count, x.dim, packed(x.query, x.dim),
                                    columns_of_keys(x.key_cols, x.dim, tile), x.probability, kKeyTile);
  multiply_panels<Write::Overwrite>(rows, tile.count, x.v_dim, packed(x.d_out, x.v_dim),
                                    columns_of_keys(x.value_cols, x.v_dim, tile), x.d_score, kKeyTile);
  for (std::int64_t r = 0; r < rows; ++r) {
    probability_row(args.forward, s, t, x, r, tile);
    ahead.fetch();
  }
  if (args.dbias) add_bias_gradient(args, s, t, x, tile);
  multiply_panels<Write::Accumulate>(tile.count, x.v_width, t.rows, transposed(x.probability),
                                     Panels<T>{x.d_out_rows, t.rows}, x.dv + tile.first * x.v_width, x.v_width);
  multiply_panels<Write::Accumulate>(tile.count, x.width, t.rows, transposed(x.d_score),
                                     Panels<T>{x.query_rows, t.rows}, x.dk + tile.first * x.width, x.width);
  multiply_panels<Write::Accumulate>(rows, x.width, tile.count, scores, rows_of_keys(x.key_rows, x.dim, tile), x.dq,
                                     x.width);
}

/// Where a gradient goes: rows of `dim` at to + r·token.
template <class T>
struct Rows {
  T* to;
  std::int64_t token, count, dim;
};

/// to (+)= factor·from, rows of `from` being `width` apart.
template <class T>
void store_rows(const Rows<T>& x, const T* from, std::int64_t width, T factor, Write write) {
  for (std::int64_t r = 0; r < x.count; ++r) {
    T* to = x.to + r * x.token;
    const T* row = from + r * width;
    if (write == Write::Accumulate)
      map(x.dim, to, [&](auto at) { return at(to) + at(row) * factor; });
    else
      map(x.dim, to, [&](auto at) { return at(row) * factor; });
  }
}

template <class T>
void query_tile(const AttentionBackwardArgs<T>& args, const Sequence& s, const QueryTile<T>& t, const Buffers<T>& x,
                RowsAhead<T>& ahead) {
  const AttentionArgs<T>& f = args.forward;
  load_queries(args, s, t, x);
  each_key_tile(f.mask, s, t.first, t.rows, [&](const KeyTile& tile) { key_tile(args, s, t, x, tile, ahead); });
  T* dq = args.dq + query_at(s, f.layout, args.dq_strides, t.h) + t.first * args.dq_strides.token;
  store_rows<T>({dq, args.dq_strides.token, t.rows, x.dim}, x.dq, x.width, f.scale, args.write_dq);
}

template <class T>
void kv_head(const AttentionBackwardArgs<T>& args, const Sequence& s, std::int64_t kv, const Buffers<T>& x,
             RowsAhead<T>& ahead) {
  const AttentionArgs<T>& f = args.forward;
  const KeyRows<T> keys = key_rows(s, f.layout, f.k, f.k_strides, kv);
  const KeyRows<T> values = key_rows(s, f.layout, f.v, f.v_strides, kv);
  pack_keys_as_columns(keys, s.kv_len, x.dim, x.key_cols);
  pack_keys_as_rows(keys, s.kv_len, x.dim, x.key_rows);
  pack_keys_as_columns(values, s.kv_len, x.v_dim, x.value_cols);
  const std::int64_t padded = round_up(s.kv_len, kKeyPart);
  std::fill(x.dk, x.dk + padded * x.width, T(0));
  std::fill(x.dv, x.dv + padded * x.v_width, T(0));
  const KvGroup group = group_of(f.dims, kv);
  for (std::int64_t h = group.first; h < group.first + group.heads; ++h)
    for (std::int64_t i = 0; i < s.q_len; i += kQueryTile)
      query_tile<T>(args, s, {h, i, std::min(kQueryTile, s.q_len - i), lse_row(f, s, h) + i}, x, ahead);
  T* dk = args.dk + key_at(s, f.layout, args.dk_strides, kv);
  T* dv = args.dv + key_at(s, f.layout, args.dv_strides, kv);
  store_rows<T>({dk, args.dk_strides.token, s.kv_len, x.dim}, x.dk, x.width, f.scale, args.write_dk);
  store_rows<T>({dv, args.dv_strides.token, s.kv_len, x.v_dim}, x.dv, x.v_width, T(1), args.write_dv);
}

/// What the next head reads, and this one writes.
template <class T>
RowsAhead<T> rows_ahead(const AttentionBackwardArgs<T>& args, const KvHead& head, const KvHead* next) {
  const AttentionArgs<T>& f = args.forward;
  const AttentionDims& d = f.dims;
  RowsAhead<T> rows;
  if (next) {
    add_operands(rows, f, *next);
    rows.add_queries(next->s, f.layout, f.o, f.o_strides, group_of(d, next->kv), d.v_dim);
    rows.add_queries(next->s, f.layout, args.d_o, args.d_o_strides, group_of(d, next->kv), d.v_dim);
  }
  rows.add_queries(head.s, f.layout, args.dq, args.dq_strides, group_of(d, head.kv), d.qk_dim, true);
  const auto keys = [&](T* to, const TokenStrides& st) {
    return KeyRows<T>{to + key_at(head.s, f.layout, st, head.kv), st.token, nullptr, 1, 0};
  };
  rows.add(keys(args.dk, args.dk_strides), head.s.kv_len, d.qk_dim, true);
  rows.add(keys(args.dv, args.dv_strides), head.s.kv_len, d.v_dim, true);
  return rows;
}

}  // namespace

std::size_t attention_backward_workspace(const AttentionDims& d, std::size_t element_size) {
  const std::int64_t padded = round_up(d.kv_len, kKeyTile), lanes = 128 / static_cast<std::int64_t>(element_size);
  const std::int64_t w = round_up(d.qk_dim, lanes), v = round_up(d.v_dim, lanes);
  const std::int64_t elements =
      padded * (d.qk_dim + d.v_dim + 2 * w + v) + kQueryTile * (d.qk_dim + d.v_dim + 2 * w + v + 1 + 2 * kKeyTile);
  return static_cast<std::size_t>(elements) * element_size + 13 * 64;
}

template <class T>
void attention_backward(const AttentionBackwardArgs<T>& args) {
  const AttentionDims& d = args.forward.dims;
  if (args.dbias && args.write_dbias == Write::Overwrite)
    std::fill(args.dbias, args.dbias + d.heads * d.q_len * d.kv_len, T(0));
  const Buffers<T> buffers{d, args.workspace};
  each_kv_head(args.forward, [&](const KvHead& head, const KvHead* next) {
    RowsAhead<T> ahead = rows_ahead(args, head, next);
    kv_head(args, head.s, head.kv, buffers, ahead);
  });
}

template void attention_backward<float>(const AttentionBackwardArgs<float>&);
template void attention_backward<double>(const AttentionBackwardArgs<double>&);

}  // namespace orrery::kernels
