// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/offload/gather_cache.hpp"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "sim/strategy/offload/chunk_cache.hpp"
#include "sim/strategy/offload/rewriter.hpp"
#include "sim/strategy/offload/updates.hpp"

namespace orrery {
namespace {

/// Gathers of weights that the optimizer updates, with the owners that they fill.
struct Gathers {
  std::vector<GatherVisit> visits;
  std::vector<TensorId> filled;                            // per visit
  std::unordered_map<std::uint32_t, std::size_t> by_op;    // visit of an op
  std::unordered_map<std::uint32_t, std::size_t> by_fill;  // of an owner
};

Gathers gathers_of(const Plan& plan, ClassId c) {
  const RankClass& rank_class = plan.classes[c.index()];
  std::set<std::uint32_t> shards;
  for (const Update& u : updates_of(plan, c).all) shards.insert(plan.owner(u.weight).value);
  std::unordered_map<std::uint32_t, std::uint32_t> buckets;
  Gathers out;
  for (std::uint32_t i = 0; i < rank_class.num_ops; ++i) {
    const Op& op = plan.ops[rank_class.first_op + i];
    const auto* work = std::get_if<Collective>(&plan.work(op));
    const auto operands = plan.operands_of(op);
    if (work != nullptr && work->kind == CollectiveKind::AllGather && operands.size() == 2 &&
        shards.contains(plan.owner(operands[0].tensor()).value)) {
      const std::uint32_t shard = plan.owner(operands[0].tensor()).value;
      const TensorId filled = plan.owner(operands[1].tensor());
      const auto bucket = buckets.try_emplace(shard, static_cast<std::uint32_t>(buckets.size())).first->second;
      out.by_op[rank_class.first_op + i] = out.by_fill[filled.value] = out.visits.size();
      out.filled.push_back(filled);
      out.visits.push_back({bucket, i, i, static_cast<std::int64_t>(plan.size(filled).base())});
      continue;
    }
    for (const Operand& o : operands)
      if (const auto it = out.by_fill.find(plan.owner(o.tensor()).value); it != out.by_fill.end())
        out.visits[it->second].last = i;
  }
  return out;
}

}  // namespace

Plan keep_gathered(const Plan& plan, const GatherPolicy& policy, const WorkspaceModel* workspaces) {
  PlanRewriter r{plan};
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    r.begin_class(ClassId{c});
    const Gathers all = gathers_of(plan, ClassId{c});
    const std::vector<bool> there = policy(all.visits);
    std::unordered_map<std::uint32_t, TensorId> gathered;  // per bucket
    const RankClass& rank_class = plan.classes[c];
    for (std::uint32_t i = 0; i < rank_class.num_ops; ++i) {
      const OpId id{std::size_t{rank_class.first_op + i}};
      const auto it = all.by_op.find(id.value);
      if (it != all.by_op.end() && there[it->second]) {
        r.put(all.filled[it->second], gathered.at(all.visits[it->second].bucket));
        continue;
      }
      r.emit(id);
      if (it == all.by_op.end()) continue;
      gathered[all.visits[it->second].bucket] = r[all.filled[it->second]];
    }
    r.end_class();
  }
  return r.take(workspaces);
}

GatherPolicy keep_share(double share) {
  return [share](const std::vector<GatherVisit>& visits) {
    std::vector<std::int64_t> bytes;  // per bucket
    for (const GatherVisit& v : visits)
      if (v.bucket == bytes.size()) bytes.push_back(v.bytes);
    double all = 0, before = 0;
    for (const std::int64_t b : bytes) all += double(b);
    std::vector<bool> stays;
    for (const std::int64_t b : bytes) {
      before += double(b);
      stays.push_back(before <= share * all * (1 + 1e-9));
    }
    std::vector<bool> there, met(bytes.size(), false);
    for (const GatherVisit& v : visits) {
      there.push_back(stays[v.bucket] && met[v.bucket]);
      met[v.bucket] = true;
    }
    return there;
  };
}

GatherPolicy keep_blocks(std::int64_t blocks) {
  return [blocks](const std::vector<GatherVisit>& visits) {
    std::uint32_t last = 0, buckets = 0;
    std::int64_t most = 1;
    for (const GatherVisit& v : visits) {
      last = std::max(last, v.last), buckets = std::max(buckets, v.bucket + 1);
      most = std::max(most, v.bytes);
    }
    std::vector<CacheStep> steps(visits.empty() ? 0 : last + 1, CacheStep{{}, {}, blocks * most});
    for (const GatherVisit& v : visits)
      for (std::uint32_t s = v.first; s <= v.last; ++s) steps[s].needed.push_back(v.bucket);
    const CachePlan cache = plan_cache(std::vector<std::int64_t>(buckets, most), steps, Eviction::Belady);
    std::set<std::pair<std::uint32_t, std::uint32_t>> came;
    for (const CacheEvent& e : cache.events)
      if (e.comes) came.emplace(e.step, e.chunk);
    std::vector<bool> there;
    for (const GatherVisit& v : visits) there.push_back(!came.contains({v.first, v.bucket}));
    return there;
  };
}

}  // namespace orrery
