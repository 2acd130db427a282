// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/offload/chunk_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <unordered_set>

#include "sim/base/option_error.hpp"

namespace orrery {

std::int64_t ChunkLayout::elements() const { return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}); }

ChunkLayout lay_out_chunks(const Plan& plan, const Updates& updates, std::int64_t elements,
                           const std::vector<bool>& alone) {
  ChunkLayout out;
  std::int64_t used = elements;  // of the chunk that is open
  std::uint32_t open = 0;
  for (std::uint32_t i = 0; i < updates.all.size(); ++i) {
    const TensorId weight = updates.all[i].weight;
    const std::int64_t n = plan.shape(weight).elements();
    if (!alone.empty() && alone[i]) {
      out.slots.push_back({static_cast<std::uint32_t>(out.members.size()), 0});
      out.members.push_back({i});
      out.sizes.push_back(n);
      continue;
    }
    if (n > elements)
      throw OptionError{
          {"chunk"},
          fmt::format("a chunk of {} elements is smaller than '{}', which has {}", elements, plan.name_of(weight), n),
          fmt::format("use chunks of at least {} elements", n)};
    if (used + n > elements) {
      open = static_cast<std::uint32_t>(out.members.size());
      out.members.emplace_back();
      out.sizes.push_back(elements);
      used = 0;
    }
    out.slots.push_back({open, used});
    out.members[open].push_back(i);
    used += n;
  }
  return out;
}

ChunkLayout lay_out_operators(const Plan& plan, ClassId c, const Updates& updates) {
  std::unordered_map<std::uint32_t, std::uint32_t> reader;  // by weight: the first op
  const RankClass& rank_class = plan.classes[c.index()];
  for (std::uint32_t i = 0; i < rank_class.num_ops; ++i)
    for (const Operand& o : plan.operands_of(plan.ops[rank_class.first_op + i]))
      if (o.reads() && !updates.belongs[i]) reader.try_emplace(plan.owner(o.tensor()).value, i);
  ChunkLayout out;
  std::unordered_map<std::uint32_t, std::uint32_t> chunk_of;  // by reader
  for (std::uint32_t u = 0; u < updates.all.size(); ++u) {
    const TensorId weight = updates.all[u].weight;
    const auto [it, is_new] = chunk_of.try_emplace(reader[weight.value], static_cast<std::uint32_t>(out.size()));
    if (is_new) {
      out.members.emplace_back();
      out.sizes.push_back(0);
    }
    out.slots.push_back({it->second, out.sizes[it->second]});
    out.members[it->second].push_back(u);
    out.sizes[it->second] += plan.shape(weight).elements();
  }
  return out;
}

ChunkLayout lay_out_pages(const Plan& plan, const Updates& updates, std::int64_t elements) {
  ChunkLayout out;
  std::int64_t left = 0;  // of the last page of the last run
  for (std::uint32_t i = 0; i < updates.all.size(); ++i) {
    const std::int64_t n = plan.shape(updates.all[i].weight).elements();
    if (n <= left) {
      out.slots.push_back({static_cast<std::uint32_t>(out.size() - 1), out.sizes.back() - left});
      out.members.back().push_back(i);
      left = 0;
      continue;
    }
    const std::int64_t run = (n + elements - 1) / elements * elements;
    out.slots.push_back({static_cast<std::uint32_t>(out.size()), 0});
    out.members.push_back({i});
    out.sizes.push_back(run);
    left = run - n;
  }
  return out;
}

std::int64_t least_chunk(const Plan& plan) {
  std::int64_t most = 1;
  for (std::size_t c = 0; c < plan.classes.size(); ++c)
    for (const Update& u : updates_of(plan, ClassId{c}).all) most = std::max(most, plan.shape(u.weight).elements());
  return most;
}

double chunk_utilisation(const Plan& plan, std::int64_t elements) {
  double used = 0, room = 0;
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    const Updates updates = updates_of(plan, ClassId{c});
    for (const Update& u : updates.all) used += double(plan.shape(u.weight).elements());
    room += double(lay_out_chunks(plan, updates, elements).elements());
  }
  return room > 0 ? used / room : 1;
}

void place_chunks(PlanRewriter& r, ClassId c, const Updates& updates, const ChunkLayout& layout,
                  const ChunkCopies& copies) {
  const Plan& plan = r.from();
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> updates_of_owner;
  for (std::uint32_t i = 0; i < updates.all.size(); ++i)
    updates_of_owner[plan.owner(updates.all[i].weight).value].push_back(i);
  std::unordered_map<std::uint32_t, TensorId> old_weights;  // by parameter: where its first part lies
  for (const ParameterPlacement& q : plan.placements)
    if (q.rank_class == c) old_weights.try_emplace(q.parameter.value, q.weight.tensor);
  std::vector<ParameterPlacement> more;
  std::vector<ParameterPlacement>& all = r.builder().plan().placements;
  for (ParameterPlacement& p : all) {
    if (p.rank_class != c) continue;
    const TensorId old = old_weights.at(p.parameter.value);
    const auto found = updates_of_owner.find(plan.owner(old).value);
    if (found == updates_of_owner.end()) continue;
    for (const std::uint32_t i : found->second) {
      p.gradient = {};
      Layout part = plan.layouts[plan.tensors[old.index()].layout.index()];
      part.offset += layout.slots[i].offset;
      for (const auto& [name, tensor] : copies(layout.slots[i].chunk)) {
        more.push_back(p);
        more.back().weight.tensor = r.builder().view(tensor, fmt::format("{}.{}", c.index(), name), part);
      }
    }
  }
  all.insert(all.end(), more.begin(), more.end());
}

namespace {

std::int64_t storage(const Plan& plan, TensorId owner) {
  return static_cast<std::int64_t>(std::max(ceil_to(plan.size(owner), kAllocationUnit), kAllocationUnit).base());
}

std::int64_t scratch(const Plan& plan, const RankClass& c, const WorkspaceModel* workspaces) {
  std::array<Bytes, kNumStreams> most{};
  for (const Op& op : plan.ops_of(c)) {
    Bytes& b = most[static_cast<std::size_t>(op.stream)];
    if (workspaces != nullptr) b = std::max(b, workspaces->workspace(plan.work(op)));
  }
  Bytes sum;
  for (const Bytes b : most) sum += ceil_to(b, kAllocationUnit);
  return static_cast<std::int64_t>(sum.base());
}

}  // namespace

OtherBytes other_bytes(const Plan& plan, ClassId c, const Updates& updates, const WorkspaceModel* workspaces,
                       Beside beside) {
  const RankClass& rank_class = plan.classes[c.index()];
  std::unordered_set<std::uint32_t> managed;
  std::unordered_map<std::uint32_t, std::uint32_t> ends;  // gradients, until they move
  for (const Update& u : updates.all) {
    managed.insert(plan.owner(u.weight).value);
    for (const TensorId s : u.states) managed.insert(s.value);
    if (beside != Beside::All) managed.insert(plan.owner(u.gradient).value);
    ends[plan.owner(u.gradient).value] = std::max(u.complete, u.last_read).value - rank_class.first_op;
  }
  std::unordered_map<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>> lives;  // first and last op
  for (std::uint32_t i = 0; i < rank_class.num_ops; ++i)
    for (const Operand& o : plan.operands_of(plan.ops[rank_class.first_op + i])) {
      const std::uint32_t owner = plan.owner(o.tensor()).value;
      if (managed.contains(owner) || plan.tensors[owner].tier != Tier::Device) continue;
      const TensorRole role = plan.tensors[owner].role;
      if (beside == Beside::NoModelData && (role == TensorRole::Parameter || role == TensorRole::Gradient)) continue;
      lives.try_emplace(owner, i, i).first->second.second = i;
    }
  // A gradient that is complete waits behind its op for its move; what an op reads last is gone behind it.
  std::vector<std::int64_t> during(rank_class.num_ops + 1, 0), behind(rank_class.num_ops + 1, 0);
  during[0] = behind[0] = scratch(plan, rank_class, workspaces);
  for (const auto& [owner, life] : lives) {
    const std::int64_t bytes = storage(plan, TensorId{owner});
    const auto gradient = ends.find(owner);
    const bool is_gradient = gradient != ends.end(), stays = plan.tensors[owner].persistent && !is_gradient;
    const std::uint32_t first = stays ? 0 : life.first, last = is_gradient ? gradient->second : life.second;
    during[first] += bytes, behind[first] += bytes;
    if (stays) continue;
    during[last + 1] -= bytes;
    behind[is_gradient ? last + 1 : last] -= bytes;
  }
  for (std::vector<std::int64_t>* v : {&during, &behind}) {
    std::partial_sum(v->begin(), v->end(), v->begin());
    v->pop_back();
  }
  return {std::move(during), std::move(behind)};
}

}  // namespace orrery
