// SPDX-License-Identifier: Apache-2.0
// Loops over contiguous elements in vectors, for the sources of this folder. A body is written once: it gets `at`, and
// at(p) is the vector (or, in the tail, the scalar) of array p at the current position.
#pragma once

#include <cstring>
#include <utility>

#include "kernels/host/common.hpp"
#include "kernels/host/vector_math.hpp"

namespace orrery::kernels {

template <class T>
constexpr std::int64_t kLanes = kVectorBytes / sizeof(T);

template <class V>
inline V load(const ScalarOf<V>* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <class V>
inline void store(ScalarOf<V>* p, V v) {
  std::memcpy(p, &v, sizeof v);
}

/// v, held in a register: GCC 12 loads what two or three ops read once more for each of them, and products with as many
/// rows took twice as long.
template <class V>
[[gnu::always_inline]] inline V in_register(V v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__x86_64__)
  asm("" : "+x"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#endif
  return v;
}

/// The last `count` elements before `end` in the upper lanes, zero in the others, which are read too.
template <class T>
inline Vec<T> last_lanes(const T* end, std::int64_t count) {
  using Bits = typename Lanes<Vec<T>>::Bits;
  Bits lane{};
  for (std::int64_t i = 0; i < kLanes<T>; ++i) lane[i] = static_cast<typename Lanes<T>::Bits>(i);
  return lane >= static_cast<typename Lanes<T>::Bits>(kLanes<T> - count) ? load<Vec<T>>(end - kLanes<T>) : Vec<T>{};
}

/// Elements of what is computed in passes between what is fetched and what is used.
template <class T>
constexpr std::int64_t kFetchAhead = 4096 / sizeof(T);

/// Caches that lines are fetched into, as GCC numbers them.
constexpr int kFirstLevel = 3, kSecondLevel = 2;

/// Fetches the cache line at p, to be read or written. GCC takes what only fetches for what does nothing, unless it is
/// inlined: so is all that calls this and nothing else.
template <bool Written = false, int Level = kSecondLevel>
[[gnu::always_inline]] inline void fetch_line(const void* p) {
  __builtin_prefetch(p, Written ? 1 : 0, Level);
}

/// The lines of n elements from p on.
template <bool Written = false, int Level = kSecondLevel, class T>
[[gnu::always_inline]] inline void fetch_lines(const T* p, std::int64_t n) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  for (std::int64_t i = 0; i < n; i += kLine) fetch_line<Written, Level>(p + i);
}

/// Loads what is at element `i` of an array, as V.
template <class V>
struct At {
  std::int64_t i;
  V operator()(const ScalarOf<V>* p) const { return load<V>(p + i); }
  /// Fetches what is read `distance` further on. For arrays that may lie in memory, where much is computed of each
  /// element: a core by itself looks so little ahead that both times add up (the gradient of a softmax over 4 MB took
  /// 0.29 or 0.50 ms, by where a cache had left them).
  [[gnu::always_inline]] void fetch(const ScalarOf<V>* p, std::int64_t distance = kFetchAhead<ScalarOf<V>>) const {
    if constexpr (kIsVector) fetch_line(p + i + distance);
  }
  /// The same of what is written there.
  [[gnu::always_inline]] void claim(ScalarOf<V>* p, std::int64_t distance = kFetchAhead<ScalarOf<V>>) const {
    if constexpr (kIsVector) fetch_line<true>(p + i + distance);
  }
  /// Loads and fetches, or claims if it can be written.
  V ahead(const ScalarOf<V>* p, std::int64_t distance = kFetchAhead<ScalarOf<V>>) const {
    return fetch(p, distance), load<V>(p + i);
  }
  V ahead(ScalarOf<V>* p, std::int64_t distance = kFetchAhead<ScalarOf<V>>) const {
    return claim(p, distance), load<V>(p + i);
  }

 private:
  static constexpr bool kIsVector = !std::is_same_v<V, ScalarOf<V>>;
};

/// n, written so that the compiler knows the tail from i to be shorter than a vector.
template <class T>
inline std::int64_t tail_end(std::int64_t i, std::int64_t n) {
  return i + (n - i) % kLanes<T>;
}

/// y[i] = body(at) for i < n.
template <class T, class Body>
inline void map(std::int64_t n, T* y, Body&& body) {
  std::int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) store<Vec<T>>(y + i, body(At<Vec<T>>{i}));
  for (const std::int64_t end = tail_end<T>(i, n); i < end; ++i) y[i] = body(At<T>{i});
}

/// body(at, i) for i < n, with stores of its own: `put(p, i, v)`.
template <class T, class Body>
inline void each(std::int64_t n, Body&& body) {
  std::int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) body(At<Vec<T>>{i}, i);
  for (const std::int64_t end = tail_end<T>(i, n); i < end; ++i) body(At<T>{i}, i);
}

template <class T, class V>
inline void put(T* p, std::int64_t i, V v) {
  store<V>(p + i, v);
}

/// Folds the lanes of a vector in a balanced tree: upper half onto lower half until one lane is left.
template <class T, std::size_t... Half, class V, class Op>
inline T fold_lanes(std::index_sequence<Half...>, V v, Op&& op) {
  constexpr std::size_t kHalf = sizeof...(Half);
  const auto folded = op(__builtin_shufflevector(v, v, Half...), __builtin_shufflevector(v, v, (Half + kHalf)...));
  if constexpr (kHalf == 2)
    return op(T(folded[0]), T(folded[1]));
  else
    return fold_lanes<T>(std::make_index_sequence<kHalf / 2>{}, folded, op);
}

template <class T>
inline T sum_lanes(Vec<T> v) {
  return fold_lanes<T>(std::make_index_sequence<kLanes<T> / 2>{}, v, [](auto a, auto b) { return a + b; });
}

/// The lanes of two vectors, each folded as `sum_lanes` does until two are left: {a, a, b, b}.
template <std::size_t... Half, class V>
[[gnu::always_inline]] inline auto fold_two(std::index_sequence<Half...>, V a, V b) {
  constexpr std::size_t kHalf = sizeof...(Half);
  if constexpr (kHalf == 1)
    return __builtin_shufflevector(a, b, 0, 1, 2, 3);
  else
    return fold_two(std::make_index_sequence<kHalf / 2>{},
                    __builtin_shufflevector(a, a, Half...) + __builtin_shufflevector(a, a, (Half + kHalf)...),
                    __builtin_shufflevector(b, b, Half...) + __builtin_shufflevector(b, b, (Half + kHalf)...));
}

/// sum_lanes of four vectors, side by side.
template <class T>
[[gnu::always_inline]] inline auto sum_lanes_of_four(const Vec<T> (&v)[4]) {
  constexpr std::make_index_sequence<kLanes<T> / 2> kHalf;
  const auto left = fold_two(kHalf, v[0], v[1]), right = fold_two(kHalf, v[2], v[3]);
  return __builtin_shufflevector(left, right, 0, 2, 4, 6) + __builtin_shufflevector(left, right, 1, 3, 5, 7);
}

template <class T>
inline T max_lanes(Vec<T> v) {
  return fold_lanes<T>(std::make_index_sequence<kLanes<T> / 2>{}, v, [](auto a, auto b) { return a > b ? a : b; });
}

/// Σ_i body(at) in a fixed order: four vectors of partial sums, then their tree, then the tail.
template <class T, class Body>
inline T reduce_add(std::int64_t n, Body&& body) {
  Vec<T> s0{}, s1{}, s2{}, s3{};
  std::int64_t i = 0;
  for (; i + 4 * kLanes<T> <= n; i += 4 * kLanes<T>) {
    s0 += body(At<Vec<T>>{i});
    s1 += body(At<Vec<T>>{i + kLanes<T>});
    s2 += body(At<Vec<T>>{i + 2 * kLanes<T>});
    s3 += body(At<Vec<T>>{i + 3 * kLanes<T>});
  }
  for (; i + kLanes<T> <= n; i += kLanes<T>) s0 += body(At<Vec<T>>{i});
  T sum = sum_lanes<T>((s0 + s1) + (s2 + s3));
  for (const std::int64_t end = tail_end<T>(i, n); i < end; ++i) sum += body(At<T>{i});
  return sum;
}

/// max_i body(at), −∞ for n = 0.
template <class T, class Body>
inline T reduce_max(std::int64_t n, Body&& body) {
  const T lowest = -std::numeric_limits<T>::infinity();
  Vec<T> m0 = splat<Vec<T>>(lowest), m1 = m0;
  std::int64_t i = 0;
  for (; i + 2 * kLanes<T> <= n; i += 2 * kLanes<T>) {
    m0 = max(m0, body(At<Vec<T>>{i}));
    m1 = max(m1, body(At<Vec<T>>{i + kLanes<T>}));
  }
  for (; i + kLanes<T> <= n; i += kLanes<T>) m0 = max(m0, body(At<Vec<T>>{i}));
  T result = max_lanes<T>(max(m0, m1));
  for (const std::int64_t end = tail_end<T>(i, n); i < end; ++i) result = max(result, body(At<T>{i}));
  return result;
}

/// Rounds a number of bytes up to a cache line, so that arrays laid out in a workspace stay aligned.
constexpr std::size_t cache_lines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// Hands out aligned arrays from a workspace, in order.
class Arena {
 public:
  explicit Arena(void* begin) : next_{static_cast<char*>(begin)} {}

  template <class T>
  T* take(std::int64_t count) {
    T* p = reinterpret_cast<T*>(next_);
    next_ += cache_lines(static_cast<std::size_t>(count) * sizeof(T));
    return p;
  }

 private:
  char* next_;
};

}  // namespace orrery::kernels
