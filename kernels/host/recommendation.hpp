// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/host/common.hpp"

namespace orrery::kernels {

enum class BagMode { Sum, Mean };

/// out[b,:] = Σ table[ids[i] − first,:] over i in [offsets[b], offsets[b+1]), divided by the number of ids of the bag
/// if Mean; an empty bag gives zeros. Ids outside [first,last) add nothing but count (another rank adds them).
template <class T>
struct EmbeddingBagArgs {
  std::int64_t bags = 0, dim = 0;
  std::int64_t first = 0, last = 0;
  BagMode mode = BagMode::Sum;
  const std::int32_t* offsets = nullptr;  ///< [bags+1]
  const std::int32_t* ids = nullptr;
  const T* table = nullptr;  ///< rows first … last−1
  T* out = nullptr;
};

template <class T>
void embedding_bag(const EmbeddingBagArgs<T>& args);

/// dtable[ids[i] − first,:] += dout[b,:] (divided by the number of ids if Mean), in order of i.
template <class T>
struct EmbeddingBagBackwardArgs {
  std::int64_t bags = 0, dim = 0;
  std::int64_t first = 0, last = 0;
  BagMode mode = BagMode::Sum;
  const std::int32_t* offsets = nullptr;
  const std::int32_t* ids = nullptr;
  const T* dout = nullptr;
  T* dtable = nullptr;
  Write write = Write::Accumulate;  ///< Overwrite zeroes the table first
};

template <class T>
void embedding_bag_backward(const EmbeddingBagBackwardArgs<T>& args);

struct DotInteractionDims {
  std::int64_t batch = 0, features = 0, dim = 0;
};

/// Columns of the result: dim + features·(features−1)/2.
constexpr std::int64_t dot_interaction_cols(const DotInteractionDims& d) {
  return d.dim + d.features * (d.features - 1) / 2;
}

/// DLRM: x[B,F,D] → y[B, D + F(F−1)/2]: the dense feature x[b,0,:], then x[b,i]·x[b,j] for i = 1…F−1, j < i.
template <class T>
void dot_interaction(const DotInteractionDims& dims, const T* x, T* y);

/// dx[b,i,:] = Σ_{j≠i} dy[b,(i,j)]·x[b,j,:], plus the dense columns of dy for i = 0.
template <class T>
void dot_interaction_backward(const DotInteractionDims& dims, const T* x, const T* dy, T* dx);

}  // namespace orrery::kernels
