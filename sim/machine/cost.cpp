// SPDX-License-Identifier: Apache-2.0
#include "sim/machine/cost.hpp"

#include <bit>

namespace orrery {
namespace {

constexpr int kDigits = 4;              // of a bound value that decide what is reused
constexpr std::size_t kMostKnown = 64;  // plans and bindings
constexpr double kSomeBytes = 1;        // a working set of whose size nobody asks

/// The nearest number with so many binary digits.
std::int64_t round_to_digits(std::int64_t value) {
  const auto size = static_cast<std::uint64_t>(value < 0 ? -value : value);
  const int drop = std::bit_width(size) - kDigits;
  if (drop <= 0) return value;
  const auto rounded = static_cast<std::int64_t>((size + (std::uint64_t{1} << (drop - 1))) >> drop << drop);
  return value < 0 ? -rounded : rounded;
}

}  // namespace

CollectiveSetup CostModel::setup(const Collective& work, std::span<const RankId> ranks) const {
  const auto n = static_cast<std::int64_t>(ranks.size());
  return {.algorithm = usable_algorithm(work.kind, CollectiveAlgorithm::Ring, n, 1)};
}

KnownReuse::Works KnownReuse::of(const Plan& plan, const Bindings& bindings) {
  Bindings rounded = bindings;
  for (std::int64_t& v : rounded.values) v = round_to_digits(v);
  rounded.working_set = 0, rounded.before = {};
  for (const Entry& e : entries_)
    if (e.bindings == rounded && e.ops == plan.ops.size() && e.operands == plan.operands.size() &&
        e.works == plan.works && e.scratch == plan.scratch)
      return e.reuse;
  if (entries_.size() == kMostKnown) entries_.erase(entries_.begin());
  entries_.push_back({plan.works, plan.scratch, plan.ops.size(), plan.operands.size(), rounded,
                      std::make_shared<const std::vector<Reuse>>(reuse_of_works(plan, rounded))});
  return entries_.back().reuse;
}

Surroundings::Surroundings(const Plan& plan, const Bindings& bindings, const CostModel& model, KnownReuse& known)
    : bindings_{bindings} {
  const double some = plan.operands.empty() ? 0 : kSomeBytes;
  if (!model.sees_reuse())
    bindings_.working_set = some;
  else if (bindings.working_set == 0)
    bindings_.working_set = working_set(plan, bindings).base();
  if (bindings.before.executions == 1) bindings_.working_set += bindings.before.bytes;
  bindings_.ranks_of_node = 0;
  const std::int64_t node = model.node_of(RankId{std::size_t{0}});
  for (std::int64_t r = 0; r < plan.mesh.size(); ++r)
    bindings_.ranks_of_node += model.node_of(RankId{static_cast<std::size_t>(r)}) == node;
  if (model.sees_reuse()) reuse_ = known.of(plan, bindings);
}

/// From what a message of no bytes and one of 1 GB take.
Way CostModel::way(RankId from, RankId to) const {
  const Bytes many{1e9};
  const Seconds latency = transfer(Bytes{0}, from, to).duration;
  return {.latency = latency, .bandwidth = many / (transfer(many, from, to).duration - latency)};
}

}  // namespace orrery
