// SPDX-License-Identifier: Apache-2.0
// MemoryModel: what blocks of ops that repeat do to storage.
#include <algorithm>

#include "sim/engine/memory_model.hpp"

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

StorageScript MemoryModel::script(std::uint32_t simulated, OpId first,
                                  std::span<const StorageScript::Event> events) const {
  const ClassTensors& tensors = class_of(simulated);
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
      StorageScript::Change c{sizes_[owner.index()], e.op, k};
      c.tier = plan_->tensors[owner.index()].tier;
      c.stream = (*plan_)[OpId{first.index() + e.op}].stream;
      if (!is_own)
        c.kind = e.gives ? Kind::GiveShared : Kind::TakeShared;
      else if (e.gives)
        c.kind = ++use.passed == use.marks ? Kind::Give : Kind::Mark;
      else
        use.place = out.num_places++;
      c.place = use.place;
      out.changes.push_back(c);
    }
  }
  out.first_change.push_back(static_cast<std::uint32_t>(out.changes.size()));
  return out;
}

bool MemoryModel::replay(std::uint32_t simulated, const StorageScript& script, std::size_t event, OpId first,
                         std::int64_t now_ps) {
  std::vector<std::int64_t>& places = replay_places_[simulated];
  if (event == 0) places.resize(std::max<std::size_t>(places.size(), script.num_places));
  const RankId rank = fleet_->rank(simulated);
  bool peak = false;
  for (std::uint32_t i = script.first_change[event]; i < script.first_change[event + 1]; ++i) {
    const StorageScript::Change& c = script.changes[i];
    const OpId op{first.index() + c.op};
    if (c.kind == Kind::TakeShared) {
      peak |= take_operand(simulated, op, plan_->operands_of((*plan_)[op])[c.operand], now_ps);
    } else if (c.kind == Kind::GiveShared) {
      give_operand(simulated, plan_->operands_of((*plan_)[op])[c.operand], now_ps);
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

void MemoryModel::leave(std::uint32_t simulated, const StorageScript& script, std::size_t events, OpId first) {
  const ClassTensors& tensors = class_of(simulated);
  for (std::uint32_t i = 0; i < script.first_change[events]; ++i) {
    const StorageScript::Change& c = script.changes[i];
    if (c.kind == Kind::TakeShared || c.kind == Kind::GiveShared) continue;
    const TensorId owner = plan_->owner(plan_->operands_of((*plan_)[OpId{first.index() + c.op}])[c.operand].tensor());
    Block& b = block(simulated, owner);
    if (c.kind == Kind::Take) {
      b.offset = replay_places_[simulated][c.place];
      b.marks_left = tensors.marks[owner.value - tensors.first];
    } else if (--b.marks_left == 0) {
      b.offset = -1;
    }
  }
}

}  // namespace orrery
