// SPDX-License-Identifier: Apache-2.0
// What forward, decode and backward of attention share: where a sequence lies, which keys a query sees, tiles and
// packing. For sources of this folder.
#pragma once

#include <algorithm>
#include <array>

#include "kernels/host/attention.hpp"
#include "kernels/host/gemm_tile.hpp"

namespace orrery::kernels {

// Queries and keys that are multiplied at once; of the keys of a tile those that some query sees, in whole parts.
constexpr std::int64_t kQueryTile = 64, kKeyTile = 128, kKeyPart = 32;

/// Rows of one kv head: row j starts at base + (j / page, from the table)·page_stride + (j % page)·token.
template <class T>
struct KeyRows {
  const T* base;
  std::int64_t token;
  const std::int32_t* table;
  std::int64_t page, page_stride;

  const T* operator()(std::int64_t j) const {
    return table ? base + table[j / page] * page_stride + j % page * token : base + j * token;
  }
};

/// Keys [begin, end) outside of which a query sees none.
struct KeyRange {
  std::int64_t begin, end;
};

/// One element of the batch.
struct Sequence {
  std::int64_t b, q_begin, q_len, kv_len, offset;  // q_begin: first token of cu_q, else 0

  template <class T>
  KeyRange keys(const AttentionMask<T>& mask, std::int64_t i) const {
    if (mask.kv_positions) return {0, kv_len};
    const std::int64_t p = i + offset;
    const std::int64_t end = mask.causal ? std::clamp<std::int64_t>(p + 1, 0, kv_len) : kv_len;
    const std::int64_t first = mask.first_keys ? mask.first_keys[b * q_len + i] : 0;
    return {std::clamp<std::int64_t>(std::max(mask.first_key(p), first), 0, end), end};
  }
};

template <class T>
Sequence sequence(const AttentionArgs<T>& args, std::int64_t b) {
  const AttentionLayout& l = args.layout;
  const std::int64_t q_begin = l.cu_q ? l.cu_q[b] : 0;
  const std::int64_t q_len = l.cu_q ? l.cu_q[b + 1] - l.cu_q[b] : args.dims.q_len;
  std::int64_t kv_len = args.dims.kv_len;
  if (l.kv_lens) kv_len = l.kv_lens[b] + l.kv_tail;
  if (l.cu_kv) kv_len = l.cu_kv[b + 1] - l.cu_kv[b];
  return {b, q_begin, q_len, kv_len, args.mask.query_offset.value_or(kv_len - q_len)};
}

/// Offset of query token 0 of head h in a tensor with the batch layout of q.
inline std::int64_t query_at(const Sequence& s, const AttentionLayout& l, const TokenStrides& x, std::int64_t h) {
  return (l.cu_q ? s.q_begin * x.token : s.b * x.batch) + h * x.head;
}

/// Offset of key token 0 of kv head h in a tensor with the batch layout of k (not paged).
inline std::int64_t key_at(const Sequence& s, const AttentionLayout& l, const TokenStrides& x, std::int64_t h) {
  return (l.cu_kv ? l.cu_kv[s.b] * x.token : s.b * x.batch) + h * x.head;
}

/// The query heads of a kv head.
struct KvGroup {
  std::int64_t first, heads;
};
constexpr KvGroup group_of(const AttentionDims& d, std::int64_t kv) {
  const std::int64_t heads = d.heads / d.kv_heads;
  return {kv * heads, heads};
}

template <class T>
KeyRows<T> key_rows(const Sequence& s, const AttentionLayout& l, const T* x, const TokenStrides& st, std::int64_t h) {
  if (l.block_table) return {x + h * st.head, st.token, l.block_table + s.b * l.max_blocks, l.page, st.batch};
  return {x + key_at(s, l, st, h), st.token, nullptr, 1, 0};
}

template <class T>
T* lse_row(const AttentionArgs<T>& args, const Sequence& s, std::int64_t h) {
  if (args.layout.cu_q) return args.lse + h * args.layout.cu_q[args.dims.batch] + s.q_begin;
  return args.lse + (s.b * args.dims.heads + h) * args.dims.q_len;
}

/// Rows that are soon read or written, fetched into the second-level cache while a head is multiplied: those of the
/// head that comes next, and the results of this one. They are a few lines each and far apart, so that waiting for
/// them, where they had left that cache, took half as long as all products of a head of 64 queries and keys.
template <class T>
class RowsAhead {
 public:
  /// Another `count` rows of `dim` numbers.
  void add(const KeyRows<T>& rows, std::int64_t count, std::int64_t dim, bool written = false) {
    parts_[used_++] = {rows, count, dim, written};
  }
  /// Of a tensor with the layout of q: its rows of heads [first, first + heads), if they follow each other.
  void add_queries(const Sequence& s, const AttentionLayout& l, const T* x, const TokenStrides& st, KvGroup group,
                   std::int64_t dim, bool written = false) {
    const KeyRows<T> rows{x + query_at(s, l, st, group.first), st.token, nullptr, 1, 0};
    add(rows, s.q_len, st.head == dim ? group.heads * dim : dim, written);
  }
  /// One more row of each.
  void fetch() {
    for (std::size_t i = 0; i < used_; ++i) {
      const Part& part = parts_[i];
      if (next_ >= part.count) continue;
      if (part.written)
        fetch_lines<true>(part.rows(next_), part.dim);
      else
        fetch_lines(part.rows(next_), part.dim);
    }
    ++next_;
  }

 private:
  struct Part {
    KeyRows<T> rows;
    std::int64_t count, dim;
    bool written;
  };
  std::array<Part, 8> parts_ = {};
  std::size_t used_ = 0;
  std::int64_t next_ = 0;
};

/// A head of keys and values of a sequence.
struct KvHead {
  Sequence s;
  std::int64_t kv;
};

/// Keys, values and queries.
template <class T>
void add_operands(RowsAhead<T>& rows, const AttentionArgs<T>& args, const KvHead& head) {
  const AttentionDims& d = args.dims;
  rows.add(key_rows(head.s, args.layout, args.k, args.k_strides, head.kv), head.s.kv_len, d.qk_dim);
  rows.add(key_rows(head.s, args.layout, args.v, args.v_strides, head.kv), head.s.kv_len, d.v_dim);
  rows.add_queries(head.s, args.layout, args.q, args.q_strides, group_of(d, head.kv), d.qk_dim);
}

/// Does `of_head(head, next)` with each head of each sequence in turn; `next` is null behind the last.
template <class T, class Of>
void each_kv_head(const AttentionArgs<T>& args, const Of& of_head) {
  const std::int64_t heads = args.dims.kv_heads, all = args.dims.batch * heads;
  const auto head = [&](std::int64_t i) { return KvHead{sequence(args, i / heads), i % heads}; };
  for (std::int64_t i = 0; i < all; ++i) {
    const KvHead next = head(std::min(i + 1, all - 1));
    of_head(head(i), i + 1 < all ? &next : nullptr);
  }
}

/// Keys [first, first + count), none of two tiles: whole parts, of which the last of a sequence is filled up with
/// zeros.
struct KeyTile {
  std::int64_t first, count;
};

/// Whether any of the queries [i, i + rows) may see any of the keys of the tile: always, when no positions are given,
/// within the range of keys.
template <class T>
bool sees_tile(const AttentionMask<T>& mask, const Sequence& s, std::int64_t i, std::int64_t rows,
               const KeyTile& tile) {
  if (!mask.kv_positions) return true;
  const auto [q_least, q_most] = std::minmax_element(mask.q_positions + i, mask.q_positions + i + rows);
  const std::int32_t* keys = mask.kv_positions;
  const auto [k_least, k_most] =
      std::minmax_element(keys + tile.first, keys + std::min(tile.first + tile.count, s.kv_len));
  if (mask.causal && *k_least > *q_most) return false;
  return *k_most >= mask.first_key(*q_least);
}

/// Does `of_tile` with the keys that the queries [i, i + rows) see between them, tile by tile.
template <class T, class Of>
void each_key_tile(const AttentionMask<T>& mask, const Sequence& s, std::int64_t i, std::int64_t rows,
                   const Of& of_tile) {
  const std::int64_t end = round_up(s.keys(mask, i + rows - 1).end, kKeyPart);
  for (std::int64_t first = s.keys(mask, i).begin / kKeyPart * kKeyPart, next; first < end; first = next) {
    next = std::min(end, (first / kKeyTile + 1) * kKeyTile);
    const KeyTile tile{first, next - first};
    if (sees_tile(mask, s, i, rows, tile)) of_tile(tile);
  }
}

/// −∞ at the scores of the keys j0 … j0+n−1 that are not visible from position p.
template <class T>
void hide_positions(const AttentionMask<T>& mask, std::int64_t p, const std::int32_t* positions, std::int64_t n,
                    T* scores) {
  const T hidden = -std::numeric_limits<T>::infinity();
  const auto last = static_cast<std::int32_t>(p);
  const std::int64_t first = mask.first_key(p);
  if (mask.causal)
    for (std::int64_t j = 0; j < n; ++j) scores[j] = positions[j] > last ? hidden : scores[j];
  if (mask.window != kNoWindow)
    for (std::int64_t j = 0; j < n; ++j) scores[j] = positions[j] < first ? hidden : scores[j];
}

/// c = cap·tanh(s/cap) of n scaled scores; as they are without a cap.
template <class T>
void bound_scores(T cap, std::int64_t n, T* scores) {
  if (cap == T(0)) return;
  const T inverse = T(1) / cap;
  map(n, scores, [&](auto at) { return cap * tanh(at(scores) * inverse); });
}

/// Adds the additive masks of query i, keys of the tile, to its scores, and −∞ where the key is not visible.
template <class T>
void mask_scores(const AttentionMask<T>& mask, const Sequence& s, std::int64_t h, std::int64_t i, const KeyTile& tile,
                 T* scores) {
  const T hidden = -std::numeric_limits<T>::infinity();
  const auto [begin, end] = s.keys(mask, i);
  const std::int64_t j0 = tile.first, width = tile.count, n = std::min(width, s.kv_len - j0);
  const auto add_row = [&](const T* row) { map(n, scores, [&](auto at) { return at(scores) + at(row); }); };
  if (mask.bias) add_row(mask.bias + (h * s.q_len + i) * s.kv_len + j0);
  if (mask.group_mask) add_row(mask.group_mask + ((s.b % mask.groups) * s.q_len + i) * s.kv_len + j0);
  if (mask.tree_mask) {
    const std::int64_t keys = mask.tree_keys > 0 ? mask.tree_keys : s.q_len, first = s.kv_len - keys;
    const T* row = mask.tree_mask + (s.b % mask.tree_groups * s.q_len + i) * keys;
    for (std::int64_t j = std::max(j0, first); j < j0 + n; ++j) scores[j - j0] += row[j - first];
  }
  if (mask.kv_positions) hide_positions(mask, mask.q_positions[i], mask.kv_positions + j0, n, scores);
  const std::int64_t lo = std::clamp<std::int64_t>(begin - j0, 0, width), hi = std::clamp(end - j0, lo, width);
  std::fill(scores, scores + lo, hidden);
  std::fill(scores + hi, scores + width, hidden);
}

/// Keys as columns: panels of kTileCols keys, each [dim, kTileCols]; columns beyond n are zero up to whole parts.
template <class T>
void pack_keys_as_columns(const KeyRows<T>& rows, std::int64_t n, std::int64_t dim, T* out) {
  constexpr std::int64_t kWidth = kTileCols<T>;
  for (std::int64_t j0 = 0; j0 < round_up(n, kKeyPart); j0 += kWidth, out += dim * kWidth) {
    const std::int64_t width = std::clamp<std::int64_t>(n - j0, 0, kWidth);
    if (width < kWidth) std::fill(out, out + dim * kWidth, T(0));
    pack_transposed<T, kWidth>(
        dim, width, [&](std::int64_t j) { return rows(j0 + j); }, out);
  }
}

/// Keys as rows: for each key tile, panels [kKeyTile, kTileCols] over dim; rows beyond n are zero up to whole parts.
template <class T>
void pack_keys_as_rows(const KeyRows<T>& rows, std::int64_t n, std::int64_t dim, T* out) {
  constexpr std::int64_t kWidth = kTileCols<T>;
  const std::int64_t cols = padded_cols<T>(dim);
  for (std::int64_t j0 = 0; j0 < n; j0 += kKeyTile, out += kKeyTile * cols) {
    const std::int64_t used = std::min(kKeyTile, n - j0), filled = round_up(used, kKeyPart);
    for (std::int64_t j = 0; j < used; ++j)
      for (std::int64_t d = 0; d < dim; d += kWidth) {
        T* const rest = std::copy_n(rows(j0 + j) + d, std::min(kWidth, dim - d), out + d * kKeyTile + j * kWidth);
        std::fill(rest, out + d * kKeyTile + (j + 1) * kWidth, T(0));
      }
    for (std::int64_t d = 0; d < dim; d += kWidth)
      std::fill(out + d * kKeyTile + used * kWidth, out + d * kKeyTile + filled * kWidth, T(0));
  }
}

/// A right operand in panels [depth, kTileCols], of which as many rows are multiplied as the left operand has columns.
template <class T>
struct Panels {
  const T* b;
  std::int64_t depth;
};

/// The keys of a tile as columns, and as rows of `dim` numbers.
template <class T>
Panels<T> columns_of_keys(const T* packed, std::int64_t dim, const KeyTile& tile) {
  return {packed + tile.first * dim, dim};
}
template <class T>
Panels<T> rows_of_keys(const T* packed, std::int64_t dim, const KeyTile& tile) {
  const std::int64_t within = tile.first % kKeyTile;
  return {packed + (tile.first - within) * padded_cols<T>(dim) + within * kTileCols<T>, kKeyTile};
}

/// c[rows,cols] (+)= A·B with whole tiles: rows and cols are multiples of the tile, a(i) the eight rows from i.
template <Write W, class T, class Rows>
inline void multiply_panels(std::int64_t rows, std::int64_t cols, std::int64_t k, Rows&& a, const Panels<T>& b, T* c,
                            std::int64_t ldc) {
  for (std::int64_t j = 0; j < cols; j += kTileCols<T>)
    for (std::int64_t i = 0; i < rows; i += kTileRows) {
      const Tile<T> tile = multiply_tile(k, a(i), b.b + j * b.depth);
      for_tile(tile, kTileRows, kTileCols<T>, [&](std::int64_t r, auto at, auto v) {
        T* row = c + (i + r) * ldc + j;
        if constexpr (W == Write::Accumulate) v += at(row);
        put(row, at.i, v);
      });
    }
}

}  // namespace orrery::kernels
