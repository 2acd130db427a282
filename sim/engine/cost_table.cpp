// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/cost_table.hpp"

#include <fmt/format.h>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

constexpr double kLongest = 9e6;  // seconds that the clock can count, and a margin: 104 days

}  // namespace

CostTable::CostTable(const Plan& plan, const Surroundings& around, const CostModel& model, const Fleet& fleet)
    : plan_{plan}, around_{around}, model_{model}, fleet_{fleet} {
  singles_.resize(plan.works.size() * fleet.num_kinds());
  launches_.resize(singles_.size());
}

std::int64_t CostTable::picoseconds(Seconds duration, std::uint32_t work) const {
  if (!(duration.base() >= 0 && duration.base() < kLongest))
    throw UserError{fmt::format("an op ({}) would take {} s, which the clock cannot count", to_text(plan_.works[work]),
                                duration.base()),
                    "durations lie between 0 and 104 days; look at the rates of the cluster"};
  return (SimTime{} + duration).picoseconds();
}

void CostTable::prepare(WorkId id, std::uint32_t kind) {
  SingleCost& single = singles_[kind * plan_.works.size() + id.index()];
  if (single.known) return;
  single.known = true;
  const Work& work = plan_.works[id.index()];
  const RankId rank = fleet_.rank_of_kind(kind);
  const LaunchCost launch = model_.launch(work, rank);
  launches_[kind * plan_.works.size() + id.index()] = {picoseconds(launch.enqueue, id.value),
                                                       picoseconds(launch.joined.value_or(launch.enqueue), id.value),
                                                       picoseconds(launch.start_latency, id.value), launch.runs_ahead};
  if (std::holds_alternative<Collective>(work) || std::holds_alternative<Send>(work) ||
      std::holds_alternative<Recv>(work))
    return;
  const OpCost cost = model_.cost(work, around_.of(id), rank);
  single.duration_ps = picoseconds(cost.duration, id.value);
  for (const Demand& d : cost.used()) {
    const std::int64_t share = fixed_share(d.share);
    if (share <= 0) continue;
    single.resources[single.num_demands] = d.resource;
    single.shares[single.num_demands++] = share;
  }
}

SharedCost CostTable::collective(std::uint32_t work, std::uint32_t communicator,
                                 std::span<const std::uint32_t> simulated) {
  const auto [it, fresh] = shared_.try_emplace(Key{work, communicator, UINT32_MAX});
  if (!fresh) return it->second;
  const auto ranks = fleet_.members_of(communicator);
  return it->second = keep(model_.collective(std::get<Collective>(plan_.works[work]), ranks), work, ranks, simulated);
}

SharedCost CostTable::transfer(std::uint32_t work, RankId from, RankId to, std::span<const std::uint32_t> simulated) {
  const auto [it, fresh] = shared_.try_emplace(Key{work, from.value, to.value});
  if (!fresh) return it->second;
  const std::array<RankId, 2> ranks{from, to};
  return it->second = keep(model_.transfer(std::get<Send>(plan_.works[work]).bytes, from, to), work, ranks, simulated);
}

SharedCost CostTable::keep(const OpCost& cost, std::uint32_t work, std::span<const RankId> ranks,
                           std::span<const std::uint32_t> simulated) {
  SharedCost out;
  out.duration_ps = picoseconds(cost.duration, work);
  const std::vector<ResourceUse> uses = fleet_.uses(cost.used(), ranks, simulated);
  out.first_use = static_cast<std::uint32_t>(uses_.size());
  out.num_uses = static_cast<std::uint32_t>(uses.size());
  uses_.insert(uses_.end(), uses.begin(), uses.end());
  return out;
}

}  // namespace orrery
