// SPDX-License-Identifier: Apache-2.0
#include "runtime/prepared_plan.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "runtime/meeting_planner.hpp"
#include "runtime/peers.hpp"
#include "sim/plan/placement.hpp"

namespace orrery {
namespace {

RankMemory& memory_of(std::vector<std::unique_ptr<RankMemory>>& memories, RankId rank) {
  return *memories[rank.index()];
}

}  // namespace

PreparedPlan::PreparedPlan(const Preparation& preparation, const Device& device)
    : plan_{preparation.plan}, links_{preparation.links}, records_spans_{preparation.options.record_spans} {
  const Plan& plan = plan_;
  device.check_tensors(plan);
  for (std::size_t c = 0; c < plan.classes.size(); ++c) programs_.push_back(compile(plan, ClassId{c}, device));
  const std::vector<ClassId> class_of_rank = plan.class_of_ranks();
  ranks_.resize(class_of_rank.size());
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    ranks_[i].rank = RankId{i};
    ranks_[i].program = &programs_[class_of_rank[i].index()];
    if (device.peers()) ranks_[i].process = device.peers()->process_of(RankId{i}, ranks_.size());
    if (!device.peers() || ranks_[i].process == device.peers()->process())
      ready_rank(ranks_[i], class_of_rank[i], memory_of(preparation.memories, RankId{i}));
  }
  MeetingPlanner planner{plan, preparation.options, meetings_};
  for (RankRun& r : ranks_) planner.seat(r);
  planner.choose_algorithms(device);
}

void PreparedPlan::ready_rank(RankRun& r, ClassId id, RankMemory& memory) {
  r.memory = &memory;
  r.places.assign(plan_.tensors.size(), 0);
  r.signals = std::vector<Signal>(r.program->num_signals);
  r.counters.reserve(r.program->counters.size());
  for (TensorId owner : r.program->persistent) r.places[owner.index()] = memory.persistent(plan_, owner);
  place_rank_views(r);
  for (const StorageMark& mark : r.program->takes) memory.open(mark.tier);
  memory.reserve(r.program->marks());
  for (std::size_t s = 0; s < kNumStreams; ++s)
    if (const TensorId w = plan_.workspaces[id.index()][s]; !w.is_none())
      r.workspaces[s] = reinterpret_cast<std::byte*>(r.places[w.index()]);
  const std::size_t lanes = r.program->lanes.size();
  r.spans.resize(lanes);
  r.stages.resize(lanes);
}

void PreparedPlan::place_rank_views(RankRun& r) {
  const std::vector<std::int64_t> at = plan_.mesh.coordinates(r.rank);
  for (const RankView& v : plan_.rank_views) {
    const Tensor& t = plan_.tensors[v.view.index()];
    const std::int64_t position = orrery::position(plan_.mesh, v.axes, at).at;
    RankView::Place place{t.base, position * v.stride};
    if (!v.places.empty()) place = v.places[static_cast<std::size_t>(position)];
    const auto moved = static_cast<std::uintptr_t>(size_of(t.dtype, place.first).base());
    const bool stays = plan_.tensors[place.tensor.index()].persistent;
    r.places[v.view.index()] = stays ? r.places[place.tensor.index()] + moved : moved;
  }
}

void PreparedPlan::begin(std::uint32_t instance) {
  instance_ = instance;
  for (RankRun& r : ranks_) {
    if (!r.is_here()) continue;
    PlacementScript* script = r.program->lanes.size() == 1 ? &r.script : nullptr;
    r.memory->begin({&plan_, r.program->persistent, instance, script, r.program->marks()});
    r.counters.assign(r.program->counters.begin(), r.program->counters.end());
    for (std::size_t s = 0; records_spans_ && s < r.spans.size(); ++s) {
      const std::size_t needed = r.spans[s].size() + r.program->lanes[s].size();
      if (r.spans[s].capacity() < needed) r.spans[s].reserve(std::max(needed, 2 * r.spans[s].capacity()));
    }
  }
}

void PreparedPlan::execute(const Bindings& bindings, std::uint32_t instance) {
  begin(instance);
  try {
    run_lanes(bindings);
  } catch (...) {
    clean_up();
    throw;
  }
  for (RankRun& r : ranks_)
    if (r.is_here()) r.memory->end();
}

void PreparedPlan::clean_up() {
  for (RankRun& r : ranks_)
    if (r.is_here()) r.memory->abandon(r.places.data());
}

}  // namespace orrery
