// SPDX-License-Identifier: Apache-2.0
// Rows that share an index: their sums, or the last of them. Rows are sorted by their indices first, a digit of eight
// bits after another, equal ones keeping their order: work grows with the rows, and each sum has one order.
#pragma once

#include "kernels/cuda/kernel.hpp"

namespace orrery::kernels::cuda {

constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
/// Rows whose digits a block counts.
constexpr std::int64_t kSortedRows = 2048;

/// Passes that sort indices below `end`, and one more number for those outside.
constexpr int sort_passes(std::int64_t end) {
  int passes = 1;
  while (end >> (passes * kDigitBits) != 0) ++passes;
  return passes;
}
/// Numbers of 32 bits that sorting needs: two orders, and how often each digit comes in each block.
constexpr std::int64_t sort_numbers(std::int64_t rows) { return 2 * rows + kDigits * blocks_of(rows, kSortedRows); }

/// What passes know. Rows are in the order `from`, or as they are where that is null.
struct SortedRows {
  std::int64_t rows, first, last;
  const std::int32_t *index, *from;
  int shift = 0;

  KERNELS_GPU_INLINE std::int32_t row(std::int64_t i) const { return from ? from[i] : static_cast<std::int32_t>(i); }
  /// The index counted from `first`; last − first for those outside.
  KERNELS_GPU_INLINE std::int64_t key(std::int64_t i) const {
    const std::int64_t id = index[row(i)];
    return id >= first && id < last ? id - first : last - first;
  }
  KERNELS_GPU_INLINE int digit(std::int64_t i) const { return static_cast<int>(key(i) >> shift & (kDigits - 1)); }
  constexpr std::int64_t blocks() const { return blocks_of(rows, kSortedRows); }
};

/// The rows of a block lie with its warps in stretches: lane l of a warp has its rows l, l + 32, … .
constexpr int kSortWarps = kDigits / kWarp, kRowsOfLane = static_cast<int>(kSortedRows / kDigits);
/// A count for each warp and digit.
constexpr std::size_t kSortedShared = kSortWarps * kDigits * sizeof(std::int32_t);

/// Lanes of the warp, as bits, that have a number and the same digit as this one.
template <class Thread>
KERNELS_GPU_INLINE std::uint32_t lanes_alike(const Thread& t, int digit, bool has) {
  std::uint32_t lanes = t.ballot(has);
  for (int bit = 0; bit < kDigitBits; ++bit) {
    const bool is_set = (digit >> bit & 1) != 0;
    const std::uint32_t set = t.ballot(is_set);
    lanes &= is_set ? set : ~set;
  }
  return lanes;
}

/// What a lane knows of its rows of a block.
struct RowsOfLane {
  int digit[kRowsOfLane];  // −1 behind the last row
  std::int32_t row[kRowsOfLane];

  template <class Thread>
  KERNELS_GPU_INLINE RowsOfLane(const Thread& t, const SortedRows& in, std::int64_t block) {
    const int warp = t.index() / kWarp, lane = t.index() % kWarp;
    const std::int64_t first = block * kSortedRows + warp * kRowsOfLane * kWarp + lane;
    for (int i = 0; i < kRowsOfLane; ++i) {
      const std::int64_t at = first + i * kWarp;
      digit[i] = at < in.rows ? in.digit(at) : -1;
      row[i] = at < in.rows ? in.row(at) : 0;
    }
  }
  /// Calls with each of them, in the order of the rows of the warp: how many lanes have the same digit, how many of
  /// those come before this one, and what `numbers` of the warp has for the digit, which the last of them may change.
  template <class Thread, class F>
  KERNELS_GPU_INLINE void in_order(const Thread& t, const std::int32_t* numbers, F&& f) const {
    const std::uint32_t earlier = (std::uint32_t{1} << t.index() % kWarp) - 1;
    for (int i = 0; i < kRowsOfLane; ++i) {
      const bool has = digit[i] >= 0;
      const std::uint32_t alike = lanes_alike(t, digit[i] & (kDigits - 1), has);
      const std::int32_t number = has ? numbers[digit[i]] : 0;
      t.sync_warp();
      if (has) f(i, bits_of(alike), bits_of(alike & earlier), number);
      t.sync_warp();
    }
  }
  /// counts[digit] of the warp.
  template <class Thread>
  KERNELS_GPU_INLINE void count(const Thread& t, std::int32_t* counts) const {
    for (int d = t.index() % kWarp; d < kDigits; d += kWarp) counts[d] = 0;
    t.sync_warp();
    in_order(t, counts, [&](int i, int all, int before, std::int32_t count) {
      if (before == all - 1) counts[digit[i]] = count + all;
    });
  }
};

/// counts[digit, block].
struct CountDigitsKernel {
  static constexpr int kThreads = kDigits;
  static constexpr bool kCooperates = true;
  SortedRows in;
  std::int32_t* counts;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    auto* of_warps = t.template shared<std::int32_t>();
    for (std::int64_t block = t.block(); block < in.blocks(); block += t.blocks()) {
      RowsOfLane(t, in, block).count(t, of_warps + t.index() / kWarp * kDigits);
      t.sync();
      std::int32_t all = 0;
      for (int w = 0; w < kSortWarps; ++w) all += of_warps[w * kDigits + t.index()];
      counts[t.index() * in.blocks() + block] = all;
      t.sync();
    }
  }
};

/// Each count becomes the sum of those before it: where the first row with that digit of that block goes. One block.
struct DigitPlacesKernel {
  static constexpr int kThreads = kDigits;
  static constexpr bool kCooperates = true;
  static constexpr std::size_t kShared = 2 * kDigits * sizeof(std::int32_t);
  std::int64_t blocks;
  std::int32_t* counts;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    auto* sums = t.template shared<std::int32_t>();  // of ever more digits; read from one half, written to the other
    std::int32_t *own = counts + t.index() * blocks, sum = 0;
    for (std::int64_t b = 0; b < blocks; ++b) sum += own[b];
    int half = 0;
    sums[t.index()] = sum;
    t.sync();
    for (int reach = 1; reach < kDigits; reach *= 2) {
      const std::int32_t* const from = sums + half + t.index();
      const std::int32_t more = t.index() >= reach ? from[-reach] : 0;
      half = kDigits - half;
      sums[half + t.index()] = *from + more;
      t.sync();
    }
    std::int32_t place = sums[half + t.index()] - sum;
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::int32_t count = own[b];
      own[b] = place;
      place += count;
    }
  }
};

/// Rows in the order of the digit, equal ones as they were.
struct PlaceRowsKernel {
  static constexpr int kThreads = kDigits;
  static constexpr bool kCooperates = true;
  SortedRows in;
  const std::int32_t* places;
  std::int32_t* out;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    auto* of_warps = t.template shared<std::int32_t>();  // counts, then where the next row of a warp goes
    for (std::int64_t block = t.block(); block < in.blocks(); block += t.blocks()) {
      const RowsOfLane rows(t, in, block);
      std::int32_t* const own = of_warps + t.index() / kWarp * kDigits;
      rows.count(t, own);
      t.sync();
      std::int32_t place = places[t.index() * in.blocks() + block];
      for (int w = 0; w < kSortWarps; ++w) {
        const std::int32_t count = of_warps[w * kDigits + t.index()];
        of_warps[w * kDigits + t.index()] = place;
        place += count;
      }
      t.sync();
      rows.in_order(t, own, [&](int i, int all, int before, std::int32_t first) {
        out[first + before] = rows.row[i];
        if (before == all - 1) own[rows.digit[i]] = first + all;
      });
      t.sync();
    }
  }
};

/// table[index[r] − first,:] += x[r,:], in order of r: a block per row and stretch of columns, of which the first of
/// rows with one index adds up all of them, so that the sum is rounded once.
template <class T>
struct ScatterAddKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = false;
  SortedRows in;  // sorted
  std::int64_t cols;
  const T* x;
  T* table;
  bool wide;

  constexpr std::int64_t stretches() const { return blocks_of<std::int64_t>(cols, kThreads * (wide ? kPack<T> : 1)); }
  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t w = t.block(); w < in.rows * stretches(); w += t.blocks()) {
      const std::int64_t i = w / stretches(), key = in.key(i);
      if (key == in.last - in.first || (i > 0 && in.key(i - 1) == key)) continue;
      if (wide)
        add<kPack<T>>(t, i, key, w % stretches());
      else
        add<1>(t, i, key, w % stretches());
    }
  }

 private:
  template <int N, class Thread>
  KERNELS_GPU_INLINE void add(const Thread& t, std::int64_t i, std::int64_t key, std::int64_t stretch) const {
    const std::int64_t c = (stretch * kThreads + t.index()) * N;
    if (c >= cols) return;
    float sum[N], more[N];
    load<T, N>(table + key * cols + c, sum);
    for (; i < in.rows && in.key(i) == key; ++i) {
      load<T, N>(x + in.row(i) * cols + c, more);
      for (int j = 0; j < N; ++j) sum[j] += more[j];
    }
    store<T, N>(table + key * cols + c, sum);
  }
};

/// table[index[r],:] = x[r,:] in order of r, −1 left out: the last of rows with one index writes. A block per row.
template <class T>
struct ScatterSortedRowsKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = false;
  SortedRows in;  // sorted; of indices from 0 on
  std::int64_t cols, x_stride, table_stride;
  const T* x;
  T* table;
  Fault fault;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t i = t.block(); i < in.rows; i += t.blocks()) {
      const std::int64_t r = in.row(i), key = in.key(i);
      if (in.index[r] >= in.last) fault.raise(FaultKind::OutOfRange, in.index[r], in.last);
      if (key == in.last || (i + 1 < in.rows && in.key(i + 1) == key)) continue;
      for (std::int64_t c = t.index(); c < cols; c += kThreads) table[key * table_stride + c] = x[r * x_stride + c];
    }
  }
};
/// So many rows are not worth a sort: each looks at the indices of those behind it (ScatterRowsKernel).
constexpr std::int64_t kUnsortedRows = 512;

using SortKernels = KernelList<CountDigitsKernel, DigitPlacesKernel, PlaceRowsKernel>;
template <class T>
using ScatterKernels = KernelList<ScatterAddKernel<T>, ScatterSortedRowsKernel<T>>;

}  // namespace orrery::kernels::cuda
