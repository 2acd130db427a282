// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/span_index.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <unordered_map>

namespace orrery {
namespace {

/// Which of the blocks (instance, rank) each span belongs to, by number.
class BlockNumbers {
 public:
  explicit BlockNumbers(const std::vector<Span>& spans) {
    of_span.reserve(spans.size());
    for (const Span& s : spans) of_span.push_back(number(s));
  }

  std::vector<std::uint32_t> of_span;
  std::vector<SpanTable::Block> blocks;  // as they come

 private:
  std::uint32_t number(const Span& s) {
    const auto next = static_cast<std::uint32_t>(blocks.size());
    const auto [it, is_new] = numbers_.try_emplace(std::uint64_t{s.instance} << 32 | s.rank.value, next);
    if (is_new) blocks.push_back({s.instance, s.rank, 0, 0});
    ++blocks[it->second].last;  // counts, for now
    return it->second;
  }

  std::unordered_map<std::uint64_t, std::uint32_t> numbers_;
};

}  // namespace

SpanTable::SpanTable(const Timeline& timeline) : timeline_{timeline}, order_(timeline.spans.size()) {
  const std::vector<Span>& spans = timeline.spans;
  BlockNumbers numbers{spans};
  std::vector<std::uint32_t> sorted(numbers.blocks.size());
  std::iota(sorted.begin(), sorted.end(), 0u);
  std::sort(sorted.begin(), sorted.end(), [&](std::uint32_t a, std::uint32_t b) {
    const Block &x = numbers.blocks[a], &y = numbers.blocks[b];
    return std::tuple{x.instance, x.rank} < std::tuple{y.instance, y.rank};
  });
  std::vector<std::uint32_t> next(sorted.size());
  std::uint32_t first = 0;
  for (const std::uint32_t b : sorted) {
    const std::uint32_t count = numbers.blocks[b].last;
    blocks_.push_back({numbers.blocks[b].instance, numbers.blocks[b].rank, first, first + count});
    next[b] = first;
    first += count;
  }
  for (SpanIndex s = 0; s < spans.size(); ++s) order_[next[numbers.of_span[s]]++] = s;
  const auto key = [&](SpanIndex s) { return std::tuple{spans[s].op, spans[s].part, s}; };
  for (const Block& b : blocks_)
    std::sort(order_.begin() + b.first, order_.begin() + b.last,
              [&](SpanIndex x, SpanIndex y) { return key(x) < key(y); });
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
