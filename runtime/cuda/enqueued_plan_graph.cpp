// SPDX-License-Identifier: Apache-2.0
// Plans that come again, as CUDA graphs.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "runtime/clock.hpp"
#include "runtime/cuda/enqueued_plan.hpp"
#include "runtime/peers.hpp"
#include "runtime/tier_links.hpp"
#include "sim/base/error.hpp"

namespace orrery {

EnqueuedPlan::Lane* EnqueuedPlan::first_lane() {
  for (RankLanes& r : rank_lanes_)
    if (!r.lanes.empty() && r.lanes.front().is_here()) return &r.lanes.front();
  return nullptr;
}

void EnqueuedPlan::run_graph() {
  const bool is_idle = first_lane() == nullptr;
  if (!all_agree(is_idle || (graph_ && captured_versions_ == memory_versions() && update()))) {
    capture();
  } else if (!is_idle) {
    start_clocks();
    account();
  }
  if (graph_) graph_->launch(first_lane()->stream.get());
}

/// Captures are of all processes at once, as NCCL wants those of its collectives: all of them launch the graph that
/// they have, or all of them make a new one.
bool EnqueuedPlan::all_agree(bool mine) const {
  if (!options_.peers) return mine;
  const std::vector<std::string> answers = options_.peers->gather(mine ? "yes" : "no");
  return std::all_of(answers.begin(), answers.end(), [](const std::string& a) { return a == "yes"; });
}

void EnqueuedPlan::capture() {
  graph_.reset();
  captured_.clear();
  captured_storage_.clear();
  if (!first_lane()) return;
  const GpuStream origin = first_lane()->stream.get();
  captures_ = true;
  enqueue_all();
  graph_ = driver_->end_capture(origin);
  captures_ = false;
  captured_versions_ = memory_versions();
  captured_bindings_ = *bindings_;
}

void EnqueuedPlan::drop_capture() noexcept {
  captures_ = false;
  try {
    driver_->slot(-1);
    (void)driver_->end_capture(first_lane()->stream.get());
  } catch (const DeviceError&) {  // another error is being reported
  }
}

/// The streams of all lanes begin behind the first one's, and it goes on behind all of them.
void EnqueuedPlan::fork_and_join(bool joins) {
  Lane& first = *first_lane();
  if (!joins) driver_->begin_capture(first.stream.get());
  const GpuEvent began = joins ? nullptr : events_.record(queue_of(first));
  for (RankLanes& r : rank_lanes_)
    for (Lane& lane : r.lanes) {
      if (&lane == &first || !lane.is_here()) continue;
      if (joins)
        driver_->wait(first.stream.get(), events_.record(queue_of(lane)));
      else
        driver_->wait(lane.stream.get(), began);
    }
}

std::vector<std::uint64_t> EnqueuedPlan::memory_versions() const {
  std::vector<std::uint64_t> versions;
  for (const RankRun& r : ranks_)
    if (r.is_here()) versions.push_back(r.memory->version());
  return versions;
}

bool EnqueuedPlan::update() {
  if (*bindings_ == captured_bindings_) return true;
  for (std::size_t i = 0; i < captured_.size(); ++i) {
    const CapturedOp& c = captured_[i];
    if (!c.is_bound || c.op->encounter != Encounter::None) continue;
    GpuQueue queue = queue_of(*c.lane);
    queue.captures = true;
    driver_->begin_update(*graph_, static_cast<std::int64_t>(i));
    try {
      c.op->kernel(call_of(*c.lane, *c.op, queue));
    } catch (...) {
      (void)driver_->end_update();
      graph_.reset();
      throw;
    }
    if (!driver_->end_update()) return false;
  }
  captured_bindings_ = *bindings_;
  return true;
}

void EnqueuedPlan::account(const StorageEvent& e) {
  RankRun& r = *e.lane->rank;
  if (e.taken) {
    const std::uintptr_t place = r.places[e.op->takes.front().owner.index()];
    r.memory->take(*e.op, r.places.data());
    if (r.places[e.op->takes.front().owner.index()] != place) bug("storage of a captured plan lies elsewhere now");
  } else {
    r.memory->give_back(*e.op, r.places.data(), r.counters);
  }
  r.memory->sample(now_ns());
}

void EnqueuedPlan::account() {
  for (const StorageEvent& e : captured_storage_) account(e);
  for (const CapturedOp& c : captured_)
    if (const auto* copy = std::get_if<Copy>(&plan_.work(plan_[c.op->id])))
      c.lane->rank->memory->transfers().count(copy->from, copy->to, static_cast<std::int64_t>(copy->bytes.base()));
}

}  // namespace orrery
