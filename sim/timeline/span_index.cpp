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

namespace {

std::uint64_t joined(std::uint32_t high, std::uint32_t low) { return std::uint64_t{high} << 32 | low; }

std::uint64_t place_of(const Span& s) { return joined(s.rank.value, s.op.value); }

}  // namespace

/// False when the spans are not in order.
bool SpanTable::find_blocks() {
  const auto size = static_cast<std::uint32_t>(timeline_.spans.size());
  const SpanList all = order();
  blocks_.clear();
  for (std::uint32_t i = 0; i < size; i = blocks_.back().last) {
    const Span& first = timeline_.spans[all[i]];
    if (!blocks_.empty() &&
        std::tie(first.instance, first.rank.value) < std::tie(blocks_.back().instance, blocks_.back().rank.value))
      return false;
    Block& block = blocks_.emplace_back(Block{first.instance, first.rank, i, i});
    if (order_.empty()) follow(block);
    if (!add_others(block)) return false;
  }
  return true;
}

/// Adds the spans that are in line from the first on: whole, and each of the op behind that of the one before.
void SpanTable::follow(Block& block) const {
  const Span* s = timeline_.spans.data() + block.first;
  const Span* const end = timeline_.spans.data() + timeline_.spans.size();
  std::uint64_t place = place_of(*s);
  const std::uint64_t whole = joined(0, block.instance);
  std::int64_t latest_ps = INT64_MIN;
  for (; s != end && place_of(*s) == place && joined(s->part, s->instance) == whole; ++s, ++place)
    latest_ps = std::max(latest_ps, s->end_ps);
  block.last = static_cast<std::uint32_t>(s - timeline_.spans.data());
  block.latest_ps = latest_ps;
  block.is_in_line = block.last > block.first;
}

/// Adds what is left of the rank; false when it is not in order.
bool SpanTable::add_others(Block& block) const {
  const SpanList all = order();
  std::uint64_t before = 0;  // op and part
  if (block.last > block.first) before = joined(timeline_.spans[all[block.last - 1]].op.value, 0);
  for (; block.last < all.size(); ++block.last) {
    const Span& span = timeline_.spans[all[block.last]];
    if (span.rank != block.rank || span.instance != block.instance) break;
    const std::uint64_t key = joined(span.op.value, span.part);
    if (key < before) return false;
    before = key;
    block.is_in_line = false;
    if (span.part == 0) block.latest_ps = std::max(block.latest_ps, span.end_ps);
  }
  return true;
}

/// Of the spans with part 0, the first in the timeline that ended last.
SpanIndex SpanTable::latest(const Block& block) const {
  SpanIndex latest = kNoSpan;
  for (const SpanIndex s : of(block)) {
    const Span& span = timeline_.spans[s];
    if (span.part != 0 || span.end_ps != block.latest_ps) continue;
    latest = std::min(latest, s);
    if (order_.empty()) break;
  }
  return latest;
}

std::vector<SpanIndex> SpanTable::last_of_instances() const {
  std::vector<std::int64_t> end_ps;
  for (const Block& block : blocks_) {
    if (block.instance >= end_ps.size()) end_ps.resize(block.instance + std::size_t{1}, INT64_MIN);
    end_ps[block.instance] = std::max(end_ps[block.instance], block.latest_ps);
  }
  std::vector<SpanIndex> last(end_ps.size(), kNoSpan);
  for (const Block& block : blocks_) {
    SpanIndex& known = last[block.instance];
    const bool is_first = known != kNoSpan && order_.empty();
    if (!is_first && block.latest_ps == end_ps[block.instance]) known = std::min(known, latest(block));
  }
  return last;
}

void SpanTable::sort() {
  const Spans& spans = timeline_.spans;
  order_.resize(spans.size());
  std::iota(order_.begin(), order_.end(), SpanIndex{0});
  std::sort(order_.begin(), order_.end(), [&](SpanIndex x, SpanIndex y) {
    const Span &a = spans[x], &b = spans[y];
    return std::tie(a.instance, a.rank.value, a.op.value, a.part, x) <
           std::tie(b.instance, b.rank.value, b.op.value, b.part, y);
  });
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
