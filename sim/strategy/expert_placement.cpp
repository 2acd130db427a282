// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/expert_placement.hpp"

#include <algorithm>
#include <numeric>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

/// A part of an expert's rows that has no rank yet.
struct Replica {
  double rows = 0;
  std::int64_t expert = 0;
};

/// The fullest first.
std::vector<Replica> replicas_of(std::span<const double> shares, std::span<const std::int64_t> counts) {
  std::vector<Replica> out;
  for (std::size_t e = 0; e < shares.size(); ++e)
    out.insert(out.end(), static_cast<std::size_t>(counts[e]),
               {shares[e] / double(counts[e]), static_cast<std::int64_t>(e)});
  std::stable_sort(out.begin(), out.end(), [](const Replica& a, const Replica& b) { return a.rows > b.rows; });
  return out;
}

class SlotPacking {
 public:
  SlotPacking(std::int64_t ranks, std::int64_t slots, const ExpertPlaces* near)
      : slots_{slots}, places_(static_cast<std::size_t>(ranks)), loads_(places_.size(), 0), used_(places_.size(), 0) {
    if (near != nullptr) near_ = *near;
    near_.resize(places_.size());
  }

  void add(const Replica& r) {
    const std::size_t to = rank_for(r);
    auto& held = places_[to];
    const auto at = std::lower_bound(held.begin(), held.end(), r.expert,
                                     [](const HeldExpert& h, std::int64_t expert) { return h.expert < expert; });
    if (at != held.end() && at->expert == r.expert)
      ++at->replicas;
    else
      held.insert(at, {r.expert, 1});
    loads_[to] += r.rows;
    ++used_[to];
  }

  ExpertPlaces take() { return std::move(places_); }

 private:
  /// One that had the expert and has room in its share of all rows, or the one with fewest.
  std::size_t rank_for(const Replica& r) {
    std::size_t best = places_.size();
    for (std::size_t g = 0; g < places_.size(); ++g) {
      if (used_[g] == slots_) continue;
      const auto had = std::find_if(near_[g].begin(), near_[g].end(),
                                    [&](const HeldExpert& h) { return h.expert == r.expert && h.replicas > 0; });
      if (had != near_[g].end() && loads_[g] + r.rows <= 1 / double(places_.size())) {
        --had->replicas;
        return g;
      }
      if (best == places_.size() || loads_[g] < loads_[best]) best = g;
    }
    if (best == places_.size()) bug("more replicas of experts than slots");
    return best;
  }

  std::int64_t slots_;
  ExpertPlaces places_, near_;
  std::vector<double> loads_;
  std::vector<std::int64_t> used_;
};

ExpertPlaces pack(std::span<const double> shares, std::span<const std::int64_t> counts, std::int64_t ranks,
                  std::int64_t slots, const ExpertPlaces* near) {
  SlotPacking packing{ranks, slots, near};
  for (const Replica& r : replicas_of(shares, counts)) packing.add(r);
  return packing.take();
}

/// The expert whose replicas have most rows each, the first of equal ones.
std::size_t fullest(std::span<const double> shares, std::span<const std::int64_t> counts) {
  std::size_t best = 0;
  for (std::size_t e = 1; e < shares.size(); ++e)
    if (shares[e] / double(counts[e]) > shares[best] / double(counts[best])) best = e;
  return best;
}

/// The expert with several replicas whose have fewest rows each; the number of experts where none has.
std::size_t emptiest(std::span<const double> shares, std::span<const std::int64_t> counts) {
  std::size_t best = shares.size();
  for (std::size_t e = 0; e < shares.size(); ++e)
    if (counts[e] > 1 && (best == shares.size() || shares[e] / double(counts[e]) < shares[best] / double(counts[best])))
      best = e;
  return best;
}

}  // namespace

Seconds placement_time(const ExpertLayout& layout, const PlacementCosts& costs) {
  const auto n = double(layout.ranks());
  std::vector<double> sums(static_cast<std::size_t>(layout.experts()));
  for (std::int64_t e = 0; e < layout.experts(); ++e) {
    const auto holders = double(layout.holders(e).size());
    sums[static_cast<std::size_t>(e)] = 2 * (holders - 1) / holders;
  }
  Seconds longest;
  for (std::int64_t r = 0; r < layout.ranks(); ++r) {
    const double load = layout.load(r);
    Seconds t = load * costs.compute + std::max(load * (n - 1) / n, (1 - load) / n) * costs.exchange;
    for (const HeldExpert& h : layout.held(r)) t += sums[static_cast<std::size_t>(h.expert)] * costs.sum;
    longest = std::max(longest, t);
  }
  return longest;
}

ExpertPlaces place_experts(std::span<const double> shares, std::int64_t ranks, std::int64_t slots,
                           const ExpertPlaces* near) {
  std::vector<std::int64_t> counts(shares.size(), 1);
  for (auto free = ranks * slots - static_cast<std::int64_t>(shares.size()); free > 0; --free)
    ++counts[fullest(shares, counts)];
  return pack(shares, counts, ranks, slots, near);
}

ExpertPlaces rebalance(const ExpertLayout& now, std::int64_t slots, const PlacementCosts& costs) {
  const std::vector<double>& shares = now.shares();
  std::vector<std::int64_t> counts(shares.size());
  for (std::int64_t e = 0; e < now.experts(); ++e) counts[static_cast<std::size_t>(e)] = now.replicas(e);
  ExpertPlaces best = now.places();
  Seconds least = placement_time(now, costs);
  const auto is_better = [&] {
    ExpertLayout tried{shares, pack(shares, counts, now.ranks(), slots, &now.places())};
    const Seconds time = placement_time(tried, costs);
    if (!(time < least)) return false;
    least = time, best = tried.places();
    return true;
  };
  is_better();
  while (true) {
    const std::size_t more = fullest(shares, counts), less = emptiest(shares, counts);
    const bool is_full = std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) >= now.ranks() * slots;
    if (is_full && (less == shares.size() || less == more)) break;
    ++counts[more];
    if (is_full) --counts[less];
    if (!is_better()) break;
  }
  return best;
}

std::vector<std::int64_t> fetched_experts(const ExpertPlaces& from, const ExpertPlaces& to) {
  std::vector<std::int64_t> out(to.size(), 0);
  for (std::size_t r = 0; r < to.size(); ++r)
    for (const HeldExpert& h : to[r])
      out[r] += std::none_of(from[r].begin(), from[r].end(), [&](const HeldExpert& f) { return f.expert == h.expert; });
  return out;
}

}  // namespace orrery
