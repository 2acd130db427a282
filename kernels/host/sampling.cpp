// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/host/simd.hpp"
#include "kernels/philox.hpp"

namespace orrery::kernels {
namespace {

/// Puts the candidates of a row into order[0 … count): the top_k largest, sorted if anything restricts the draw.
template <class T>
std::int64_t candidates(const SampleArgs<T>& a, const T* x, std::int32_t* order) {
  const std::int64_t count = std::clamp<std::int64_t>(a.top_k.value_or(a.vocab), 1, a.vocab);
  std::iota(order, order + a.vocab, 0);
  if (count == a.vocab && a.top_p >= 1) return count;
  const auto before = [x](std::int32_t i, std::int32_t j) {  // a NaN counts as −∞: the order must be total
    const T lowest = -std::numeric_limits<T>::infinity();
    const T u = x[i] != x[i] ? lowest : x[i], v = x[j] != x[j] ? lowest : x[j];
    return u != v ? u > v : i < j;
  };
  if (count < a.vocab) std::nth_element(order, order + count - 1, order + a.vocab, before);
  std::sort(order, order + count, before);
  return count;
}

/// Number of leading weights whose sum reaches `mass`, and that sum.
struct Prefix {
  std::int64_t count;
  double sum;
};

template <class T>
Prefix prefix(std::int64_t n, const T* weights, double mass) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    sum += static_cast<double>(weights[i]);
    if (sum >= mass) return {i + 1, sum};
  }
  return {n, sum};
}

template <class T>
std::int32_t sample_row(const SampleArgs<T>& a, std::int64_t r, std::int32_t* order, T* weights) {
  const T* x = a.logits + r * a.vocab;
  const std::int64_t count = candidates(a, x, order);
  const T max = reduce_max<T>(a.vocab, [&](auto at) { return at(x); }), inverse = T(1) / a.temperature;
  for (std::int64_t i = 0; i < count; ++i) weights[i] = (x[order[i]] - max) * inverse;
  map(count, weights, [&](auto at) { return exp(at(weights)); });
  double total = 0;
  for (std::int64_t i = 0; i < count; ++i) total += static_cast<double>(weights[i]);
  const Prefix nucleus = a.top_p < 1 ? prefix(count, weights, a.top_p * total) : Prefix{count, total};
  const double u = philox_uniform(philox_word({a.seed, a.step}, a.first_row + static_cast<std::uint64_t>(r)));
  return order[prefix(nucleus.count, weights, u * nucleus.sum).count - 1];
}

}  // namespace

template <class T>
void argmax(std::int64_t rows, std::int64_t vocab, const T* logits, std::int32_t* tokens) {
  constexpr std::int64_t kStep = 256;  // one by one only what has the largest: how long it takes is not up to where
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* x = logits + r * vocab;
    T max = -std::numeric_limits<T>::infinity();
    std::int64_t first = 0;
    for (std::int64_t c = 0; c < vocab; c += kStep) {
      const T here = reduce_max<T>(std::min(kStep, vocab - c), [&](auto at) { return at(x + c); });
      if (here > max) max = here, first = c;
    }
    const T* end = x + std::min(first + kStep, vocab);
    const T* found = std::find(x + first, end, max);
    tokens[r] = static_cast<std::int32_t>(found < end ? found - x : 0);
  }
}

std::size_t sample_workspace(std::int64_t vocab, std::size_t element_size) {
  return cache_lines(static_cast<std::size_t>(vocab) * sizeof(std::int32_t)) +
         cache_lines(static_cast<std::size_t>(vocab) * element_size);
}

template <class T>
void sample(const SampleArgs<T>& args) {
  Arena arena{args.workspace};
  auto* order = arena.take<std::int32_t>(args.vocab);
  T* weights = arena.take<T>(args.vocab);
  for (std::int64_t r = 0; r < args.rows; ++r) args.tokens[r] = sample_row(args, r, order, weights);
}

#define KERNELS_INSTANTIATE(T)                                                  \
  template void argmax<T>(std::int64_t, std::int64_t, const T*, std::int32_t*); \
  template void sample<T>(const SampleArgs<T>&);
KERNELS_INSTANTIATE(float)
KERNELS_INSTANTIATE(double)
#undef KERNELS_INSTANTIATE

}  // namespace orrery::kernels
