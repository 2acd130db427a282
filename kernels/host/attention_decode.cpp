// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/attention_decode.hpp"

#include <cmath>
#include <cstring>

namespace orrery::kernels {
namespace {

/// Heads of keys lie side by side in a token. Those whose queries, scores and results fill this much are attended to at
/// once, so that keys and values are read in the order in which they lie. One head after the other, which reads a few
/// lines of each token, took up to 1.6 times as long from memory (Sapphire Rapids, heads of 64 and 128 numbers).
constexpr std::int64_t kStateBytes = 64 << 10;

std::int64_t rows_of_head(const AttentionDims& d) { return d.heads / d.kv_heads * std::min(d.q_len, kDecodeQueries); }

std::int64_t heads_at_once(const AttentionDims& d, std::size_t element_size) {
  const std::int64_t bytes =
                         static_cast<std::int64_t>(element_size) * rows_of_head(d) * (d.qk_dim + kKeyTile + d.v_dim),
                     most = std::max<std::int64_t>(1, kStateBytes / std::max<std::int64_t>(1, bytes)),
                     blocks = round_up(d.kv_heads, most) / most;
  return round_up(d.kv_heads, blocks) / blocks;  // as many in each
}

/// Of some heads of keys. Each has `of_head` rows, which are (query head of its group, query): row r of a head is query
/// head r / q_len, query r % q_len.
template <class T>
struct Rows {
  std::int64_t heads, of_head, dim, v_dim;
  T *query, *scores, *out, *max, *sum;

  Rows(const AttentionDims& d, std::int64_t kv_heads, std::int64_t q_len, void* workspace)
      : heads{kv_heads}, of_head{d.heads / d.kv_heads * q_len}, dim{d.qk_dim}, v_dim{d.v_dim} {
    Arena arena{workspace};
    query = arena.take<T>(count() * dim);
    scores = arena.take<T>(count() * kKeyTile);
    out = arena.take<T>(count() * v_dim);
    max = arena.take<T>(count());
    sum = arena.take<T>(count());
  }
  std::int64_t count() const { return heads * of_head; }
};

/// Keys or values of heads that are `head` apart.
template <class T>
struct KeyHeads {
  KeyRows<T> rows;
  std::int64_t heads, head, dim;
  std::int64_t end;  // rows behind it are not fetched

  const T* operator()(std::int64_t j, std::int64_t h) const { return rows(j) + h * head; }
  /// The part of a head in row j.
  [[gnu::always_inline]] void fetch(std::int64_t j, std::int64_t h) const {
    if (j < end) fetch_lines<false, kFirstLevel>((*this)(j, h), dim);
  }
};

template <class T>
void load_queries(const AttentionArgs<T>& args, const Sequence& s, std::int64_t first_head, const Rows<T>& x) {
  for (std::int64_t r = 0; r < x.count(); ++r) {
    const std::int64_t h = first_head + r / s.q_len, i = r % s.q_len;
    const T* q = args.q + query_at(s, args.layout, args.q_strides, h) + i * args.q_strides.token;
    map(x.dim, x.query + r * x.dim, [&](auto at) { return at(q) * args.scale; });
    std::fill(x.out + r * x.v_dim, x.out + (r + 1) * x.v_dim, T(0));
    x.max[r] = -std::numeric_limits<T>::infinity();
    x.sum[r] = 0;
  }
}

/// Rows between what is fetched and what is used, a multiple of four.
template <class T>
std::int64_t rows_ahead(const KeyHeads<T>& x) {
  constexpr std::int64_t kBytes = 4 << 10;
  const std::int64_t row = x.heads * x.dim * static_cast<std::int64_t>(sizeof(T));
  return std::max<std::int64_t>(1, kBytes / std::max<std::int64_t>(1, 4 * row)) * 4;
}

/// scores[r, j] = q_r·k_j of four keys, which all rows of head h share.
template <class T>
void score_four(const Rows<T>& x, std::int64_t h, const T* const (&k)[4], T* scores) {
  const std::int64_t whole = x.dim / kLanes<T> * kLanes<T>, left = x.dim - whole;
  for (std::int64_t r = h * x.of_head; r < (h + 1) * x.of_head; ++r) {
    const T* q = x.query + r * x.dim;
    Vec<T> sum[4] = {};
    for (std::int64_t i = 0; i < whole; i += kLanes<T>)
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) sum[c] += load<Vec<T>>(q + i) * load<Vec<T>>(k[c] + i);
    if (left > 0)
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) sum[c] += load<Vec<T>>(q + x.dim - kLanes<T>) * last_lanes<T>(k[c] + x.dim, left);
    const auto sums = sum_lanes_of_four<T>(sum);
    std::memcpy(scores + r * kKeyTile, &sums, sizeof sums);
  }
}

/// scores[r, j − j0] = q_r·k_j.
template <class T>
void score_keys(const KeyHeads<T>& keys, std::int64_t j0, std::int64_t n, const Rows<T>& x) {
  const std::int64_t ahead = rows_ahead<T>(keys);
  std::int64_t j = 0;
  for (; x.dim >= kLanes<T> && j + 4 <= n; j += 4)
    for (std::int64_t h = 0; h < x.heads; ++h) {
      for (std::int64_t c = 0; c < 4; ++c) keys.fetch(j0 + j + ahead + c, h);
      score_four(x, h, {keys(j0 + j, h), keys(j0 + j + 1, h), keys(j0 + j + 2, h), keys(j0 + j + 3, h)}, x.scores + j);
    }
  for (; j < n; ++j)
    for (std::int64_t r = 0; r < x.count(); ++r) {
      const T *k = keys(j0 + j, r / x.of_head), *q = x.query + r * x.dim;
      x.scores[r * kKeyTile + j] = reduce_add<T>(x.dim, [&](auto at) { return at(q) * at(k); });
    }
}

template <class T>
void softmax_row(const Rows<T>& x, std::int64_t r, std::int64_t n) {
  T* s = x.scores + r * kKeyTile;
  const T m = std::max(x.max[r], reduce_max<T>(n, [&](auto at) { return at(s); }));
  if (m == -std::numeric_limits<T>::infinity()) return std::fill(s, s + n, T(0));
  const T keep = exp(x.max[r] - m);
  map(n, s, [&](auto at) { return exp(at(s) - m); });
  T* o = x.out + r * x.v_dim;
  if (keep != T(1)) map(x.v_dim, o, [&](auto at) { return at(o) * keep; });
  x.sum[r] = x.sum[r] * keep + reduce_add<T>(n, [&](auto at) { return at(s); });
  x.max[r] = m;
}

/// out[r,:] += Σ_j p[r,j]·v_j, four keys at a time.
template <class T>
void add_values(const KeyHeads<T>& values, std::int64_t j0, std::int64_t n, const Rows<T>& x) {
  const std::int64_t ahead = rows_ahead<T>(values);
  std::int64_t j = 0;
  for (; j + 4 <= n; j += 4)
    for (std::int64_t h = 0; h < x.heads; ++h) {
      for (std::int64_t c = 0; c < 4; ++c) values.fetch(j0 + j + ahead + c, h);
      const T *v0 = values(j0 + j, h), *v1 = values(j0 + j + 1, h), *v2 = values(j0 + j + 2, h),
              *v3 = values(j0 + j + 3, h);
      for (std::int64_t r = h * x.of_head; r < (h + 1) * x.of_head; ++r) {
        T* o = x.out + r * x.v_dim;
        const T* p = x.scores + r * kKeyTile + j;
        map(x.v_dim, o,
            [&](auto at) { return at(o) + (at(v0) * p[0] + at(v1) * p[1] + (at(v2) * p[2] + at(v3) * p[3])); });
      }
    }
  for (; j < n; ++j)
    for (std::int64_t r = 0; r < x.count(); ++r) {
      const T* v = values(j0 + j, r / x.of_head);
      T* o = x.out + r * x.v_dim;
      map(x.v_dim, o, [&](auto at) { return at(o) + at(v) * x.scores[r * kKeyTile + j]; });
    }
}

template <class T>
void store_outputs(const AttentionArgs<T>& args, const Sequence& s, std::int64_t first_head, const Rows<T>& x) {
  for (std::int64_t r = 0; r < x.count(); ++r) {
    const std::int64_t h = first_head + r / s.q_len, i = r % s.q_len;
    const T inverse = x.sum[r] > 0 ? T(1) / x.sum[r] : T(0);
    const T* from = x.out + r * x.v_dim;
    T* o = args.o + query_at(s, args.layout, args.o_strides, h) + i * args.o_strides.token;
    map(x.v_dim, o, [&](auto at) { return at(from) * inverse; });
    lse_row(args, s, h)[i] = x.max[r] + std::log(x.sum[r]);
  }
}

/// The heads of keys [first, first + heads) of a sequence.
template <class T>
void attend_heads(const AttentionArgs<T>& args, const Sequence& s, std::int64_t first, std::int64_t heads) {
  const Rows<T> rows{args.dims, heads, s.q_len, args.workspace};
  const std::int64_t first_head = group_of(args.dims, first).first;
  const std::int64_t end = s.keys(args.mask, s.q_len - 1).end;
  const KeyHeads<T> keys{key_rows(s, args.layout, args.k, args.k_strides, first), heads, args.k_strides.head, rows.dim,
                         end},
      values{key_rows(s, args.layout, args.v, args.v_strides, first), heads, args.v_strides.head, rows.v_dim, end};
  load_queries(args, s, first_head, rows);
  each_key_tile(args.mask, s, 0, s.q_len, [&](const KeyTile& tile) {
    const KeyTile there{tile.first, std::min(tile.count, s.kv_len - tile.first)};
    score_keys(keys, there.first, there.count, rows);
    for (std::int64_t r = 0; r < rows.count(); ++r) {
      bound_scores(args.cap, there.count, rows.scores + r * kKeyTile);
      mask_scores(args.mask, s, first_head + r / s.q_len, r % s.q_len, there, rows.scores + r * kKeyTile);
      softmax_row(rows, r, there.count);
    }
    add_values(values, there.first, there.count, rows);
  });
  store_outputs(args, s, first_head, rows);
}

}  // namespace

std::size_t decode_workspace(const AttentionDims& d, std::size_t element_size) {
  const std::int64_t rows = heads_at_once(d, element_size) * rows_of_head(d);
  return static_cast<std::size_t>(rows * (d.qk_dim + kKeyTile + d.v_dim + 2)) * element_size + 5 * 64;
}

template <class T>
void attend_few(const AttentionArgs<T>& args) {
  const AttentionDims& d = args.dims;
  const bool adjoin = args.k_strides.head == d.qk_dim && args.v_strides.head == d.v_dim;
  const std::int64_t most = adjoin ? heads_at_once(d, sizeof(T)) : 1;
  for (std::int64_t b = 0; b < d.batch; ++b) {
    const Sequence s = sequence(args, b);
    if (s.q_len == 0 || s.q_len > kDecodeQueries) continue;
    for (std::int64_t kv = 0; kv < d.kv_heads; kv += most) attend_heads(args, s, kv, std::min(most, d.kv_heads - kv));
  }
}

template void attend_few<float>(const AttentionArgs<float>&);
template void attend_few<double>(const AttentionArgs<double>&);

}  // namespace orrery::kernels
