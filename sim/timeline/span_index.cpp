// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/span_index.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace orrery {

SpanTable::SpanTable(const Timeline& timeline) : timeline_{timeline}, order_(timeline.spans.size()) {
  const std::vector<Span>& spans = timeline.spans;
  std::iota(order_.begin(), order_.end(), SpanIndex{0});
  const auto before = [&](SpanIndex x, SpanIndex y) {
    const Span &a = spans[x], &b = spans[y];
    return std::tie(a.instance, a.rank.value, a.op.value, a.part, x) <
           std::tie(b.instance, b.rank.value, b.op.value, b.part, y);
  };
  // Most timelines are in order: all spans of a rank in one instance follow upon each other, by op.
  const auto same_block = [](const Span& a, const Span& b) { return a.instance == b.instance && a.rank == b.rank; };
  const auto is_behind = [](const Span& b, const Span& a) {
    return std::tie(a.instance, a.rank.value, a.op.value, a.part) <=
           std::tie(b.instance, b.rank.value, b.op.value, b.part);
  };
  for (std::size_t i = 1; i < spans.size(); ++i) {
    if ((same_block(spans[i], spans[i - 1]) && spans[i - 1].op < spans[i].op) || is_behind(spans[i], spans[i - 1]))
      continue;
    std::sort(order_.begin(), order_.end(), before);
    break;
  }
  for (std::uint32_t i = 0; i < order_.size();) {
    const std::uint32_t first = i;
    const Span& s = spans[order_[i]];
    while (i < order_.size() && same_block(spans[order_[i]], s)) ++i;
    blocks_.push_back({s.instance, s.rank, first, i});
  }
}

const SpanTable::Block* SpanTable::block(std::uint32_t instance, RankId rank) const {
  const auto it =
      std::lower_bound(blocks_.begin(), blocks_.end(), std::pair{instance, rank}, [](const Block& b, auto key) {
        return std::pair{b.instance, b.rank} < key;
      });
  return it != blocks_.end() && it->instance == instance && it->rank == rank ? &*it : nullptr;
}

SpanIndex SpanTable::find(const Block& block, OpId op, std::uint32_t part) const {
  const std::span<const SpanIndex> mine = of(block);
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
  if (block.first <= s && s < block.last && order_[s] == s) return s;
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
