// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/attention_decode.hpp"

#include <cmath>
#include <cstring>

namespace orrery::kernels {
namespace {

/// A row is one (query head of the group, query): row r is head r / q_len, query r % q_len.
template <class T>
struct Rows {
  std::int64_t count, dim, v_dim;
  T *query, *scores, *out, *max, *sum;

  Rows(const AttentionDims& d, std::int64_t q_len, void* workspace)
      : count{d.heads / d.kv_heads * q_len}, dim{d.qk_dim}, v_dim{d.v_dim} {
    Arena arena{workspace};
    query = arena.take<T>(count * dim);
    scores = arena.take<T>(count * kKeyTile);
    out = arena.take<T>(count * v_dim);
    max = arena.take<T>(count);
    sum = arena.take<T>(count);
  }
};

template <class T>
void load_queries(const AttentionArgs<T>& args, const Sequence& s, std::int64_t first_head, const Rows<T>& x) {
  for (std::int64_t r = 0; r < x.count; ++r) {
    const std::int64_t h = first_head + r / s.q_len, i = r % s.q_len;
    const T* q = args.q + query_at(s, args.layout, args.q_strides, h) + i * args.q_strides.token;
    map(x.dim, x.query + r * x.dim, [&](auto at) { return at(q) * args.scale; });
    std::fill(x.out + r * x.v_dim, x.out + (r + 1) * x.v_dim, T(0));
    x.max[r] = -std::numeric_limits<T>::infinity();
    x.sum[r] = 0;
  }
}

constexpr std::int64_t kAhead = 8;  // rows between a prefetch and its use

/// Heads lie in pieces of a few lines in a token, too short for the hardware to run ahead. GCC takes what only fetches
/// for what does nothing, unless it is inlined.
template <class T>
[[gnu::always_inline]] inline void prefetch_row(const T* row, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kLanes<T>) __builtin_prefetch(row + i);
}

/// scores[r, j] = q_r·k_j of four keys, which all rows share.
template <class T>
void score_four(const Rows<T>& x, const T* const (&k)[4], T* scores) {
  const std::int64_t whole = x.dim / kLanes<T> * kLanes<T>, left = x.dim - whole;
  for (std::int64_t r = 0; r < x.count; ++r) {
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
void score_keys(const KeyRows<T>& keys, std::int64_t j0, std::int64_t n, const Rows<T>& x) {
  std::int64_t j = 0;
  for (; x.dim >= kLanes<T> && j + 4 <= n; j += 4) {
    for (std::int64_t i = j + kAhead; i < std::min(j + kAhead + 4, n); ++i) prefetch_row(keys(j0 + i), x.dim);
    score_four<T>(x, {keys(j0 + j), keys(j0 + j + 1), keys(j0 + j + 2), keys(j0 + j + 3)}, x.scores + j);
  }
  for (; j < n; ++j) {
    const T* k = keys(j0 + j);
    for (std::int64_t r = 0; r < x.count; ++r) {
      const T* q = x.query + r * x.dim;
      x.scores[r * kKeyTile + j] = reduce_add<T>(x.dim, [&](auto at) { return at(q) * at(k); });
    }
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
void add_values(const KeyRows<T>& values, std::int64_t j0, std::int64_t n, const Rows<T>& x) {
  std::int64_t j = 0;
  for (; j + 4 <= n; j += 4) {
    const T *v0 = values(j0 + j), *v1 = values(j0 + j + 1), *v2 = values(j0 + j + 2), *v3 = values(j0 + j + 3);
    for (std::int64_t i = j + kAhead; i < std::min(j + kAhead + 4, n); ++i) prefetch_row(values(j0 + i), x.v_dim);
    for (std::int64_t r = 0; r < x.count; ++r) {
      T* o = x.out + r * x.v_dim;
      const T* p = x.scores + r * kKeyTile + j;
      map(x.v_dim, o,
          [&](auto at) { return at(o) + (at(v0) * p[0] + at(v1) * p[1] + (at(v2) * p[2] + at(v3) * p[3])); });
    }
  }
  for (; j < n; ++j) {
    const T* v = values(j0 + j);
    for (std::int64_t r = 0; r < x.count; ++r) {
      T* o = x.out + r * x.v_dim;
      map(x.v_dim, o, [&](auto at) { return at(o) + at(v) * x.scores[r * kKeyTile + j]; });
    }
  }
}

template <class T>
void store_outputs(const AttentionArgs<T>& args, const Sequence& s, std::int64_t first_head, const Rows<T>& x) {
  for (std::int64_t r = 0; r < x.count; ++r) {
    const std::int64_t h = first_head + r / s.q_len, i = r % s.q_len;
    const T inverse = x.sum[r] > 0 ? T(1) / x.sum[r] : T(0);
    const T* from = x.out + r * x.v_dim;
    T* o = args.o + query_at(s, args.layout, args.o_strides, h) + i * args.o_strides.token;
    map(x.v_dim, o, [&](auto at) { return at(from) * inverse; });
    lse_row(args, s, h)[i] = x.max[r] + std::log(x.sum[r]);
  }
}

}  // namespace

std::size_t decode_workspace(const AttentionDims& d, std::size_t element_size) {
  const std::int64_t rows = d.heads / d.kv_heads * std::min(d.q_len, kDecodeQueries);
  return static_cast<std::size_t>(rows * (d.qk_dim + kKeyTile + d.v_dim + 2)) * element_size + 5 * 64;
}

template <class T>
void decode_head(const AttentionArgs<T>& args, const Sequence& s, std::int64_t kv) {
  if (s.q_len == 0) return;
  const std::int64_t first_head = kv * (args.dims.heads / args.dims.kv_heads);
  const Rows<T> rows{args.dims, s.q_len, args.workspace};
  const KeyRows<T> keys = key_rows(s, args.layout, args.k, args.k_strides, kv);
  const KeyRows<T> values = key_rows(s, args.layout, args.v, args.v_strides, kv);
  load_queries(args, s, first_head, rows);
  const std::int64_t begin = s.keys(args.mask, 0).begin, end = s.keys(args.mask, s.q_len - 1).end;
  for (std::int64_t j0 = begin / kKeyTile * kKeyTile; j0 < end; j0 += kKeyTile) {
    if (!sees_tile(args.mask, s, 0, s.q_len, j0)) continue;
    const std::int64_t n = std::min(kKeyTile, s.kv_len - j0);
    score_keys(keys, j0, n, rows);
    for (std::int64_t r = 0; r < rows.count; ++r) {
      bound_scores(args.cap, n, rows.scores + r * kKeyTile);
      mask_scores(args.mask, s, first_head + r / s.q_len, r % s.q_len, j0, n, rows.scores + r * kKeyTile);
      softmax_row(rows, r, n);
    }
    add_values(values, j0, n, rows);
  }
  store_outputs(args, s, first_head, rows);
}

template void decode_head<float>(const AttentionArgs<float>&, const Sequence&, std::int64_t);
template void decode_head<double>(const AttentionArgs<double>&, const Sequence&, std::int64_t);

}  // namespace orrery::kernels
