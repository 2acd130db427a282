// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/host/common.hpp"

namespace orrery::kernels {

/// out[t,:] = table[ids[t] − first,:] for ids in [first,last); zeros for any other id (−1, or another rank's part of
/// the vocabulary). `table` holds rows first … last−1, so a whole table has first = 0 and last = vocabulary.
template <class T>
struct EmbeddingArgs {
  std::int64_t tokens = 0, dim = 0;
  std::int64_t first = 0, last = 0;
  const std::int32_t* ids = nullptr;
  const T* table = nullptr;
  T* out = nullptr;
  Write write = Write::Overwrite;  ///< Accumulate adds to out (position embeddings)
};

template <class T>
void embedding(const EmbeddingArgs<T>& args);

/// dtable[ids[t] − first,:] += dout[t,:] in token order; ids outside [first,last) add nothing.
template <class T>
struct EmbeddingBackwardArgs {
  std::int64_t tokens = 0, dim = 0;
  std::int64_t first = 0, last = 0;
  const std::int32_t* ids = nullptr;
  const T* dout = nullptr;
  T* dtable = nullptr;
  Write write = Write::Accumulate;  ///< Overwrite zeroes the table first
};

template <class T>
void embedding_backward(const EmbeddingBackwardArgs<T>& args);

/// local[i] = index[i] − first in a shard of `classes` rows from `first` on, −1 for other indices; a negative index
/// stays.
void local_indices(std::int64_t n, std::int64_t classes, std::int32_t first, const std::int32_t* index,
                   std::int32_t* local);

/// y[r,:] = x[index[r],:]; index −1 gives zeros. x has `cols` columns.
template <class T>
void gather_rows(std::int64_t rows, std::int64_t cols, const std::int32_t* index, const T* x, T* y);

}  // namespace orrery::kernels
