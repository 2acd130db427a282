// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/storage.hpp"

#include <algorithm>
#include <queue>
#include <unordered_map>

#include "sim/base/offset_allocator.hpp"
#include "sim/timeline/span_index.hpp"

namespace orrery {
namespace {

std::int64_t rounded_up(std::int64_t bytes) {
  return static_cast<std::int64_t>(std::max(ceil_to(Bytes{double(bytes)}, kAllocationUnit), kAllocationUnit).base());
}

constexpr std::int64_t kNever = -1;

/// Of one rank in one tier.
class Collector {
 public:
  Collector(const Trace& trace, RankId rank, Tier tier) : trace_{trace}, rank_{rank}, tier_{tier} {}

  std::vector<StorageBlock> collect() {
    const SpanTable spans{trace_.timeline};
    bool is_told = false;
    for (const SpanTable::Block& b : spans.blocks()) {
      if (b.rank != rank_) continue;
      is_told |= !plan(b.instance).storage.empty();
      add_transient(spans, b);
    }
    if (!is_told) return {};
    add_resident();
    std::stable_sort(out_.begin(), out_.end(),
                     [](const StorageBlock& a, const StorageBlock& b) { return a.from_ps < b.from_ps; });
    place();
    return std::move(out_);
  }

 private:
  const PlanDigest& plan(std::uint32_t instance) const { return trace_.plans[trace_.timeline.plan_of(instance)]; }

  /// Both the uses of storage and the spans are in order of ops.
  void add_transient(const SpanTable& spans, const SpanTable::Block& block) {
    const PlanDigest& digest = plan(block.instance);
    const SpanList mine = spans.of(block);
    std::unordered_map<std::uint32_t, std::size_t> live;  // by owner, in out_
    std::size_t next = 0;
    for (const StorageUse& use : digest.storage) {
      while (next < mine.size() && span(mine[next]).op < use.op) ++next;
      if (next == mine.size()) break;
      if (span(mine[next]).op != use.op || digest.tensors[use.owner.index()].tier != tier_) continue;
      if (use.takes) {
        live[use.owner.value] = out_.size();
        out_.push_back({span(mine[next]).start_ps, kNever, 0, rounded_up(digest.tensors[use.owner.index()].bytes),
                        trace_.timeline.plan_of(block.instance), use.owner});
      } else if (const auto it = live.find(use.owner.value); it != live.end()) {
        out_[it->second].to_ps = std::max(out_[it->second].to_ps, end_of(mine, next));
      }
    }
    for (StorageBlock& b : out_)
      if (b.to_ps == kNever) b.to_ps = trace_.timeline.makespan_ps;
  }

  /// Of an op, whose parts lie side by side.
  std::int64_t end_of(const SpanList& mine, std::size_t first) const {
    std::int64_t end = 0;
    for (std::size_t i = first; i < mine.size() && span(mine[i]).op == span(mine[first]).op; ++i)
      end = std::max(end, span(mine[i]).end_ps);
    return end;
  }

  void add_resident() {
    std::vector<StorageBlock> stays;
    for (const Peak& p : trace_.timeline.peaks) {
      if (p.rank != rank_ || p.tier != tier_) continue;
      const std::uint32_t index = trace_.timeline.plan_of(p.instance);
      std::vector<bool> is_taken(trace_.plans[index].tensors.size(), false);
      for (const StorageUse& use : trace_.plans[index].storage) is_taken[use.owner.index()] = true;
      for (const auto& [tensor, bytes] : p.owners)
        if (tensor.is_none() || !is_taken[tensor.index()])
          stays.push_back({0, trace_.timeline.makespan_ps, 0, rounded_up(bytes), index, tensor});
    }
    std::stable_sort(stays.begin(), stays.end(),
                     [](const StorageBlock& a, const StorageBlock& b) { return a.tensor < b.tensor; });
    out_.insert(out_.begin(), stays.begin(), stays.end());
  }

  void place() {
    using End = std::pair<std::int64_t, std::int64_t>;  // and where
    std::priority_queue<End, std::vector<End>, std::greater<>> ends;
    OffsetAllocator arena;
    for (StorageBlock& b : out_) {
      for (; !ends.empty() && ends.top().first <= b.from_ps; ends.pop()) arena.release(ends.top().second);
      const std::optional<std::int64_t> offset = arena.allocate(b.bytes);
      if (!offset) continue;  // sizes that no machine has
      b.offset = *offset;
      ends.emplace(b.to_ps, b.offset);
    }
  }

  const Span& span(SpanIndex s) const { return trace_.timeline.spans[s]; }

  const Trace& trace_;
  RankId rank_;
  Tier tier_;
  std::vector<StorageBlock> out_;
};

}  // namespace

std::vector<StorageBlock> storage_blocks(const Trace& trace, RankId rank, Tier tier) {
  return Collector{trace, rank, tier}.collect();
}

}  // namespace orrery
