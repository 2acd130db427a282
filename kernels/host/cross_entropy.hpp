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

/// *mean = Σ_r loss[r] / count; the sum is a double. A count of 0 gives 0.
template <class T>
void mean_loss(std::int64_t rows, const T* loss, double count, T* mean);

/// dlogits[r,c] = scale·(e^(logits[r,c] − lse[r]) − [first + c = targets[r]]); zeros in ignored rows. dlogits may be
/// logits. For a vocabulary shard `first` is its first column and lse that of the whole vocabulary.
template <class T>
struct CrossEntropyBackwardArgs {
  std::int64_t rows = 0, vocab = 0;
  std::int64_t first = 0;
  const T* logits = nullptr;
  const std::int32_t* targets = nullptr;
  const T* lse = nullptr;
  T scale = 1;
  T* dlogits = nullptr;
};

template <class T>
void cross_entropy_backward(const CrossEntropyBackwardArgs<T>& args);

/// max[r] = max_c x[r,c]
template <class T>
void row_max(std::int64_t rows, std::int64_t cols, const T* x, T* max);

/// sum[r] = Σ_c e^(x[r,c] − max[r])
template <class T>
void row_sum_exp(std::int64_t rows, std::int64_t cols, const T* x, const T* max, T* sum);

/// out[r] = x[r,targets[r] − first] if that column is in the shard x[rows,cols], else 0 (so that shards can be summed).
template <class T>
struct TargetLogitArgs {
  std::int64_t rows = 0, cols = 0;
  std::int64_t first = 0;
  const T* x = nullptr;
  const std::int32_t* targets = nullptr;
  T* out = nullptr;
};

template <class T>
void target_logit(const TargetLogitArgs<T>& args);

/// From the reduced pieces of a vocabulary-parallel loss: lse[r] = max[r] + ln sum[r]; loss[r] = lse[r] − target[r],
/// and 0 where targets[r] is kIgnoreIndex.
template <class T>
struct CrossEntropyCombineArgs {
  std::int64_t rows = 0;
  const T* max = nullptr;
  const T* sum = nullptr;
  const T* target = nullptr;
  const std::int32_t* targets = nullptr;
  T* loss = nullptr;
  T* lse = nullptr;
};

template <class T>
void cross_entropy_combine(const CrossEntropyCombineArgs<T>& args);

/// y[r,:] = softmax(x[r,:] · inverse_temperature); y may be x.
template <class T>
void softmax(std::int64_t rows, std::int64_t cols, const T* x, T inverse_temperature, T* y);

/// dx[r,c] = y[r,c]·(dy[r,c] − Σ_j y[r,j]·dy[r,j]), with y the forward result at inverse temperature 1; dx may be dy.
template <class T>
void softmax_backward(std::int64_t rows, std::int64_t cols, const T* y, const T* dy, T* dx);

}  // namespace orrery::kernels
