// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/digest.hpp"

#include <algorithm>
#include <map>
#include <variant>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

WorkDigest digest_work(const Work& work, Names& names) {
  WorkDigest d;
  d.kind = names.intern(kind_name(work));
  d.text = names.intern(to_text(work));
  d.op_class = class_of(work);
  if (const auto* c = std::get_if<Collective>(&work)) {
    d.kind = names.intern(name_of(c->kind));
    d.meeting = Meeting::Collective;
    d.group = c->group;
  } else if (const auto* s = std::get_if<Send>(&work)) {
    d.meeting = Meeting::Send;
    d.peer = s->peer;
    d.tag = s->tag;
  } else if (const auto* r = std::get_if<Recv>(&work)) {
    d.meeting = Meeting::Receive;
    d.peer = r->peer;
    d.tag = r->tag;
  } else if (const auto* h = std::get_if<HostWork>(&work); h != nullptr && h->waits) {
    d.meeting = Meeting::HostWait;
  }
  const Amount a = amount(work);
  d.flops = a.flops;
  d.moved = a.read + a.written;
  d.message = a.message;
  return d;
}

/// Bytes of an owner; 0 for a view.
TensorDigest digest_tensor(const Tensor& t, const Shape& shape) {
  const double bytes = t.base.is_none() ? size_of(t.dtype, shape.elements()).base() : 0;
  return {t.name, t.role, t.tier, static_cast<std::int64_t>(bytes)};
}

std::vector<StorageUse> storage_uses(const Plan& plan) {
  std::vector<StorageUse> out;
  for (std::size_t i = 0; i < plan.ops.size(); ++i)
    for (const Operand& o : plan.operands_of(plan.ops[i])) {
      if (o.allocates()) out.push_back({OpId{i}, plan.owner(o.tensor()), true});
      if (o.frees()) out.push_back({OpId{i}, plan.owner(o.tensor()), false});
    }
  return out;
}

}  // namespace

PlanDigest outline(const Plan& plan) {
  PlanDigest d;
  d.name = plan.name;
  d.mesh = plan.mesh;
  d.classes = plan.classes;
  d.groups = plan.groups;
  d.names = plan.names;
  d.purpose = plan.purpose;
  d.works.reserve(plan.works.size());
  for (const Work& work : plan.works) d.works.push_back(digest_work(work, d.names));
  d.ops = Rows<Op>::of(plan.ops);
  d.deps = Rows<OpId>::of(plan.deps);
  d.plan = &plan;
  return d;
}

PlanDigest digest(const Plan& plan, StorageUses storage) {
  PlanDigest d = outline(plan);
  d.plan = nullptr;
  d.ops = plan.ops;
  d.deps = plan.deps;
  d.tensors.reserve(plan.tensors.size());
  for (const Tensor& t : plan.tensors) d.tensors.push_back(digest_tensor(t, plan.layouts[t.layout.index()].shape));
  if (storage == StorageUses::Told) d.storage = storage_uses(plan);
  return d;
}

TensorDigest PlanDigest::tensor(TensorId id) const {
  return plan != nullptr ? digest_tensor(plan->tensors[id.index()], plan->shape(id)) : tensors[id.index()];
}

ClassId PlanDigest::class_of(OpId id) const {
  for (std::size_t c = 0; c < classes.size(); ++c)
    if (id.index() - classes[c].first_op < classes[c].num_ops) return ClassId{c};
  return {};
}

PlanDigests describe(const Plan& plan, StorageUses storage) {
  PlanDigests all;
  all.push_back(digest(plan, storage));
  return all;
}

PlanDigests describe(std::span<const Plan* const> plans, StorageUses storage) {
  PlanDigests all;
  for (const Plan* plan : plans) all.push_back(digest(*plan, storage));
  return all;
}

PlanDigests outlines(std::span<const Plan* const> plans) {
  PlanDigests all;
  for (const Plan* plan : plans) all.push_back(outline(*plan));
  return all;
}

const PlanDigest& plan_of(const Timeline& timeline, const PlanDigests& plans, const Span& span) {
  const std::uint32_t plan = timeline.plan_of(span.instance);
  if (plan >= plans.size()) bug("a timeline refers to a plan that is not in the list");
  return plans[plan];
}

bool same_ops(const PlanDigest& a, const PlanDigest& b) {
  if (a.ops.size() != b.ops.size()) return false;
  for (std::size_t i = 0; i < a.ops.size(); ++i) {
    if (a.ops[i].stream != b.ops[i].stream || a.name_of(OpId{i}) != b.name_of(OpId{i})) return false;
  }
  return true;
}

std::vector<double> rank_weights(const Timeline& timeline, const PlanDigests& plans, std::span<const RankId> ranks) {
  // The class of a rank in the first plan that it runs an op of.
  constexpr auto kNobody = std::pair{UINT32_MAX, ClassId{}};
  std::vector<std::pair<std::uint32_t, ClassId>> class_of_rank(ranks.size(), kNobody);
  auto last = std::pair{RankId{}, UINT32_MAX};
  for (const Span& span : timeline.spans) {
    if (last == std::pair{span.rank, span.instance}) continue;
    last = {span.rank, span.instance};
    const auto it = std::lower_bound(ranks.begin(), ranks.end(), span.rank);
    if (it == ranks.end() || *it != span.rank) continue;
    auto& mine = class_of_rank[static_cast<std::size_t>(it - ranks.begin())];
    const std::uint32_t plan = timeline.plan_of(span.instance);
    if (plan < mine.first) mine = {plan, plan_of(timeline, plans, span).class_of(span.op)};
  }
  std::map<std::pair<std::uint32_t, ClassId>, std::int64_t> recorded;
  for (const auto& c : class_of_rank) ++recorded[c];
  std::vector<double> weights;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto& c = class_of_rank[i];
    const auto told = std::lower_bound(timeline.standing.begin(), timeline.standing.end(), ranks[i],
                                       [](const Standing& s, RankId rank) { return s.rank < rank; });
    if (told != timeline.standing.end() && told->rank == ranks[i]) {
      weights.push_back(double(told->ranks));
      continue;
    }
    const bool known = c.first < plans.size() && c.second.index() < plans[c.first].classes.size();
    const std::int64_t size = known ? plans[c.first].classes[c.second.index()].size() : recorded[c];
    weights.push_back(double(std::max(size, recorded[c])) / double(recorded[c]));
  }
  return weights;
}

}  // namespace orrery
