// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/indexing.hpp"

#include <algorithm>

#include "kernels/host/elementwise.hpp"

namespace orrery::kernels {

template <class T>
void embedding(const EmbeddingArgs<T>& a) {
  for (std::int64_t t = 0; t < a.tokens; ++t) {
    const std::int64_t id = a.ids[t];
    T* out = a.out + t * a.dim;
    const bool held = id >= a.first && id < a.last;
    const T* row = held ? a.table + (id - a.first) * a.dim : nullptr;
    if (a.write == Write::Accumulate) {
      if (held) add(a.dim, out, row, out);
    } else if (held) {
      copy(a.dim, row, out);
    } else {
      fill(a.dim, T(0), out);
    }
  }
}

template <class T>
void embedding_backward(const EmbeddingBackwardArgs<T>& a) {
  if (a.write == Write::Overwrite) fill((a.last - a.first) * a.dim, T(0), a.dtable);
  for (std::int64_t t = 0; t < a.tokens; ++t) {
    const std::int64_t id = a.ids[t];
    if (id < a.first || id >= a.last) continue;
    T* row = a.dtable + (id - a.first) * a.dim;
    add(a.dim, row, a.dout + t * a.dim, row);
  }
}

void local_indices(std::int64_t n, std::int64_t classes, std::int32_t first, const std::int32_t* index,
                   std::int32_t* local) {
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t at = std::int64_t{index[i]} - first;
    local[i] = index[i] < 0 ? index[i] : at >= 0 && at < classes ? static_cast<std::int32_t>(at) : -1;
  }
}

template <class T>
void gather_rows(std::int64_t rows, std::int64_t cols, const std::int32_t* index, const T* x, T* y) {
  for (std::int64_t r = 0; r < rows; ++r) {
    if (index[r] >= 0)
      copy(cols, x + index[r] * cols, y + r * cols);
    else
      fill(cols, T(0), y + r * cols);
  }
}

#define KERNELS_INSTANTIATE(T)                                          \
  template void embedding<T>(const EmbeddingArgs<T>&);                  \
  template void embedding_backward<T>(const EmbeddingBackwardArgs<T>&); \
  template void gather_rows<T>(std::int64_t, std::int64_t, const std::int32_t*, const T*, T*);
KERNELS_INSTANTIATE(float)
KERNELS_INSTANTIATE(double)
#undef KERNELS_INSTANTIATE

}  // namespace orrery::kernels
