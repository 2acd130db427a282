// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/moe_permute.hpp"

#include <algorithm>

#include "kernels/host/elementwise.hpp"
#include "kernels/host/simd.hpp"

namespace orrery::kernels {
namespace {

std::int32_t kept(const RouteArgs& a, std::int32_t count) {
  return a.capacity ? static_cast<std::int32_t>(std::min<std::int64_t>(count, *a.capacity)) : count;
}

void count_choices(const RouteArgs& a) {
  std::fill_n(a.counts, a.experts, 0);
  for (std::int64_t c = 0; c < a.tokens * a.top_k; ++c)
    if (a.indices[c] >= 0) ++a.counts[a.indices[c]];
}

/// Gives the choices [first, last) rows of their experts, from the row `skip` of each on.
void place_choices(const RouteArgs& a, std::int64_t first, std::int64_t last, std::int32_t skip) {
  std::fill_n(a.counts, a.experts, 0);  // counts again, as the rank of a choice within its expert
  for (std::int64_t c = first; c < last; ++c) {
    const std::int32_t e = a.indices[c];
    a.row_of_choice[c] = -1;
    if (e < 0) continue;
    const std::int32_t rank = a.counts[e]++;
    if (a.capacity && rank >= *a.capacity) continue;
    const std::int32_t row = a.offsets[e] + skip + rank;
    a.row_of_choice[c] = row;
    a.choice_of_row[row] = static_cast<std::int32_t>(c);
  }
}

}  // namespace

void route(const RouteArgs& a) {
  const std::int64_t choices = a.tokens * a.top_k;
  const bool padded = a.layout == RouteLayout::Padded;
  const std::int64_t room = padded ? a.groups * *a.capacity : 0;  // of an expert
  std::fill_n(a.choice_of_row, padded ? a.experts * room : a.room.value_or(choices), -1);
  count_choices(a);
  a.offsets[0] = 0;
  for (std::int64_t e = 0; e < a.experts; ++e)
    a.offsets[e + 1] = a.offsets[e] + (padded ? static_cast<std::int32_t>(room) : kept(a, a.counts[e]));
  if (!padded && a.offsets[a.experts] > a.room.value_or(choices)) return;
  for (std::int64_t g = 0; g < a.groups; ++g)
    place_choices(a, choices * g / a.groups, choices * (g + 1) / a.groups,
                  g > 0 ? static_cast<std::int32_t>(g * *a.capacity) : 0);
}

template <class T>
void moe_permute_backward(const PermuteArgs<T>& a, const T* dy, T* dx, Write write) {
  if (write == Write::Overwrite) fill(a.tokens * a.cols, T(0), dx);
  for (std::int64_t c = 0; c < a.tokens * a.top_k; ++c) {
    const std::int64_t r = a.row_of_choice[c];
    T* to = dx + c / a.top_k * a.cols;
    if (r >= 0) add(a.cols, to, dy + r * a.cols, to);
  }
}

template <class T>
void moe_unpermute(const PermuteArgs<T>& a, const T* x, const T* weights, T* y, Write write) {
  if (write == Write::Overwrite) fill(a.tokens * a.cols, T(0), y);
  for (std::int64_t c = 0; c < a.tokens * a.top_k; ++c) {
    const std::int64_t r = a.row_of_choice[c];
    if (r >= 0) axpy(a.cols, weights[c], x + r * a.cols, y + c / a.top_k * a.cols);
  }
}

template <class T>
void moe_unpermute_backward(const UnpermuteBackwardArgs<T>& a) {
  const auto& m = a.map;
  for (std::int64_t r = 0; r < m.rows; ++r) {
    const std::int64_t c = m.choice_of_row[r];
    if (c >= 0)
      scale(m.cols, a.weights[c], a.dy + c / m.top_k * m.cols, a.dx + r * m.cols);
    else
      fill(m.cols, T(0), a.dx + r * m.cols);
  }
  for (std::int64_t c = 0; c < m.tokens * m.top_k; ++c) {
    const std::int64_t r = m.row_of_choice[c];
    const T *x = a.x + std::max<std::int64_t>(r, 0) * m.cols, *dy = a.dy + c / m.top_k * m.cols;
    a.dweights[c] = r < 0 ? T(0) : reduce_add<T>(m.cols, [&](auto at) { return at(x) * at(dy); });
  }
}

#define KERNELS_INSTANTIATE(T)                                                          \
  template void moe_permute_backward<T>(const PermuteArgs<T>&, const T*, T*, Write);    \
  template void moe_unpermute<T>(const PermuteArgs<T>&, const T*, const T*, T*, Write); \
  template void moe_unpermute_backward<T>(const UnpermuteBackwardArgs<T>&);
KERNELS_INSTANTIATE(float)
KERNELS_INSTANTIATE(double)
#undef KERNELS_INSTANTIATE

}  // namespace orrery::kernels
