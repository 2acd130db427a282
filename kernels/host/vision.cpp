// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/vision.hpp"

#include <algorithm>

#include "kernels/host/elementwise.hpp"

namespace orrery::kernels {

template <class T>
void patchify(const PatchifyDims& d, const T* image, T* rows) {
  const std::int64_t p = d.patch, down = d.height / p, across = d.width / p;
  for (std::int64_t b = 0; b < d.batch; ++b)
    for (std::int64_t i = 0; i < down; ++i)
      for (std::int64_t j = 0; j < across; ++j)
        for (std::int64_t c = 0; c < d.channels; ++c)
          for (std::int64_t y = 0; y < p; ++y, rows += p)
            std::copy_n(image + ((b * d.channels + c) * d.height + i * p + y) * d.width + j * p, p, rows);
}

template <class T>
void concat_prefix(const TokenDims& d, const T* prefix, const T* x, T* y) {
  const std::int64_t body = d.tokens * d.dim;
  for (std::int64_t b = 0; b < d.batch; ++b, x += body, y += body + d.dim) {
    copy(d.dim, prefix, y);
    copy(body, x, y + d.dim);
  }
}

template <class T>
void concat_prefix_backward(const TokenDims& d, const T* dy, T* dx, T* dprefix, Write write) {
  const std::int64_t body = d.tokens * d.dim;
  if (write == Write::Overwrite) fill(d.dim, T(0), dprefix);
  for (std::int64_t b = 0; b < d.batch; ++b, dx += body, dy += body + d.dim) {
    add(d.dim, dprefix, dy, dprefix);
    copy(body, dy + d.dim, dx);
  }
}

template <class T>
void mean_tokens(const TokenDims& d, const T* x, T* y) {
  for (std::int64_t b = 0; b < d.batch; ++b) {
    column_sum(d.tokens, d.dim, x + b * d.tokens * d.dim, y + b * d.dim);
    scale(d.dim, T(1) / static_cast<T>(d.tokens), y + b * d.dim, y + b * d.dim);
  }
}

template <class T>
void mean_tokens_backward(const TokenDims& d, const T* dy, T* dx) {
  for (std::int64_t b = 0; b < d.batch; ++b)
    for (std::int64_t t = 0; t < d.tokens; ++t)
      scale(d.dim, T(1) / static_cast<T>(d.tokens), dy + b * d.dim, dx + (b * d.tokens + t) * d.dim);
}

template <class T>
void relative_bias(const RelativeBiasArgs<T>& a) {
  for (std::int64_t h = 0; h < a.heads; ++h)
    for (std::int64_t p = 0; p < a.pairs; ++p) a.bias[h * a.pairs + p] = a.table[a.index[p] * a.heads + h];
}

template <class T>
void relative_bias_backward(const RelativeBiasBackwardArgs<T>& a) {
  if (a.write == Write::Overwrite) fill(a.buckets * a.heads, T(0), a.dtable);
  for (std::int64_t h = 0; h < a.heads; ++h)
    for (std::int64_t p = 0; p < a.pairs; ++p) a.dtable[a.index[p] * a.heads + h] += a.dbias[h * a.pairs + p];
}

#define KERNELS_INSTANTIATE(T)                                                        \
  template void patchify<T>(const PatchifyDims&, const T*, T*);                       \
  template void concat_prefix<T>(const TokenDims&, const T*, const T*, T*);           \
  template void concat_prefix_backward<T>(const TokenDims&, const T*, T*, T*, Write); \
  template void mean_tokens<T>(const TokenDims&, const T*, T*);                       \
  template void mean_tokens_backward<T>(const TokenDims&, const T*, T*);              \
  template void relative_bias<T>(const RelativeBiasArgs<T>&);                         \
  template void relative_bias_backward<T>(const RelativeBiasBackwardArgs<T>&);
KERNELS_INSTANTIATE(float)
KERNELS_INSTANTIATE(double)
#undef KERNELS_INSTANTIATE

}  // namespace orrery::kernels
