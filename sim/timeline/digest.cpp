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
    d.meeting = MeetingKind::Collective;
    d.group = c->group;
  } else if (const auto* s = std::get_if<Send>(&work)) {
    d.meeting = MeetingKind::Send;
    d.peer = s->peer;
    d.tag = s->tag;
  } else if (const auto* r = std::get_if<Recv>(&work)) {
    d.meeting = MeetingKind::Receive;
    d.peer = r->peer;
    d.tag = r->tag;
  } else if (const auto* h = std::get_if<HostWork>(&work); h != nullptr && h->waits) {
    d.meeting = MeetingKind::HostWait;
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
  d.repetitions = Rows<Repetition>::of(plan.repetitions);
  d.plan = &plan;
  return d;
}

PlanDigest digest(const Plan& plan, StorageUses storage) {
  PlanDigest d = outline(plan);
  d.plan = nullptr;
  d.ops = plan.ops;
  d.deps = plan.deps;
  d.repetitions = plan.repetitions;
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

}  // namespace orrery
