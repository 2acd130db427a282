// SPDX-License-Identifier: Apache-2.0
// Rows of matrices that teams of threads share. A row of whole packs of 16 bytes that is not too long is read once and
// kept in registers; any other is read again each time it is asked for, several packs at once.
#pragma once

#include "kernels/cuda/kernel.hpp"

namespace orrery::kernels::cuda {

constexpr int kRowThreads = 256, kRowWarps = kRowThreads / kWarp;
constexpr std::size_t kRowShared = kRowWarps * sizeof(double);
/// Numbers of a row that a thread keeps.
constexpr int kHeldNumbers = 16;
template <class T>
constexpr int kHeldPacks = kHeldNumbers / kPack<T>;

/// Held: whole packs, kept. Packs: packs from the first multiple of 16 bytes on, which lies alike in all matrices,
/// single numbers before and behind. Numbers: single ones.
enum class RowForm : std::uint8_t { Held, Packs, Numbers };

/// What a thread has to do with a row.
struct RowShare {
  std::int64_t row, cols;  // no columns behind the last row
  int lane, threads;       // of those that share the row
  bool leads;              // the first of them, unless there is no such row
};

/// Rows over a grid: a power of two of threads each, so many rows per block side by side.
struct RowTeams {
  std::int64_t rows, cols;
  RowForm form;
  int threads;

  constexpr int in_block() const { return kRowThreads / threads; }
  constexpr std::int64_t blocks() const { return blocks_of<std::int64_t>(rows, in_block()); }

  /// Calls f(share); all threads of a block equally often, as they wait for one another.
  template <class Thread, class F>
  KERNELS_GPU_INLINE void each(const Thread& t, F&& f) const {
    const int team = t.index() / threads, lane = t.index() % threads;
    for (std::int64_t first = t.block() * in_block(); first < rows; first += t.blocks() * in_block()) {
      const bool there = first + team < rows;
      f(RowShare{there ? first + team : rows - 1, there ? cols : 0, lane, threads, there && lane == 0});
    }
  }
};

/// As few threads per row as can keep it, eight at least; all of a block for longer ones.
constexpr RowTeams row_teams(std::int64_t rows, std::int64_t cols, RowForm form) {
  RowTeams teams{rows, cols, form, 8};
  while (teams.threads < kRowThreads && std::int64_t{teams.threads} * kHeldNumbers < cols) teams.threads *= 2;
  if (form == RowForm::Held && std::int64_t{teams.threads} * kHeldNumbers < cols) teams.form = RowForm::Packs;
  return teams;
}

/// Joins one value per thread over those that share a row, in a fixed order; all threads of the block come here.
template <class Thread, class V, class Join>
KERNELS_GPU_INLINE V team_reduce(const Thread& t, const RowShare& share, V x, Join&& join) {
  KERNELS_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2)
    if (mask < share.threads) x = join(x, t.shuffle_xor(x, mask));
  if (share.threads <= kWarp) return x;
  V* slots = t.template shared<V>();
  const int warps = share.threads / kWarp, warp = t.index() / kWarp, first = warp & ~(warps - 1);
  if (t.index() % kWarp == 0) slots[warp] = x;
  t.sync();
  V all = slots[first];
  for (int w = 1; w < warps; ++w) all = join(all, slots[first + w]);
  t.sync();
  return all;
}

/// Two sums at once.
struct TwoSums {
  float first, second;
};
struct JoinTwoSums {
  KERNELS_GPU_INLINE TwoSums operator()(TwoSums a, TwoSums b) const { return {a.first + b.first, a.second + b.second}; }
};

/// A pack as it is, of which the compiler forgets that it may have made floats before: what is kept stays packed.
template <class T, int N>
KERNELS_GPU_INLINE Pack<T, N> still_packed(const Pack<T, N>& pack) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) < sizeof(float)) {
    auto quad = reinterpret_bits<Quad>(pack);
    asm volatile("" : "+r"(quad.word[0]), "+r"(quad.word[1]), "+r"(quad.word[2]), "+r"(quad.word[3]));
    return reinterpret_bits<Pack<T, N>>(quad);
  }
#endif
  return pack;
}

/// A thread's share of one row of each of IN matrices, in registers. `each` calls f(k, c, x): x[i] are N numbers of
/// matrix i from column c on, the thread's k-th ones.
template <class T, int IN, int PACKS = kHeldPacks<T>>
struct HeldRows {
  static constexpr bool kHeld = true;
  static constexpr int N = kPack<T>;
  Pack<T, N> pack[IN][PACKS];
  int cols, lane, threads;

  KERNELS_GPU_INLINE HeldRows(const RowShare& s, const T* const (&from)[IN])
      : cols{static_cast<int>(s.cols)}, lane{s.lane}, threads{s.threads} {
    KERNELS_UNROLL
    for (int i = 0; i < IN; ++i) {
      KERNELS_UNROLL
      for (int k = 0; k < PACKS; ++k)
        if (column(k) < cols) pack[i][k] = *reinterpret_cast<const Pack<T, N>*>(from[i] + column(k));
    }
  }
  KERNELS_GPU_INLINE int column(int k) const { return (k * threads + lane) * N; }
  template <class F>
  KERNELS_GPU_INLINE void each(F&& f) const {
    KERNELS_UNROLL
    for (int k = 0; k < PACKS; ++k) {
      if (column(k) >= cols) continue;
      float x[IN][N];
      KERNELS_UNROLL
      for (int i = 0; i < IN; ++i) {
        const Pack<T, N> some = still_packed(pack[i][k]);
        KERNELS_UNROLL
        for (int j = 0; j < N; ++j) x[i][j] = to_float(some.value[j]);
      }
      f(k, column(k), x);
    }
  }
};

/// The same of rows that are read each time. Numbers outside of packs come as x[i][1], k is 0.
template <class T, int IN>
struct ReadRows {
  static constexpr bool kHeld = false;
  static constexpr int N = kPack<T>, kAtOnce = kHeldPacks<T>;
  RowShare share;
  const T* from[IN];
  std::int64_t begin, end;  // of the packs

  KERNELS_GPU_INLINE ReadRows(const RowShare& s, const T* const (&rows)[IN], RowForm form) : share{s} {
    for (int i = 0; i < IN; ++i) from[i] = rows[i];
    const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(from[0]) % 16 / sizeof(T));
    begin = form == RowForm::Numbers ? s.cols : smaller_of<std::int64_t>((N - past) % N, s.cols);
    end = begin + (s.cols - begin) / N * N;
  }
  template <class F>
  KERNELS_GPU_INLINE void each(F&& f) const {
    const int stride = share.threads * N;
    for (std::int64_t c = begin; c < end; c += kAtOnce * stride) {
      const T* some[IN];
      for (int i = 0; i < IN; ++i) some[i] = from[i] + c;
      const RowShare part{share.row, smaller_of<std::int64_t>(end - c, kAtOnce * stride), share.lane, share.threads,
                          false};
      HeldRows<T, IN, kAtOnce>{part, some}.each([&](int, std::int64_t at, const auto& x) { f(0, c + at, x); });
    }
    const std::int64_t singles = share.cols - (end - begin);
    for (std::int64_t s = share.lane; s < singles; s += share.threads) {
      const std::int64_t c = s < begin ? s : s + end - begin;
      float x[IN][1];
      for (int i = 0; i < IN; ++i) x[i][0] = to_float(from[i][c]);
      f(0, c, x);
    }
  }
};

/// Calls f(rows, share) for the rows of a block: ReadRows of the places that from(r, places) writes down.
template <class T, int IN, class Thread, class From, class F>
KERNELS_GPU_INLINE void each_read_row(const Thread& t, const RowTeams& teams, From&& from, F&& f) {
  teams.each(t, [&](const RowShare& share) {
    const T* places[IN];
    from(share.row, places);
    f(ReadRows<T, IN>{share, places, teams.form}, share);
  });
}
/// The same, with HeldRows where teams hold theirs: for those that are asked for more than once.
template <class T, int IN, class Thread, class From, class F>
KERNELS_GPU_INLINE void each_row(const Thread& t, const RowTeams& teams, From&& from, F&& f) {
  if (teams.form != RowForm::Held) return each_read_row<T, IN>(t, teams, from, f);
  teams.each(t, [&](const RowShare& share) {
    const T* places[IN];
    from(share.row, places);
    f(HeldRows<T, IN>{share, places}, share);
  });
}

}  // namespace orrery::kernels::cuda
