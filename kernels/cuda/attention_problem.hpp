// SPDX-License-Identifier: Apache-2.0
// What kernels of attention know of their problem, and how the lanes of a warp share a head.
#pragma once

#include "kernels/cuda/kernel.hpp"

namespace orrery::kernels::cuda {

/// Element (b, t, h, d) is at b·batch + t·token + h·head + d.
struct HeadView {
  void* at = nullptr;
  std::int64_t batch = 0, token = 0, head = 0;

  template <class T>
  KERNELS_GPU_INLINE T* row(std::int64_t b, std::int64_t t, std::int64_t h) const {
    return static_cast<T*>(at) + b * batch + t * token + h * head;
  }
};

/// Pages of a cache: key j of sequence b is row j mod `page` of page table[b, j / page].
struct Pages {
  const std::int32_t* table = nullptr;  // null: keys lie one after another
  std::int64_t most = 0, page = 1;      // pages of a sequence, rows of a page
};

/// What both directions know. Meanings as in kernels/host/attention.hpp.
struct AttentionProblem {
  std::int64_t batch, heads, kv_heads, q_len, kv_len, qk_dim, v_dim, window;  // window 0: none
  float scale, cap = 0;                                                       // cap 0: none
  bool causal, chunked = false;
  HeadView q, k, v;
  Numbers bias, group_mask, tree_mask;  // or none
  std::int64_t groups = 1;
  const std::int32_t *q_positions = nullptr, *kv_positions = nullptr;
  const std::int32_t* first_keys = nullptr;                                  // [batch, q_len] or null
  const std::int32_t *cu_q = nullptr, *cu_kv = nullptr, *kv_lens = nullptr;  // or null
  std::int64_t kv_tail = 0, room = 0;  // keys beyond kv_lens; most keys of a sequence, 0: no limit
  std::int64_t tree_keys = 0;          // of tree_mask [batch, q_len, tree_keys], over the last keys
  Pages pages;

  KERNELS_GPU_INLINE std::int64_t queries(std::int64_t b) const { return cu_q ? cu_q[b + 1] - cu_q[b] : q_len; }
  KERNELS_GPU_INLINE std::int64_t keys(std::int64_t b) const {
    if (!kv_lens) return cu_kv ? cu_kv[b + 1] - cu_kv[b] : kv_len;
    const std::int64_t n = kv_lens[b] + kv_tail;
    return n < 0 ? 0 : room > 0 && n > room ? room : n;
  }
  /// Queries, those beside a sequence of unequal length included.
  constexpr std::int64_t num_queries() const { return heads * (cu_q ? q_len : batch * q_len); }
  /// Query w of all: its sequence, head and number there, and its number among all rows of a head. Where lengths
  /// differ, q_len is the number of rows of all sequences together; a row behind them belongs to none.
  struct Query {
    std::int64_t b, h, i;
    bool is_there;
  };
  KERNELS_GPU_INLINE Query query_at(std::int64_t w) const {
    const std::int64_t row = w % q_len, above = w / q_len;
    if (!cu_q) return {above / heads, above % heads, row, true};
    std::int64_t low = 0, high = batch;  // the last sequence that begins at the row or before
    while (high - low > 1) {
      const std::int64_t middle = (low + high) / 2;
      (cu_q[middle] <= row ? low : high) = middle;
    }
    return {low, above, row - cu_q[low], row >= cu_q[low] && row < cu_q[low + 1]};
  }
  template <class T>
  KERNELS_GPU_INLINE T* query(const HeadView& x, std::int64_t b, std::int64_t i, std::int64_t h) const {
    return cu_q ? x.row<T>(0, cu_q[b] + i, h) : x.row<T>(b, i, h);
  }
  template <class T>
  KERNELS_GPU_INLINE T* key(const HeadView& x, std::int64_t b, std::int64_t j, std::int64_t h) const {
    const std::int64_t group = h / (heads / kv_heads);
    if (pages.table) return x.row<T>(pages.table[b * pages.most + j / pages.page], j % pages.page, group);
    return cu_kv ? x.row<T>(0, cu_kv[b] + j, group) : x.row<T>(b, j, group);
  }
  /// Where lse of a query lies: [batch, heads, q], or [heads, all queries] where lengths differ.
  KERNELS_GPU_INLINE std::int64_t lse_index(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return cu_q ? h * cu_q[batch] + cu_q[b] + i : (b * heads + h) * q_len + i;
  }
  KERNELS_GPU_INLINE std::int64_t first_key(std::int64_t b, std::int64_t i) const {
    return first_keys ? first_keys[b * q_len + i] : 0;
  }
  KERNELS_GPU_INLINE bool sees(std::int64_t b, std::int64_t i, std::int64_t j) const {
    const std::int64_t p = q_positions ? q_positions[i] : i + keys(b) - queries(b),
                       at = kv_positions ? kv_positions[j] : j;
    return (!causal || at <= p) && at >= window_start(p, window, chunked) && at >= first_key(b, i);
  }
  /// A scaled score as the masks find it, and its slope there.
  KERNELS_GPU_INLINE float bounded(float s) const { return cap > 0 ? cap * tanhf(s / cap) : s; }
  KERNELS_GPU_INLINE float slope(float bounded) const {
    return cap > 0 ? 1.0f - bounded / cap * (bounded / cap) : 1.0f;
  }
  /// What is added to a scaled score.
  KERNELS_GPU_INLINE float added(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    float sum = 0;
    if (bias.there()) sum += bias.get((h * q_len + i) * kv_len + j);
    if (group_mask.there()) sum += group_mask.get((b % groups * q_len + i) * kv_len + j);
    if (const std::int64_t first = keys(b) - tree_keys; tree_mask.there() && j >= first)
      sum += tree_mask.get((b * q_len + i) * tree_keys + j - first);
    return sum;
  }
};

constexpr int kAttentionThreads = 128, kAttentionWarps = kAttentionThreads / kWarp;
/// Numbers of a head that a lane holds: heads of up to 576, those of DeepSeek's latent cache.
constexpr int kLaneDims = 18;

KERNELS_GPU_INLINE void clear_lane(float (&x)[kLaneDims]) {
  for (int k = 0; k < kLaneDims; ++k) x[k] = 0;
}
/// Numbers lane, lane + 32 … of a head.
template <class T>
KERNELS_GPU_INLINE void load_lane(const T* from, std::int64_t dim, int lane, float (&to)[kLaneDims]) {
  for (int k = 0; k < kLaneDims; ++k) to[k] = lane + k * kWarp < dim ? to_float(from[lane + k * kWarp]) : 0.0f;
}
template <class T>
KERNELS_GPU_INLINE void store_lane(T* to, std::int64_t dim, int lane, const float (&from)[kLaneDims], bool adds) {
  for (int k = 0; k < kLaneDims; ++k)
    if (const std::int64_t d = lane + k * kWarp; d < dim)
      to[d] = from_float<T>(adds ? to_float(to[d]) + from[k] : from[k]);
}
/// a·b of one lane's row in memory with a row that is spread over the warp.
template <class T, class Thread>
KERNELS_GPU_INLINE float dot_spread(const Thread& t, const T* row, const float (&spread)[kLaneDims], std::int64_t dim) {
  float sum = 0;
  for (int k = 0; k < kLaneDims && k * kWarp < dim; ++k)
    for (int l = 0; l < kWarp; ++l) {
      const float x = t.broadcast(spread[k], l);
      if (row && k * kWarp + l < dim) sum += x * to_float(row[k * kWarp + l]);
    }
  return sum;
}
/// sum += weight of lane l · row of lane l, for all lanes; rows are spread over the warp.
template <class T, class Thread>
KERNELS_GPU_INLINE void add_rows(const Thread& t, const T* row, float weight, std::int64_t dim, int lane,
                                 float (&sum)[kLaneDims]) {
  const auto address = reinterpret_cast<std::uintptr_t>(row);
  for (int l = 0; l < kWarp; ++l) {
    const float w = t.broadcast(weight, l);
    const T* from = reinterpret_cast<const T*>(t.broadcast(address, l));
    if (!from) continue;
    for (int k = 0; k < kLaneDims; ++k)
      if (const std::int64_t d = lane + k * kWarp; d < dim) sum[k] += w * to_float(from[d]);
  }
}

}  // namespace orrery::kernels::cuda
