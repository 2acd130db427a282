// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/memory_model.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "sim/engine/op_table.hpp"
#include "sim/plan/operand_bits.hpp"
#include "sim/plan/repeated_block.hpp"

namespace orrery {

namespace {

/// Operands that may name persistent tensors, each tensor at least once: what a block takes and gives back itself is
/// none, and neither is that of those that repeat it; of others they mostly name the same, and persistent ones where
/// the block does.
template <class F>
void for_each_lasting_operand(const Plan& plan, const MovedStretches& stretches, F f) {
  struct Known {
    bool has_lasting = false;           // tensors of its own
    std::vector<std::uint32_t> others;  // operands that name persistent tensors
  };
  const auto lasts = [&](TensorId t) { return plan.tensors[plan.owner(t).index()].persistent; };
  std::map<const RepeatedBlock*, Known> blocks;
  for (const auto& [first, block] : stretches.blocks()) {
    Known& known = blocks[&block];
    for (std::uint32_t t = 0; t < block.num_own; ++t)
      known.has_lasting = known.has_lasting || lasts(TensorId{block.first_own.index() + t});
    for (const std::uint32_t k : block.others)
      if (lasts(plan.operands[block.first_operand + k].tensor())) known.others.push_back(k);
  }
  for (const MovedStretches::Part& part : stretches.parts()) {
    const Known* const known = part.block == nullptr ? nullptr : &blocks.at(part.block);
    if (known == nullptr || known->has_lasting) {
      for (std::size_t i = part.first; i < part.first + part.num_ops; ++i)
        for (const Operand& o : plan.operands_of(plan.ops[i])) f(o);
      continue;
    }
    const Operand* const operands = plan.operands.data() + part.first_operand;
    const Operand* const like = plan.operands.data() + part.block->first_operand;
    for (const std::uint32_t k : known->others)
      if (!is_same(operands[k], like[k])) f(operands[k]);
  }
}

std::vector<TensorId> resident_tensors(const Plan& plan, ClassId c, const MovedStretches& stretches) {
  std::vector<TensorId> out;
  std::vector<bool> seen(plan.tensors.size(), false);
  const auto add = [&](TensorId t) {
    const TensorId owner = plan.owner(t);
    if (!plan.tensors[owner.index()].persistent || seen[owner.index()]) return;
    seen[owner.index()] = true;
    out.push_back(owner);
  };
  for_each_lasting_operand(plan, stretches, [&](const Operand& o) {
    if (!o.allocates() && !o.frees()) add(o.tensor());
  });
  if (c.index() < plan.workspaces.size())
    for (TensorId t : plan.workspaces[c.index()])
      if (!t.is_none()) add(t);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

std::vector<TensorId> resident_tensors(const Plan& plan, ClassId c) {
  return resident_tensors(plan, c, MovedStretches{plan, plan.classes[c.index()]});
}

void MemoryModel::begin(const Plan& plan, const Fleet& fleet, const OpTable& ops, std::uint32_t execution,
                        std::int64_t now_ps) {
  plan_ = &plan;
  fleet_ = &fleet;
  execution_ = execution;
  sizes_.clear();
  for (const Layout& l : plan.layouts)
    for (std::size_t type = 0; type < kNumTypes; ++type) {
      const Bytes bytes = ceil_to(size_of(static_cast<DType>(type), l.shape.elements()), kAllocationUnit);
      sizes_.push_back(static_cast<std::int64_t>(std::max(bytes, kAllocationUnit).base()));
    }
  classes_.clear();
  for (std::uint32_t c = 0; c < plan.classes.size(); ++c)
    classes_.push_back(tensors_of(ClassId{std::size_t{c}}, ops.of_class(c).stretches));
  scripts_.clear();
  owners_.clear();
  live_.resize(fleet.size());
  replay_places_.resize(fleet.size());
  for (std::uint32_t s = 0; s < fleet.size(); ++s) make_resident(s, class_of(s), now_ps);
}

MemoryModel::ClassTensors MemoryModel::tensors_of(ClassId c, const MovedStretches& stretches) {
  ClassTensors out;
  std::map<const RepeatedBlock*, BlockMarks> blocks;
  for (const MovedStretches::Part& part : stretches.parts())
    if (part.block != nullptr && !blocks.contains(part.block))
      blocks[part.block] = marks_of(*part.block, out.given[part.block]);
  std::uint32_t first = UINT32_MAX, last = 0;
  const auto widen = [&](std::uint32_t low, std::uint32_t high) {
    first = std::min(first, low);
    last = std::max(last, high);
  };
  const auto operands_of = [&](std::size_t op) { return plan_->operands_of(plan_->ops[op]); };
  for (const MovedStretches::Part& part : stretches.parts()) {
    if (part.block != nullptr) {
      const BlockMarks& marks = blocks.at(part.block);
      widen(marks.first + part.moved, marks.last + part.moved);
      continue;
    }
    for (std::size_t i = part.first; i < part.first + part.num_ops; ++i)
      for (const Operand& o : operands_of(i))
        if (o.allocates()) widen(plan_->owner(o.tensor()).value, plan_->owner(o.tensor()).value);
  }
  if (first != UINT32_MAX) {
    out.first = first;
    out.marks.resize(last - first + 1);
    const auto add = [&](const Operand& o) {
      if (o.frees()) ++out.marks[plan_->owner(o.tensor()).value - first];
    };
    for (const MovedStretches::Part& part : stretches.parts()) {
      if (part.block == nullptr) {
        for (std::size_t i = part.first; i < part.first + part.num_ops; ++i)
          for (const Operand& o : operands_of(i)) add(o);
        continue;
      }
      const BlockMarks& marks = blocks.at(part.block);
      std::uint8_t* const mine = out.marks.data() + (marks.first + part.moved - first);
      const std::uint8_t* const own = marks.own.data();
      for (std::size_t t = 0; t < marks.own.size(); ++t) mine[t] = static_cast<std::uint8_t>(mine[t] + own[t]);
      Given& given = out.given.at(part.block);
      for (const std::uint32_t k : given.operands) {
        const TensorId owner = plan_->owner(plan_->operands[part.first_operand + k].tensor());
        ++out.marks[owner.value - first];
        given.owners.push_back(owner);
      }
    }
  }
  out.count = static_cast<std::uint32_t>(out.marks.size());
  out.resident = resident_tensors(*plan_, c, stretches);
  std::vector<std::uint32_t> keys;
  for (TensorId t : out.resident) keys.push_back(key_of(t));
  out.list = lists_.try_emplace(std::move(keys), static_cast<std::uint32_t>(lists_.size())).first->second;
  return out;
}

/// What others give back in a block they give back in its copies.
MemoryModel::BlockMarks MemoryModel::marks_of(const RepeatedBlock& block, Given& given) const {
  BlockMarks out;
  const std::span<const Operand> operands{plan_->operands.data() + block.first_operand, block.num_operands};
  if (!block.is_contiguous) return out;
  for (const Operand& o : operands)
    if (const std::uint32_t owner = plan_->owner(o.tensor()).value; o.allocates()) {
      out.first = std::min(out.first, owner);
      out.last = std::max(out.last, owner);
    }
  if (out.first == UINT32_MAX) return out;
  out.own.resize(out.last - out.first + 1);
  auto other = block.others.begin();
  for (std::uint32_t k = 0; k < operands.size(); ++k) {
    const bool is_other = other != block.others.end() && *other == k;
    other += is_other;
    if (operands[k].frees() && is_other)
      given.operands.push_back(k);
    else if (operands[k].frees())
      ++out.own[plan_->owner(operands[k].tensor()).value - out.first];
  }
  return out;
}

std::uint32_t MemoryModel::key_of(TensorId owner) {
  const Tensor& t = plan_->tensors[owner.index()];
  std::string key{plan_->names[t.name]};
  key += '\0';
  key += static_cast<char>(t.tier);
  key += std::to_string(size(owner));
  return keys_.try_emplace(std::move(key), static_cast<std::uint32_t>(keys_.size())).first->second;
}

MemoryModel::RankState& MemoryModel::state(RankId rank) {
  if (ranks_.size() <= rank.index()) ranks_.resize(rank.index() + 1);
  return ranks_[rank.index()];
}

MemoryModel::TierState& MemoryModel::tier(RankState& rank, RankId id, Tier tier) {
  std::int32_t& index = rank.tiers[static_cast<std::size_t>(tier)];
  if (index < 0) {
    index = static_cast<std::int32_t>(tiers_.size());
    TierState& fresh = tiers_.emplace_back();
    fresh.rank = fresh.peak.rank = id;
    fresh.tier = fresh.peak.tier = tier;
    const bool is_device = tier == Tier::Device;
    const std::int64_t capacity = is_device && options_.capacity ? options_.capacity(id) : INT64_MAX;
    fresh.arena = make_allocator(is_device ? options_.allocator : AllocatorOptions{}, capacity);
    fresh.plain = dynamic_cast<OffsetAllocator*>(fresh.arena.get());
  }
  return tiers_[static_cast<std::size_t>(index)];
}

void MemoryModel::make_resident(std::uint32_t simulated, const ClassTensors& tensors, std::int64_t now_ps) {
  const RankId rank = fleet_->rank(simulated);
  RankState& r = state(rank);
  if (std::find(r.lists.begin(), r.lists.end(), tensors.list) != r.lists.end()) return;
  r.lists.push_back(tensors.list);
  for (TensorId t : tensors.resident) {
    const std::uint32_t key = key_of(t);
    const auto at = std::lower_bound(r.resident.begin(), r.resident.end(), key);
    if (at != r.resident.end() && *at == key) continue;
    r.resident.insert(at, key);
    TierState& into = tier(r, rank, plan_->tensors[t.index()].tier);
    place(into, size(t), Stream::Compute);
    log_take(into, t, Stream::Compute, now_ps);
    change(into, size(t), now_ps);
    if (into.live > into.peak.bytes) raise(into, OpId{});
  }
}

std::int64_t MemoryModel::place(TierState& t, std::int64_t bytes, Stream stream) {
  if (const auto at = t.arena->allocate(bytes, static_cast<std::int32_t>(stream))) return *at;
  t.arena->set_capacity(INT64_MAX);
  return t.arena->allocate(bytes, static_cast<std::int32_t>(stream)).value();
}

std::uint32_t MemoryModel::label_of(RankId rank, TensorId owner) {
  const std::string_view name = plan_->name_of(owner);
  std::vector<std::string>& labels = log_[rank].labels;
  const auto [it, is_new] = labels_.try_emplace({rank, std::string{name}}, static_cast<std::uint32_t>(labels.size()));
  if (is_new) labels.emplace_back(name);
  return it->second;
}

std::uint32_t MemoryModel::log_take(const TierState& t, TensorId owner, Stream stream, std::int64_t now_ps) {
  if (!options_.log || t.tier != Tier::Device) return 0;
  AllocationTrace& log = log_[t.rank];
  log.events.push_back({.kind = AllocationTrace::Kind::Take,
                        .stream = static_cast<std::int32_t>(stream),
                        .block = log.num_blocks,
                        .label = label_of(t.rank, owner),
                        .bytes = size(owner),
                        .at_ps = now_ps});
  return log.num_blocks++;
}

void MemoryModel::log_give(const TierState& t, TensorId owner, std::uint32_t block, std::int64_t now_ps) {
  if (!options_.log || t.tier != Tier::Device) return;
  AllocationTrace& log = log_[t.rank];
  log.events.push_back(
      {.kind = AllocationTrace::Kind::Give, .block = block, .label = label_of(t.rank, owner), .at_ps = now_ps});
}

void MemoryModel::change(TierState& t, std::int64_t bytes, std::int64_t now_ps) {
  t.live += bytes;
  if (!options_.samples) return;
  if (t.last_sample != SIZE_MAX && samples_[t.last_sample].at_ps == now_ps) {
    samples_[t.last_sample].bytes = t.live;
    return;
  }
  t.last_sample = samples_.size();
  samples_.push_back({now_ps, t.rank, t.tier, t.live});
}

void MemoryModel::raise(TierState& t, OpId op) {
  t.raised = true;
  t.peak.bytes = t.live;
  t.peak.op = op;
  t.peak.instance = execution_;
  t.at_peak = {};
}

/// Counts what an op has taken; whether that is a new peak.
bool MemoryModel::grow(TierState& t, OpId op, std::int64_t bytes, std::int64_t now_ps) {
  change(t, bytes, now_ps);
  if (t.live <= t.peak.bytes) return false;
  raise(t, op);
  t.fresh = true;
  return true;
}

bool MemoryModel::take(std::uint32_t simulated, OpId op, Stream stream, TensorId owner, Storage storage,
                       std::int64_t now_ps) {
  const RankId rank = fleet_->rank(simulated);
  TierState& t = tier(ranks_[rank.index()], rank, storage.tier);
  live_[simulated].insert({.owner = owner,
                           .logged = log_take(t, owner, stream, now_ps),
                           .offset = place(t, storage.bytes, stream),
                           .marks_left = marks_of(simulated, owner)});
  return grow(t, op, storage.bytes, now_ps);
}

bool MemoryModel::take(std::uint32_t simulated, OpId op, Stream stream, MessageOwner storage, std::int64_t now_ps) {
  return take(simulated, op, stream, storage.owner, storage_of(storage.like), now_ps);
}

bool MemoryModel::take(std::uint32_t simulated, OpId op, std::int64_t now_ps) {
  bool peak = false;
  for (const Operand& o : plan_->operands_of((*plan_)[op]))
    if (const TensorId owner = plan_->owner(o.tensor()); o.allocates())
      peak |= take(simulated, op, (*plan_)[op].stream, owner, storage_of(owner), now_ps);
  return peak;
}

void MemoryModel::record_peak(std::uint32_t simulated, const RankProgress& progress) {
  for (std::int32_t index : ranks_[fleet_->rank(simulated).index()].tiers) {
    if (index < 0 || !tiers_[static_cast<std::size_t>(index)].fresh) continue;
    tiers_[static_cast<std::size_t>(index)].fresh = false;
    tiers_[static_cast<std::size_t>(index)].at_peak = progress;
  }
}

void MemoryModel::give(std::uint32_t simulated, TensorId owner, Storage storage, std::int64_t now_ps) {
  Live* const live = live_[simulated].find(owner.value);
  if (live == nullptr) return;
  live->marks_left = live->marks_left - 1u;
  if (live->marks_left == 0) give_back(simulated, owner, storage, now_ps);
}

void MemoryModel::give(std::uint32_t simulated, MessageOwner storage, std::int64_t now_ps) {
  give(simulated, storage.owner, storage_of(storage.like), now_ps);
}

void MemoryModel::give(std::uint32_t simulated, OpId op, std::int64_t now_ps) {
  for (const Operand& o : plan_->operands_of((*plan_)[op]))
    if (const TensorId owner = plan_->owner(o.tensor()); o.frees()) give(simulated, owner, storage_of(owner), now_ps);
}

void MemoryModel::give_back(std::uint32_t simulated, TensorId owner, Storage storage, std::int64_t now_ps) {
  const RankId rank = fleet_->rank(simulated);
  TierState& t = tier(ranks_[rank.index()], rank, storage.tier);
  const Live live = live_[simulated].take(owner.value);
  t.arena->release(live.offset);
  log_give(t, owner, live.logged, now_ps);
  change(t, -storage.bytes, now_ps);
}

void MemoryModel::end(std::int64_t now_ps) {
  for (std::uint32_t s = 0; s < fleet_->size(); ++s) {
    std::vector<TensorId> left;
    live_[s].for_each([&](const Live& live) { left.push_back(live.owner); });
    std::sort(left.begin(), left.end());
    for (const TensorId owner : left) give_back(s, owner, storage_of(owner), now_ps);
    const RankId rank = fleet_->rank(s);
    if (rank.index() >= ranks_.size()) continue;
    for (std::int32_t index : ranks_[rank.index()].tiers)
      if (index >= 0 && tiers_[static_cast<std::size_t>(index)].raised)
        name_owners(s, tiers_[static_cast<std::size_t>(index)]);
  }
}

/// Replays the class up to the progress at the peak. Persistent storage that only other plans name is one entry without
/// a tensor.
void MemoryModel::name_owners(std::uint32_t simulated, TierState& t) const {
  const ClassTensors& tensors = class_of(simulated);
  std::vector<bool> live(tensors.count, false);
  std::vector<std::uint8_t> marks = tensors.marks;
  std::array<std::uint32_t, kNumStreams> seen{};
  auto left = std::accumulate(t.at_peak.started.begin(), t.at_peak.started.end(), std::uint64_t{0});
  for (const Op& op : plan_->ops_of(plan_->classes[fleet_->class_of(simulated)])) {
    if (left == 0) break;
    const auto stream = static_cast<std::size_t>(op.stream);
    const std::uint32_t at = seen[stream]++;
    if (at >= t.at_peak.started[stream]) continue;
    --left;
    for (const Operand& o : plan_->operands_of(op)) {
      const std::uint32_t i = plan_->owner(o.tensor()).value - tensors.first;
      if (o.allocates()) live[i] = true;
      if (o.frees() && at < t.at_peak.ended[stream] && --marks[i] == 0) live[i] = false;
    }
  }
  auto& owners = t.peak.owners;
  owners.clear();
  std::int64_t named = 0;
  const auto add = [&](TensorId id) {
    if (plan_->tensors[id.index()].tier != t.tier) return;
    owners.emplace_back(id, size(id));
    named += size(id);
  };
  for (TensorId id : tensors.resident) add(id);
  for (std::uint32_t i = 0; i < tensors.count; ++i)
    if (live[i]) add(TensorId{tensors.first + i});
  if (named < t.peak.bytes) owners.emplace_back(TensorId{}, t.peak.bytes - named);
  std::stable_sort(owners.begin(), owners.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  t.raised = false;
}

std::vector<Peak> MemoryModel::peaks() const {
  std::vector<Peak> out;
  for (const RankState& rank : ranks_)
    for (std::int32_t index : rank.tiers) {
      if (index < 0) continue;
      out.push_back(tiers_[static_cast<std::size_t>(index)].peak);
      out.back().arena_bytes = tiers_[static_cast<std::size_t>(index)].arena->high_water();
    }
  return out;
}

}  // namespace orrery
