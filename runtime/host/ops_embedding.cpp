// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "kernels/host/indexing.hpp"
#include "kernels/host/rope.hpp"
#include "runtime/host/families.hpp"
#include "runtime/host/find_kernel.hpp"

namespace orrery {

static void run(const LocalIndices& l, const OpContext<void>& c) {
  kernels::local_indices(l.rows, l.classes, *c.ints(1), c.ints(0), c.elements_of<std::int32_t>(2));
}

/// Slots that are taken twice, and ids without one, are errors of whoever decides.
static void run(const AdmitRows& a, const OpContext<void>& c) {
  constexpr std::int64_t kNone = 0;  // maps count from 1
  const Bindings& b = *c.call().bindings;
  const std::int32_t *ids = c.ints(0), *missed = c.ints(2), *missed_slots = c.ints(3), *victim_slots = c.ints(4);
  const auto* ranks = c.elements_of<std::int64_t>(1);
  auto *slot_of_rank = c.elements_of<std::int64_t>(5), *rank_of_slot = c.elements_of<std::int64_t>(6);
  std::int64_t* uses = a.policy == EvictionPolicy::Lfu ? c.elements_of<std::int64_t>(7) : nullptr;
  auto* slots = c.elements_of<std::int32_t>(c.size() - 1);
  for (std::int64_t v = 0; v < a.victims.at(b); ++v) {
    std::int64_t& rank = rank_of_slot[victim_slots[v]];
    if (rank == kNone) c.fail(fmt::format("slot {} is to be cleared, but holds no row", victim_slots[v]));
    slot_of_rank[rank - 1] = kNone;
    rank = kNone;
  }
  for (std::int64_t m = 0; m < a.misses.at(b); ++m) {
    std::int64_t& rank = rank_of_slot[missed_slots[m]];
    if (rank != kNone) c.fail(fmt::format("slot {} is to take row {}, but holds one", missed_slots[m], missed[m]));
    rank = ranks[missed[m]] + 1;
    slot_of_rank[rank - 1] = missed_slots[m] + 1;
    if (uses) uses[missed_slots[m]] = 0;
  }
  for (std::int64_t i = 0; i < a.lookups; ++i) {
    const std::int64_t slot = slot_of_rank[ranks[ids[i]]];
    if (slot == kNone) c.fail(fmt::format("row {} is not in the cache", ids[i]));
    slots[i] = static_cast<std::int32_t>(slot - 1);
    if (uses) ++uses[slot - 1];
  }
}

template <class T>
void run(const Gather& g, const OpContext<T>& c) {
  kernels::embedding(kernels::EmbeddingArgs<T>{.tokens = g.used_rows(*c.call().bindings),
                                               .dim = g.cols,
                                               .first = g.first,
                                               .last = g.last,
                                               .ids = c.ints(1),
                                               .table = c.dense(0),
                                               .out = c.dense(2),
                                               .write = c.write_mode(2)});
}

template <class T>
void run(const ScatterAdd& s, const OpContext<T>& c) {
  kernels::embedding_backward(kernels::EmbeddingBackwardArgs<T>{.tokens = s.rows,
                                                                .dim = s.cols,
                                                                .first = s.first,
                                                                .last = s.last,
                                                                .ids = c.ints(1),
                                                                .dout = c.dense(0),
                                                                .dtable = c.dense(2),
                                                                .write = kernels::Write::Accumulate});
}

template <class T>
void run(const ScatterRows& s, const OpContext<T>& c) {
  const std::int32_t* index = c.ints(1);
  const std::int64_t rows = s.used_rows(*c.call().bindings);
  for (std::int64_t r = 0; r < rows; ++r)
    if (index[r] >= s.table_rows) c.fail(fmt::format("row {} of a table of {}", index[r], s.table_rows));
  const std::int64_t from = c.row_stride(0, s.rows, s.cols), to = c.row_stride(2, s.table_rows, s.cols);
  for (std::int64_t r = 0; r < rows; ++r)
    if (index[r] >= 0) std::copy_n(c.data(0) + r * from, s.cols, c.data(2) + index[r] * to);
}

static void check_positions(const RotaryEmbedding& w, const OpContextBase& c) {
  const std::int64_t positions = 2 * c.elements(0) / w.rot_dim;
  for (std::int64_t r = 0; r < w.rows; ++r)
    if (c.ints(2)[r] < 0 || c.ints(2)[r] >= positions)
      c.fail(fmt::format("position {}, but '{}' holds {}", c.ints(2)[r], c.operand_name(0), positions));
}

template <class T>
void run(const RotaryEmbedding& w, const OpContext<T>& c) {
  const std::int64_t start = c.at(w.start), sequence = w.sequence > 0 ? w.sequence : w.rows;
  const int x = c.output();
  if (w.positions)
    check_positions(w, c);
  else if (const std::int64_t positions = 2 * c.elements(0) / w.rot_dim; start + sequence > positions)
    c.fail(fmt::format("position {}, but '{}' holds {}", start + sequence - 1, c.operand_name(0), positions));
  const auto [token, head] = c.head_strides(w, x);
  kernels::rope(
      kernels::RopeArgs<T>{.tokens = w.rows,
                           .heads = w.heads,
                           .head_dim = w.head_dim,
                           .rot_dim = w.rot_dim,
                           .style = w.interleaved ? kernels::RopeStyle::Interleaved : kernels::RopeStyle::HalfSplit,
                           .direction = w.inverse ? kernels::RopeDirection::Inverse : kernels::RopeDirection::Forward,
                           .x = c.data(x),
                           .x_token_stride = token,
                           .x_head_stride = head,
                           .y = c.data(x),
                           .y_token_stride = token,
                           .y_head_stride = head,
                           .cos = c.dense(0),
                           .sin = c.dense(1),
                           .positions = w.positions ? c.ints(2) : nullptr,
                           .start = start,
                           .sequence = sequence});
}

Kernel find_embedding(const Work& work) {
  if (const Kernel k = find_untyped<LocalIndices, AdmitRows>(work)) return k;
  return find_typed<Gather, ScatterAdd, ScatterRows, RotaryEmbedding>(work);
}

}  // namespace orrery
