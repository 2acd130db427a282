// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/host/common.hpp"

namespace orrery::kernels {

constexpr std::int32_t kIgnoreIndex = -100;

/// lse[r] = ln Σ_c e^logits[r,c]; loss[r] = lse[r] − logits[r,targets[r]], and 0 where targets[r] is kIgnoreIndex.
template <class T>
struct CrossEntropyArgs {
  std::int64_t rows = 0, vocab = 0;
  const T* logits = nullptr;
  const std::int32_t* targets = nullptr;
  T* loss = nullptr;
  T* lse = nullptr;
};

template <class T>
void cross_entropy(const CrossEntropyArgs<T>& args);

/// dlogits[r,c] = scale·(e^(logits[r,c] − lse[r]) − [c = targets[r]]); zeros in ignored rows. dlogits may be logits.
/// For a vocabulary shard lse is that of the whole vocabulary and a target outside of the shard is −1.
template <class T>
struct CrossEntropyBackwardArgs {
  std::int64_t rows = 0, vocab = 0;
  const T* logits = nullptr;
  const std::int32_t* targets = nullptr;
  const T* lse = nullptr;
  T scale = 1;
  T* dlogits = nullptr;
};

template <class T>
void cross_entropy_backward(const CrossEntropyBackwardArgs<T>& args);

/// x[r,c] = scale·(x[r,c] / sums[0,r] − [c = targets[r]]), x being what `cross_entropy_sums_op_by_op` left; zeros in
/// ignored rows. Two passes over x.
template <class T>
struct CrossEntropyScaleArgs {
  std::int64_t rows = 0, cols = 0;
  const std::int32_t* targets = nullptr;
  const T* sums = nullptr;  ///< [2,rows]
  T scale = 1;
  T* x = nullptr;
};

template <class T>
void cross_entropy_scale(const CrossEntropyScaleArgs<T>& args);

/// max[r] = max_c x[r,c]
template <class T>
void row_max(std::int64_t rows, std::int64_t cols, const T* x, T* max);

/// Columns c of x[rows,cols] with first + c ≥ total become −∞: what the last shard of a vocabulary holds too much.
template <class T>
void mask_columns(std::int64_t rows, std::int64_t cols, std::int64_t first, std::int64_t total, T* x);

/// What a vocabulary shard adds to a loss: sums[0,r] = Σ_c e^(logits[r,c] − max[r]) and, for a target of the shard
/// (given as its local column), sums[1,r] = logits[r,target] − max[r], 0 for a negative target.
template <class T>
struct CrossEntropySumsArgs {
  std::int64_t rows = 0, cols = 0;
  const T* logits = nullptr;
  const std::int32_t* targets = nullptr;
  const T* max = nullptr;  ///< over all shards
  T* sums = nullptr;       ///< [2,rows]
};

template <class T>
void cross_entropy_sums(const CrossEntropySumsArgs<T>& args);

/// The same sums in three passes over `logits` (that of the arguments, to be written): e^(logits[r,c] − max[r]) is left
/// in them.
template <class T>
void cross_entropy_sums_op_by_op(const CrossEntropySumsArgs<T>& args, T* logits);

/// From the sums over all shards: lse[r] = max[r] + ln sums[0,r]; returns Σ_r (ln sums[0,r] − sums[1,r]) over the rows
/// whose target is not kIgnoreIndex.
template <class T>
struct CrossEntropyFinishArgs {
  std::int64_t rows = 0;
  const std::int32_t* targets = nullptr;
  const T* max = nullptr;
  const T* sums = nullptr;  ///< [2,rows]
  T* lse = nullptr;
};

template <class T>
double cross_entropy_finish(const CrossEntropyFinishArgs<T>& args);

}  // namespace orrery::kernels
