// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/offload/chunk_trace.hpp"

#include <algorithm>

namespace orrery {

std::vector<ChunkAction> chunk_actions(const Plan& plan, ClassId c, const Updates& updates, const ChunkLayout& layout,
                                       bool give_up) {
  const RankClass& rank_class = plan.classes[c.index()];
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> ready;
  std::unordered_map<std::uint32_t, std::uint32_t> update_of;
  std::vector<std::size_t> missing;  // per chunk: gradients to come
  for (const auto& members : layout.members) missing.push_back(members.size());
  for (std::uint32_t i = 0; i < updates.all.size(); ++i) {
    const Update& u = updates.all[i];
    ready[std::max(u.complete, u.last_read).value].push_back(i);
    update_of[u.op.value] = i;
  }
  std::vector<ChunkAction> out;
  for (std::uint32_t i = 0; i < rank_class.num_ops; ++i) {
    const OpId id{std::size_t{rank_class.first_op + i}};
    const auto update = update_of.find(id.value);
    const bool updates_now = update != update_of.end();
    out.push_back({updates_now ? ChunkDeed::Update : ChunkDeed::Emit, id, updates_now ? update->second : 0});
    const auto it = ready.find(id.value);
    if (it == ready.end()) continue;
    for (const std::uint32_t u : it->second) {
      const std::uint32_t chunk = layout.slots[u].chunk;
      out.push_back({ChunkDeed::Stash, id, u});
      if (--missing[chunk] == 0 && give_up) out.push_back({ChunkDeed::GiveUp, id, chunk});
    }
  }
  return out;
}

std::vector<OpId> next_of_passes(const Plan& plan, const std::vector<ChunkAction>& actions) {
  std::vector<OpId> out(actions.size() + 1);
  for (std::size_t s = actions.size(); s-- > 0;) {
    const ChunkAction& a = actions[s];
    const bool passes = a.deed == ChunkDeed::Emit && plan[a.op].stream == Stream::Compute;
    out[s] = passes ? a.op : out[s + 1];
  }
  return out;
}

std::vector<bool> leaves_for_update(const std::vector<ChunkAction>& actions, const ChunkLayout& layout,
                                    const CachePlan& cache) {
  std::vector<bool> out(layout.size());
  for (const CacheEvent& e : cache.events) {
    if (e.comes || e.step >= actions.size()) continue;
    const ChunkAction& a = actions[e.step];
    if (a.deed == ChunkDeed::Update && layout.slots[a.index].chunk == e.chunk) out[e.chunk] = true;
  }
  return out;
}

std::int64_t ChunkTrace::most_beside() const {
  return beside.empty() ? 0 : *std::max_element(beside.begin(), beside.end());
}

std::int64_t ChunkTrace::master_bytes(std::uint32_t k) const {
  const Update& u = updates.all[layout.members[k].front()];
  const DType wide = state_type(plan, u);
  if (wide == plan.tensors[u.weight.index()].dtype || (!lacks_master(plan, u) && !can_have_master(plan, u))) return 0;
  return static_cast<std::int64_t>(ceil_to(size_of(wide, layout.sizes[k]), kAllocationUnit).base());
}

std::vector<std::int64_t> ChunkTrace::on_their_way() const {
  std::vector<std::int64_t> out;
  std::int64_t now = 0;
  for (const std::int64_t bytes : changed) out.push_back(now = std::max(now, bytes));
  return out;
}

std::vector<CacheStep> ChunkTrace::moving(const std::vector<ChunkPlace>& places,
                                          const std::function<std::int64_t(std::size_t)>& capacity) const {
  std::vector<CacheStep> out = steps;
  for (std::size_t s = 0; s < out.size(); ++s) {
    const auto stays = [&](std::uint32_t k) { return places[k].weights_stay; };
    std::erase_if(out[s].needed, stays);
    std::erase_if(out[s].banned, stays);
    out[s].capacity = capacity(s);
  }
  return out;
}

namespace {

std::vector<std::uint32_t> passes_of(const Plan& plan, const std::vector<ChunkAction>& actions) {
  std::vector<std::uint32_t> out;
  std::uint32_t pass = 0;
  const Op* last = nullptr;
  for (const ChunkAction& a : actions) {
    const Op& op = plan[a.op];
    if (last != nullptr && a.deed == ChunkDeed::Emit && op.stream == Stream::Compute) {
      const bool same =
          op.microbatch == last->microbatch && (op.phase == Phase::Forward) == (last->phase == Phase::Forward);
      pass += same ? 0 : 1;
    }
    if (op.stream == Stream::Compute) last = &op;
    out.push_back(pass);
  }
  return out;
}

}  // namespace

ChunkTrace trace_chunks(const Plan& plan, ClassId c, const Updates& updates, const ChunkLayout& layout,
                        const std::vector<ChunkAction>& actions, const WorkspaceModel* workspaces, Beside beside) {
  ChunkTrace out{plan, c, updates, layout, {}, {}, {}, {}, {}, {}, passes_of(plan, actions), {}};
  for (std::uint32_t k = 0; k < layout.size(); ++k) {
    const Update& u = updates.all[layout.members[k].front()];
    const auto lists = static_cast<std::int64_t>(u.states.size()) + (lacks_master(plan, u) ? 1 : 0);
    const auto stored = [&](DType type, std::int64_t times) {
      return static_cast<std::int64_t>(ceil_to(size_of(type, layout.sizes[k]), kAllocationUnit).base()) * times;
    };
    out.weight_bytes.push_back(stored(plan.tensors[u.weight.index()].dtype, 1));
    out.state_bytes.push_back(stored(state_type(plan, u), lists));
  }
  std::unordered_map<std::uint32_t, std::uint32_t> by_weight;
  for (std::uint32_t i = 0; i < updates.all.size(); ++i) by_weight[updates.all[i].weight.value] = i;
  const OtherBytes others = other_bytes(plan, c, updates, workspaces, beside);
  const std::uint32_t first = plan.classes[c.index()].first_op;
  for (const ChunkAction& a : actions) {
    const std::size_t i = a.op.value - first;
    out.ops.push_back(a.op.value - first);
    out.beside.push_back(std::max(others.during[i], others.during[std::min(i + 1, others.during.size() - 1)]));
    out.during.push_back(a.deed == ChunkDeed::Stash ? others.behind[i] : others.during[i]);
    out.changed.push_back(a.deed == ChunkDeed::Stash ? out.weight_bytes[layout.slots[a.index].chunk] : 0);
    CacheStep step;
    const auto need = [&](std::uint32_t chunk) {
      if (std::find(step.needed.begin(), step.needed.end(), chunk) == step.needed.end()) step.needed.push_back(chunk);
    };
    if (a.deed == ChunkDeed::Stash) need(layout.slots[a.index].chunk);
    if (a.deed == ChunkDeed::Update) step.banned.push_back(layout.slots[a.index].chunk);
    if (a.deed == ChunkDeed::GiveUp) step.banned.push_back(a.index);
    if (a.deed == ChunkDeed::Emit && !updates.belongs[i])
      for (const Operand& o : plan.operands_of(plan[a.op]))
        if (const auto it = by_weight.find(plan.owner(o.tensor()).value); it != by_weight.end())
          need(layout.slots[it->second].chunk);
    out.steps.push_back(std::move(step));
  }
  return out;
}

}  // namespace orrery
