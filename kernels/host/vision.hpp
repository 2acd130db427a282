// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/host/common.hpp"

namespace orrery::kernels {

/// image[B,C,H,W] and its patches [B·(H/p)·(W/p), C·p·p], each row in the order (c, y, x) of a convolution weight.
struct PatchifyDims {
  std::int64_t batch = 0, channels = 0, height = 0, width = 0, patch = 1;
};

template <class T>
void patchify(const PatchifyDims& dims, const T* image, T* rows);

/// The inverse of patchify, and its gradient.
template <class T>
void unpatchify(const PatchifyDims& dims, const T* rows, T* image);

struct TokenDims {
  std::int64_t batch = 0, tokens = 0, dim = 0;
};

/// y[b,0,:] = prefix, y[b,1+t,:] = x[b,t,:]: x is [B,tokens,dim], y [B,tokens+1,dim] (class token).
template <class T>
void concat_prefix(const TokenDims& dims, const T* prefix, const T* x, T* y);

/// dx[b,t,:] = dy[b,1+t,:], dprefix = Σ_b dy[b,0,:]
template <class T>
void concat_prefix_backward(const TokenDims& dims, const T* dy, T* dx, T* dprefix, Write write = Write::Overwrite);

/// y[b,:] = mean over t of x[b,t,:]
template <class T>
void mean_tokens(const TokenDims& dims, const T* x, T* y);

/// dx[b,t,:] = dy[b,:]/tokens
template <class T>
void mean_tokens_backward(const TokenDims& dims, const T* dy, T* dx);

/// bias[h,p] = table[index[p],h] for p < pairs = Sq·Skv: table [buckets,heads], bias [heads,Sq,Skv].
template <class T>
struct RelativeBiasArgs {
  std::int64_t heads = 0, pairs = 0;
  const std::int32_t* index = nullptr;
  const T* table = nullptr;
  T* bias = nullptr;
};

template <class T>
void relative_bias(const RelativeBiasArgs<T>& args);

/// dtable[index[p],h] += dbias[h,p], in order of p.
template <class T>
struct RelativeBiasBackwardArgs {
  std::int64_t heads = 0, pairs = 0, buckets = 0;
  const std::int32_t* index = nullptr;
  const T* dbias = nullptr;
  T* dtable = nullptr;
  Write write = Write::Accumulate;  ///< Overwrite zeroes the table first
};

template <class T>
void relative_bias_backward(const RelativeBiasBackwardArgs<T>& args);

/// index[i,j] = bucket of the relative position j − (i + offset), as in T5: half of the buckets (of each sign if
/// bidirectional) count exact distances, the others grow logarithmically up to max_distance.
struct T5BucketArgs {
  std::int64_t q_len = 0, kv_len = 0, offset = 0;
  std::int64_t buckets = 32, max_distance = 128;
  bool bidirectional = true;
  std::int32_t* index = nullptr;
};

void t5_bucket_index(const T5BucketArgs& args);

/// index[i,j] of [S,S], S = window²: (Δy + w − 1)·(2w − 1) + Δx + w − 1 with Δ = position of i − position of j.
void swin_relative_index(std::int64_t window, std::int32_t* index);

/// A batch of height × width token grids cut into window² windows after a cyclic shift by −shift in both axes.
/// height and width are multiples of window.
struct SwinDims {
  std::int64_t batch = 1, height = 0, width = 0, window = 0, shift = 0;
};

/// index[r] = token row that row r of the windowed order takes: rows are (b, window y, window x, y, x). Use gather_rows
/// to partition, scatter_rows to put back.
void swin_window_index(const SwinDims& dims, std::int32_t* index);

/// mask[G,S,S], G windows of one grid, S = window²: 0 where both tokens come from the same region of the unshifted
/// grid, −100 elsewhere. All zeros if shift is 0.
template <class T>
void swin_mask(const SwinDims& dims, T* mask);

/// index[r] = token row of patch-merging input: rows are (b, y/2, x/2, part) with parts (0,0), (1,0), (0,1), (1,1) of
/// (Δy, Δx), so that four consecutive rows read as one row of 4·dim.
void patch_merge_index(const SwinDims& dims, std::int32_t* index);

}  // namespace orrery::kernels
