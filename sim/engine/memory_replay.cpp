// SPDX-License-Identifier: Apache-2.0
// MemoryModel: what blocks of ops that repeat do to storage.
#include <algorithm>

#include "sim/engine/memory_model.hpp"
#include "sim/engine/op_table.hpp"

namespace orrery {
namespace {

using Kind = StorageScript::Kind;

/// How the events of a block use the storage of an owner.
struct Use {
  bool is_taken = false;
  std::uint32_t marks = 0, passed = 0;  // of those that give it back
  std::uint32_t place = 0;
};

}  // namespace

MemoryModel::Script MemoryModel::script(std::uint32_t simulated, const ClassOps& ops, std::uint32_t pattern,
                                        std::span<const StorageScript::Event> events) {
  const auto block = std::find_if(ops.blocks.instances.begin(), ops.blocks.instances.end(),
                                  [&](const OpBlocks::Instance& b) { return b.pattern == pattern; });
  const OpId first{std::size_t{ops.first_op} + block->first_op};
  StorageScript* const known = script_of(class_of(simulated), first, events);
  const auto [owners, is_new] = owners_.try_emplace({fleet_->class_of(simulated), pattern, known});
  if (is_new) find_owners(ops, class_of(simulated), pattern, *known, owners->second);
  return {known, owners->second};
}

/// What the events of the block from `first` on do.
StorageScript* MemoryModel::script_of(const ClassTensors& tensors, OpId first,
                                      std::span<const StorageScript::Event> events) {
  const auto operands_of = [&](const StorageScript::Event& e) {
    return plan_->operands_of((*plan_)[OpId{first.index() + e.op}]);
  };
  std::map<TensorId, Use> uses;
  for (const StorageScript::Event& e : events)
    for (const Operand& o : operands_of(e)) {
      Use& use = uses[plan_->owner(o.tensor())];
      use.is_taken |= !e.gives && o.allocates();
      use.marks += e.gives && o.frees();
    }
  StorageScript out;
  for (const StorageScript::Event& e : events) {
    out.first_change.push_back(static_cast<std::uint32_t>(out.changes.size()));
    const auto operands = operands_of(e);
    for (std::uint32_t k = 0; k < operands.size(); ++k) {
      if (!(e.gives ? operands[k].frees() : operands[k].allocates())) continue;
      const TensorId owner = plan_->owner(operands[k].tensor());
      Use& use = uses[owner];
      const bool is_own = !options_.log && use.is_taken && use.marks == tensors.marks[owner.value - tensors.first];
      StorageScript::Change c{size(owner), e.op, k};
      c.tier = plan_->tensors[owner.index()].tier;
      c.stream = (*plan_)[OpId{first.index() + e.op}].stream;
      if (!is_own)
        c.kind = e.gives ? Kind::GiveShared : Kind::TakeShared;
      else if (e.gives)
        c.kind = ++use.passed == use.marks ? Kind::Give : Kind::Mark;
      else
        use.place = out.num_places++;
      c.place = is_own ? use.place : out.num_shared++;
      out.changes.push_back(c);
    }
  }
  out.first_change.push_back(static_cast<std::uint32_t>(out.changes.size()));
  const auto elsewhere = [&](const StorageScript::Change& c) { return c.tier != out.changes.front().tier; };
  if (!out.changes.empty() && std::none_of(out.changes.begin(), out.changes.end(), elsewhere))
    out.tier = out.changes.front().tier;
  const auto same = std::find_if(scripts_.begin(), scripts_.end(), [&](const StorageScript& s) {
    return s.changes == out.changes && s.first_change == out.first_change;
  });
  return same != scripts_.end() ? &*same : &scripts_.emplace_back(std::move(out));
}

/// Storage of tensors that are those of the first block, moved, is that of the first block, moved by as much.
void MemoryModel::find_owners(const ClassOps& ops, const ClassTensors& tensors, std::uint32_t pattern,
                              const StorageScript& script, std::vector<TensorId>& out) const {
  struct Shared {
    std::uint32_t op = 0, operand = 0;
    TensorId like;            // the owner in the block that copies are like, which is moved with them; none: of others
    std::uint32_t given = 0;  // of others: the how-manieth that the block gives back
  };
  std::vector<Shared> shared;
  for (const StorageScript::Change& c : script.changes)
    if (c.kind == Kind::TakeShared || c.kind == Kind::GiveShared) shared.push_back({c.op, c.operand});
  const RepeatedBlock* known = nullptr;
  const Given* given = nullptr;
  const TensorId* owners = nullptr;  // of what the copy at hand gives back of others
  const auto look_into = [&](OpId like, const RepeatedBlock& block) {
    known = &block;
    given = &tensors.given.at(known);
    owners = given->owners.data();
    for (Shared& s : shared) {
      const Op& op = plan_->ops[like.index() + s.op];
      const std::uint32_t place = op.first_operand + s.operand - block.first_operand;
      const auto at = std::lower_bound(given->operands.begin(), given->operands.end(), place);
      if (at != given->operands.end() && *at == place)
        s.given = static_cast<std::uint32_t>(at - given->operands.begin());
      else
        s.like = plan_->owner(plan_->operands_of(op)[s.operand].tensor());
    }
  };
  auto part = ops.stretches.parts().begin();
  for (const OpBlocks::Instance& block : ops.blocks.instances) {
    if (block.pattern != pattern) continue;
    const std::size_t first = std::size_t{ops.first_op} + block.first_op;
    while (part->first < first) ++part;
    if (part->block != nullptr && part->block != known) look_into(part->like, *part->block);
    for (const Shared& s : shared) {
      if (part->block == nullptr)
        out.push_back(plan_->owner(plan_->operands_of(plan_->ops[first + s.op])[s.operand].tensor()));
      else if (!s.like.is_none())
        out.push_back(TensorId{std::size_t{s.like.value + part->moved}});
      else
        out.push_back(owners[s.given]);
    }
    if (part->block != nullptr) owners += given->operands.size();
  }
}

bool MemoryModel::replay(const Replayed& block, std::size_t event, std::int64_t now_ps) {
  const StorageScript& script = *block.script;
  std::vector<std::int64_t>& places = replay_places_[block.simulated];
  if (event == 0) places.resize(std::max<std::size_t>(places.size(), script.num_places));
  const RankId rank = fleet_->rank(block.simulated);
  bool peak = false;
  for (std::uint32_t i = script.first_change[event]; i < script.first_change[event + 1]; ++i) {
    const StorageScript::Change& c = script.changes[i];
    const OpId op{block.first.index() + c.op};
    if (c.kind == Kind::TakeShared) {
      peak |= take(block.simulated, op, c.stream, block.owners[c.place], {c.bytes, c.tier}, now_ps);
    } else if (c.kind == Kind::GiveShared) {
      give(block.simulated, block.owners[c.place], {c.bytes, c.tier}, now_ps);
    } else if (c.kind != Kind::Mark) {
      TierState& t = tier(ranks_[rank.index()], rank, c.tier);
      if (c.kind == Kind::Give) {
        t.arena->release(places[c.place]);
        change(t, -c.bytes, now_ps);
      } else {
        places[c.place] = place(t, c.bytes, c.stream);
        peak |= grow(t, op, c.bytes, now_ps);
      }
    }
  }
  return peak;
}

/// Null where it is not worth while: of a few events, and of blocks that are broken up in ever other ways.
StorageScript::Stretch* MemoryModel::stretch(StorageScript& script, std::size_t first, std::size_t last) const {
  constexpr std::size_t kFewest = 4, kMostStretches = 256;
  if (last - first < kFewest || options_.samples || options_.log || !script.tier) return nullptr;
  const std::uint64_t key = std::uint64_t{first} << 32 | last;
  if (const auto it = script.stretches.find(key); it != script.stretches.end())
    return it->second.effects.is_rare() ? nullptr : &it->second;
  if (script.stretches.size() >= kMostStretches) return nullptr;
  StorageScript::Stretch& out = script.stretches[key];
  std::vector<std::uint32_t> taken(script.num_places, UINT32_MAX);
  for (std::uint32_t i = script.first_change[first]; i < script.first_change[last]; ++i) {
    const StorageScript::Change& c = script.changes[i];
    if (c.kind == Kind::TakeShared || c.kind == Kind::GiveShared) out.shared.push_back(i);
    if (c.kind == Kind::Take) taken[c.place] = i;
    if (c.kind == Kind::Take || c.kind == Kind::TakeShared) out.takes += c.bytes;
    if (c.kind != Kind::Give) continue;
    if (taken[c.place] == UINT32_MAX) out.gives.push_back(i);
    taken[c.place] = UINT32_MAX;
  }
  for (const std::uint32_t i : taken)
    if (i != UINT32_MAX) out.keeps.push_back(i);
  return &out;
}

/// Which blocks of those that are there before it the stretch gives back, passing their marks on the way. False where
/// it gives back what it takes itself and shares with others: then what was there before does not tell all.
bool MemoryModel::find_given(const Replayed& block) {
  const StorageScript& script = *block.script;
  given_.clear();
  passed_.clear();
  inside_.clear();
  for (const std::uint32_t i : stretch_->gives)
    given_.push_back({i, replay_places_[block.simulated][script.changes[i].place], script.changes[i].bytes});
  for (const std::uint32_t i : stretch_->shared) {
    const StorageScript::Change& c = script.changes[i];
    if (c.kind != Kind::GiveShared) continue;
    Live* const live = find_shared(block, c);
    if (live == nullptr) {  // not taken yet
      const TensorId owner = inside_.emplace_back(block.owners[c.place]);
      if (std::count(inside_.begin(), inside_.end(), owner) == marks_of(block.simulated, owner)) return false;
      continue;
    }
    passed_.push_back(i);
    live->marks_left = live->marks_left - 1u;
    if (live->marks_left == 0) given_.push_back({i, live->offset, c.bytes});
  }
  return true;
}

void MemoryModel::take_given_back(const Replayed& block) {
  for (const std::uint32_t i : passed_) {
    Live* const live = find_shared(block, block.script->changes[i]);
    live->marks_left = live->marks_left + 1u;
  }
}

bool MemoryModel::replay_known(const Replayed& block, std::size_t first, std::size_t last) {
  StorageScript& script = *block.script;
  stretch_ = stretch(script, first, last);
  if (stretch_ == nullptr) return false;
  const RankId rank = fleet_->rank(block.simulated);
  TierState& t = tier(ranks_[rank.index()], rank, *script.tier);
  std::vector<std::int64_t>& places = replay_places_[block.simulated];
  places.resize(std::max<std::size_t>(places.size(), script.num_places));
  const bool is_told = t.plain != nullptr && find_given(block);
  const StorageEffects::Outcome* known = is_told ? stretch_->effects.find(*t.plain, given_, stretch_->takes) : nullptr;
  if (known == nullptr || t.live + known->rise > t.peak.bytes) {
    take_given_back(block);
    if (known != nullptr || !is_told) stretch_ = nullptr;
    refusals_ = t.arena->stats().num_ooms;
    return false;
  }
  gone_.clear();
  taken_.clear();
  for (const StorageEffects::Block& given : given_) gone_.push_back({given.offset, given.size, given.size});
  OpenTable<Live>& live = live_[block.simulated];
  const auto owner_of = [&](const StorageScript::Change& c) { return block.owners[c.place]; };
  for (const StorageEffects::Block& given : given_)
    if (const StorageScript::Change& c = script.changes[given.change]; c.kind == Kind::GiveShared)
      live.take(owner_of(c).value);
  for (const StorageEffects::Block& taken : known->taken) {
    const StorageScript::Change& c = script.changes[taken.change];
    taken_.push_back({taken.offset, taken.size, taken.size});
    if (c.kind == Kind::Take) {
      places[c.place] = taken.offset;
      continue;
    }
    const TensorId owner = owner_of(c);
    const auto marks = std::count(inside_.begin(), inside_.end(), owner);
    live.insert({.owner = owner,
                 .offset = taken.offset,
                 .marks_left = static_cast<std::uint8_t>(marks_of(block.simulated, owner) - marks)});
  }
  t.plain->take_over(gone_, taken_, known->gaps, known->rise, known->end);
  t.live += known->net;
  return true;
}

void MemoryModel::learn(const Replayed& block, std::size_t first, std::size_t last) {
  if (stretch_ == nullptr) return;
  const StorageScript& script = *block.script;
  const RankId rank = fleet_->rank(block.simulated);
  const TierState& t = tier(ranks_[rank.index()], rank, *script.tier);
  if (t.arena->stats().num_ooms != refusals_) return;  // it has become larger
  StorageEffects::Outcome out;
  for (std::uint32_t i = script.first_change[first]; i < script.first_change[last]; ++i) {
    const StorageScript::Change& c = script.changes[i];
    const bool takes = c.kind == Kind::Take || c.kind == Kind::TakeShared;
    const bool gives = c.kind == Kind::Give ||
                       std::any_of(given_.begin(), given_.end(), [&](const auto& given) { return given.change == i; });
    if (gives) out.net -= c.bytes;
    if (!takes) continue;
    const std::int64_t offset =
        c.kind == Kind::Take ? replay_places_[block.simulated][c.place] : find_shared(block, c)->offset;
    out.net += c.bytes;
    out.rise = std::max(out.rise, out.net);
    out.end = std::max(out.end, offset + c.bytes);
    if (c.kind == Kind::TakeShared) out.taken.push_back({i, offset, c.bytes});
  }
  for (const std::uint32_t i : stretch_->keeps)
    out.taken.push_back({i, replay_places_[block.simulated][script.changes[i].place], script.changes[i].bytes});
  stretch_->effects.learn(*t.plain, out);
}

void MemoryModel::leave(const Replayed& replayed, std::size_t events) {
  const StorageScript& script = *replayed.script;
  for (std::uint32_t i = 0; i < script.first_change[events]; ++i) {
    const StorageScript::Change& c = script.changes[i];
    if (c.kind == Kind::TakeShared || c.kind == Kind::GiveShared) continue;
    const TensorId owner =
        plan_->owner(plan_->operands_of((*plan_)[OpId{replayed.first.index() + c.op}])[c.operand].tensor());
    OpenTable<Live>& live = live_[replayed.simulated];
    if (c.kind == Kind::Take) {
      live.insert({.owner = owner,
                   .offset = replay_places_[replayed.simulated][c.place],
                   .marks_left = marks_of(replayed.simulated, owner)});
      continue;
    }
    Live* const known = live.find(owner.value);
    known->marks_left = known->marks_left - 1u;
    if (known->marks_left == 0) live.take(owner.value);
  }
}

}  // namespace orrery
