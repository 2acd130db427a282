// SPDX-License-Identifier: Apache-2.0
#include "sim/search/storage_plan.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "sim/search/mip.hpp"

namespace orrery {
namespace {

using Order = std::vector<std::size_t>;

bool live_together(const StoredBlock& a, const StoredBlock& b) { return a.begin < b.end && b.begin < a.end; }

/// Which blocks live with which.
std::vector<Order> neighbours_of(const std::vector<StoredBlock>& blocks) {
  std::vector<Order> out(blocks.size());
  Order by_begin(blocks.size());
  std::iota(by_begin.begin(), by_begin.end(), std::size_t{0});
  std::stable_sort(by_begin.begin(), by_begin.end(), [&](auto a, auto b) { return blocks[a].begin < blocks[b].begin; });
  Order open;
  for (const std::size_t i : by_begin) {
    std::erase_if(open, [&](std::size_t k) { return blocks[k].end <= blocks[i].begin; });
    for (const std::size_t k : open)
      if (live_together(blocks[i], blocks[k])) {
        out[i].push_back(k);
        out[k].push_back(i);
      }
    open.push_back(i);
  }
  return out;
}

class Placer {
 public:
  explicit Placer(const std::vector<StoredBlock>& blocks) : blocks_{blocks}, neighbours_{neighbours_of(blocks)} {}

  /// Each block in the smallest gap between placed neighbours that it fits into.
  StoragePlan place(const Order& order, std::int64_t give_up) {
    StoragePlan plan{.places = std::vector<std::int64_t>(blocks_.size(), -1)};
    for (const std::size_t i : order) {
      taken_.clear();
      for (const std::size_t k : neighbours_[i])
        if (plan.places[k] >= 0) taken_.emplace_back(plan.places[k], plan.places[k] + blocks_[k].bytes);
      std::sort(taken_.begin(), taken_.end());
      plan.places[i] = gap(blocks_[i].bytes);
      plan.height = std::max(plan.height, plan.places[i] + blocks_[i].bytes);
      if (plan.height >= give_up) break;
    }
    return plan;
  }

 private:
  std::int64_t gap(std::int64_t bytes) const {
    std::int64_t end = 0, best = -1, least = INT64_MAX;
    for (const auto& [from, to] : taken_) {
      if (from - end >= bytes && from - end < least) {
        best = end;
        least = from - end;
      }
      end = std::max(end, to);
    }
    return best >= 0 ? best : end;
  }

  const std::vector<StoredBlock>& blocks_;
  std::vector<Order> neighbours_;
  std::vector<std::pair<std::int64_t, std::int64_t>> taken_;
};

std::vector<Order> orders_of(const std::vector<StoredBlock>& blocks) {
  const auto sorted = [&](auto key) {
    Order o(blocks.size());
    std::iota(o.begin(), o.end(), std::size_t{0});
    std::stable_sort(o.begin(), o.end(), [&](auto a, auto b) { return key(blocks[a]) > key(blocks[b]); });
    return o;
  };
  using B = const StoredBlock&;
  return {sorted([](B b) { return double(b.bytes); }),
          sorted([](B b) { return double(b.bytes) * double(b.end - b.begin); }),
          sorted([](B b) { return double(b.end - b.begin); }), sorted([](B b) { return -double(b.begin); }),
          sorted([](B b) { return double(b.end); })};
}

}  // namespace

std::int64_t most_live(const std::vector<StoredBlock>& blocks) {
  std::map<std::int64_t, std::int64_t> change;
  for (const StoredBlock& b : blocks) {
    if (b.begin >= b.end) continue;
    change[b.begin] += b.bytes;
    change[b.end] -= b.bytes;
  }
  std::int64_t live = 0, most = 0;
  for (const auto& [at, bytes] : change) most = std::max(most, live += bytes);
  return most;
}

StoragePlan plan_storage(const std::vector<StoredBlock>& blocks) {
  constexpr int kRounds = 60;
  const std::int64_t bound = most_live(blocks);
  Placer placer{blocks};
  StoragePlan best{.height = INT64_MAX};
  const auto try_order = [&](const Order& order) {
    StoragePlan plan = placer.place(order, best.height);
    if (plan.height >= best.height) return false;
    best = std::move(plan);
    return true;
  };
  for (Order order : orders_of(blocks)) {
    if (best.height == bound) break;
    try_order(order);
    // Blocks on top come first in the next round: they are what made the plan high.
    for (int r = 0; r < kRounds && best.height > bound; ++r) {
      const StoragePlan now = placer.place(order, INT64_MAX);
      std::stable_partition(order.begin(), order.end(),
                            [&](std::size_t i) { return now.places[i] + blocks[i].bytes > bound; });
      try_order(order);
    }
  }
  if (blocks.empty()) best.height = 0;
  best.bound = bound;
  return best;
}

StoragePlan prove_storage(const std::vector<StoredBlock>& blocks, Seconds limit) {
  StoragePlan best = plan_storage(blocks);
  if (best.is_optimal()) return best;
  const double unit = double(best.height);  // in parts of the plan's height: numbers around 1
  Mip mip;
  const int height = mip.add({.low = double(best.bound) / unit, .high = 1, .cost = 1, .integer = false});
  std::vector<int> place;
  std::vector<double> start{1.0};
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    place.push_back(mip.add({.low = 0, .high = 1, .integer = false}));
    start.push_back(double(best.places[i]) / unit);
    mip.at_least({{height, 1}, {place[i], -1}}, double(blocks[i].bytes) / unit);
  }
  for (std::size_t i = 0; i < blocks.size(); ++i)
    for (std::size_t j = i + 1; j < blocks.size(); ++j) {
      if (!live_together(blocks[i], blocks[j])) continue;
      const int above = mip.add_binary();  // i lies above j
      start.push_back(best.places[i] > best.places[j] ? 1 : 0);
      mip.at_most({{place[i], 1}, {place[j], -1}, {above, -1}}, -double(blocks[i].bytes) / unit);
      mip.at_most({{place[j], 1}, {place[i], -1}, {above, 1}}, 1 - double(blocks[j].bytes) / unit);
    }
  const MipSolution solution = solve(mip, limit, start);
  if (solution.x.empty()) return best;
  Order order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
    return solution.x[static_cast<std::size_t>(place[a])] < solution.x[static_cast<std::size_t>(place[b])];
  });
  // Places are whole bytes again when blocks are put down in the order of the solution.
  StoragePlan exact{.places = std::vector<std::int64_t>(blocks.size(), 0)};
  for (std::size_t n = 0; n < order.size(); ++n) {
    const std::size_t i = order[n];
    for (std::size_t m = 0; m < n; ++m)
      if (live_together(blocks[i], blocks[order[m]]))
        exact.places[i] = std::max(exact.places[i], exact.places[order[m]] + blocks[order[m]].bytes);
    exact.height = std::max(exact.height, exact.places[i] + blocks[i].bytes);
  }
  exact.bound = best.bound;
  if (exact.height <= best.height) best = std::move(exact);
  const auto proved = static_cast<std::int64_t>(solution.bound * unit * (1 - 1e-9));
  best.bound =
      solution.status == MipStatus::Optimal ? best.height : std::max(best.bound, std::min(proved, best.height));
  return best;
}

std::vector<StoredBlock> blocks_of(const AllocationTrace& trace) {
  std::vector<StoredBlock> out(trace.num_blocks);
  const auto last = static_cast<std::int64_t>(trace.events.size());
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const auto& e = trace.events[i];
    const auto at = static_cast<std::int64_t>(i);
    if (e.kind == AllocationTrace::Kind::Take) out[e.block] = {e.bytes, at, last};
    if (e.kind == AllocationTrace::Kind::Give && e.events == 0) out[e.block].end = at;
    if (e.kind == AllocationTrace::Kind::EventOver) out[e.block].end = at;
  }
  return out;
}

}  // namespace orrery
