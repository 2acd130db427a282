// SPDX-License-Identifier: Apache-2.0
// Kernels over tokens: embedding rows, rotary positions, the next token.
#pragma once

#include "kernels/cuda/row_teams.hpp"
#include "kernels/philox.hpp"

namespace orrery::kernels::cuda {

/// out[r,:] (+)= table[index[r] − first,:]; zeros (or nothing) for an index outside of [first, last).
template <class T>
struct GatherKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = false;
  std::int64_t rows, cols, first, last;
  const std::int32_t* index;
  const T* table;
  T* out;
  bool adds, wide;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t r = t.block(); r < rows; r += t.blocks()) {
      if (wide)
        row<kPack<T>>(t, r);
      else
        row<1>(t, r);
    }
  }
  template <int N, class Thread>
  KERNELS_GPU_INLINE void row(const Thread& t, std::int64_t r) const {
    const std::int64_t id = index[r];
    const bool held = id >= first && id < last;
    if (adds && !held) return;
    for (std::int64_t c = static_cast<std::int64_t>(t.index()) * N; c < cols; c += kThreads * N) {
      float x[N] = {}, y[N] = {};
      if (held) load<T, N>(table + (id - first) * cols + c, x);
      if (adds) load<T, N>(out + r * cols + c, y);
      for (int j = 0; j < N; ++j) x[j] += y[j];
      store<T, N>(out + r * cols + c, x);
    }
  }
};

/// Indices as a shard counts them: see LocalIndices of the plan.
struct LocalIndicesKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = false;
  std::int64_t rows, classes;
  const std::int32_t *index, *first;
  std::int32_t* local;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t i = t.block() * kThreads + t.index(); i < rows; i += t.blocks() * kThreads) {
      const std::int64_t at = std::int64_t{index[i]} - *first;
      local[i] = index[i] < 0 ? index[i] : at >= 0 && at < classes ? static_cast<std::int32_t>(at) : -1;
    }
  }
};

/// Whether numbers are in [least, end): those that are not are a fault. One block.
struct CheckRangeKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = false;
  std::int64_t count;
  const std::int32_t* x;
  std::int64_t end;
  Fault fault;
  std::int64_t least = 0;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t i = t.block() * kThreads + t.index(); i < count; i += t.blocks() * kThreads)
      if (x[i] < least || x[i] >= end) fault.raise(FaultKind::OutOfRange, x[i], end);
  }
};

/// table[index[r],:] = x[r,:] in order of r, −1 left out: of equal indices the last row writes. For few rows: each
/// looks at all behind it.
template <class T>
struct ScatterRowsKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = true;
  std::int64_t rows, cols, table_rows, x_stride, table_stride;
  const std::int32_t* index;
  const T* x;
  T* table;
  Fault fault;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t r = t.block(); r < rows; r += t.blocks()) {
      const std::int32_t id = index[r];
      if (id >= table_rows) fault.raise(FaultKind::OutOfRange, id, table_rows);
      std::int32_t later = 0;
      for (std::int64_t s = r + 1 + t.index(); s < rows; s += kThreads) later += index[s] == id ? 1 : 0;
      later = block_reduce<kThreads / kWarp>(t, later, t.template shared<std::int32_t>(), SumOf{});
      if (id < 0 || id >= table_rows || later > 0) continue;
      for (std::int64_t c = t.index(); c < cols; c += kThreads) table[id * table_stride + c] = x[r * x_stride + c];
    }
  }
};

/// Rows of each sequence behind its own length in a cache: cache[b, at + contexts[b] + r,:] = x[b, r,:].
template <class T>
struct AppendRowsKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = false;
  std::int64_t batch, rows, cols, capacity, at;
  std::int64_t x_batch, x_row, cache_batch, cache_row;
  const std::int32_t* contexts;
  const T* x;
  T* cache;
  Fault fault;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t w = t.block(); w < batch * rows; w += t.blocks()) {
      const std::int64_t b = w / rows, r = w % rows, to = at + contexts[b] + r;
      if (to < 0 || to >= capacity) {
        fault.raise(FaultKind::OutOfRange, to, capacity);
        continue;
      }
      for (std::int64_t c = t.index(); c < cols; c += kThreads)
        cache[b * cache_batch + to * cache_row + c] = x[b * x_batch + r * x_row + c];
    }
  }
};

/// Columns c with first[0] + c ≥ total become −∞.
template <class T>
struct MaskColumnsKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = false;
  std::int64_t rows, cols, total;
  const std::int32_t* first;
  T* x;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t i = t.block() * kThreads + t.index(); i < rows * cols; i += t.blocks() * kThreads)
      if (*first + i % cols >= total) x[i] = from_float<T>(-kInfinity);
  }
};

/// Turns pairs of x[rows, heads, rot] by the angle of the position start + r mod sequence, or positions[r]; pairs are
/// halves of a head or neighbours.
template <class T>
struct RotaryKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = false;
  std::int64_t rows, heads, half, sequence, start, token_stride, head_stride;
  const T *cosine, *sine;
  T* x;
  const std::int32_t* positions;  // or null
  bool interleaved;
  float sign;
  bool wide;  // halves of heads and of rows of angles are whole packs

  /// Pairs that a thread turns at once.
  constexpr int at_once() const { return wide ? kPack<T> : 1; }
  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    if (wide)
      over<kPack<T>>(t);
    else
      over<1>(t);
  }

 private:
  template <int N, class Thread>
  KERNELS_GPU_INLINE void over(const Thread& t) const {
    const auto width = static_cast<std::uint32_t>(half / N), in_row = static_cast<std::uint32_t>(heads) * width;
    for (std::int64_t i = t.block() * kThreads + t.index(); i < rows * in_row; i += t.blocks() * kThreads) {
      const std::int64_t r = i / in_row;
      const auto in = static_cast<std::uint32_t>(i - r * in_row);
      const std::uint32_t h = in / width, p = in % width * N;
      const std::int64_t position =
          positions ? positions[r] : start + static_cast<std::uint32_t>(r) % static_cast<std::uint32_t>(sequence);
      T* first = x + r * token_stride + h * head_stride + (interleaved ? 2 * p : p);
      T* second = first + (interleaved ? N : half);
      float v[2][N], c[N], s[N];
      load<T, N>(first, v[0]);
      load<T, N>(second, v[1]);
      load<T, N>(cosine + position * half + p, c);
      load<T, N>(sine + position * half + p, s);
      if (interleaved) {
        KERNELS_UNROLL
        for (int j = 0; j < N; ++j) turn(v[2 * j / N][2 * j % N], v[(2 * j + 1) / N][(2 * j + 1) % N], c[j], s[j]);
      } else {
        KERNELS_UNROLL
        for (int j = 0; j < N; ++j) turn(v[0][j], v[1][j], c[j], s[j]);
      }
      store<T, N>(first, v[0]);
      store<T, N>(second, v[1]);
    }
  }
  KERNELS_GPU_INLINE void turn(float& a, float& b, float c, float s) const {
    const float first = a * c - b * (sign * s);
    b = a * (sign * s) + b * c;
    a = first;
  }
};

/// The next token of each row: a block per row.
///
/// Temperature 0: the first of the largest. Else the candidates are those whose rank is below top_k and whose
/// predecessors' probability is below top_p, found by bisection over the logits (ties go to lower indices), and one is
/// drawn with the numbers of kernels/host/sampling.cpp: the draw is the host's up to rounding of the sums.
template <class T>
struct SampleKernel {
  static constexpr int kThreads = 512;
  static constexpr bool kCooperates = true;
  std::int64_t rows, vocab, stride;
  const T* logits;
  std::int32_t* tokens;
  float temperature;
  std::int64_t top_k;
  double top_p;
  PhiloxKey key;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t r = t.block(); r < rows; r += t.blocks()) {
      const Logits x{{r, vocab, t.index(), kThreads, t.index() == 0}, {logits + r * stride}, RowForm::Packs};
      float most = -kInfinity;
      x.each([&](int, auto, const auto& v) {
        for (const float one : v[0]) most = larger(most, one);
      });
      most = block_reduce<kWarps>(t, most, t.template shared<float>(), LargerOf{});
      const std::int64_t token = temperature == 0 ? first_at_least(t, x, most) : draw(t, x, most, r);
      if (t.index() == 0) tokens[r] = static_cast<std::int32_t>(token < vocab ? token : 0);
    }
  }

 private:
  using Logits = ReadRows<T, 1>;
  static constexpr int kWarps = kThreads / kWarp;

  template <class Thread>
  KERNELS_GPU_CALLED std::int64_t first_at_least(const Thread& t, const Logits& x, float bound) const {
    std::int64_t found = vocab;
    x.each([&](int, auto c, const auto& v) {
      int j = 0;
      for (const float one : v[0]) {
        if (one >= bound) found = smaller_of<std::int64_t>(found, c + j);
        ++j;
      }
    });
    return block_reduce<kWarps>(t, found, t.template shared<std::int64_t>(), SmallerOf{});
  }
  struct SmallerOf {
    KERNELS_GPU_INLINE std::int64_t operator()(std::int64_t a, std::int64_t b) const { return a < b ? a : b; }
  };
  KERNELS_GPU_INLINE double weight(float x, float most) const {
    return static_cast<double>(expf((x - most) / temperature));
  }
  /// Σ of weights, or with `counts` the number, of logits above a bound.
  template <class Thread>
  KERNELS_GPU_CALLED double above(const Thread& t, const Logits& x, float most, float bound, bool counts) const {
    double sum = 0;
    x.each([&](int, auto, const auto& v) {
      for (const float one : v[0])
        if (one > bound) sum += counts ? 1.0 : weight(one, most);
    });
    return block_reduce<kWarps>(t, sum, t.template shared<double>(), SumOf{});
  }
  /// The largest bound that at least `wanted` logits, or weight, lie at or above.
  template <class Thread>
  KERNELS_GPU float bound_of(const Thread& t, const Logits& x, float most, double wanted, bool counts) const {
    std::uint32_t low = 0, high = ordered(most);
    while (low < high) {  // largest b with above(b − 1) ≥ wanted
      const std::uint32_t middle = low + (high - low + 1) / 2;
      if (above(t, x, most, unordered(middle - 1), counts) >= wanted)
        low = middle;
      else
        high = middle - 1;
    }
    return unordered(low);
  }
  /// Floats as integers in the same order.
  static KERNELS_GPU_INLINE std::uint32_t ordered(float x) {
    const auto bits = reinterpret_bits<std::uint32_t>(x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  }
  static KERNELS_GPU_INLINE float unordered(std::uint32_t bits) {
    return reinterpret_bits<float>(bits & 0x80000000u ? bits & 0x7fffffffu : ~bits);
  }

  /// Restrictions hold in turn, as on the host: of the top_k the fewest that reach top_p of their weight.
  template <class Thread>
  KERNELS_GPU std::int64_t draw(const Thread& t, const Logits& x, float most, std::int64_t r) const {
    float bound = -kInfinity;
    double ties = static_cast<double>(vocab);  // how many of those at the bound take part
    if (top_k > 0 && top_k < vocab) {
      bound = bound_of(t, x, most, static_cast<double>(top_k), true);
      ties = static_cast<double>(top_k) - above(t, x, most, bound, true);
    }
    const double one = bound == -kInfinity ? 0.0 : weight(bound, most);
    const double total = above(t, x, most, bound, false) + (bound == -kInfinity ? 0.0 : ties * one);
    double kept = total;
    if (top_p < 1) {
      const float nucleus = bound_of(t, x, most, top_p * total, false);
      if (nucleus > bound || bound == -kInfinity) {
        const double before = above(t, x, most, nucleus, false), each = weight(nucleus, most);
        bound = nucleus;
        ties = ceil((top_p * total - before) / each);
        ties = ties < 1 ? 1 : ties;
        kept = before + ties * each;
      }
    }
    const double u = philox_uniform(philox_word(key, static_cast<std::uint64_t>(r)));
    return pick(t, x, most, bound, ties, u * kept);
  }

  /// The first candidate whose weight, added to those before it, reaches `mass`: in the order of the indices where
  /// nothing restricts the draw, of falling logits else.
  template <class Thread>
  KERNELS_GPU std::int64_t pick(const Thread& t, const Logits& x, float most, float bound, double ties,
                                double mass) const {
    return bound == -kInfinity ? pick_in_order(t, x, most, mass) : pick_by_size(t, x, most, bound, ties, mass);
  }
  /// Each thread adds up a stretch of the logits, each warp those of its threads; then one walks through the warps, the
  /// threads of the warp and the stretch that reach the mass.
  template <class Thread>
  KERNELS_GPU_CALLED std::int64_t pick_in_order(const Thread& t, const Logits& x, float most, double mass) const {
    const T* logit = x.from[0];
    const std::int64_t each = blocks_of<std::int64_t>(vocab, kThreads);
    double *sums = t.template shared<double>(), *of_warps = sums + kThreads;
    double own = 0;
    for (std::int64_t c = t.index() * each; c < smaller_of(vocab, (t.index() + 1) * each); ++c)
      own += weight(to_float(logit[c]), most);
    sums[t.index()] = own;
    t.sync();
    if (t.index() < kWarps) {
      own = 0;
      for (int i = 0; i < kWarp; ++i) own += sums[t.index() * kWarp + i];
      of_warps[t.index()] = own;
    }
    t.sync();
    std::int64_t token = vocab;
    if (t.index() == 0) {
      double sum = 0;
      int warp = 0;
      while (warp < kWarps - 1 && sum + of_warps[warp] < mass) sum += of_warps[warp++];
      int stretch = warp * kWarp;
      while (stretch < (warp + 1) * kWarp - 1 && sum + sums[stretch] < mass) sum += sums[stretch++];
      token = smaller_of(stretch * each, vocab - 1);
      for (; token < vocab - 1; ++token) {
        sum += weight(to_float(logit[token]), most);
        if (sum >= mass) break;
      }
    }
    t.sync();
    return block_reduce<kWarps>(t, token, t.template shared<std::int64_t>(), SmallerOf{});
  }
  /// One reduction per candidate: the next in falling order, equals by index.
  template <class Thread>
  KERNELS_GPU_CALLED std::int64_t pick_by_size(const Thread& t, const Logits& x, float most, float bound, double ties,
                                               double mass) const {
    std::uint64_t last = ~std::uint64_t{0};
    std::int64_t token = 0;
    for (double sum = 0; sum < mass;) {
      std::uint64_t best = 0;
      x.each([&](int, auto c, const auto& v) {
        auto index = static_cast<std::uint32_t>(c);
        for (const float one : v[0]) {
          const std::uint64_t rank = std::uint64_t{ordered(one)} << 32 | (0xffffffffu - index++);
          if (rank < last && rank > best) best = rank;
        }
      });
      best = block_reduce<kWarps>(t, best, t.template shared<std::uint64_t>(), LargestOf{});
      const float v = unordered(static_cast<std::uint32_t>(best >> 32));
      if (best == 0 || v < bound || (v == bound && (ties -= 1) < 0)) break;
      token = static_cast<std::int64_t>(0xffffffffu - static_cast<std::uint32_t>(best));
      sum += weight(v, most);
      last = best;
    }
    return token;
  }
  struct LargestOf {
    KERNELS_GPU_INLINE std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const { return a > b ? a : b; }
  };
};
constexpr std::size_t kSampleShared = (512 + 512 / kWarp) * sizeof(double);

template <class T>
using TokenKernels = KernelList<GatherKernel<T>, MaskColumnsKernel<T>, RotaryKernel<T>, SampleKernel<T>,
                                ScatterRowsKernel<T>, AppendRowsKernel<T>>;
using IndexKernels = KernelList<LocalIndicesKernel, CheckRangeKernel>;

}  // namespace orrery::kernels::cuda
