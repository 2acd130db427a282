// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/span_index.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace orrery {

SpanTable::SpanTable(const Timeline& timeline) : timeline_{timeline} {
  if (find_blocks()) return;
  sort();
  find_blocks();
}

/// False when the spans are not in order.
bool SpanTable::find_blocks() {
  const std::vector<Span>& spans = timeline_.spans;
  const SpanList all = order();
  const auto size = static_cast<std::uint32_t>(all.size());
  blocks_.clear();
  for (std::uint32_t i = 0; i < size;) {
    const Span& first = spans[all[i]];
    if (!blocks_.empty() &&
        std::tie(first.instance, first.rank.value) < std::tie(blocks_.back().instance, blocks_.back().rank.value))
      return false;
    Block block{first.instance, first.rank, i, i, kNoSpan};
    std::int64_t latest_ps = INT64_MIN;
    std::uint64_t before = 0;  // op and part
    for (; i < size; ++i) {
      const SpanIndex s = all[i];
      const Span& span = spans[s];
      if (span.rank != block.rank || span.instance != block.instance) break;
      const std::uint64_t key = std::uint64_t{span.op.value} << 32 | span.part;
      if (key < before) return false;
      before = key;
      if (span.part != 0 || span.end_ps < latest_ps) continue;
      if (span.end_ps > latest_ps || s < block.latest) block.latest = s;
      latest_ps = span.end_ps;
    }
    block.last = i;
    blocks_.push_back(block);
  }
  return true;
}

void SpanTable::sort() {
  const std::vector<Span>& spans = timeline_.spans;
  order_.resize(spans.size());
  std::iota(order_.begin(), order_.end(), SpanIndex{0});
  std::sort(order_.begin(), order_.end(), [&](SpanIndex x, SpanIndex y) {
    const Span &a = spans[x], &b = spans[y];
    return std::tie(a.instance, a.rank.value, a.op.value, a.part, x) <
           std::tie(b.instance, b.rank.value, b.op.value, b.part, y);
  });
}

bool SpanTable::ends_later(SpanIndex a, SpanIndex b) const {
  const std::int64_t end_a = timeline_.spans[a].end_ps, end_b = timeline_.spans[b].end_ps;
  return end_a != end_b ? end_a > end_b : a < b;
}

std::vector<RankId> SpanTable::ranks() const {
  std::vector<RankId> ranks;
  for (const Block& b : blocks_) ranks.push_back(b.rank);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

const SpanTable::Block* SpanTable::block(std::uint32_t instance, RankId rank) const {
  const auto it =
      std::lower_bound(blocks_.begin(), blocks_.end(), std::pair{instance, rank}, [](const Block& b, auto key) {
        return std::pair{b.instance, b.rank} < key;
      });
  return it != blocks_.end() && it->instance == instance && it->rank == rank ? &*it : nullptr;
}

SpanIndex SpanTable::find(const Block& block, OpId op, std::uint32_t part) const {
  const SpanList mine = of(block);
  const auto is_it = [&](SpanIndex i) { return timeline_.spans[i].op == op && timeline_.spans[i].part == part; };
  // Ops of a rank are a contiguous range and mostly all there, so the place is mostly known.
  const OpId first = timeline_.spans[mine.front()].op;
  const std::size_t guess = op.value - first.value;
  if (op >= first && guess < mine.size() && is_it(mine[guess])) return mine[guess];
  const auto it = std::lower_bound(mine.begin(), mine.end(), std::pair{op, part}, [&](SpanIndex i, auto key) {
    return std::pair{timeline_.spans[i].op, timeline_.spans[i].part} < key;
  });
  return it != mine.end() && is_it(*it) ? *it : kNoSpan;
}

SpanIndex SpanTable::find(std::uint32_t instance, OpId op, RankId rank, std::uint32_t part) const {
  const Block* b = block(instance, rank);
  return b == nullptr ? kNoSpan : find(*b, op, part);
}

std::uint32_t SpanTable::position(const Block& block, SpanIndex s) const {
  if (order_.empty() || (block.first <= s && s < block.last && order_[s] == s)) return s;
  const Span& span = timeline_.spans[s];
  const auto it = std::lower_bound(order_.begin() + block.first, order_.begin() + block.last,
                                   std::tuple{span.op, span.part, s}, [&](SpanIndex i, const auto& key) {
                                     return std::tuple{timeline_.spans[i].op, timeline_.spans[i].part, i} < key;
                                   });
  return static_cast<std::uint32_t>(it - order_.begin());
}

std::vector<RankId> ranks_of(const Timeline& timeline) {
  std::vector<RankId> ranks;
  for (const Span& s : timeline.spans) {
    if (ranks.empty() || ranks.back() != s.rank) ranks.push_back(s.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace orrery
