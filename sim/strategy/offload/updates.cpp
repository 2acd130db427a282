// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/offload/updates.hpp"

#include <algorithm>
#include <set>

#include "sim/base/option_error.hpp"

namespace orrery {
namespace {

/// How an owner is used outside of the optimizer.
struct Uses {
  OpId last_write, last_read;
  std::set<std::uint32_t> begun;  // its views that were met
  bool fresh = true;
};

Update update_of(const Plan& plan, OpId id) {
  const auto operands = plan.operands_of(plan[id]);
  Update u{.op = id,
           .weight = operands[0].tensor(),
           .gradient = operands[1].tensor(),
           .states = {},
           .complete = {},
           .last_read = {}};
  for (const Operand& o : operands.subspan(2))
    if (plan.tensors[o.tensor().index()].role == TensorRole::OptimizerState) u.states.push_back(plan.owner(o.tensor()));
  return u;
}

void note(Uses& uses, OpId id, const Operand& o) {
  if (o.writes()) uses.last_write = id;
  if (o.reads()) uses.last_read = id;
  if (uses.begun.insert(o.tensor().value).second && o.reads() && uses.begun.size() == 1) uses.fresh = false;
}

}  // namespace

bool is_update(const Work& work) { return std::holds_alternative<AdamW>(work) || std::holds_alternative<Sgd>(work); }

Work on_host(Work work, std::int64_t delay) {
  if (auto* s = std::get_if<SumSquares>(&work)) s->on_host = true;
  if (auto* s = std::get_if<Sgd>(&work)) s->on_host = true;
  if (auto* a = std::get_if<AdamW>(&work)) {
    a->on_host = true;
    a->step.base -= delay;
  }
  return work;
}

Work with_master(Work work) {
  if (auto* a = std::get_if<AdamW>(&work)) a->master = true;
  return work;
}

DType state_type(const Plan& plan, const Update& u) {
  if (const auto* adam = std::get_if<AdamW>(&plan.work(u.op))) return adam->state;
  return plan.tensors[u.states.empty() ? u.weight.index() : u.states.front().index()].dtype;
}

bool can_have_master(const Plan& plan, const Update& u) { return std::holds_alternative<AdamW>(plan.work(u.op)); }

bool lacks_master(const Plan& plan, const Update& u) {
  const auto* adam = std::get_if<AdamW>(&plan.work(u.op));
  return adam != nullptr && !adam->master;
}

Updates updates_of(const Plan& plan, ClassId c) {
  const RankClass& rank_class = plan.classes[c.index()];
  Updates out;
  out.belongs.assign(rank_class.num_ops, false);
  const auto each = [&](auto f) {
    for (std::uint32_t i = 0; i < rank_class.num_ops; ++i) f(i, OpId{std::size_t{rank_class.first_op + i}});
  };
  each([&](std::uint32_t i, OpId id) {
    const Work& work = plan.work(id);
    if (const auto* s = std::get_if<SumSquares>(&work); s)
      out.norm2 = plan.owner(plan.operands_of(plan[id])[1].tensor());
    out.belongs[i] = is_update(work) || std::holds_alternative<SumSquares>(work);
    if (is_update(work)) out.all.push_back(update_of(plan, id));
  });
  std::unordered_map<std::uint32_t, Uses> uses;  // by owner
  for (const Update& u : out.all) uses[plan.owner(u.weight).value], uses[plan.owner(u.gradient).value];
  each([&](std::uint32_t i, OpId id) {
    for (const Operand& o : plan.operands_of(plan[id])) {
      const TensorId owner = plan.owner(o.tensor());
      if (owner == out.norm2) out.belongs[i] = true;
      if (const auto it = uses.find(owner.value); it != uses.end() && !out.belongs[i]) note(it->second, id, o);
    }
  });
  const auto is_ranked = [&](TensorId owner) {
    return std::any_of(plan.rank_views.begin(), plan.rank_views.end(),
                       [&](const RankView& v) { return plan.owner(v.view) == owner; });
  };
  for (Update& u : out.all) {
    const Uses &gradient = uses[plan.owner(u.gradient).value], &weight = uses[plan.owner(u.weight).value];
    u.complete = gradient.last_write;
    u.last_read = weight.last_read;
    u.starts_fresh = gradient.fresh && !is_ranked(plan.owner(u.gradient));
    if (u.complete.is_none()) bug("an update of weights whose gradient nothing writes");
  }
  return out;
}

void require_owned(const Plan& plan, const Updates& updates) {
  for (const Update& u : updates.all)
    if (plan.owner(u.weight) != u.weight || plan.owner(u.gradient) != u.gradient)
      throw OptionError{{"data.kind", "mesh"},
                        "replicas update parts of tensors that all of them hold: these cannot move to other tiers",
                        "use one rank, or `parallel: {mesh: dp2, data: {kind: zero3}}`"};
}

void require_same_type(const Plan& plan, const Updates& updates) {
  for (const Update& u : updates.all)
    if (plan.tensors[u.weight.index()].dtype != plan.tensors[u.gradient.index()].dtype)
      throw OptionError{{"wide_gradients"},
                        "gradients that take the place of their weights cannot be wider than these",
                        "leave out `wide_gradients`"};
}

Stored moved(PlanRewriter& r, const Stored& gradient, const Update& u, TensorId base) {
  Stored s = gradient;
  const Plan& plan = r.from();
  const bool is_whole = s.tensor == u.gradient || s.in_place || plan.owner(u.gradient) != u.gradient;
  s.in_place = false;
  s.tensor = is_whole ? base
                      : r.builder().view(base, plan.name_of(s.tensor),
                                         plan.layouts[plan.tensors[s.tensor.index()].layout.index()]);
  return s;
}

}  // namespace orrery
