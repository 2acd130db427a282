// SPDX-License-Identifier: Apache-2.0
// Gradients of attention of any mask and head size: a warp per query or, for the gradients of keys, per key.
#pragma once

#include "kernels/cuda/attention_problem.hpp"

namespace orrery::kernels::cuda {

/// δ_i = dO_i·o_i of each query, in float.
template <class T>
struct DeltaKernel {
  static constexpr int kThreads = kAttentionThreads;
  static constexpr bool kCooperates = true;
  AttentionProblem p;
  HeadView o, d_o;
  float* delta;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const int lane = t.index() % kWarp;
    const std::int64_t all = p.num_queries();
    for (std::int64_t w = t.block() * kAttentionWarps + t.index() / kWarp; w < all; w += t.blocks() * kAttentionWarps) {
      const auto [b, h, i, is_there] = p.query_at(w);
      if (!is_there) continue;
      const T *x = p.query<T>(o, b, i, h), *y = p.query<T>(d_o, b, i, h);
      float sum = 0;
      for (std::int64_t d = lane; d < p.v_dim; d += kWarp) sum += to_float(x[d]) * to_float(y[d]);
      sum = warp_sum(t, sum);
      if (lane == 0) delta[p.lse_index(b, h, i)] = sum;
    }
  }
};

/// p_ij = exp(s_ij − lse_i), 0 where the query sees no key.
KERNELS_GPU_INLINE float weight_of(float s, float lse) { return lse == -kInfinity ? 0.0f : expf(s - lse); }

/// dQ_i = scale·Σ_j p_ij (dO_i·v_j − δ_i) k_j, with the slopes of bounded scores as factors: a warp per query.
template <class T>
struct AttentionQuerySlopeKernel {
  static constexpr int kThreads = kAttentionThreads;
  static constexpr bool kCooperates = true;
  AttentionProblem p;
  HeadView d_o, dq;
  Numbers lse;
  const float* delta;
  bool adds;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const std::int64_t all = p.num_queries();
    for (std::int64_t w = t.block() * kAttentionWarps + t.index() / kWarp; w < all; w += t.blocks() * kAttentionWarps) {
      const auto at = p.query_at(w);
      if (at.is_there) query(t, at.b, at.h, at.i);
    }
  }
  template <class Thread>
  KERNELS_GPU void query(const Thread& t, std::int64_t b, std::int64_t h, std::int64_t i) const {
    const int lane = t.index() % kWarp;
    const std::int64_t keys = p.keys(b);
    const float log_sum = lse.get(p.lse_index(b, h, i)), d_i = delta[p.lse_index(b, h, i)];
    float q[kLaneDims], gradient[kLaneDims], sum[kLaneDims];
    load_lane(p.query<T>(p.q, b, i, h), p.qk_dim, lane, q);
    load_lane(p.query<T>(d_o, b, i, h), p.v_dim, lane, gradient);
    clear_lane(sum);
    for (std::int64_t first = 0; first < keys; first += kWarp) {
      const std::int64_t j = first + lane;
      const bool seen = j < keys && p.sees(b, i, j);
      const T* key = seen ? p.key<T>(p.k, b, j, h) : nullptr;
      const float c = p.bounded(dot_spread(t, key, q, p.qk_dim) * p.scale);
      const float s = c + (seen ? p.added(b, h, i, j) : 0.0f), slope = p.scale * p.slope(c);
      const float dp = dot_spread(t, seen ? p.key<T>(p.v, b, j, h) : nullptr, gradient, p.v_dim);
      add_rows(t, key, seen ? slope * weight_of(s, log_sum) * (dp - d_i) : 0.0f, p.qk_dim, lane, sum);
    }
    store_lane(p.query<T>(dq, b, i, h), p.qk_dim, lane, sum, adds);
  }
};

/// dbias[h,i,j] (+)= Σ_b p_ij (dO_i·v_j − δ_i): a warp per query of a sequence, one sequence after another.
template <class T>
struct AttentionBiasSlopeKernel {
  static constexpr int kThreads = kAttentionThreads;
  static constexpr bool kCooperates = true;
  AttentionProblem p;
  HeadView d_o;
  Numbers lse;
  const float* delta;
  T* dbias;
  bool adds;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const std::int64_t all = p.heads * p.q_len;
    for (std::int64_t w = t.block() * kAttentionWarps + t.index() / kWarp; w < all; w += t.blocks() * kAttentionWarps)
      for (std::int64_t first = 0; first < p.kv_len; first += kWarp) stretch(t, w / p.q_len, w % p.q_len, first);
  }

 private:
  template <class Thread>
  KERNELS_GPU void stretch(const Thread& t, std::int64_t h, std::int64_t i, std::int64_t first) const {
    const int lane = t.index() % kWarp;
    const std::int64_t j = first + lane;
    float sum = 0;
    for (std::int64_t b = 0; b < p.batch; ++b) {
      const bool seen = j < p.kv_len && p.sees(b, i, j);
      float q[kLaneDims], gradient[kLaneDims];
      load_lane(p.query<T>(p.q, b, i, h), p.qk_dim, lane, q);
      load_lane(p.query<T>(d_o, b, i, h), p.v_dim, lane, gradient);
      const float s = p.bounded(dot_spread(t, seen ? p.key<T>(p.k, b, j, h) : nullptr, q, p.qk_dim) * p.scale);
      const float dp = dot_spread(t, seen ? p.key<T>(p.v, b, j, h) : nullptr, gradient, p.v_dim);
      const std::int64_t at = p.lse_index(b, h, i);
      if (seen) sum += weight_of(s + p.added(b, h, i, j), lse.get(at)) * (dp - delta[at]);
    }
    if (j >= p.kv_len) return;
    T& out = dbias[(h * p.q_len + i) * p.kv_len + j];
    out = from_float<T>(sum + (adds ? to_float(out) : 0.0f));
  }
};

/// dV_j = Σ_i p_ij dO_i and dK_j = scale·Σ_i p_ij (dO_i·v_j − δ_i) q_i over the queries of all heads that share the
/// key: a warp per key.
template <class T>
struct AttentionKeySlopeKernel {
  static constexpr int kThreads = kAttentionThreads;
  static constexpr bool kCooperates = true;
  AttentionProblem p;
  HeadView d_o, dk, dv;
  Numbers lse;
  const float* delta;
  bool adds_k, adds_v;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const std::int64_t all = p.batch * p.kv_heads * p.kv_len;
    for (std::int64_t w = t.block() * kAttentionWarps + t.index() / kWarp; w < all; w += t.blocks() * kAttentionWarps) {
      const std::int64_t j = w % p.kv_len, group = w / p.kv_len % p.kv_heads, b = w / p.kv_len / p.kv_heads;
      if (j < p.keys(b)) key(t, b, group, j);
    }
  }
  template <class Thread>
  KERNELS_GPU void key(const Thread& t, std::int64_t b, std::int64_t group, std::int64_t j) const {
    const int lane = t.index() % kWarp;
    const std::int64_t shared_by = p.heads / p.kv_heads, queries = p.queries(b), head = group * shared_by;
    float k[kLaneDims], v[kLaneDims], sum_k[kLaneDims], sum_v[kLaneDims];
    load_lane(p.key<T>(p.k, b, j, head), p.qk_dim, lane, k);
    load_lane(p.key<T>(p.v, b, j, head), p.v_dim, lane, v);
    clear_lane(sum_k);
    clear_lane(sum_v);
    for (std::int64_t h = head; h < head + shared_by; ++h)
      for (std::int64_t first = 0; first < queries; first += kWarp) {
        const std::int64_t i = first + lane;
        const bool seen = i < queries && p.sees(b, i, j);
        const T *q = seen ? p.query<T>(p.q, b, i, h) : nullptr, *gradient = seen ? p.query<T>(d_o, b, i, h) : nullptr;
        const float s = p.bounded(dot_spread(t, q, k, p.qk_dim) * p.scale), dp = dot_spread(t, gradient, v, p.v_dim);
        float weight = 0, d_i = 0;
        if (seen) {
          weight = weight_of(s + p.added(b, h, i, j), lse.get(p.lse_index(b, h, i)));
          d_i = delta[p.lse_index(b, h, i)];
        }
        add_rows(t, gradient, weight, p.v_dim, lane, sum_v);
        add_rows(t, q, p.scale * p.slope(s) * weight * (dp - d_i), p.qk_dim, lane, sum_k);
      }
    store_lane(p.key<T>(dk, b, j, head), p.qk_dim, lane, sum_k, adds_k);
    store_lane(p.key<T>(dv, b, j, head), p.v_dim, lane, sum_v, adds_v);
  }
};

template <class T>
using AttentionSlopeKernels =
    KernelList<DeltaKernel<T>, AttentionQuerySlopeKernel<T>, AttentionKeySlopeKernel<T>, AttentionBiasSlopeKernel<T>>;

}  // namespace orrery::kernels::cuda
