// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank_memory.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

template <class T>
void make_room(std::vector<T>& v, std::size_t more) {
  if (v.capacity() < v.size() + more) v.reserve(std::max(2 * v.capacity(), v.size() + more));
}

}  // namespace

std::int64_t storage_bytes(const Plan& plan, TensorId owner) {
  const Bytes bytes = ceil_to(plan.size(owner), kAllocationUnit);
  return static_cast<std::int64_t>(std::max(bytes, kAllocationUnit).base());
}

RankMemory::TierState& RankMemory::tier(Tier t) {
  auto& state = tiers_[static_cast<std::size_t>(t)];
  if (!state) {
    const Backing backing = !options_.device->holds_data() ? Backing::None
                            : t == Tier::Disk              ? options_.device->file()
                                                           : Backing::Memory;
    const AllocatorOptions allocator = t == Tier::Device ? options_.allocator : AllocatorOptions{};
    auto memory = options_.device->memory(t, rank_);
    state = memory ? std::make_unique<TierState>(std::move(memory), allocator)
                   : std::make_unique<TierState>(options_.capacity[static_cast<std::size_t>(t)], backing, allocator);
  }
  return *state;
}

std::uintptr_t RankMemory::persistent(const Plan& plan, TensorId owner) {
  const Tensor& t = plan.tensors[owner.index()];
  const std::int64_t bytes = storage_bytes(plan, owner);
  Stored& stored = persistent_[{std::string{plan.name_of(owner)}, t.tier}];
  if (stored.bytes == bytes) return stored.place;
  if (stored.bytes != 0)
    throw UserError{
        fmt::format("persistent tensor '{}' on tier {} takes {} B in plan '{}' and {} B in a plan before it",
                    plan.name_of(owner), name_of(t.tier), bytes, plan.name, stored.bytes),
        "plans that share a tensor by name must agree on its size"};
  TierState& state = tier(t.tier);
  const std::int64_t used_before = state.arena.stats().extent;
  const auto place = state.arena.take(bytes);
  if (!place) {
    persistent_.erase({std::string{plan.name_of(owner)}, t.tier});
    out_of_memory({owner, t.tier, bytes}, OpId{}, plan);
  }
  state.arena.clear(*place, bytes, used_before);
  stored = {*place, bytes};
  events_.clear();
  grow(state, bytes, OpId{});
  ++version_;
  return *place;
}

void RankMemory::grow(TierState& state, std::int64_t bytes, OpId op) {
  state.live += bytes;
  state.changed = true;
  if (state.live <= state.peak) return;
  state.peak = state.live;
  state.peak_op = op;
  state.peak_instance = now_.instance;
  state.peak_events = events_.size();
  state.peak_plan = now_.plan;
  state.peak_persistent = now_.persistent;
}

void RankMemory::reserve(std::size_t marks) {
  events_.reserve(marks);
  for (auto& state : tiers_)
    if (state) state->events_at_peak.reserve(marks);
}

void RankMemory::begin(const Start& start) {
  now_ = start;
  // A caching allocator ends a step with other free blocks than it began with, and a device gives any block.
  const DeviceMemory* memory = device(Tier::Device);
  if (options_.allocator.allocator == AllocatorKind::PyTorch || (memory && memory->is_plain())) now_.script = nullptr;
  PlacementScript* script = now_.script;
  replays_ = script && script->version == version_;
  next_place_ = 0;
  if (script && !replays_) {
    script->version = 0;
    script->places.clear();
    script->places.reserve(start.marks);
  }
  events_.clear();
  for (auto& state : tiers_)
    if (state && state->peak_op.is_none()) {
      state->peak_plan = start.plan;
      state->peak_persistent = start.persistent;
    }
  if (options_.record_samples) make_room(samples_, start.marks + kNumTiers);
}

void RankMemory::take(const OpRecord& op, std::uintptr_t* places) {
  for (const StorageMark& mark : op.takes) {
    TierState& state = tier(mark.tier);
    std::uintptr_t& place = places[mark.owner.index()];
    if (replays_) {
      place = now_.script->places[next_place_++];
    } else {
      const auto taken = state.arena.take(mark.bytes, static_cast<std::int32_t>(op.stream));
      if (!taken) out_of_memory(mark, op.id, *now_.plan);
      place = *taken;
      if (now_.script) now_.script->places.push_back(place);
    }
    events_.push_back({mark.owner, mark.tier, true, mark.bytes});
    grow(state, mark.bytes, op.id);
  }
}

void RankMemory::give_back(const OpRecord& op, std::uintptr_t* places, std::vector<std::uint32_t>& counters) {
  for (const StorageMark& mark : op.gives_back) {
    if (mark.counter >= 0 && --counters[static_cast<std::size_t>(mark.counter)] > 0) continue;
    TierState& state = tier(mark.tier);
    if (!replays_) state.arena.give_back(places[mark.owner.index()]);
    events_.push_back({mark.owner, mark.tier, false, mark.bytes});
    state.live -= mark.bytes;
    state.changed = true;
  }
}

void RankMemory::sample(std::int64_t at_ns) {
  if (!options_.record_samples) return;
  for (int t = 0; t < kNumTiers; ++t) {
    auto* state = tiers_[static_cast<std::size_t>(t)].get();
    if (!state || !state->changed) continue;
    state->changed = false;
    samples_.push_back({at_ns, state->live, static_cast<Tier>(t)});
  }
}

void RankMemory::end() {
  if (now_.script && !replays_) now_.script->version = version_;
  for (auto& state : tiers_)
    if (state && state->peak_instance == now_.instance && !state->peak_op.is_none())
      state->events_at_peak.assign(events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(state->peak_events));
  now_.script = nullptr;
}

void RankMemory::abandon(const std::uintptr_t* places) {
  std::map<TensorId, const Event*> live;
  for (const Event& e : events_) {
    if (e.taken)
      live[e.owner] = &e;
    else
      live.erase(e.owner);
  }
  for (const auto& [owner, event] : live) {
    TierState& state = tier(event->tier);
    if (!replays_) state.arena.give_back(places[owner.index()]);
    state.live -= event->bytes;
  }
  events_.clear();
  for (auto& state : tiers_)
    if (state && state->peak_instance == now_.instance && !state->peak_op.is_none()) state->events_at_peak.clear();
  now_.script = nullptr;
}

std::vector<std::pair<TensorId, std::int64_t>> RankMemory::owners_at_peak(const TierState& state, Tier t) const {
  std::vector<std::pair<TensorId, std::int64_t>> owners;
  if (!state.peak_plan) return owners;
  const Plan& plan = *state.peak_plan;
  for (TensorId owner : state.peak_persistent)
    if (plan.tensors[owner.index()].tier == t) owners.emplace_back(owner, storage_bytes(plan, owner));
  for (const Event& e : state.events_at_peak) {
    if (e.tier != t) continue;
    if (e.taken)
      owners.emplace_back(e.owner, e.bytes);
    else
      std::erase_if(owners, [&](const auto& o) { return o.first == e.owner; });
  }
  std::stable_sort(owners.begin(), owners.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return owners;
}

void RankMemory::take_account(std::int64_t origin_ns, std::vector<Peak>& peaks, std::vector<MemorySample>& samples) {
  for (int t = 0; t < kNumTiers; ++t) {
    TierState* state = tiers_[static_cast<std::size_t>(t)].get();
    if (!state || state->peak < 0) continue;
    Peak peak{.rank = rank_, .tier = static_cast<Tier>(t), .bytes = state->peak};
    peak.arena_bytes = state->arena.stats().peak_reserved;
    peak.op = state->peak_op;
    peak.instance = state->peak_instance;
    peak.owners = owners_at_peak(*state, static_cast<Tier>(t));
    peaks.push_back(std::move(peak));
    state->peak = state->live;
    state->peak_op = OpId{};
    state->peak_instance = 0;
    state->peak_events = 0;
    state->events_at_peak.clear();
  }
  for (const Sample& s : samples_) samples.push_back({(s.at_ns - origin_ns) * 1000, rank_, s.tier, s.bytes});
  samples_.clear();
}

void RankMemory::out_of_memory(const StorageMark& mark, OpId op, const Plan& plan) const {
  const TierState& state = *tier_of(mark.tier);
  const std::string where = op.is_none() ? std::string{"before the first op"}
                                         : fmt::format("at op {} '{}'", op.index(), plan.name_of(plan[op]));
  throw DeviceError{fmt::format("out of memory on rank {}: '{}' needs {}, {} of {} are in use {}", rank_.index(),
                                plan.name_of(mark.owner), to_text(Bytes{double(mark.bytes)}),
                                to_text(Bytes{double(state.live)}), to_text(Bytes{double(state.arena.capacity())}),
                                where)};
}

}  // namespace orrery
