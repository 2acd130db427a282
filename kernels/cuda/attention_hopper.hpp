// SPDX-License-Identifier: Apache-2.0
// Attention by products of four warps: tiles of 128 queries against tiles of 128 keys. One warpgroup fetches keys and
// values into a ring of four slots, two compute 64 queries each. Products of one run while the other takes
// exponentials, and products of a group's own last tile while it takes those of the next (Shah et al.,
// "FlashAttention-3", 2024). bf16 and f16, heads of D = 64 or 128 numbers.
//
// A lane's part of 16 rows of scores or sums, and of weights as the left operand, is as of mma.m16n8k16
// (attention_tile.hpp); warp w of a group has rows 16·w … 16·w + 15.
#pragma once

#include "kernels/cuda/attention_tile.hpp"
#include "kernels/cuda/hopper.hpp"

namespace orrery::kernels::cuda {

constexpr int kHopperQueries = 128, kHopperKeys = 128, kGroupQueries = 64;

template <class T, int D>
struct HopperAttentionKernel {
  static constexpr int kThreads = 3 * kWarpgroup;
  static constexpr bool kCooperates = true;
  using Steps = TileSteps<T, D>;
  AttentionProblem p;  // without bias, masks, positions, window and unequal lengths; 16-byte rows; scale above 0
  HeadView o;
  Numbers lse;  // or none
  Fault fault;  // raised when a wait takes seconds: then the outputs are wrong

  /// In bytes: queries of both groups, the ring, and the words of the barriers.
  static constexpr std::uint32_t kQueryBytes = kGroupQueries * D * 2, kSlotBytes = kHopperKeys * D * 2;
  static constexpr std::uint32_t kSlots = 4, kRing = 2 * kQueryBytes, kBarriers = kRing + kSlots * kSlotBytes;
  static constexpr std::size_t kShared = kSwizzleBytes + kBarriers + (2 * kSlots + 2) * sizeof(std::uint64_t);

  constexpr std::int64_t tiles() const { return query_tiles(p, kHopperQueries); }

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    Place at{(t.shared_base() + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes};
    if (t.index() == 0) at.init(t);
    t.sync();
    const int group = t.index() / kWarpgroup;
    if (group == 0) {
      t.template give_registers<40>();
      for (std::int64_t w = t.block(); w < tiles(); w += t.blocks())
        fetch(t, at, query_tile(p, w, kHopperQueries, kHopperKeys));
    } else {
      t.template take_registers<232>();
      for (std::int64_t w = t.block(); w < tiles(); w += t.blocks())
        queries(t, at, query_tile(p, w, kHopperQueries, kHopperKeys), group - 1);
    }
  }

 private:
  static constexpr int kColumns = kHopperKeys / 8;
  static constexpr std::uint32_t kWarps = kWarpgroup / kWarp;
  /// Loads on their way before the first of them is announced. A slot is given back before what follows it by two has
  /// to be there, so one more would wait for ever.
  static constexpr std::uint32_t kAhead = 2;

  /// The block's memory, and how far its thread has come: keys and values fetched or used, turns taken.
  struct Place {
    std::uint32_t base, item = 0, turn = 0;
    bool stalled = false;

    KERNELS_GPU_INLINE std::uint32_t queries(int group) const {
      return base + static_cast<std::uint32_t>(group) * kQueryBytes;
    }
    KERNELS_GPU_INLINE std::uint32_t slot(std::uint32_t i) const { return base + kRing + i % kSlots * kSlotBytes; }
    KERNELS_GPU_INLINE std::uint32_t barrier(std::uint32_t i) const { return base + kBarriers + 8 * i; }
    KERNELS_GPU_INLINE std::uint32_t filled(std::uint32_t i) const { return barrier(i % kSlots); }
    KERNELS_GPU_INLINE std::uint32_t emptied(std::uint32_t i) const { return barrier(kSlots + i % kSlots); }
    KERNELS_GPU_INLINE std::uint32_t turn_of(int group) const {
      return barrier(2 * kSlots + static_cast<std::uint32_t>(group));
    }
    /// A warp arrives by one of its lanes.
    template <class Thread>
    KERNELS_GPU_INLINE void init(const Thread& t) const {
      for (std::uint32_t i = 0; i < kSlots; ++i) {
        t.barrier_init(filled(i), kWarps);
        t.barrier_init(emptied(i), 2 * kWarps);
      }
      for (int g = 0; g < 2; ++g) t.barrier_init(turn_of(g), kWarps);
    }
  };
  /// What a lane holds of its group's 64 queries.
  struct Rows {
    float o[D / 8][4];
    float s[kColumns][4];
    std::uint32_t weights[kHopperKeys / 16][4];
    float most[2], sum[2], shrink[2];
  };

  /// Phase number `phase` of a barrier. Once a wait has taken too long nothing is waited for any more.
  template <class Thread>
  KERNELS_GPU_INLINE void wait(const Thread& t, Place& at, std::uint32_t barrier, std::uint32_t phase) const {
    if (at.stalled || t.barrier_wait(barrier, phase & 1u)) return;
    at.stalled = true;
    if (fault.at) fault.raise(FaultKind::Stalled, 0, 0);
  }
  template <class Thread>
  static KERNELS_GPU_INLINE void arrive(const Thread& t, std::uint32_t barrier) {
    t.sync_warp();
    if (t.index() % kWarp == 0) t.barrier_arrive(barrier);
  }

  /// Keys and values of a tile of queries in turn, each into the next slot of the ring.
  template <class Thread>
  KERNELS_GPU_INLINE void fetch(const Thread& t, Place& at, const QueryTile& tile) const {
    const T *keys = p.key<T>(p.k, tile.b, 0, tile.h), *values = p.key<T>(p.v, tile.b, 0, tile.h);
    const std::uint32_t start = at.item, count = 2 * static_cast<std::uint32_t>(tile.steps);
    for (std::uint32_t i = 0; i < count + kAhead; ++i) {
      if (i < count) {
        if (at.item >= kSlots) wait(t, at, at.emptied(at.item), at.item / kSlots - 1);
        const std::int64_t first = std::int64_t{i / 2} * kHopperKeys;
        Steps::template copy_rows<kHopperKeys, kWarpgroup>(
            t, i % 2 == 0 ? keys : values, i % 2 == 0 ? p.k.token : p.v.token, first, p.kv_len, D, at.slot(at.item));
        ++at.item;
      }
      t.copy_commit();  // an empty batch in the end: the count of those behind stays
      if (i < kAhead) continue;
      t.template copy_wait<kAhead>();
      t.proxy_fence();
      arrive(t, at.filled(start + i - kAhead));
    }
  }

  template <class Thread>
  KERNELS_GPU_INLINE void queries(const Thread& t, Place& at, const QueryTile& tile, int group) const {
    const std::int64_t first = tile.first + group * kGroupQueries,
                       row = first + t.index() % kWarpgroup / kWarp * 16 + t.index() % kWarp / 4;
    Rows r;
    start(t, at, tile, first, group, r);
    const Sight sight{p, first};
    if (tile.steps > 0) {
      wait(t, at, at.filled(at.item), at.item / kSlots);
      t.products_fence();
      score(t, at, group, at.item, r);
      t.template products_wait<0>(r.s);
      arrive(t, at.emptied(at.item));
      weigh(t, r, 0, sight);
      pack(r);
      for (int j = 1; j < tile.steps; ++j, at.item += 2) step(t, at, group, r, j, sight);
      add_last(t, at, r);
      at.item += 2;
    }
    finish(t, r, tile, row);
  }

  /// The group's queries into its part of the memory; sums of nothing.
  template <class Thread>
  KERNELS_GPU_INLINE void start(const Thread& t, const Place& at, const QueryTile& tile, std::int64_t first, int group,
                                Rows& r) const {
    t.sync_group();  // all have done with the queries before
    Steps::template copy_rows<kGroupQueries, kWarpgroup>(t, p.query<T>(p.q, tile.b, 0, tile.h), p.q.token, first,
                                                         p.q_len, D, at.queries(group));
    t.copy_commit();
    t.template copy_wait<0>();
    t.proxy_fence();
    t.sync_group();
    repeat<2>([&](int half) {
      r.most[half] = -kInfinity;
      r.sum[half] = 0;
    });
    repeat<D / 8>([&](int n) { repeat<4>([&](int i) { r.o[n][i] = 0; }); });
  }
  /// s = Q·Kᵀ, later.
  template <class Thread>
  KERNELS_GPU_INLINE void score(const Thread& t, const Place& at, int group, std::uint32_t item, Rows& r) const {
    repeat<D / 16>([&](int k) {
      t.multiply(r.s, along_rows<kGroupQueries>(at.queries(group), k), along_rows<kHopperKeys>(at.slot(item), k), k > 0,
                 T{});
    });
    t.products_commit();
  }
  /// o += weights·V, later.
  template <class Thread>
  KERNELS_GPU_INLINE void add_values(const Thread& t, const Place& at, std::uint32_t item, Rows& r) const {
    repeat<kHopperKeys / 16>(
        [&](int k) { t.multiply(r.o, r.weights[k], down_rows<kHopperKeys>(at.slot(item), k), T{}); });
    t.products_commit();
  }
  /// Scores of tile j beside the sums of tile j − 1, whose keys are item number at.item.
  template <class Thread>
  KERNELS_GPU_INLINE void step(const Thread& t, Place& at, int group, Rows& r, int j, const Sight& sight) const {
    const std::uint32_t values = at.item + 1, keys = at.item + 2;
    wait(t, at, at.filled(values), values / kSlots);
    wait(t, at, at.filled(keys), keys / kSlots);
    // Group 0 begins; then each waits until the other has handed in its products.
    if (group == 1 || at.turn > 0) wait(t, at, at.turn_of(group), at.turn - (group == 0 ? 1u : 0u));
    ++at.turn;
    t.products_fence();
    score(t, at, group, keys, r);
    add_values(t, at, values, r);
    arrive(t, at.turn_of(1 - group));
    t.template products_wait<1>(r.s);
    arrive(t, at.emptied(keys));
    weigh(t, r, j, sight);
    t.template products_wait<0>(r.o);
    arrive(t, at.emptied(values));
    repeat<D / 8>([&](int n) { repeat<4>([&](int i) { r.o[n][i] *= r.shrink[i / 2]; }); });
    pack(r);
  }
  template <class Thread>
  KERNELS_GPU_INLINE void add_last(const Thread& t, Place& at, Rows& r) const {
    const std::uint32_t values = at.item + 1;
    wait(t, at, at.filled(values), values / kSlots);
    t.products_fence();
    add_values(t, at, values, r);
    t.template products_wait<0>(r.o);
    arrive(t, at.emptied(values));
  }

  /// s becomes e^(scale·(s − most)), and `shrink` what sums of smaller maxima have to be multiplied by.
  /// `sight`: of the group's queries.
  template <class Thread>
  KERNELS_GPU_INLINE void weigh(const Thread& t, Rows& r, int j, const Sight& sight) const {
    const int key = j * kHopperKeys, row = t.index() % kWarpgroup / kWarp * 16 + t.index() % kWarp / 4;
    if (key + kHopperKeys > sight.of(0)) hide_behind(t, r.s, sight.end - key, sight.own - key + row);
    soften(t, r.s, p.scale * kLog2OfE, r.most, r.sum, r.shrink);
  }
  static KERNELS_GPU_INLINE void pack(Rows& r) {
    repeat<kHopperKeys / 16>([&](int k) { pack_columns<T>(r.s, k, r.weights[k]); });
  }

  template <class Thread>
  KERNELS_GPU_INLINE void finish(const Thread& t, Rows& r, const QueryTile& tile, std::int64_t row) const {
    repeat<2>([&](int half) {
      for (int m = 1; m < 4; m *= 2) r.sum[half] += t.shuffle_xor(r.sum[half], m);
      const std::int64_t i = row + 8 * half;
      if (i >= p.q_len) return;
      const float inverse = r.sum[half] > 0 ? 1.0f / r.sum[half] : 0.0f;
      T* to = p.query<T>(o, tile.b, i, tile.h) + t.index() % 4 * 2;
      repeat<D / 8>([&](int n) {
        *reinterpret_cast<std::uint32_t*>(to + 8 * n) =
            rounded_pair<T>(r.o[n][2 * half] * inverse, r.o[n][2 * half + 1] * inverse);
      });
      if (t.index() % 4 == 0 && lse.there())
        lse.set(p.lse_index(tile.b, tile.h, i),
                r.sum[half] > 0 ? r.most[half] * p.scale + logf(r.sum[half]) : -kInfinity);
    });
  }
};

using HopperAttentionKernels = KernelList<HopperAttentionKernel<bf16, 64>, HopperAttentionKernel<bf16, 128>,
                                          HopperAttentionKernel<f16, 64>, HopperAttentionKernel<f16, 128>>;

}  // namespace orrery::kernels::cuda
