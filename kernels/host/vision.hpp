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

}  // namespace orrery::kernels
