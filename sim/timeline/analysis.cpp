// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/analysis.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/timeline/attribution.hpp"

namespace orrery {
namespace {

constexpr std::size_t kLargestOwners = 10;

Seconds from_ps(double ps) { return Seconds{ps * 1e-12}; }

/// The class of a rank in the first of the plans that it ran an op of.
using PlanClass = std::pair<std::uint32_t, ClassId>;

std::map<RankId, PlanClass> classes_of_ranks(const Timeline& timeline, const PlanDigests& plans,
                                             const SpanTable& table) {
  std::map<RankId, PlanClass> out;
  for (const SpanTable::Block& block : table.blocks()) {
    const std::uint32_t plan = timeline.plan_of(block.instance);
    PlanClass& known = out.try_emplace(block.rank, UINT32_MAX, ClassId{}).first->second;
    const Span& first = timeline.spans[table.of(block).front()];
    if (plan < known.first) known = {plan, plan_of(timeline, plans, first).class_of(first.op)};
  }
  return out;
}

void set_weights(const Timeline& timeline, const PlanDigests& plans, const SpanTable& table,
                 std::vector<RankTime>& ranks) {
  const std::map<RankId, PlanClass> class_of = classes_of_ranks(timeline, plans, table);
  std::map<PlanClass, std::int64_t> recorded;
  for (const auto& [rank, c] : class_of) ++recorded[c];
  for (RankTime& r : ranks) {
    const auto told = std::lower_bound(timeline.standing.begin(), timeline.standing.end(), r.rank,
                                       [](const Standing& s, RankId rank) { return s.rank < rank; });
    if (told != timeline.standing.end() && told->rank == r.rank) {
      r.weight = double(told->ranks);
      continue;
    }
    const PlanClass& c = class_of.at(r.rank);
    const bool known = c.first < plans.size() && c.second.index() < plans[c.first].classes.size();
    const std::int64_t size = known ? plans[c.first].classes[c.second.index()].size() : recorded[c];
    r.weight = double(std::max(size, recorded[c])) / double(recorded[c]);
  }
}

void average_ranks(Analysis& a) {
  double total = 0;
  for (const RankTime& r : a.ranks) total += r.weight;
  for (const RankTime& r : a.ranks) {
    const double share = r.weight / total;
    for (std::size_t c = 0; c < a.by_class.size(); ++c) {
      a.by_class[c] += share * double(r.exposed_ps[c]) * 1e-12;
      a.busy_by_class[c] += share * double(r.running_ps[c]) * 1e-12;
    }
    a.ops += r.ops;
    a.waiting += from_ps(share * double(r.waiting_ps));
    a.idle += from_ps(share * double(r.idle_ps));
  }
  for (const OpClass c : {OpClass::Collective, OpClass::PointToPoint}) {
    a.exposed_communication += Seconds{a.by_class[static_cast<std::size_t>(c)]};
    a.communication += Seconds{a.busy_by_class[static_cast<std::size_t>(c)]};
  }
  if (a.makespan > Seconds{}) a.bubble = (a.waiting + a.idle) / a.makespan;
}

PeakSummary summarise(const Peak& peak, const Timeline& timeline, const PlanDigests& plans) {
  PeakSummary out;
  out.rank = peak.rank;
  out.tier = peak.tier;
  out.bytes = peak.bytes;
  out.arena_bytes = peak.arena_bytes;
  const std::uint32_t p = timeline.plan_of(peak.instance);
  if (p >= plans.size()) return out;
  const PlanDigest& plan = plans[p];
  if (!peak.op.is_none()) out.op = plan.name_of(peak.op);
  for (const auto& [tensor, bytes] : peak.owners) {
    if (tensor.is_none()) continue;  // storage that only another plan of the run uses
    const TensorDigest t = plan.tensor(tensor);
    out.by_role[static_cast<std::size_t>(t.role)] += bytes;
    if (out.largest.size() < kLargestOwners) out.largest.push_back({std::string{plan.names[t.name]}, t.role, bytes});
  }
  return out;
}

}  // namespace

Analysis analyse(const Timeline& timeline, const PlanDigests& plans) {
  return analyse(timeline, plans, SpanGraph{timeline, plans});
}

Analysis analyse(const Timeline& timeline, const PlanDigests& plans, const SpanGraph& graph) {
  Analysis a;
  a.makespan = timeline.makespan();
  a.ranks = attribute_time(timeline, plans, graph);
  set_weights(timeline, plans, graph.table(), a.ranks);
  average_ranks(a);
  a.path = critical_path(timeline, plans, graph);
  for (const Peak& peak : timeline.peaks) a.peaks.push_back(summarise(peak, timeline, plans));
  return a;
}

const PeakSummary* highest_peak(const Analysis& analysis, Tier tier) {
  const PeakSummary* highest = nullptr;
  for (const PeakSummary& p : analysis.peaks)
    if (p.tier == tier && (highest == nullptr || p.bytes > highest->bytes)) highest = &p;
  return highest;
}

Throughput throughput(const Timeline& timeline, const PlanDigests& plans, FlopsPerSecond peak_of_all_ranks) {
  const std::size_t instances = std::max<std::size_t>(1, timeline.instance_ends_ps.size());
  double tokens = 0;
  Flops model_flops;
  for (std::uint32_t i = 0; i < instances; ++i) {
    if (timeline.plan_of(i) >= plans.size()) continue;
    tokens += plans[timeline.plan_of(i)].purpose.tokens;
    model_flops += plans[timeline.plan_of(i)].purpose.model_flops;
  }
  Throughput out;
  const Seconds makespan = timeline.makespan();
  out.per_instance = makespan / double(instances);
  if (makespan <= Seconds{}) return out;
  out.tokens_per_second = tokens / makespan.base();
  if (peak_of_all_ranks > FlopsPerSecond{}) out.mfu = model_flops / (peak_of_all_ranks * makespan);
  return out;
}

}  // namespace orrery
