// SPDX-License-Identifier: Apache-2.0
// Token trees: who sees whom, what is drafted, what is kept of it. Meanings, and numbers of the generator, as in
// kernels/host/speculation.hpp; probabilities are doubles, whose sums have another order.
#pragma once

#include "kernels/cuda/kernel.hpp"
#include "kernels/philox.hpp"

namespace orrery::kernels::cuda {

/// A row of a tree sees itself and its ancestors: a thread per row. A parent that is not before its child ends the
/// walk.
template <class T>
struct TreeMaskKernel {
  static constexpr int kThreads = 64;
  static constexpr bool kCooperates = false;
  std::int64_t batch, rows, slots;
  const std::int32_t* parents;
  T* mask;
  Fault fault;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t w = t.block() * kThreads + t.index(); w < batch * rows; w += t.blocks() * kThreads) {
      const std::int64_t b = w / rows, i = w % rows;
      T* row = mask + w * slots;
      for (std::int64_t j = 0; j < slots; ++j) row[j] = from_float<T>(-kInfinity);
      for (std::int64_t j = slots - rows + i; j >= 0;) {
        row[j] = from_float<T>(0.0f);
        const std::int64_t parent = parents[b * slots + j];
        if (parent >= j) return fault.raise(FaultKind::OutOfRange, parent, j);
        j = parent;
      }
    }
  }
};

/// Moves accepted rows of caches to where their tokens stand: a thread per column of a sequence, row after row, since
/// a row is read before it is overwritten.
template <class T>
struct CompactCacheKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = false;
  std::int64_t caches, batch, rows, cols, capacity;
  const std::int32_t *lengths, *path;
  T* cache;
  Fault fault;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const std::int64_t all = caches * batch * cols;
    for (std::int64_t w = t.block() * kThreads + t.index(); w < all; w += t.blocks() * kThreads) {
      const std::int64_t col = w % cols, sequence = w / cols, b = sequence % batch;
      const std::int32_t* kept = path + b * (rows + 1);
      T* first = cache + (sequence * capacity + lengths[b]) * cols + col;
      for (std::int64_t i = 1; i <= rows && kept[i] >= 0; ++i) {
        if (lengths[b] + kept[i] >= capacity) return fault.raise(FaultKind::OutOfRange, lengths[b] + kept[i], capacity);
        if (kept[i] != i) first[i * cols] = first[kept[i] * cols];
      }
    }
  }
};

constexpr int kTreeThreads = 256, kTreeWarps = kTreeThreads / kWarp;
constexpr std::size_t kTreeShared = kTreeThreads * sizeof(double);

struct LargerDouble {
  KERNELS_GPU_INLINE double operator()(double a, double b) const { return a > b ? a : b; }
};
struct RankedDouble {
  double value;
  std::int64_t at;
};
struct FirstLargestDouble {
  KERNELS_GPU_INLINE RankedDouble operator()(RankedDouble a, RankedDouble b) const {
    return a.value > b.value || (a.value == b.value && a.at < b.at) ? a : b;
  }
};

/// What a block does with a row of logits and with distributions in memory.
template <class T, class Thread>
struct BlockRow {
  const Thread& t;
  std::int64_t n;

  template <class F>
  KERNELS_GPU_INLINE void each(F&& f) const {
    for (std::int64_t i = t.index(); i < n; i += kTreeThreads) f(i);
    t.sync();
  }
  template <class F>
  KERNELS_GPU_INLINE double sum(F&& f) const {
    double s = 0;
    for (std::int64_t i = t.index(); i < n; i += kTreeThreads) s += f(i);
    return block_reduce<kTreeWarps>(t, s, t.template shared<double>(), SumOf{});
  }
  /// The first of the largest.
  template <class F>
  KERNELS_GPU_INLINE RankedDouble largest(F&& f) const {
    RankedDouble best{-static_cast<double>(kInfinity), n};
    for (std::int64_t i = t.index(); i < n; i += kTreeThreads) best = FirstLargestDouble{}(best, {f(i), i});
    return block_reduce<kTreeWarps>(t, best, t.template shared<RankedDouble>(), FirstLargestDouble{});
  }
  KERNELS_GPU_INLINE void softmax(const T* x, double temperature, double* p) const {
    const double most = largest([&](std::int64_t i) { return static_cast<double>(to_float(x[i])); }).value;
    each([&](std::int64_t i) { p[i] = exp((static_cast<double>(to_float(x[i])) - most) / temperature); });
    normalise(p);
  }
  KERNELS_GPU_INLINE void normalise(double* p) const {
    const double all = sum([&](std::int64_t i) { return p[i]; });
    if (all > 0) each([&](std::int64_t i) { p[i] /= all; });
  }
  /// The first index up to which probabilities add up to more than u; the last one that is not 0 when rounding leaves
  /// none. Threads add up stretches, then one walks through the stretch that u falls into.
  KERNELS_GPU_INLINE std::int64_t draw(const double* p, double u) const {
    double* sums = t.template shared<double>();
    const std::int64_t stretch = blocks_of<std::int64_t>(n, kTreeThreads), first = t.index() * stretch;
    double own = 0;
    for (std::int64_t i = first; i < smaller_of(n, first + stretch); ++i) own += p[i] > 0 ? p[i] : 0;
    sums[t.index()] = own;
    t.sync();
    std::int64_t found = 0;
    if (t.index() == 0) {
      double sum = 0;
      int k = 0;
      while (k < kTreeThreads - 1 && sum + sums[k] <= u) sum += sums[k++];
      for (std::int64_t i = k * stretch; i < n; ++i) {
        if (p[i] <= 0) continue;
        found = i, sum += p[i];
        if (u < sum) break;
      }
      if (u >= sum)
        for (std::int64_t i = 0; i < n; ++i) found = p[i] > 0 ? i : found;
    }
    t.sync();
    if (t.index() == 0) *t.template shared<std::int64_t>() = found;
    t.sync();
    found = *t.template shared<std::int64_t>();
    t.sync();
    return found;
  }
};

/// The k largest of each row by logit, or by logit and noise: a block per row. `keys` has room for a row per block.
template <class T>
struct DraftCandidatesKernel {
  static constexpr int kThreads = kTreeThreads;
  static constexpr bool kCooperates = true;
  std::int64_t rows, vocab, k;
  double temperature;
  PhiloxKey key;
  const T* logits;
  std::int32_t* tokens;
  T *probabilities, *distribution;  // distribution: or null
  double* keys;                     // [blocks, 2, vocab]

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const BlockRow<T, Thread> row{t, vocab};
    double *p = keys + 2 * t.block() * vocab, *rank = p + vocab;
    for (std::int64_t r = t.block(); r < rows; r += t.blocks()) {
      const T* x = logits + r * vocab;
      row.softmax(x, temperature, p);
      row.each([&](std::int64_t c) {
        rank[c] = p[c];
        if (!distribution) return;
        distribution[r * vocab + c] = from_float<T>(static_cast<float>(p[c]));
        const double u = philox_uniform(philox_word(key, static_cast<std::uint64_t>(r * vocab + c)));
        rank[c] = static_cast<double>(to_float(x[c])) / temperature - log(-log(u));
      });
      for (std::int64_t i = 0; i < k; ++i) {
        const std::int64_t best = row.largest([&](std::int64_t c) { return rank[c]; }).at;
        if (t.index() == 0) {
          tokens[r * k + i] = static_cast<std::int32_t>(best);
          probabilities[r * k + i] = from_float<T>(static_cast<float>(p[best]));
          rank[best] = -static_cast<double>(kInfinity);
        }
        t.sync();
      }
    }
  }
};

enum class Accept : std::uint8_t { Greedy, Rejection, Typical };

/// One walk through a tree of drafted tokens per block; see AcceptTree of the plan.
template <class T>
struct AcceptTreeKernel {
  static constexpr int kThreads = kTreeThreads;
  static constexpr bool kCooperates = true;
  std::int64_t batch, nodes, depth, vocab;
  Accept rule;
  double temperature, epsilon, delta;
  PhiloxKey key;
  const T* logits;
  const std::int32_t *tokens, *parents;
  const T* drafts;  // or null
  const std::int32_t* draft_rows;
  std::int32_t *path, *next;
  double* room;  // [batch, 2, vocab] and then [batch, nodes] for depths
  Fault fault;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t b = t.block(); b < batch; b += t.blocks()) {
      Walk<Thread> walk{*this, {t, vocab}, b, room + 2 * b * vocab, room + (2 * b + 1) * vocab, 0};
      for (std::int64_t i = t.index(); i <= depth; i += kThreads) path[b * (depth + 1) + i] = i == 0 ? 0 : -1;
      t.sync();
      if (!walk.is_sound()) continue;
      if (rule == Accept::Greedy)
        walk.greedy();
      else if (rule == Accept::Rejection)
        walk.rejection();
      else
        walk.typical();
    }
  }

 private:
  template <class Thread>
  struct Walk {
    const AcceptTreeKernel& a;
    BlockRow<T, Thread> row;
    std::int64_t b;
    double *p, *q;
    std::int64_t draws;

    KERNELS_GPU_INLINE std::int32_t token(std::int64_t node) const { return a.tokens[b * a.nodes + node]; }
    KERNELS_GPU_INLINE std::int32_t parent(std::int64_t node) const { return a.parents[b * a.nodes + node]; }
    KERNELS_GPU_INLINE const T* logits(std::int64_t node) const { return a.logits + (b * a.nodes + node) * a.vocab; }
    KERNELS_GPU_INLINE bool is_sound() const {
      for (std::int64_t j = 0; j < a.nodes; ++j) {
        const bool bad_token = token(j) < 0 || token(j) >= a.vocab;
        if (!bad_token && parent(j) < j) continue;
        if (row.t.index() == 0)
          a.fault.raise(FaultKind::OutOfRange, bad_token ? token(j) : parent(j), bad_token ? a.vocab : j);
        return false;
      }
      return true;
    }
    KERNELS_GPU_INLINE double uniform() {
      const auto element = static_cast<std::uint64_t>(b * (a.nodes + 1) + draws++);
      return philox_uniform(philox_word(a.key, element));
    }
    KERNELS_GPU_INLINE void keep(std::int64_t at, std::int64_t node) const {
      if (row.t.index() == 0) a.path[b * (a.depth + 1) + at] = static_cast<std::int32_t>(node);
    }
    KERNELS_GPU_INLINE void finish(std::int64_t token) const {
      if (row.t.index() == 0) a.next[b] = static_cast<std::int32_t>(token);
    }
    KERNELS_GPU_INLINE std::int64_t child_with(std::int64_t node, std::int64_t wanted) const {
      for (std::int64_t j = node + 1; j < a.nodes; ++j)
        if (parent(j) == node && token(j) == wanted) return j;
      return -1;
    }

    KERNELS_GPU void greedy() {
      for (std::int64_t node = 0, length = 0;;) {
        const T* x = logits(node);
        const std::int64_t best = row.largest([&](std::int64_t i) { return static_cast<double>(to_float(x[i])); }).at;
        const std::int64_t child = child_with(node, best);
        if (child < 0 || length == a.depth) return finish(best);
        keep(++length, child);
        node = child;
      }
    }
    KERNELS_GPU void rejection() {
      for (std::int64_t node = 0, length = 0;;) {
        row.softmax(logits(node), a.temperature, p);
        const std::int64_t child = length == a.depth ? -1 : kept_child(node);
        if (child < 0) return finish(row.draw(p, uniform()));
        keep(++length, child);
        node = child;
      }
    }
    /// The child that survives, or −1: then p is what is left of the target's distribution.
    KERNELS_GPU std::int64_t kept_child(std::int64_t node) {
      std::int32_t held = -1;
      for (std::int64_t j = node + 1; j < a.nodes; ++j) {
        if (parent(j) != node) continue;
        const std::int32_t x = token(j), from = a.drafts ? a.draft_rows[b * a.nodes + j] : -1;
        if (from < 0) {  // drafted for certain: q is 1 at x
          if (uniform() < p[x]) return j;
          row.each([&](std::int64_t i) { p[i] = i == x ? 0 : p[i]; });
          row.normalise(p);
          continue;
        }
        if (from != held)
          row.each([&](std::int64_t i) { q[i] = static_cast<double>(to_float(a.drafts[from * a.vocab + i])); });
        held = from;
        if (uniform() * q[x] < p[x]) return j;
        row.t.sync();  // all have read q and p
        row.each([&](std::int64_t i) { p[i] = p[i] > q[i] ? p[i] - q[i] : 0; });
        row.normalise(p);
        row.each([&](std::int64_t i) { q[i] = i == x ? 0 : q[i]; });
        row.normalise(q);
      }
      return -1;
    }
    /// The deepest node all of whose path is typical; the first one of several.
    KERNELS_GPU void typical() {
      auto* depths = reinterpret_cast<std::int32_t*>(a.room + 2 * a.batch * a.vocab) + b * a.nodes;
      std::int64_t best = 0;
      if (row.t.index() == 0) depths[0] = 0;
      row.t.sync();
      for (std::int64_t j = 1; j < a.nodes; ++j) {
        const std::int64_t above = parent(j);
        const bool grows = above >= 0 && depths[above] >= 0 && depths[above] < a.depth && is_typical(above, token(j));
        const std::int32_t own = grows ? depths[above] + 1 : -1;
        if (own > depths[best]) best = j;
        row.t.sync();
        if (row.t.index() == 0) depths[j] = own;
        row.t.sync();
      }
      for (std::int64_t node = best; node > 0; node = parent(node)) keep(depths[node], node);
      row.softmax(logits(best), a.temperature, p);
      finish(row.draw(p, uniform()));
    }
    KERNELS_GPU_INLINE bool is_typical(std::int64_t node, std::int32_t wanted) {
      row.softmax(logits(node), a.temperature, p);
      const double entropy = row.sum([&](std::int64_t i) { return p[i] > 0 ? -p[i] * log(p[i]) : 0.0; });
      const double bound = a.delta * exp(-entropy);
      return p[wanted] > (bound < a.epsilon ? bound : a.epsilon);
    }
  };
};

template <class T>
using SpeculationKernels =
    KernelList<TreeMaskKernel<T>, CompactCacheKernel<T>, DraftCandidatesKernel<T>, AcceptTreeKernel<T>>;

}  // namespace orrery::kernels::cuda
