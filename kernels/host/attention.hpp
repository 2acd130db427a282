// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>

#include "kernels/host/common.hpp"

namespace orrery::kernels {

/// Sizes of an attention. With variable lengths q_len and kv_len are the maxima over the batch.
struct AttentionDims {
  std::int64_t batch = 1, q_len = 0, kv_len = 0;
  std::int64_t heads = 0, kv_heads = 0;  ///< heads is a multiple of kv_heads; head h reads kv head h·kv_heads/heads
  std::int64_t qk_dim = 0, v_dim = 0;
};

/// Element (b, t, h, d) of a tensor is at b·batch + t·token + h·head + d. One rule covers a tensor of its own, a view
/// into a fused qkv tensor and a cache whose capacity is larger than what it holds.
struct TokenStrides {
  std::int64_t batch = 0, token = 0, head = 0;
};

/// Strides of a contiguous [B, tokens, heads, dim].
constexpr TokenStrides contiguous(std::int64_t tokens, std::int64_t heads, std::int64_t dim) {
  return {.batch = tokens * heads * dim, .token = heads * dim, .head = dim};
}

constexpr std::int64_t kNoWindow = std::numeric_limits<std::int64_t>::max();

/// Which scores are added to or removed. Query i has the position p(i) = i + query_offset among the keys, and key j is
/// at j; with q_positions and kv_positions (both or none) p(i) = q_positions[i] and key j is at kv_positions[j].
template <class T>
struct AttentionMask {
  bool causal = false;                            ///< key j is visible if it is at or before p(i)
  std::int64_t window = kNoWindow;                ///< key j is visible if it is after p(i) − window
  bool chunked = false;                           ///< or rather if it is at or after ⌊p(i)/window⌋·window
  std::optional<std::int64_t> query_offset = {};  ///< absent: Skv − Sq of the sequence
  const T* bias = nullptr;                        ///< [H,Sq,Skv] or null: added to the scaled scores (T5, Swin)
  const T* group_mask = nullptr;  ///< [groups,Sq,Skv] or null: batch b adds group_mask[b % groups] (Swin)
  std::int64_t groups = 1;
  const T* tree_mask = nullptr;  ///< [tree_groups,Sq,tree_keys] or null: added over the last keys (speculation)
  std::int64_t tree_keys = 0;    ///< 0: Sq
  std::int64_t tree_groups = 1;  ///< batch b takes tree_mask[b % tree_groups]
  const std::int32_t* q_positions = nullptr;   ///< [Sq] or null, shared by the batch
  const std::int32_t* kv_positions = nullptr;  ///< [Skv] or null
  const std::int32_t* first_keys = nullptr;    ///< [B,Sq] or null: query i sees no key before; grows with i

  /// The first key that a query at position p may see by the window.
  std::int64_t first_key(std::int64_t p) const {
    return window == kNoWindow ? std::numeric_limits<std::int64_t>::min() : window_start(p, window, chunked);
  }
};

/// Lengths that differ over the batch, and paged caches; null where not used.
struct AttentionLayout {
  const std::int32_t* cu_q = nullptr;         ///< [B+1]: sequence b holds query tokens cu_q[b] … cu_q[b+1]−1
  const std::int32_t* cu_kv = nullptr;        ///< [B+1]: the same of keys and values
  const std::int32_t* kv_lens = nullptr;      ///< [B]: keys of sequence b, from its batch offset or its pages
  std::int64_t kv_tail = 0;                   ///< so many more than kv_lens says
  const std::int32_t* block_table = nullptr;  ///< [B,max_blocks]: page of each block; k and v are [pages,page,Hkv,D]
  std::int64_t max_blocks = 0, page = 0;      ///< then k/v strides: batch is the stride of a page, token within a page
};

/// o[b,i,h,:] = Σ_j p_ij · v[b,j,h',:],  p_ij = exp(s_ij − lse_i),  s_ij = c_ij + masks,  c_ij = scale · q_i·k_j or,
/// with a cap, cap·tanh(scale · q_i·k_j/cap),  lse_i = ln Σ_j e^s_ij.
///
/// A query that sees no key gives o = 0 and lse = −∞. lse is [B,H,Sq], and [H,total_q] when cu_q is given.
/// bias, group_mask, tree_mask, positions and first_keys need one q_len and kv_len for the whole batch, except that
/// tree_mask allows kv_lens.
template <class T>
struct AttentionArgs {
  AttentionDims dims;
  T scale = 1;
  T cap = 0;  ///< 0: none
  const T* q = nullptr;
  TokenStrides q_strides;
  const T* k = nullptr;
  TokenStrides k_strides;
  const T* v = nullptr;
  TokenStrides v_strides;
  T* o = nullptr;
  TokenStrides o_strides;
  T* lse = nullptr;
  AttentionMask<T> mask = {};
  AttentionLayout layout = {};
  void* workspace = nullptr;  ///< attention_workspace(dims, sizeof(T)) bytes
};

std::size_t attention_workspace(const AttentionDims& dims, std::size_t element_size);

template <class T>
void attention(const AttentionArgs<T>& args);

/// Gradients from dO and the forward's o and lse: p is recomputed, with δ_i = dO_i·o_i
///   dV_j = Σ_i p_ij dO_i,  dS_ij = p_ij (dO_i·v_j − δ_i),  dQ_i = scale Σ_j dS_ij k_j,  dK_j = scale Σ_i dS_ij q_i.
/// With a cap dS_ij has the factor 1 − (c_ij/cap)²; then there is no dbias.
/// dk and dv sum over the query heads of a kv head; dbias[H,Sq,Skv] (or null) sums dS over the batch.
/// o and lse may be those of an attention over more keys: then these are the gradients through this part of them.
/// Paged layouts have no backward.
template <class T>
struct AttentionBackwardArgs {
  AttentionArgs<T> forward;  ///< as in the forward call; its workspace is not used
  const T* d_o = nullptr;
  TokenStrides d_o_strides;
  T* dq = nullptr;
  TokenStrides dq_strides;
  T* dk = nullptr;
  TokenStrides dk_strides;
  T* dv = nullptr;
  TokenStrides dv_strides;
  T* dbias = nullptr;
  Write write_dq = Write::Overwrite, write_dk = Write::Overwrite, write_dv = Write::Overwrite;
  Write write_dbias = Write::Overwrite;
  void* workspace = nullptr;  ///< attention_backward_workspace(dims, sizeof(T)) bytes
};

std::size_t attention_backward_workspace(const AttentionDims& dims, std::size_t element_size);

template <class T>
void attention_backward(const AttentionBackwardArgs<T>& args);

/// Combines attention over two disjoint key sets (ring attention, split decode), o and lse into the accumulators:
///   lse ← ln(e^lse + e^lse'),  o ← o·e^(lse_old − lse) + o'·e^(lse' − lse).
/// o and part_o are contiguous [B,Sq,H,Dv], the lse's [B,H,Sq]. Accumulators start with lse = −∞ (o need not be set).
template <class T>
struct AttentionMergeArgs {
  AttentionDims dims;  ///< batch, q_len, heads and v_dim are used
  const T* part_o = nullptr;
  const T* part_lse = nullptr;
  T* o = nullptr;
  T* lse = nullptr;
};

template <class T>
void attention_merge(const AttentionMergeArgs<T>& args);

}  // namespace orrery::kernels
