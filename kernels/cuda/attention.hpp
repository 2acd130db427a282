// SPDX-License-Identifier: Apache-2.0
// Attention of any mask and head size, without tensor cores: float, few queries, and what attention_tile.hpp does not
// take. A warp per query; 32 keys at a time.
#pragma once

#include "kernels/cuda/attention_problem.hpp"

namespace orrery::kernels::cuda {

/// o and lse of each query. With `splits` > 1 each warp takes a share of the keys and leaves its o (normalised) and lse
/// in `part_o` [splits, queries, v_dim] and `part_lse` [splits, queries], which JoinSplitsKernel joins: few queries
/// then fill the device.
template <class T>
struct AttentionKernel {
  static constexpr int kThreads = kAttentionThreads;
  static constexpr bool kCooperates = true;
  AttentionProblem p;
  HeadView o;
  Numbers lse;  // or none
  std::int64_t splits = 1;
  float *part_o = nullptr, *part_lse = nullptr;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const std::int64_t all = p.num_queries() * splits;
    for (std::int64_t w = t.block() * kAttentionWarps + t.index() / kWarp; w < all; w += t.blocks() * kAttentionWarps) {
      const auto at = p.query_at(w / splits);
      if (at.is_there)
        query(t, at, w / splits, w % splits);
      else if (w % splits == 0)
        clear(t, w / splits);
    }
  }

  /// A row behind those of the last sequence: what follows in a plan reads whole tensors.
  template <class Thread>
  KERNELS_GPU void clear(const Thread& t, std::int64_t w) const {
    T* row = o.row<T>(0, w % p.q_len, w / p.q_len);
    for (std::int64_t d = t.index() % kWarp; d < p.v_dim; d += kWarp) row[d] = from_float<T>(0.0f);
  }
  template <class Thread>
  KERNELS_GPU void query(const Thread& t, const AttentionProblem::Query& at, std::int64_t w, std::int64_t split) const {
    const auto [b, h, i, is_there] = at;
    const int lane = t.index() % kWarp;
    const std::int64_t keys = p.keys(b), share = blocks_of<std::int64_t>(keys, splits * kWarp) * kWarp;
    const std::int64_t end = smaller_of(keys, (split + 1) * share);
    float q[kLaneDims], sum_o[kLaneDims], most = -kInfinity, sum = 0;
    load_lane(p.query<T>(p.q, b, i, h), p.qk_dim, lane, q);
    clear_lane(sum_o);
    for (std::int64_t first = split * share; first < end; first += kWarp) {
      const std::int64_t j = first + lane;
      const bool seen = j < end && p.sees(b, i, j);
      float s = dot_spread(t, seen ? p.key<T>(p.k, b, j, h) : nullptr, q, p.qk_dim);
      s = seen ? p.bounded(s * p.scale) + p.added(b, h, i, j) : -kInfinity;
      const float next = larger(most, warp_max(t, s));
      if (next == -kInfinity) continue;
      const float shrink = expf(most - next), weight = expf(s - next);
      sum = sum * shrink + warp_sum(t, weight);
      for (int k = 0; k < kLaneDims; ++k) sum_o[k] *= shrink;
      add_rows(t, seen ? p.key<T>(p.v, b, j, h) : nullptr, weight, p.v_dim, lane, sum_o);
      most = next;
    }
    const float inverse = sum > 0 ? 1.0f / sum : 0.0f, log_sum = sum > 0 ? most + logf(sum) : -kInfinity;
    for (int k = 0; k < kLaneDims; ++k) sum_o[k] *= inverse;
    if (splits > 1) {
      const std::int64_t part = split * p.num_queries() + w;
      store_lane(part_o + part * p.v_dim, p.v_dim, lane, sum_o, false);
      if (lane == 0) part_lse[part] = log_sum;
      return;
    }
    store_lane(p.query<T>(o, b, i, h), p.v_dim, lane, sum_o, false);
    if (lane == 0 && lse.there()) lse.set(p.lse_index(b, h, i), log_sum);
  }
};

/// o = Σ_s e^(lse_s − L)·o_s with L = ln Σ_s e^lse_s, of the shares of one query.
template <class T>
struct JoinSplitsKernel {
  static constexpr int kThreads = kAttentionThreads;
  static constexpr bool kCooperates = false;
  AttentionProblem p;
  HeadView o;
  Numbers lse;
  std::int64_t splits;
  const float *part_o, *part_lse;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const std::int64_t queries = p.num_queries();
    for (std::int64_t w = t.block(); w < queries; w += t.blocks()) {
      const auto [b, h, i, is_there] = p.query_at(w);
      if (!is_there) continue;
      float most = -kInfinity, sum = 0;
      for (std::int64_t s = 0; s < splits; ++s) most = larger(most, part_lse[s * queries + w]);
      for (std::int64_t s = 0; s < splits; ++s)
        sum += most == -kInfinity ? 0.0f : expf(part_lse[s * queries + w] - most);
      T* to = p.query<T>(o, b, i, h);
      for (std::int64_t d = t.index(); d < p.v_dim; d += kThreads) {
        float v = 0;
        for (std::int64_t s = 0; s < splits; ++s)
          if (const float l = part_lse[s * queries + w]; l != -kInfinity)
            v += expf(l - most) / sum * part_o[(s * queries + w) * p.v_dim + d];
        to[d] = from_float<T>(v);
      }
      if (t.index() == 0 && lse.there())
        lse.set(p.lse_index(b, h, i), most == -kInfinity ? -kInfinity : most + logf(sum));
    }
  }
};

/// L = ln(e^lse + e^lse'), o ← o·e^(lse − L) + o'·e^(lse' − L), lse ← L; a block per (row, head).
template <class T>
struct MergeKernel {
  static constexpr int kThreads = 64;
  static constexpr bool kCooperates = true;
  std::int64_t batch, q_len, heads, dim;
  const T* part_o;
  T* o;
  Numbers part_lse, lse;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t w = t.block(); w < batch * q_len * heads; w += t.blocks()) {
      const std::int64_t h = w % heads, i = w / heads % q_len, b = w / heads / q_len, at = (b * heads + h) * q_len + i;
      const float old = lse.get(at), fresh = part_lse.get(at), most = larger(old, fresh);
      const float all = most == -kInfinity ? most : most + logf(expf(old - most) + expf(fresh - most));
      const float keep = old == -kInfinity ? 0.0f : expf(old - all),
                  add = fresh == -kInfinity ? 0.0f : expf(fresh - all);
      for (std::int64_t d = t.index(); d < dim; d += kThreads) {
        const float kept = old == -kInfinity ? 0.0f : keep * to_float(o[w * dim + d]);
        o[w * dim + d] = from_float<T>(kept + (add == 0 ? 0.0f : add * to_float(part_o[w * dim + d])));
      }
      t.sync();  // all have read lse
      if (t.index() == 0) lse.set(at, all);
    }
  }
};

template <class T>
using AttentionKernels = KernelList<AttentionKernel<T>, JoinSplitsKernel<T>, MergeKernel<T>>;

}  // namespace orrery::kernels::cuda
