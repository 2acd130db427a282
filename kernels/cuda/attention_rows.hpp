// SPDX-License-Identifier: Apache-2.0
// Attention of any mask over rows of whole 16-byte chunks, without tensor cores: decoding, pages, and float. A warp
// takes up to R queries that share keys and values (heads of a group, and queries of a sequence), so that these are
// read once for all of them. Lanes share a key: each holds one chunk of it, and several keys are on their way at once.
#pragma once

#include "kernels/cuda/attention_problem.hpp"

namespace orrery::kernels::cuda {

constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;  // scores are kept in units of ln 2

/// Chunks of a head that a warp holds: heads of up to 256 numbers in 16 bits, 128 in 32.
constexpr int kMostChunks = kWarp;

/// Rows that a warp takes together, of so many that share their keys: as many as registers hold.
constexpr int rows_together(std::int64_t rows, std::int64_t element_bytes) {
  return rows >= 8 && element_bytes == 4 ? 8 : rows >= 4 ? 4 : rows >= 2 ? 2 : 1;
}

/// o and lse as of AttentionKernel, whose splits it has.
template <class T, int R>
struct AttentionRowsKernel {
  static constexpr int kThreads = kAttentionThreads;
  static constexpr bool kCooperates = true;
  static constexpr int kChunk = kPack<T>, kAhead = R >= 8 ? 2 : 4;  // numbers of a chunk; keys of a lane on their way
  AttentionProblem p;
  HeadView o;
  Numbers lse;  // or none
  std::int64_t splits = 1;
  float *part_o = nullptr, *part_lse = nullptr;
  int lanes = kWarp;  // of a key: a power of two, at least the chunks of a head

  /// Rows that share keys and values.
  constexpr std::int64_t rows() const { return p.heads / p.kv_heads * (p.cu_q ? 1 : p.q_len); }
  constexpr std::int64_t pieces() const { return blocks_of<std::int64_t>(rows(), R); }
  /// Warps of one split.
  constexpr std::int64_t units() const { return (p.cu_q ? p.q_len : p.batch) * p.kv_heads * pieces(); }

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const std::int64_t all = units() * splits;
    for (std::int64_t w = t.block() * kAttentionWarps + t.index() / kWarp; w < all; w += t.blocks() * kAttentionWarps)
      unit(t, w / splits, w % splits);
  }

 private:
  /// What the lanes of a key know of one row: its query, the largest score so far (in bits), sums of weights and of
  /// weighted values; the keys that it sees.
  struct Row {
    float q[kChunk], sum_o[kChunk], most, sum;
    std::int32_t first, last;
  };
  /// Where a row stands.
  struct Place {
    std::int64_t h, i, w;
    bool is_there;
  };
  struct Unit {
    std::int64_t b, group, piece, n, i;
    bool is_there;
  };
  KERNELS_GPU_INLINE Unit unit_at(std::int64_t u) const {
    const std::int64_t above = u / pieces(), n = above / p.kv_heads;
    if (!p.cu_q) return {n, above % p.kv_heads, u % pieces(), n, 0, true};
    const auto at = p.query_at(n);
    return {at.b, above % p.kv_heads, u % pieces(), n, at.i, at.is_there};
  }
  KERNELS_GPU_INLINE Place place(const Unit& u, int r) const {
    const std::int64_t shared_by = p.heads / p.kv_heads, row = u.piece * R + r;
    const std::int64_t h = u.group * shared_by + row % shared_by, i = p.cu_q ? u.i : row / shared_by;
    return {h, i, p.cu_q ? h * p.q_len + u.n : (u.b * p.heads + h) * p.q_len + i, row < rows()};
  }
  template <class Thread>
  KERNELS_GPU void unit(const Thread& t, std::int64_t number, std::int64_t split) const {
    const Unit u = unit_at(number);
    const int lane = t.index() % kWarp, chunk = lane % lanes;
    if (!u.is_there) {  // behind the last sequence: what follows in a plan reads whole tensors
      KERNELS_UNROLL
      for (int r = 0; split == 0 && r < R; ++r)
        if (const Place at = place(u, r); at.is_there)
          for (std::int64_t d = lane; d < p.v_dim; d += kWarp) o.row<T>(0, u.n, at.h)[d] = from_float<T>(0.0f);
      return;
    }
    Row row[R];
    std::int64_t begin = INT64_MAX, end = 0;
    start(u, chunk, row, begin, end);
    const std::int64_t keys = p.keys(u.b), share = blocks_of<std::int64_t>(keys, splits * kWarp) * kWarp;
    if (p.kv_positions) begin = 0, end = keys;
    begin = larger_of(begin, split * share);
    end = smaller_of(smaller_of(end, keys), (split + 1) * share);
    const int together = kWarp / lanes;
    for (std::int64_t first = begin; first < end; first += together * kAhead)
      some_keys(t, u, chunk, first + lane / lanes, together, end, row);
    KERNELS_UNROLL
    for (int r = 0; r < R; ++r) {
      join(t, row[r]);
      store(place(u, r), u, lane, split, row[r]);
    }
  }
  KERNELS_GPU_INLINE void start(const Unit& u, int chunk, Row (&row)[R], std::int64_t& begin, std::int64_t& end) const {
    const std::int64_t shift = p.keys(u.b) - p.queries(u.b);
    KERNELS_UNROLL
    for (int r = 0; r < R; ++r) {
      const Place at = place(u, r);
      row[r].most = -kInfinity, row[r].sum = 0;
      KERNELS_UNROLL
      for (int e = 0; e < kChunk; ++e) row[r].q[e] = row[r].sum_o[e] = 0;
      row[r].first = 1, row[r].last = 0;  // none
      if (!at.is_there) continue;
      if (chunk * kChunk < p.qk_dim) load(p.query<T>(p.q, u.b, at.i, at.h) + chunk * kChunk, row[r].q);
      const float scale = p.cap > 0 ? p.scale : p.scale * kLog2E;
      KERNELS_UNROLL
      for (int e = 0; e < kChunk; ++e) row[r].q[e] *= scale;
      const std::int64_t position = p.q_positions ? p.q_positions[at.i] : at.i + shift;
      row[r].first = static_cast<std::int32_t>(
          larger_of<std::int64_t>(window_start(position, p.window, p.chunked), p.first_key(u.b, at.i)));
      row[r].last = p.causal ? static_cast<std::int32_t>(position) : INT32_MAX - 1;
      begin = smaller_of<std::int64_t>(begin, row[r].first);
      end = larger_of<std::int64_t>(end, row[r].last + 1);
    }
  }
  /// kAhead keys of this lane's, `together` apart from j on.
  template <class Thread>
  KERNELS_GPU_INLINE void some_keys(const Thread& t, const Unit& u, int chunk, std::int64_t j, int together,
                                    std::int64_t end, Row (&row)[R]) const {
    const std::int64_t head = u.group * (p.heads / p.kv_heads);
    // All are asked for before the first is used: places behind the last key, and behind a head, are those of the last,
    // whose weights are 0 and whose sums nobody stores.
    const std::int64_t qk_at = smaller_of<std::int64_t>(chunk, p.qk_dim / kChunk - 1) * kChunk,
                       v_at = smaller_of<std::int64_t>(chunk, p.v_dim / kChunk - 1) * kChunk;
    Pack<T, kChunk> keys[kAhead], values[kAhead];
    KERNELS_UNROLL
    for (int a = 0; a < kAhead; ++a) {
      const std::int64_t at = smaller_of(j + a * together, end - 1);
      keys[a] = *reinterpret_cast<const Pack<T, kChunk>*>(p.key<T>(p.k, u.b, at, head) + qk_at);
      values[a] = *reinterpret_cast<const Pack<T, kChunk>*>(p.key<T>(p.v, u.b, at, head) + v_at);
    }
    float k[kAhead][kChunk], v[kAhead][kChunk];
    KERNELS_UNROLL
    for (int a = 0; a < kAhead; ++a) {
      KERNELS_UNROLL
      for (int e = 0; e < kChunk; ++e) k[a][e] = to_float(keys[a].value[e]), v[a][e] = to_float(values[a].value[e]);
    }
    KERNELS_UNROLL
    for (int r = 0; r < R; ++r) {
      float s[kAhead], most = row[r].most;
      KERNELS_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        s[a] = 0;
        KERNELS_UNROLL
        for (int e = 0; e < kChunk; ++e) s[a] += row[r].q[e] * k[a][e];
        for (int mask = 1; mask < lanes; mask *= 2) s[a] += t.shuffle_xor(s[a], mask);
        s[a] = masked(u, r, j + a * together, end, row[r], s[a]);
        most = larger(most, s[a]);
      }
      if (most == -kInfinity) continue;
      const float shrink = exp2f(row[r].most - most);
      row[r].most = most;
      row[r].sum *= shrink;
      KERNELS_UNROLL
      for (int e = 0; e < kChunk; ++e) row[r].sum_o[e] *= shrink;
      KERNELS_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        const float weight = exp2f(s[a] - most);
        row[r].sum += weight;
        KERNELS_UNROLL
        for (int e = 0; e < kChunk; ++e) row[r].sum_o[e] += weight * v[a][e];
      }
    }
  }
  /// The score of row r at key j, in units of ln 2, as the masks leave it.
  KERNELS_GPU_INLINE float masked(const Unit& u, int r, std::int64_t j, std::int64_t end, const Row& row,
                                  float s) const {
    if (j >= end) return -kInfinity;
    const std::int32_t at = p.kv_positions ? p.kv_positions[j] : static_cast<std::int32_t>(j);
    if (at > row.last || at < row.first) return -kInfinity;
    if (p.cap > 0) s = p.bounded(s) * kLog2E;
    if (p.bias.there() || p.group_mask.there() || p.tree_mask.there()) {
      const Place place_of = place(u, r);
      s += p.added(u.b, place_of.h, place_of.i, j) * kLog2E;
    }
    return s;
  }
  /// Over the groups of lanes, each of which went over keys of its own.
  template <class Thread>
  KERNELS_GPU_INLINE void join(const Thread& t, Row& row) const {
    for (int mask = lanes; mask < kWarp; mask *= 2) {
      const float other = t.shuffle_xor(row.most, mask), most = larger(row.most, other);
      const float mine = most == -kInfinity ? 0.0f : exp2f(row.most - most),
                  theirs = most == -kInfinity ? 0.0f : exp2f(other - most);
      row.sum = row.sum * mine + t.shuffle_xor(row.sum, mask) * theirs;
      KERNELS_UNROLL
      for (int e = 0; e < kChunk; ++e) row.sum_o[e] = row.sum_o[e] * mine + t.shuffle_xor(row.sum_o[e], mask) * theirs;
      row.most = most;
    }
  }
  KERNELS_GPU_INLINE void store(const Place& at, const Unit& u, int lane, std::int64_t split, Row& row) const {
    if (!at.is_there || lane >= lanes) return;
    const float inverse = row.sum > 0 ? 1.0f / row.sum : 0.0f;
    const float log_sum = row.sum > 0 ? row.most * kLn2 + logf(row.sum) : -kInfinity;
    KERNELS_UNROLL
    for (int e = 0; e < kChunk; ++e) row.sum_o[e] *= inverse;
    const std::int64_t part = split * p.num_queries() + at.w;
    if (lane * kChunk < p.v_dim) {
      if (splits > 1) KERNELS_UNROLL
      for (int e = 0; e < kChunk; ++e) part_o[part * p.v_dim + lane * kChunk + e] = row.sum_o[e];
      else kernels::cuda::store(p.query<T>(o, u.b, at.i, at.h) + lane * kChunk, row.sum_o);
    }
    if (lane != 0) return;
    if (splits > 1)
      part_lse[part] = log_sum;
    else if (lse.there())
      lse.set(p.lse_index(u.b, at.h, at.i), log_sum);
  }
};

template <class T>
using AttentionRowsKernels =
    KernelList<AttentionRowsKernel<T, 1>, AttentionRowsKernel<T, 2>, AttentionRowsKernel<T, 4>>;
using WideAttentionRowsKernels = KernelList<AttentionRowsKernel<float, 8>>;

}  // namespace orrery::kernels::cuda
