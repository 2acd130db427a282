// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/recommendation.hpp"

#include "kernels/host/elementwise.hpp"
#include "kernels/host/simd.hpp"

namespace orrery::kernels {
namespace {

template <class T>
T bag_factor(BagMode mode, std::int64_t ids) {
  return mode == BagMode::Mean && ids > 0 ? T(1) / static_cast<T>(ids) : T(1);
}

}  // namespace

template <class T>
void embedding_bag(const EmbeddingBagArgs<T>& a) {
  for (std::int64_t b = 0; b < a.bags; ++b) {
    T* out = a.out + b * a.dim;
    fill(a.dim, T(0), out);
    for (std::int64_t i = a.offsets[b]; i < a.offsets[b + 1]; ++i)
      if (a.ids[i] >= a.first && a.ids[i] < a.last) add(a.dim, out, a.table + (a.ids[i] - a.first) * a.dim, out);
    const T factor = bag_factor<T>(a.mode, a.offsets[b + 1] - a.offsets[b]);
    if (factor != T(1)) scale(a.dim, factor, out, out);
  }
}

template <class T>
void embedding_bag_backward(const EmbeddingBagBackwardArgs<T>& a) {
  if (a.write == Write::Overwrite) fill((a.last - a.first) * a.dim, T(0), a.dtable);
  for (std::int64_t b = 0; b < a.bags; ++b) {
    const T factor = bag_factor<T>(a.mode, a.offsets[b + 1] - a.offsets[b]);
    for (std::int64_t i = a.offsets[b]; i < a.offsets[b + 1]; ++i)
      if (a.ids[i] >= a.first && a.ids[i] < a.last)
        axpy(a.dim, factor, a.dout + b * a.dim, a.dtable + (a.ids[i] - a.first) * a.dim);
  }
}

template <class T>
void dot_interaction(const DotInteractionDims& d, const T* x, T* y) {
  for (std::int64_t b = 0; b < d.batch; ++b, x += d.features * d.dim, y += dot_interaction_cols(d)) {
    copy(d.dim, x, y);
    T* out = y + d.dim;
    for (std::int64_t i = 1; i < d.features; ++i)
      for (std::int64_t j = 0; j < i; ++j) {
        const T *u = x + i * d.dim, *v = x + j * d.dim;
        *out++ = reduce_add<T>(d.dim, [&](auto at) { return at(u) * at(v); });
      }
  }
}

template <class T>
void dot_interaction_backward(const DotInteractionDims& d, const T* x, const T* dy, T* dx) {
  const std::int64_t size = d.features * d.dim;
  for (std::int64_t b = 0; b < d.batch; ++b, x += size, dx += size, dy += dot_interaction_cols(d)) {
    copy(d.dim, dy, dx);
    fill(size - d.dim, T(0), dx + d.dim);
    const T* pair = dy + d.dim;
    for (std::int64_t i = 1; i < d.features; ++i)
      for (std::int64_t j = 0; j < i; ++j, ++pair) {
        axpy(d.dim, *pair, x + j * d.dim, dx + i * d.dim);
        axpy(d.dim, *pair, x + i * d.dim, dx + j * d.dim);
      }
  }
}

#define KERNELS_INSTANTIATE(T)                                                 \
  template void embedding_bag<T>(const EmbeddingBagArgs<T>&);                  \
  template void embedding_bag_backward<T>(const EmbeddingBagBackwardArgs<T>&); \
  template void dot_interaction<T>(const DotInteractionDims&, const T*, T*);   \
  template void dot_interaction_backward<T>(const DotInteractionDims&, const T*, const T*, T*);
KERNELS_INSTANTIATE(float)
KERNELS_INSTANTIATE(double)
#undef KERNELS_INSTANTIATE

}  // namespace orrery::kernels
