// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/offload/rewriter.hpp"

#include <algorithm>

namespace orrery {

Bytes bytes_of(const Plan& plan, TensorId t) {
  return size_of(plan.tensors[t.index()].dtype, plan.shape(t).elements());
}

PlanRewriter::PlanRewriter(const Plan& from)
    : from_{&from},
      builder_{from.name, from.mesh},
      places_(from.tensors.size()),
      known_(from.tensors.size()),
      ops_(from.ops.size()),
      names_(from.names.size()),
      works_(from.works.size()),
      layouts_(from.layouts.size()) {
  Plan& plan = builder_.plan();
  plan.groups = from.groups;
  plan.purpose = from.purpose;
  plan.ops.reserve(from.ops.size());
  plan.operands.reserve(from.operands.size());
  plan.deps.reserve(from.deps.size());
  plan.tensors.reserve(from.tensors.size());
}

void PlanRewriter::begin_class(ClassId c) {
  const RankClass& old = from_->classes[c.index()];
  old_ = c;
  class_ = builder_.begin_class(old.name, old.ranges);
}

void PlanRewriter::begin_class(ClassId c, std::string name, std::vector<CoordRange> ranges) {
  places_.assign(places_.size(), {});
  known_.assign(known_.size(), {});
  ops_.assign(ops_.size(), {});
  old_ = c;
  class_ = builder_.begin_class(std::move(name), std::move(ranges));
}

void PlanRewriter::skip(OpId id) {
  const Plan& plan = builder_.plan();
  std::size_t i = plan.ops.size();
  const std::size_t first = plan.classes[class_.index()].first_op;
  while (i > first && plan.ops[i - 1].stream != (*from_)[id].stream) --i;
  ops_[id.index()] = i > first ? OpId{i - 1} : OpId{};
}

void PlanRewriter::put(TensorId owner, TensorId base, std::int64_t offset) {
  places_[owner.index()] = Place{base, offset};
}

NameId PlanRewriter::name_of(NameId old) {
  NameId& known = names_[old.index()];
  if (known.is_none()) known = builder_.intern(from_->names[old]);
  return known;
}

WorkId PlanRewriter::work_of(WorkId old) {
  WorkId& known = works_[old.index()];
  if (known.is_none()) known = builder_.intern(from_->works[old.index()]);
  return known;
}

LayoutId PlanRewriter::layout_of(LayoutId old) {
  LayoutId& known = layouts_[old.index()];
  if (known.is_none()) known = builder_.intern(from_->layouts[old.index()]);
  return known;
}

TensorId PlanRewriter::owner_of(TensorId old) {
  const Tensor& t = from_->tensors[old.index()];
  return builder_.tensor(name_of(t.name), layout_of(t.layout),
                         {.dtype = t.dtype, .role = t.role, .tier = t.tier, .persistent = t.persistent});
}

const RankView* PlanRewriter::rank_view_of(TensorId old) const {
  const auto it = std::lower_bound(from_->rank_views.begin(), from_->rank_views.end(), old,
                                   [](const RankView& v, TensorId t) { return v.view < t; });
  return it == from_->rank_views.end() || it->view != old ? nullptr : &*it;
}

TensorId PlanRewriter::make_view(TensorId old, const Place& place) {
  const Plan& plan = builder_.plan();
  const Tensor& t = from_->tensors[old.index()];
  const Layout& own = from_->layouts[t.layout.index()];
  const bool is_owner = from_->owner(old) == old;
  if (is_owner && own.offset + place.offset == 0 && plan.shape(place.base) == own.shape) return place.base;
  LayoutId layout = layout_of(t.layout);
  if (place.offset != 0) {
    Layout moved = own;
    moved.offset += place.offset;
    layout = builder_.intern(moved);
  }
  const TensorId view = builder_.view(place.base, name_of(t.name), layout);
  if (const RankView* ranked = is_owner ? nullptr : rank_view_of(old)) {
    RankView copy = *ranked;
    copy.view = view;
    for (RankView::Place& p : copy.places) p.tensor = (*this)[p.tensor];
    builder_.plan().rank_views.push_back(copy);
  }
  return view;
}

TensorId PlanRewriter::operator[](TensorId old) {
  const TensorId owner = from_->owner(old);
  std::optional<Place>& place = places_[owner.index()];
  if (!place) place = Place{owner_of(owner), 0};
  std::optional<Known>& known = known_[old.index()];
  if (!known || known->place.base != place->base || known->place.offset != place->offset)
    known = Known{make_view(old, *place), *place};
  return known->tensor;
}

OpId PlanRewriter::emit(OpId id, const OpChange& change) {
  operands_.clear();
  for (const Operand& o : from_->operands_of((*from_)[id])) {
    const auto other = std::find_if(change.instead.begin(), change.instead.end(),
                                    [&](const auto& pair) { return pair.first == o.tensor(); });
    operands_.emplace_back(other == change.instead.end() ? (*this)[o.tensor()] : other->second, o.access());
  }
  return emit_with(id, operands_, change);
}

OpId PlanRewriter::emit_with(OpId id, std::span<const Operand> operands, const OpChange& change) {
  const Op& op = (*from_)[id];
  builder_.set_phase(change.phase.value_or(op.phase));
  builder_.set_layer(op.layer);
  builder_.set_microbatch(op.microbatch);
  const NameId name = change.suffix.empty()
                          ? name_of(op.name)
                          : builder_.intern(std::string{from_->name_of(op)} + std::string{change.suffix});
  const WorkId work = change.work ? builder_.intern(*change.work) : work_of(op.work);
  builder_.set_joins(op.joins);
  const OpId made = builder_.add(name, work, operands, change.stream.value_or(op.stream));
  builder_.set_joins(false);
  ops_[id.index()] = made;
  order_as(id);
  return made;
}

void PlanRewriter::order_as(OpId op) {
  for (const OpId d : from_->deps_of((*from_)[op])) order(ops_[d.index()]);
}

OpId PlanRewriter::copy(std::string_view name, TensorId from, TensorId to, Stream stream) {
  const Plan& plan = builder_.plan();
  const Copy work{bytes_of(plan, from), plan.tensors[from.index()].tier, plan.tensors[to.index()].tier};
  return builder_.add(name, work, {reads(from), writes(to)}, stream);
}

void PlanRewriter::order(OpId before) {
  if (before.is_none() || before == last()) return;
  const Plan& plan = builder_.plan();
  const Stream stream = plan[before].stream;
  for (const OpId d : plan.deps_of(plan.ops.back()))
    if (plan[d].stream == stream && d >= before) return;
  builder_.order(before);
}

void PlanRewriter::end_placements() {
  for (ParameterPlacement p : from_->placements) {
    if (p.rank_class != old_) continue;
    p.rank_class = class_;
    for (Stored* s : {&p.weight, &p.gradient})
      if (!s->tensor.is_none()) s->tensor = stands(s->tensor) ? (*this)[s->tensor] : TensorId{};
    if (!p.weight.tensor.is_none()) builder_.plan().placements.push_back(std::move(p));
  }
}

void PlanRewriter::end_class() {
  end_placements();
  for (const Port& p : from_->ports)
    if (p.rank_class == old_) builder_.port(p.name, (*this)[p.tensor], p.rows);
  for (const Constant& k : from_->constants)
    if (k.rank_class == old_ && stands(k.tensor))
      builder_.plan().constants.push_back({(*this)[k.tensor], class_, k.values});
}

Plan PlanRewriter::take(const WorkspaceModel* workspaces) { return builder_.take(workspaces); }

}  // namespace orrery
